"""Base scores of clips against a bank or any part of it; higher is more anomalous.

Test clips see the whole bank. A normal that is left out, or hidden together with its siblings, is
scored as a test clip is, at an infinite distance from what is hidden. For the criterion a bank is
divided into halves many times; then the densities of the normals change with the half as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.config import Base
from daco.method.distances import NOISE_ULPS, BankDistances
from daco.validation import Bools, Floats, Indices

BaseScores = dict[Base, Floats]

DENSITY_FLOOR = 2e-12
"""Smallest density: copies of a clip would otherwise divide by 0."""

_VARIANCE_FLOOR = 4e-12
_ROWS = 256  # keeps the temporary arrays of a minimum in the cache


class BankView:
    """One view of a bank; domain g is the unit rows ``starts[g]:starts[g + 1]``."""

    def __init__(self, unit: Floats, starts: Indices, memory_budget: int) -> None:
        self.unit = unit
        self.starts = starts
        self.distances = BankDistances(unit, memory_budget)
        self._densities: dict[Base, Floats] = {}

    def density(self, base: Base) -> Floats:
        """What a base score divides by or subtracts at each normal, (N,)."""
        if base not in self._densities:
            lists = self.distances.lists(base.k)
            summed = lists.sums(base.k)[None]
            nearest = lists.distance[None, :, 0], lists.index[None, :, 0]
            everyone = np.ones((1, len(self.unit)), np.bool_)
            self._densities[base] = _density(base, summed, nearest, everyone)[0]
        return self._densities[base]

    def scores(
        self, bases: Sequence[Base], distances: Floats, left_out: bool = False
    ) -> BaseScores:
        """Score clips by their distances (N, n) to all normals, infinite where one is hidden.

        Clips of the bank itself may be `left_out` of the densities of their neighbours as well,
        which a new clip is no part of.
        """
        result: BaseScores = {}
        neighbours = [base.k for base in bases if base.scorer == "knn"]
        if neighbours:
            sums = _smallest(distances, max(neighbours)).cumsum(axis=0)
        for base in bases:
            if base.scorer == "knn":
                result[base] = sums[base.k - 1] / base.k
                continue
            density = self.density(base)[:, None]
            if left_out:
                density = self._density_without(base, distances)
            if base.scorer == "ldn-ratio":
                result[base] = _least(np.divide, distances, density)
            else:  # the published distance is half of ours
                result[base] = _least(np.subtract, distances, density) / 2
        return result

    def _density_without(self, base: Base, distances: Floats) -> Floats:
        """Densities (N, n) of the normals for clips of the bank that are not among them.

        Where the clip is one of the K nearest of a normal, the next one takes its place. In a
        domain of K or K + 1 clips that would be the first or second of another domain, which a new
        clip would not bring in: the mean of the others takes its place.
        """
        density = self.density(base)[:, None]
        ascending = self.distances.lists(base.k + 1).distance
        if ascending.shape[1] <= base.k:
            return density  # there is no further neighbour
        rounding = NOISE_ULPS * np.finfo(distances.dtype).eps  # of products of another shape
        is_near = distances <= ascending[:, base.k - 1, None] + rounding
        sums = self.distances.lists(base.k).sums(base.k)[:, None]
        change = ascending[:, base.k, None] - distances
        if base.k > 1:
            sizes = np.diff(self.starts)
            is_small = np.repeat((sizes == base.k) | (sizes == base.k + 1), sizes)
            change[is_small] = (sums[is_small] - base.k * distances[is_small]) / (base.k - 1)
        change[~is_near] = 0
        summed = np.maximum(sums, DENSITY_FLOOR)
        return density * (np.maximum(sums + change, DENSITY_FLOOR) / summed)

    def leave_one_out(self, bases: Sequence[Base]) -> BaseScores:
        """Score each normal by all the others: {base: (N,)}."""
        lists = self.distances.lists(max((base.k for base in bases), default=1))
        result: BaseScores = {
            base: lists.sums(base.k) / base.k for base in bases if base.scorer == "knn"
        }
        others = [base for base in bases if base.scorer != "knn"]
        if others:
            parts = [self.scores(others, _columns(block)) for _, block in self.distances.blocks()]
            result |= {base: np.concatenate([part[base] for part in parts]) for base in others}
        return result

    def domain_distances(self, distances: Floats) -> Floats:
        """Distance of clips to the nearest normal of each domain, (G, n)."""
        return np.array([distances[a:b].min(axis=0) for a, b in pairwise(self.starts)])

    def own_domain_distances(self) -> Floats:
        """Distance of each normal to the nearest other normal of each domain, (G, N)."""
        parts = [self.domain_distances(_columns(block)) for _, block in self.distances.blocks()]
        return np.concatenate(parts, axis=1)

    def subset_scores(self, bases: Sequence[Base], members: Bools) -> tuple[BaseScores, Floats]:
        """Score normals by subsets, members (S, N), without themselves; distances (S, G, N)."""
        from daco.method import _loops

        orders = sorted({base.k for base in bases} | {1})
        farthest = max((base.k for base in bases if base.scorer == "knn"), default=0)
        n_outside = sum(k <= farthest for k in orders)  # a clip outside needs no density
        sums, nearest = _subset_sums(self.distances, members, orders, n_outside)
        sum_of = {k: sums[:, column] for column, k in enumerate(orders)}
        others = [base for base in bases if base.scorer != "knn"]
        divides = np.array([base.scorer == "ldn-ratio" for base in others], np.bool_)
        shape = len(members), len(others), len(self.unit)
        densities = np.empty(shape, self.unit.dtype)
        for column, base in enumerate(others):
            pair = sum_of[1], nearest
            densities[:, column] = _density(base, sum_of[base.k], pair, members)
        domain_of = np.repeat(np.arange(len(self.starts) - 1), np.diff(self.starts))
        domain = np.full((shape[0], len(self.starts) - 1, shape[2]), np.inf, self.unit.dtype)
        least = np.full(shape, np.inf, self.unit.dtype)
        for rows, block in self.distances.blocks():
            of_rows = members[:, rows], domain_of[rows], densities[:, :, rows]
            _loops.lower_minima(block, *of_rows, divides, domain, least)
        least[:, ~divides] /= 2
        result: BaseScores = {
            base: sum_of[base.k] / base.k for base in bases if base.scorer == "knn"
        }
        return result | {base: least[:, column] for column, base in enumerate(others)}, domain


def clips_needed(base: Base) -> int:
    """The fewest clips of a bank in which each can be scored by the others.

    >>> clips_needed(Base("ldn-mean", 4)), clips_needed(Base("blend"))
    (5, 3)
    """
    return base.k + 1 if base.k else 3 if base.is_blend else 2


def _density(
    base: Base, summed: Floats, nearest: tuple[Floats, NDArray[np.int32]], members: Bools
) -> Floats:
    """Densities (S, N) from summed distances to K neighbours, and the nearest of these."""
    summed = np.maximum(summed, np.asarray(DENSITY_FLOOR, summed.dtype))
    if base.scorer in ("ldn-ratio", "ldn-diff"):
        return summed
    mean = summed / base.k
    if base.scorer == "ldn-mean":
        return mean
    with np.errstate(invalid="ignore"):  # outside a subset there is no density
        return _slope(*nearest, mean, members)[:, None] * mean


def _slope(distance: Floats, index: NDArray[np.int32], density: Floats, members: Bools) -> Floats:
    """(S,): least-squares slope of members' nearest distance on the density of that normal."""
    count = members.sum(axis=1)
    at_nearest = np.take_along_axis(density, index, axis=1).astype(np.float64)
    at_nearest = np.where(members, at_nearest, 0)
    at_nearest -= (at_nearest.sum(axis=1) / count)[:, None]
    at_nearest[~members] = 0
    variance = (at_nearest**2).sum(axis=1) / count
    covariance = (at_nearest * np.where(members, distance, 0)).sum(axis=1) / count
    flat = variance <= _VARIANCE_FLOOR
    slope = np.where(flat, 0, covariance / np.where(flat, 1, variance))
    return slope.astype(density.dtype)


def _columns(block: Floats) -> Floats:
    """Distances of all normals to some, (N, rows), from those of some to all, (rows, N)."""
    return block if len(block) == block.shape[1] else np.ascontiguousarray(block.T)


def _smallest(distances: Floats, count: int) -> Floats:
    """The smallest values of each column in ascending order, (count, n)."""
    if count == 1:
        return distances.min(axis=0, keepdims=True)
    by_clip = np.partition(distances.T, count - 1, axis=1)[:, :count]
    return np.sort(by_clip, axis=1).T


def _least(operation: np.ufunc, distances: Floats, density: Floats) -> Floats:
    """The smallest ``operation(distance, density)`` of each column; densities are (N, 1 or n)."""
    if distances.shape[1] == 1 or len(distances) <= _ROWS:
        return operation(distances, density).min(axis=0)
    least = np.full(distances.shape[1], np.inf, distances.dtype)
    for start in range(0, len(distances), _ROWS):
        rows = slice(start, start + _ROWS)
        part = operation(distances[rows], density[rows]).min(axis=0)
        np.minimum(least, part, out=least)
    return least


def _subset_sums(
    distances: BankDistances, members: Bools, orders: Sequence[int], n_outside: int
) -> tuple[Floats, NDArray[np.int32]]:
    """Sums over the nearest members (S, orders, N), few for others, and the nearest (S, N)."""
    from daco.method import _loops

    lists, wanted = distances.lists(orders[-1]), np.array(orders)
    n_subsets, n = members.shape
    sums = np.full((n_subsets, len(orders), n), np.inf, distances.unit.dtype)
    nearest = np.zeros((n_subsets, n), np.int32)
    for s, member in enumerate(members):
        short = np.zeros(n, np.bool_)
        _loops.member_sums(
            lists.distance, lists.index, member, wanted, n_outside, sums[s], nearest[s], short
        )
        if short.any() and not lists.complete:
            clips, inside = np.flatnonzero(short), np.flatnonzero(member)
            to_members = distances.rows(clips)[:, inside]
            nearest[s, clips] = inside[to_members.argmin(axis=1)]
            ascending = np.sort(to_members, axis=1)[:, : orders[-1]]
            sums[s][:, clips] = np.cumsum(ascending, axis=1)[:, wanted - 1].T
    return sums, nearest
