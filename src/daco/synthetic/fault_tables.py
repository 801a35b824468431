"""Tables of injected faults, as ``daco inject`` writes them, as pseudo-anomalies of machines.

Faults were added to recordings (:mod:`daco.synthetic.injection`) and embedded like them. Without
such recordings :func:`daco.method.viability.moved_normals` makes pseudo-anomalies of embeddings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import stem_of
from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.files.remote import Location
from daco.method.bank import Domains
from daco.method.distances import unit_rows
from daco.method.viability import INJECTED, PseudoAnomalies
from daco.text import name_list
from daco.validation import as_embeddings

SAME = 1e-6
"""Cosine distance below which two embeddings are of one recording: above rounding, and below the
distance of the closest two recordings of the machines it was tried on."""

_ORIGIN = ("backbone", "weights_sha256", "package", "channel")


def read_faults(
    sources: Iterable[EmbeddingTable | Location | str], like: Iterable[Mapping[str, str]] = ()
) -> list[EmbeddingTable]:
    """Read tables of faults for `faults_of`.

    Network, weights and channel must be those of `like`, the metadata of the tables of a study.
    """
    tables = []
    for source in sources:
        table = source if isinstance(source, EmbeddingTable) else EmbeddingTable.read(source)
        title = "A table of faults" if table is source else str(source)
        if "fault" not in table.columns:
            raise DataError(f"{title} has no column 'fault'. Make it with daco inject.")
        for key, other in product(_ORIGIN, like):
            values = table.metadata.get(key), other.get(key)
            if all(values) and values[0] != values[1]:
                raise InputError(
                    f"{title} was made with {key} {values[0]}, and a table of the study with "
                    f"{values[1]}. Inject faults with the network of the study."
                )
        tables.append(table)
    return tables


def faults_of(
    tables: Iterable[EmbeddingTable],
    machine: str,
    section: str = "00",
    year: int | None = None,
    *,
    names: Sequence[str],
    domains: Domains,
    X: ArrayLike,
    readout: str | None = None,
) -> PseudoAnomalies | None:
    """Return the faults of one machine of a study, as of `injected`; None if no table has any."""
    wanted: dict[str, Any] = {"machine": machine, "section": section}
    wanted |= {} if year is None else {"year": [year, None]}
    found = [own for own in (table.select(**wanted) for table in tables) if len(own)]
    if not found:
        return None
    if len(found) > 1:
        raise InputError(f"{machine}: two tables have its faults. Give them once.")
    made = injected(found[0], names, domains, X=X, readout=readout)
    if not set(made.domains.tolist()) <= set(map(str, domains)):
        raise InputError(
            f"{machine}: some faults are of a domain that the normals do not have. Inject faults "
            "into the study's own normals."
        )
    return made


def injected(
    faults: EmbeddingTable,
    names: Sequence[str],
    domains: Domains | None = None,
    *,
    X: ArrayLike,
    readout: str | None = None,
) -> PseudoAnomalies:
    """Use injected faults as pseudo-anomalies of a machine.

    Parameters
    ----------
    faults : EmbeddingTable
        The rows of one machine, as :func:`daco.synthetic.injection.inject_recordings` returns them.
        Only ``path``, ``domain``, ``fault`` and the embeddings are used.
    names, X : N texts, (N, D)
        Paths and embeddings of the normals of the machine. A recording is matched with the normal
        that has its clean embedding, or with the nearest one if that has its file name.
    domains : N labels, optional
        The domains of the normals. A recording that is not among them keeps its own domain.
    readout : str, optional
        By default the first readout of the table.

    Returns
    -------
    PseudoAnomalies

    Examples
    --------
    >>> import numpy as np
    >>> from daco.synthetic.fault_tables import injected
    >>> from daco.data.table import EmbeddingTable
    >>> faults = EmbeddingTable.from_arrays(
    ...     np.eye(4), domain="old", path=["a.wav", "a.wav", "b.wav", "b.wav"],
    ...     fault=["", "rub", "", "rub"])
    >>> made = injected(faults, ["x/b.wav", "x/c.wav"], ["new", "new"], X=np.eye(4)[[2, 3]])
    >>> made.rows, made.domains, made.kinds
    (array([-1,  0]), array(['old', 'new'], dtype='<U3'), array(['rub', 'rub'], dtype='<U3'))
    """
    matrix, paths = faults.matrix(readout), faults.columns["path"].astype(str)
    kinds = np.array([fault or "" for fault in faults.columns["fault"]], str)
    is_clean = kinds == ""
    recordings = {path: row for row, path in enumerate(paths[is_clean])}
    lost = sorted(set(paths) - set(recordings))
    if lost or len(recordings) != is_clean.sum() or is_clean.all():
        raise DataError(
            "A table of faults needs one clean row and rows with faults of every recording. "
            f"{name_list(lost) or 'Some recordings'} have none or several. Use daco inject."
        )
    same = same_recordings(matrix[is_clean], list(recordings), X, names)
    rows = np.where(same.any(axis=1), same.argmax(axis=1), -1)
    own = faults.columns["domain"][is_clean].astype(str)
    if domains is not None:
        own = np.where(rows < 0, own, np.asarray(domains).astype(str)[rows])
    return PseudoAnomalies(
        basis=INJECTED,
        clean=matrix[is_clean],
        rows=rows,
        domains=own,
        vectors=matrix[~is_clean],
        origin=np.array([recordings[path] for path in paths[~is_clean]], np.intp),
        kinds=kinds[~is_clean],
    )


def same_recordings(
    clean: ArrayLike, paths: Sequence[str], X: ArrayLike, names: Sequence[str]
) -> NDArray[np.int_]:
    """Which normals are copies of each recording, (n, N): 0 none, 1 by sound, 2 or 3 by name too.

    A normal with the same file name is a copy also if no other normal is nearer.
    """
    bank, clips = as_embeddings(X), np.asarray(clean, np.float64)
    if bank.shape != (len(names), clips.shape[1]):
        raise InputError(
            f"The normals must be {len(names)} rows of {clips.shape[1]} values, as the faults. Got "
            f"shape {bank.shape} instead. Inject faults with the readout of the normals."
        )
    distances = 1 - unit_rows(clips) @ unit_rows(bank.astype(np.float64)).T
    same_path = np.array(paths, str)[:, None] == np.array(names, str)
    stems = [np.array([stem_of(str(name)) for name in each], str) for each in (paths, names)]
    same_stem = stems[0][:, None] == stems[1]
    nearest = distances == distances.min(axis=1, keepdims=True)
    is_copy = (distances <= SAME) | (nearest & same_stem)
    return is_copy * (1 + same_stem.astype(int) + same_path)
