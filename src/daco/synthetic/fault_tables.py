"""Injected faults as pseudo-anomalies: a table of faulty recordings, matched with its normals.

Faults were added to recordings (:mod:`daco.synthetic.injection`) and embedded like them. Without
such recordings :func:`daco.method.viability.moved_normals` makes pseudo-anomalies of embeddings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import stem_of
from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.method.bank import Domains
from daco.method.distances import unit_rows
from daco.method.viability import INJECTED, PseudoAnomalies
from daco.text import name_list
from daco.validation import Floats, Indices, as_embeddings

SAME = 1e-6
"""Cosine distance below which two embeddings are of one recording: above rounding, and below the
distance of the closest two recordings of the machines it was tried on."""


def injected(
    faults: EmbeddingTable,
    names: Sequence[str],
    domains: Domains | None = None,
    *,
    readout: str | None = None,
    X: ArrayLike | None = None,
) -> PseudoAnomalies:
    """Use injected faults as pseudo-anomalies of a machine.

    Parameters
    ----------
    faults : EmbeddingTable
        The rows of one machine, as :func:`daco.synthetic.injection.inject_recordings` returns them.
        Only ``path``, ``domain``, ``fault`` and the embeddings are used.
    names : N texts
        The paths of the normals of the machine.
    domains : N labels, optional
        The domains of the normals. A recording that is not among them keeps its own domain.
    readout : str, optional
        By default the first readout of the table.
    X : (N, D), optional
        Embeddings of the normals. A recording is then matched with the normal that has its clean
        embedding, and names decide between copies. Without X a recording is matched by its path,
        or by a file name that only one normal has.

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
    >>> made = injected(faults, ["x/b.wav", "x/c.wav"], ["old", "old"])
    >>> made.rows, made.kinds, made.origin
    (array([-1,  0]), array(['rub', 'rub'], dtype='<U3'), array([0, 1]))
    >>> injected(faults, ["x/b.wav", "x/c.wav"], ["old", "old"], X=np.eye(4)[[3, 0]]).rows
    array([ 1, -1])
    """
    matrix, kinds = faults.matrix(readout), _faults_of(faults)
    paths = [str(path) for path in faults.columns["path"]]
    is_clean = kinds == ""
    if not is_clean.any() or is_clean.all():
        raise DataError(
            "The table of faults needs clean rows and rows with faults. Use daco inject."
        )
    at = {path: row for row, path in enumerate(np.array(paths)[is_clean])}
    lost = [path for path in paths if path not in at]
    if lost or len(at) != int(is_clean.sum()):
        raise DataError(
            "Every recording of a table of faults must have one clean row. "
            f"{name_list(dict.fromkeys(lost)) or 'Some recordings'} have none or several."
        )
    if X is None:
        rows = _named(list(at), names)
    else:
        rows = _found(matrix[is_clean], list(at), as_embeddings(X), names)
    given = [str(each) for each in faults.columns["domain"][is_clean]]
    labels = [str(each) for each in np.asarray(domains)] if domains is not None else None
    own = [
        given[index] if labels is None or row < 0 else labels[row] for index, row in enumerate(rows)
    ]
    faulted = [path for path, clean in zip(paths, is_clean, strict=True) if not clean]
    return PseudoAnomalies(
        basis=INJECTED,
        clean=matrix[is_clean],
        rows=rows,
        domains=np.array(own),
        vectors=matrix[~is_clean],
        origin=np.array([at[path] for path in faulted], np.intp),
        kinds=kinds[~is_clean],
    )


def _faults_of(table: EmbeddingTable) -> NDArray[np.str_]:
    if "fault" not in table.columns:
        raise DataError("The table has no column 'fault'. Make one with daco inject.")
    return np.array(["" if each is None else str(each) for each in table.columns["fault"]])


def _found(clean: Floats, paths: Sequence[str], X: Floats, names: Sequence[str]) -> Indices:
    """The row of each clean vector among the normals, by sound; -1 if it is not one of them."""
    if len(X) != len(names) or X.shape[1] != clean.shape[1]:
        raise InputError(
            f"X must have one row for each of the {len(names)} names and, as the faults, "
            f"{clean.shape[1]} columns. Got shape {X.shape} instead."
        )
    bank, known = unit_rows(X.astype(np.float64)), [str(name) for name in names]
    found = []
    for vector, path in zip(unit_rows(clean.astype(np.float64)), paths, strict=True):
        distances = 1 - bank @ vector
        nearest = float(distances.min())
        near = np.flatnonzero(distances <= max(SAME, nearest)).tolist()
        near.sort(key=lambda row: (known[row] != path, stem_of(known[row]) != stem_of(path)))
        named = len(near) == 1 and stem_of(known[near[0]]) == stem_of(path)
        found.append(near[0] if nearest <= SAME or named else -1)
    return np.array(found, np.intp)


def _named(paths: Sequence[str], names: Sequence[str]) -> Indices:
    """The row of each path among the names: the same path, else the only one of that stem."""
    rows = {str(name): row for row, name in enumerate(names)}
    stems: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        stems.setdefault(stem_of(str(name)), []).append(row)
    found = []
    for path in paths:
        alike = stems.get(stem_of(path), [])
        found.append(rows.get(path, alike[0] if len(alike) == 1 else -1))
    return np.array(found, np.intp)
