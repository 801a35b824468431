"""A coreset: the few normals that cover all others, for banks that are larger than needed.

k-centre greedy, as PatchCore thins its memory: each chosen clip is the one farthest from those
chosen before. Every clip that is left out is then within twice the smallest radius that any choice
of as many clips could reach.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.method.bank import Domains
from daco.method.distances import unit_rows
from daco.validation import Floats, Indices, as_embeddings, encode_domains, flat_bands, is_whole

_LEAST = 2  # clips of a domain: fewer have no leave-one-out score


def choose_normals(X: ArrayLike, domains: Domains | None, max_normals: int) -> Indices:
    """Choose the rows of at most ``max_normals`` normals that cover the others of their domain.

    Large domains are thinned to one common size; a domain that has no more clips than that keeps
    all of them, so that the few clips of a new condition stay. The choice is deterministic.

    Parameters
    ----------
    X : (N, D) or (N, bands, D)
        Embeddings; distances are cosine distances of whole vectors.
    domains : N labels, optional
    max_normals : int
        At least 2 for each domain.

    Returns
    -------
    (n,) int, ascending; all rows where there are no more than ``max_normals``

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.coreset import choose_normals
    >>> X = np.random.default_rng(0).normal(size=(100, 8)) + 1
    >>> domains = np.array(["old"] * 90 + ["new"] * 10)
    >>> rows = choose_normals(X, domains, max_normals=40)
    >>> dict(zip(*np.unique(domains[rows], return_counts=True)))
    {np.str_('new'): np.int64(10), np.str_('old'): np.int64(30)}
    """
    rows = as_embeddings(flat_bands(X)[0])
    names, codes = encode_domains(domains, len(rows))
    if not is_whole(max_normals, least=_LEAST * len(names)):
        raise InputError(
            f"max_normals must be a whole number of at least {_LEAST * len(names)}, {_LEAST} for "
            f"each domain. Got {max_normals!r} instead."
        )
    if len(rows) <= max_normals:
        return np.arange(len(rows))
    counts = domain_counts(np.bincount(codes), max_normals)
    chosen = [_thinned(rows, np.flatnonzero(codes == g), count) for g, count in enumerate(counts)]
    return np.sort(np.concatenate(chosen))


def domain_counts(sizes: Indices, total: int) -> list[int]:
    """How many clips of each domain are kept: all of small ones, equally many of large ones.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.coreset import domain_counts
    >>> domain_counts(np.array([500, 10, 300]), 210)
    [100, 10, 100]
    """
    counts = np.zeros(len(sizes), np.intp)
    left = min(total, int(sizes.sum()))
    for place, g in enumerate(np.argsort(sizes, kind="stable")):
        counts[g] = min(int(sizes[g]), left // (len(sizes) - place))
        left -= counts[g]
    return counts.tolist()


def k_centres(unit: Floats, count: int) -> Indices:
    """Numbers of ``count`` unit rows, each the farthest from those before it.

    The first is the row nearest to the mean. Ties fall to the first row.
    """
    mean = unit.mean(axis=0, dtype=np.float64).astype(unit.dtype)
    chosen = np.empty(count, np.intp)
    chosen[0] = (unit @ mean).argmax()
    nearest = np.full(len(unit), -np.inf, unit.dtype)  # cosine with the nearest chosen row
    for number in range(1, count):
        np.maximum(nearest, unit @ unit[chosen[number - 1]], out=nearest)
        nearest[chosen[number - 1]] = np.inf
        chosen[number] = nearest.argmin()
    return chosen


def _thinned(X: Floats, members: Indices, count: int) -> Indices:
    if count == len(members):
        return members
    return members[k_centres(unit_rows(X[members]), count)]
