"""Neighbour work of one bank, done once and shared by every configuration and split.

A *subset* takes the place of the bank: all of it for test clips, the half that is not held out in
a split of the criterion. Scores come from sorted neighbour lists, filtered by the subset's mask,
and one dense scan of the distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from daco.method.distances import Block, PairwiseDistances
from daco.method.kernels import Array, kernels
from daco.validation import Bools, Indices

DENSITY_FLOOR = 2e-12
"""Smallest local density (of the doubled distance): duplicates would otherwise divide by 0."""


@dataclass(frozen=True)
class DenseMinima:
    """What one dense scan finds for every (subset, ..., clip).

    ``domain[s, g, i]``: distance of clip i to the nearest member of subset s in domain g; no
    domains (G = 0) where they were not asked for.
    ``ratio[s, r, i]``, ``difference[s, f, i]``: smallest distance over, or less, the density.
    """

    domain: Array
    ratio: Array
    difference: Array


def list_length(reach: int) -> int:
    """Length with which a random half has too few in one row of 80,000 (``reach`` 16)."""
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
        self._complete = length == n - 1
        self._lists = kernels(distances.unit).NearestLists(distances.unit, length)
        for rows, columns, block in distances.blocks():
            self._lists.see(rows, block, columns.start)

    def nearest(self) -> Array:
        """(1, N): the nearest other clip of each."""
        first = self._lists.index[..., 0]
        return first.reshape(-1, first.shape[-1])

    def sums(self, orders: Sequence[int]) -> Array:
        """(1, len(orders), N): summed distance of each clip to its nearest 1..order others."""
        return self._lists.sums(orders)

    def subset_sums(
        self,
        distances: PairwiseDistances,
        members: Bools,
        orders: Sequence[int],
        orders_outside: int,
    ) -> tuple[Array, Array]:
        """As ``sums``, counting only neighbours in each of S subsets; and the nearest of them.

        Clips outside a subset have the first ``orders_outside`` sums only: they need no
        density.
        """
        return kernels(distances.unit).subset_sums(
            self._lists, members, orders, orders_outside, None if self._complete else distances.rows
        )


def dense_minima(
    blocks: Iterable[Block],
    n: int,
    members: Bools,
    domain_starts: Indices,
    ratio_density: Array,
    difference_density: Array,
    with_domains: bool = True,
) -> DenseMinima:
    """One scan of distances for all subsets of a bank.

    Parameters
    ----------
    blocks : iterable of (rows, columns, distances)
        Rows are clips of the bank, columns the n clips to score.
    members : (S, N) bool
        The subsets.
    domain_starts : (G + 1,)
        Clips of the bank are grouped by domain; domain g is ``starts[g]:starts[g + 1]``.
    ratio_density, difference_density : (S, R, N), (S, F, N)
        Density of each member under each number of neighbours.
    """
    K, subsets = kernels(ratio_density), len(ratio_density)
    n_domains = len(domain_starts) - 1
    domain_of = np.repeat(np.arange(n_domains), np.diff(domain_starts))
    lengths = n_domains if with_domains else 0, ratio_density.shape[1], difference_density.shape[1]
    minima = DenseMinima(
        *(K.full((subsets, length, n), float("inf"), ratio_density) for length in lengths)
    )
    for rows, columns, block in blocks:
        K.scan_block(
            block,
            members[:, rows],
            domain_of[rows],
            ratio_density[:, :, rows],
            difference_density[:, :, rows],
            minima.domain[:, :, columns],
            minima.ratio[:, :, columns],
            minima.difference[:, :, columns],
        )
    return minima
