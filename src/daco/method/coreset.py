"""A coreset: the few normals that cover all others, for banks that are larger than needed.

k-centre greedy, as PatchCore reduces its memory: each chosen clip is the one farthest from those
chosen before. Every clip that is left out is then within twice the smallest radius that any choice
of as many clips could reach.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.method.distances import unit_rows
from daco.validation import Floats, Indices, as_embeddings, encode_domains, require_whole

_LEAST = 2  # clips of a domain: fewer have no leave-one-out score


def choose_normals(
    X: ArrayLike, domains: Sequence[Hashable] | NDArray[Any] | None, max_normals: int
) -> Indices:
    """Choose the rows of at most ``max_normals`` normals that cover the others of their domain.

    Distances are cosine distances of whole rows (N, D). Large domains are reduced to one common
    size; a domain that has no more clips than that keeps all of them, so that the few clips of a
    new condition stay. The choice is deterministic, and the rows ascend.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.method.coreset import choose_normals
    >>> X = np.random.default_rng(0).normal(size=(100, 8)) + 1
    >>> domains = np.array(["old"] * 90 + ["new"] * 10)
    >>> np.unique(domains[choose_normals(X, domains, max_normals=40)], return_counts=True)[1]
    array([10, 30])
    """
    rows = as_embeddings(X)
    names, codes = encode_domains(domains, len(rows))
    require_whole(max_normals, "max_normals", _LEAST * len(names))
    counts = _domain_counts(np.bincount(codes), max_normals)
    chosen = []
    for domain, count in enumerate(counts):
        members = np.flatnonzero(codes == domain)
        if count < len(members):
            members = members[_k_centres(unit_rows(rows[members]), count)]
        chosen.append(members)
    return np.sort(np.concatenate(chosen))


def _k_centres(unit: Floats, count: int) -> Indices:
    """The row nearest to the mean, and others, each the farthest from those before it."""
    mean = unit.mean(axis=0, dtype=np.float64).astype(unit.dtype)
    chosen = np.empty(count, np.intp)
    chosen[0] = (unit @ mean).argmax()
    similarity = np.full(len(unit), -np.inf, unit.dtype)  # to the nearest chosen row
    for number in range(1, count):
        last = chosen[number - 1]
        np.maximum(similarity, unit @ unit[last], out=similarity)
        similarity[last] = np.inf
        chosen[number] = similarity.argmin()
    return chosen


def _domain_counts(sizes: Indices, total: int) -> list[int]:
    """How many clips of each domain are kept: all of small ones, equally many of large ones."""
    counts = np.zeros(len(sizes), np.intp)
    remaining = min(total, int(sizes.sum()))
    for place, domain in enumerate(np.argsort(sizes, kind="stable")):
        counts[domain] = min(int(sizes[domain]), remaining // (len(sizes) - place))
        remaining -= counts[domain]
    return counts.tolist()
