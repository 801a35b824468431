"""Neighbour lists of a large bank, one for each domain: what most scores are made of.

The nearest clips of the whole bank are among the nearest of each domain, and so is the nearest
member of every domain. One search serves both.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.distances import PairwiseDistances
from daco.method.kernels import kernels
from daco.method.neighbours import NearestSoFar, NeighbourLists
from daco.validation import Bools, Floats

Starts = NDArray[np.intp]

_ROWS_AT_ONCE = 65_536


def lengths_of(length: int, domain_starts: Starts) -> list[int]:
    """How many neighbours of each domain a list of ``length`` holds."""
    return np.minimum(length, np.diff(domain_starts)).tolist()


class DomainLists(NeighbourLists):
    """For each clip its nearest other clips of each domain, and of all of them together.

    Parameters
    ----------
    by_domain : one per domain
        The nearest of its clips, in ascending order.
    length : int
        Of the lists of all domains together.
    """

    def __init__(
        self, by_domain: Sequence[NearestSoFar], length: int, reach: int, domain_starts: Starts
    ) -> None:
        self.reach = reach
        self.by_domain = by_domain
        self.complete = length == len(by_domain[0].distance) - 1
        self._starts = domain_starts
        self.distance, self.index = by_domain[0].distance, by_domain[0].index
        if len(by_domain) > 1:
            self.distance, self.index = _merged(by_domain, length)

    def subset_sums(
        self, distances: PairwiseDistances, member: Bools, orders: list[int], orders_outside: int
    ) -> tuple[Floats, NDArray[np.int32]]:
        """As of `NeighbourLists`; members of one domain are looked for in its own lists."""
        inside = [bool(member[a:b].any()) for a, b in pairwise(self._starts)]
        if sum(inside) != 1 or len(inside) == 1:
            return super().subset_sums(distances, member, orders, orders_outside)
        domain = self.by_domain[inside.index(True)]
        sums, first, short = kernels().subset_sums(
            domain.distance, domain.index, member, np.array(orders), orders_outside
        )
        for part in np.array_split(short, -(-short.size // 16)) if short.size else ():
            among = distances.rows(part)
            among[:, ~member] = np.inf
            first[part] = among.argmin(axis=1)
            nearest = np.sort(among, axis=1)[:, : max(orders)]
            sums[:, part] = np.cumsum(nearest, axis=1)[:, np.array(orders) - 1].T
        return sums, first

    def domain_minima(self, distances: PairwiseDistances, members: Bools) -> Floats:
        """(S, G, N): distance of each clip to the nearest member of each domain."""
        shape = len(members), len(self.by_domain), len(self.distance)
        found = np.full(shape, np.inf, self.distance.dtype)
        for s, member in enumerate(members):
            for g, (domain, (a, b)) in enumerate(
                zip(self.by_domain, pairwise(self._starts), strict=True)
            ):
                if member[a:b].all():
                    found[s, g] = domain.distance[:, 0]
                    continue
                sums, _, short = kernels().subset_sums(
                    domain.distance, domain.index, member, np.ones(1, np.intp), 1
                )
                found[s, g] = sums[0]
                if short.size and domain.distance.shape[1] < b - a:
                    self._look_again(distances, member, slice(a, b), short, found[s, g])
        return found

    def _look_again(
        self,
        distances: PairwiseDistances,
        member: Bools,
        domain: slice,
        rows: NDArray[np.intp],
        into: Floats,
    ) -> None:
        inside = domain.start + np.flatnonzero(member[domain])
        if inside.size:
            for part in np.array_split(rows, -(-rows.size // 16)):
                into[part] = distances.rows(part)[:, inside].min(axis=1)


def _merged(by_domain: Sequence[NearestSoFar], length: int) -> tuple[Floats, NDArray[np.int32]]:
    """The nearest of all domains; of equally near ones those of the first domain come first."""
    n = len(by_domain[0].distance)
    distance = np.empty((n, length), by_domain[0].distance.dtype)
    index = np.empty((n, length), np.int32)
    for start in range(0, n, _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        near = np.concatenate([domain.distance[rows] for domain in by_domain], axis=1)
        where = np.concatenate([domain.index[rows] for domain in by_domain], axis=1)
        order = np.argsort(near, axis=1, kind="stable")[:, :length]
        distance[rows] = np.take_along_axis(near, order, axis=1)
        index[rows] = np.take_along_axis(where, order, axis=1)
    return distance, index
