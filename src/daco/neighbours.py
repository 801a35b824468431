"""Neighbour work of one bank, done once and shared by every configuration and split.

A *subset* is a part of the bank that plays the bank: all of it when scoring test clips, the
half that was not held out in a split of the criterion. Scores of every clip against every
subset come from two things: sorted neighbour lists, filtered by the subset's mask, and one
dense scan of the distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daco.distances import PairwiseDistances
from daco.kernels import kernels
from daco.validation import Floats

Bools = NDArray[np.bool_]

DENSITY_FLOOR = 2e-12
"""Smallest local density (of the doubled distance): duplicates would otherwise divide by 0."""

_SELECTION_BYTES = 32 * 2**20


@dataclass(frozen=True)
class DenseMinima:
    """What one dense scan finds for every (subset, ..., clip).

    ``domain[s, g, i]``: distance of clip i to the nearest member of subset s in domain g; no
    domains (G = 0) where they were not asked for.
    ``ratio[s, r, i]``, ``difference[s, f, i]``: smallest distance over, or less, the density.
    """

    domain: Floats
    ratio: Floats
    difference: Floats


def list_length(reach: int) -> int:
    """So many that a random half leaves too few in one row of 80,000 (``reach`` 16), or fewer."""
    return max(32, 2 * reach + int(8 * np.sqrt(reach)))


class NeighbourLists:
    """For each clip its nearest other clips, in ascending order of distance.

    ``reach`` is the largest number of neighbours ever asked of a subset. Lists are long
    enough that a random half of the bank practically always leaves that many in them; rows
    where it does not are computed from their distances.
    """

    def __init__(self, distances: PairwiseDistances, reach: int) -> None:
        self.reach = reach
        n = len(distances)
        length = min(n - 1, list_length(reach))
        self.complete = length == n - 1
        self.distance, self.index = _nearest(distances, length)

    def sums(self, orders: list[int]) -> Floats:
        """(len(orders), n): summed distance of each clip to its nearest 1..order others."""
        return np.cumsum(self.distance[:, : max(orders)], axis=1)[:, np.array(orders) - 1].T

    def subset_sums(
        self, distances: PairwiseDistances, member: Bools, orders: list[int], orders_outside: int
    ) -> tuple[Floats, NDArray[np.int32]]:
        """As ``sums``, counting only neighbours in the subset; and the nearest of them.

        Clips outside the subset have the first ``orders_outside`` sums only: they need no
        density.
        """
        sums, first, short = kernels().subset_sums(
            self.distance, self.index, member, np.array(orders), orders_outside
        )
        if short.size and not self.complete:
            members = np.flatnonzero(member)
            for part in np.array_split(short, -(-short.size * member.size // 2**22)):
                to_members = distances.rows(part)[:, members]
                first[part] = members[to_members.argmin(axis=1)]
                nearest = np.sort(to_members, axis=1)[:, : max(orders)]
                sums[:, part] = np.cumsum(nearest, axis=1)[:, np.array(orders) - 1].T
        return sums, first


def dense_minima(
    distances: PairwiseDistances,
    members: Bools,
    domain_starts: NDArray[np.intp],
    ratio_density: Floats,
    difference_density: Floats,
    with_domains: bool = True,
) -> DenseMinima:
    """One scan of all distances for all subsets.

    Parameters
    ----------
    members : (S, n) bool
    domain_starts : (G + 1,)
        Clips are grouped by domain; domain g is ``starts[g]:starts[g + 1]``.
    ratio_density, difference_density : (S, R, n), (S, F, n)
        Density of each member under each number of neighbours.
    """
    n_domains = len(domain_starts) - 1 if with_domains else 0
    found = _unbounded(members.shape[1], n_domains, (ratio_density, difference_density))
    domain_of = _domain_of(domain_starts)
    for rows, columns, block in distances.blocks():
        kernels().scan_block(
            block,
            members[:, rows],
            domain_of[rows],
            ratio_density[:, :, rows],
            difference_density[:, :, rows],
            found.domain[:, :, columns],
            found.ratio[:, :, columns],
            found.difference[:, :, columns],
        )
    return found


def query_minima(
    block: Floats,
    domain_starts: NDArray[np.intp],
    ratio_density: Floats,
    difference_density: Floats,
    with_domains: bool = True,
) -> DenseMinima:
    """The same for new clips, the columns of ``block``, against the whole bank, its rows."""
    n_domains = len(domain_starts) - 1 if with_domains else 0
    found = _unbounded(block.shape[1], n_domains, (ratio_density, difference_density))
    kernels().scan_block(
        block,
        np.ones((1, len(block)), np.bool_),
        _domain_of(domain_starts),
        ratio_density,
        difference_density,
        found.domain,
        found.ratio,
        found.difference,
    )
    return found


def _unbounded(n: int, n_domains: int, densities: tuple[Floats, Floats]) -> DenseMinima:
    ratio, difference = densities

    def infinite(rows: int) -> Floats:
        return np.full((len(ratio), rows, n), np.inf, ratio.dtype)

    return DenseMinima(infinite(n_domains), infinite(ratio.shape[1]), infinite(difference.shape[1]))


def _domain_of(domain_starts: NDArray[np.intp]) -> NDArray[np.intp]:
    return np.repeat(np.arange(len(domain_starts) - 1), np.diff(domain_starts))


def _nearest(distances: PairwiseDistances, length: int) -> tuple[Floats, NDArray[np.int32]]:
    """Distances and indices of the ``length`` nearest other clips of each clip."""
    n, dtype = len(distances), distances.unit.dtype
    distance = np.full((n, length), np.inf, dtype)
    index = np.zeros((n, length), np.int32)
    for rows, columns, block in distances.blocks():
        step = max(1, _SELECTION_BYTES // (8 * block.shape[1]))
        for start in range(0, block.shape[0], step):
            part = slice(start, min(start + step, block.shape[0]))
            into = slice(rows.start + part.start, rows.start + part.stop)
            near, where = _smallest(block[part], columns.start, length)
            if columns.start > 0 or columns.stop < n:
                near = np.concatenate([distance[into], near], axis=1)
                where = np.concatenate([index[into], where], axis=1)
                order = np.argsort(near, axis=1, kind="stable")[:, :length]
                near = np.take_along_axis(near, order, axis=1)
                where = np.take_along_axis(where, order, axis=1)
            distance[into, : near.shape[1]] = near
            index[into, : near.shape[1]] = where
    return distance, index


def _smallest(block: Floats, first_index: int, length: int) -> tuple[Floats, NDArray[np.int32]]:
    """The smallest values of each row in ascending order, and where they stand."""
    n = block.shape[1]
    length = min(length, n)
    if block.dtype == np.float32:
        # Non-negative floats sort like their bits: value and index in one integer key sort
        # several times faster than an argsort, and ties fall to the smaller index.
        keys = block.view(np.uint32).astype(np.uint64)
        keys <<= np.uint64(32)
        keys |= np.arange(first_index, first_index + n, dtype=np.uint64)
        keys.partition(length - 1, axis=1)
        keys = np.sort(keys[:, :length], axis=1)
        return (keys >> np.uint64(32)).astype(np.uint32).view(np.float32), (
            keys & np.uint64(0xFFFFFFFF)
        ).astype(np.int32)
    where = np.argpartition(block, length - 1, axis=1)[:, :length]
    where.sort(axis=1)
    near = np.take_along_axis(block, where, axis=1)
    order = np.argsort(near, axis=1, kind="stable")
    near = np.take_along_axis(near, order, axis=1)
    return near, (np.take_along_axis(where, order, axis=1) + first_index).astype(np.int32)
