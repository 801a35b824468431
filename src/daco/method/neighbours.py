"""Neighbour work of one bank, done once and shared by every configuration and split.

A *subset* is a part of the bank that plays the bank: all of it when scoring test clips, the
half that was not held out in a split of the criterion. Scores of every clip against every
subset come from two things: sorted neighbour lists, filtered by the subset's mask, and one
dense scan of the distances.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.method.distances import PairwiseDistances
from daco.method.kernels import kernels
from daco.validation import Bools, Floats

DENSITY_FLOOR = 2e-12
"""Smallest local density (of the doubled distance): duplicates would otherwise divide by 0."""

DType = np.dtype[Any]

_SELECTION_BYTES = 32 * 2**20
_SPARSE = 16  # sorting whole rows pays where more than this part of a block is nearer


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
    found = unbounded(members.shape[1], n_domains, (ratio_density, difference_density))
    domain_of = domain_of_clips(domain_starts)
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
    found = unbounded(block.shape[1], n_domains, (ratio_density, difference_density))
    kernels().scan_block(
        block,
        np.ones((1, len(block)), np.bool_),
        domain_of_clips(domain_starts),
        ratio_density,
        difference_density,
        found.domain,
        found.ratio,
        found.difference,
    )
    return found


def unbounded(n: int, n_domains: int, densities: tuple[Floats, Floats]) -> DenseMinima:
    """Minima of n clips before anything was seen."""
    ratio, difference = densities

    def infinite(rows: int) -> Floats:
        return np.full((len(ratio), rows, n), np.inf, ratio.dtype)

    return DenseMinima(infinite(n_domains), infinite(ratio.shape[1]), infinite(difference.shape[1]))


def domain_of_clips(domain_starts: NDArray[np.intp]) -> NDArray[np.intp]:
    """The domain of each clip, clips being grouped by domain."""
    return np.repeat(np.arange(len(domain_starts) - 1), np.diff(domain_starts))


class NearestSoFar:
    """The nearest of all clips seen so far, for each of n clips in ascending order.

    Ties fall to the clip that was seen first. Where fewer than ``length`` were seen, the rest
    are at infinity.
    """

    def __init__(self, n: int, length: int, dtype: DType) -> None:
        self.distance = np.full((n, length), np.inf, dtype)
        self.index = np.zeros((n, length), np.int32)

    def see(self, rows: slice, block: Floats, first_index: int) -> None:
        """Distances of some rows to clips numbered from ``first_index``; inf is no clip."""
        into, length = self.distance[rows], self.distance.shape[1]
        if not length or not block.size:
            return
        new = bool(np.isinf(into[:, 0]).all())
        if not new:
            hits = block < into[:, -1:]
            if np.count_nonzero(hits) * _SPARSE <= block.size:
                # Of a large bank nearly nothing is nearer than what was found: no need to sort it.
                row, column = np.nonzero(hits)
                self._merge(rows, row, block[row, column], (column + first_index).astype(np.int32))
                return
        step = max(1, _SELECTION_BYTES // (8 * block.shape[1]))
        for start in range(0, block.shape[0], step):
            part = slice(start, min(start + step, block.shape[0]))
            near, where = _smallest(block[part], first_index, length)
            if new:
                into[part, : near.shape[1]] = near
                self.index[rows][part, : near.shape[1]] = where
                continue
            row = np.repeat(np.arange(part.start, part.stop), near.shape[1])
            self._merge(rows, row, near.ravel(), where.ravel())

    def _merge(
        self, rows: slice, row: NDArray[np.intp], near: Floats, where: NDArray[np.int32]
    ) -> None:
        """Candidates of rows within ``rows``, in ascending order of the row."""
        if not len(row):
            return
        first = np.flatnonzero(np.diff(row, prepend=-1))
        counts = np.diff(first, append=len(row))
        touched = rows.start + row[first]
        slot = np.arange(len(row)) - np.repeat(first, counts)
        place = np.repeat(np.arange(len(first)), counts)
        length = self.distance.shape[1]
        distance = np.full((len(first), length + counts.max()), np.inf, self.distance.dtype)
        index = np.zeros(distance.shape, np.int32)
        distance[:, :length], index[:, :length] = self.distance[touched], self.index[touched]
        distance[place, length + slot], index[place, length + slot] = near, where
        order = np.argsort(distance, axis=1, kind="stable")[:, :length]
        self.distance[touched] = np.take_along_axis(distance, order, axis=1)
        self.index[touched] = np.take_along_axis(index, order, axis=1)


def _nearest(distances: PairwiseDistances, length: int) -> tuple[Floats, NDArray[np.int32]]:
    """Distances and indices of the ``length`` nearest other clips of each clip."""
    found = NearestSoFar(len(distances), length, distances.unit.dtype)
    for rows, columns, block in distances.blocks():
        found.see(rows, block, columns.start)
    return found.distance, found.index


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
