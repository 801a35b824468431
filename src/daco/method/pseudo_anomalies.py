"""Pseudo-anomalies of one machine, which replace its faults where no anomaly is known.

Injected faults were added to recordings (:mod:`daco.synthetic.injection`) and embedded like them.
Where there are only embeddings, normal clips are moved in the embedding space: some of their
features take the values of other normal clips of the same domain. Distances are in units of the
machine's typical distance between nearest neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import stem_of
from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError, NotEnoughClipsError
from daco.method.bank import Domains, NormalBank
from daco.method.config import RAW_CONFIG
from daco.method.distances import unit_rows
from daco.text import name_list
from daco.validation import Floats, Indices, as_embeddings, encode_domains

INJECTED = "injected faults"
EMBEDDED = "embedding-space pseudo-anomalies"

SAME = 1e-6
"""Cosine distance below which two embeddings are of one recording: above rounding, and below the
distance of the closest two recordings of the machines it was tried on."""

PER_DOMAIN = 20
STRENGTHS = (0.5, 1.0, 2.0)
"""Distances of pseudo-anomalies from their clip, in typical distances between neighbours: among
the normals, at their edge, outside. Every detector finds those that are farther."""

REPEATS = 3
SHUFFLED, SWAPPED = "shuffled", "swapped"
_SHARES = {SHUFFLED: (0.02, 0.2), SWAPPED: (0.1, 0.5)}


@dataclass(frozen=True, eq=False)
class PseudoAnomalies:
    """Normal clips that are held out, and the pseudo-anomalies made of them.

    Attributes
    ----------
    basis : str
        The kind: ``"injected faults"`` or ``"embedding-space pseudo-anomalies"``.
    clean : (h, D)
        Embeddings of the held-out clips.
    rows : (h,) int
        The row of each among the normals of the machine; -1 if it is not among them.
    domains : (h,) str
        The domain of each.
    vectors : (m, D)
        Embeddings of the pseudo-anomalies.
    origin : (m,) int
        The clip that each was made of, an index into `clean`.
    kinds : (m,) str
        The kind of change, such as ``shuffled``.
    """

    basis: str
    clean: Floats
    rows: Indices
    domains: NDArray[Any]
    vectors: Floats
    origin: Indices
    kinds: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.vectors)


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
    >>> from daco.method.pseudo_anomalies import injected
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


def moved_normals(
    X: ArrayLike,
    domains: Domains | None = None,
    *,
    per_domain: int = PER_DOMAIN,
    strengths: Sequence[float] = STRENGTHS,
    repeats: int = REPEATS,
    seed: int = 0,
) -> PseudoAnomalies:
    """Move normals away from the others in the embedding space.

    A clip is turned towards a mixture with other normal clips of its domain until its cosine
    distance from itself is a strength times the median distance between nearest neighbours.
    ``shuffled`` takes 2 to 20 % of the features, each from another clip; ``swapped`` takes 10 to
    50 % of them from one clip.

    Parameters
    ----------
    X : (N, D)
        Embeddings of the normals.
    domains : N labels, optional
        The domain of each normal; None for one domain.
    per_domain : int
        Number of clips to move in each domain; 20 by default.
    strengths : sequence of float
        Distances of the moves, in median distances between nearest neighbours; by default 0.5,
        1 and 2.
    repeats : int
        How often each kind of move is made at each strength; 3 by default.
    seed : int

    Returns
    -------
    PseudoAnomalies

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.pseudo_anomalies import moved_normals
    >>> X = np.random.default_rng(0).normal(size=(40, 16)) + 1
    >>> made = moved_normals(X, ["old"] * 30 + ["new"] * 10, repeats=1)
    >>> len(made.clean), len(made), sorted(set(made.kinds.tolist()))
    (30, 180, ['shuffled', 'swapped'])
    """
    X = as_embeddings(X)
    if not strengths or not all(0 < each < np.inf for each in strengths):
        raise InputError(f"Strengths must be numbers above 0. Got {list(strengths)!r}.")
    if min(per_domain, repeats) < 1:
        raise InputError("per_domain and repeats must be at least 1.")
    if len(X) < 2:
        raise NotEnoughClipsError("Pseudo-anomalies need at least 2 normal clips. Got 1.")
    names, codes = encode_domains(domains, len(X))
    typical = NormalBank(X, domains).leave_one_out(RAW_CONFIG)[:, 0]
    rng = np.random.default_rng(seed)
    held: list[int] = []
    vectors: list[Floats] = []
    kinds: list[str] = []
    for code in range(len(names)):
        members = np.flatnonzero(codes == code)
        distance = float(np.median(typical[members]))
        for row in np.sort(rng.permutation(members)[:per_domain]).tolist():
            held.append(row)
            others = (
                members[members != row] if len(members) > 1 else np.delete(np.arange(len(X)), row)
            )
            for kind in _SHARES:
                for _ in range(repeats):
                    towards = _mixture(X, row, others, kind, rng)
                    for strength in strengths:
                        vectors.append(_turned(X[row], towards, strength * distance))
                        kinds.append(kind)
    each = len(_SHARES) * repeats * len(strengths)
    return PseudoAnomalies(
        basis=EMBEDDED,
        clean=X[held],
        rows=np.array(held, np.intp),
        domains=np.array([str(names[codes[row]]) for row in held]),
        vectors=np.stack(vectors).astype(X.dtype),
        origin=np.repeat(np.arange(len(held)), each),
        kinds=np.array(kinds),
    )


def _mixture(X: Floats, row: int, others: Indices, kind: str, rng: np.random.Generator) -> Floats:
    """A clip with some features of other clips."""
    low, high = _SHARES[kind]
    taken = np.asarray(rng.random(X.shape[1]) < rng.uniform(low, high))
    taken[rng.integers(X.shape[1])] = True
    count = X.shape[1] if kind == SHUFFLED else 1
    donors = rng.choice(others, count)
    given = X[donors, np.arange(X.shape[1])]
    return np.where(taken, given, X[row])


def _turned(clip: Floats, mixture: Floats, distance: float) -> NDArray[np.float64]:
    """A clip turned towards another vector until its cosine distance from itself is `distance`."""
    x, towards = clip.astype(np.float64), mixture.astype(np.float64)
    length = np.linalg.norm(x)
    if length == 0:
        return towards
    along = x / length
    across = towards - (towards @ along) * along
    size = np.linalg.norm(across)
    if size <= 1e-12 * length:  # the features were the same: there is nowhere to turn
        return x
    cosine = max(-1.0, 1 - distance)
    sine = np.sqrt(max(0.0, 1 - cosine**2))
    return np.asarray(length * (cosine * along + sine * (across / size)))


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
