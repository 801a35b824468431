"""Exact search on the CPU: products of tiles, of which only the smallest values are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.method.bigbank.lists import DomainLists, Starts, lengths_of
from daco.method.distances import PairwiseDistances, cosine_distances
from daco.method.kernels import kernels
from daco.method.neighbours import (
    DenseMinima,
    NearestSoFar,
    dense_minima,
    domain_of_clips,
    unbounded,
)
from daco.validation import Bools, Floats

_TILE_BYTES = 16 * 2**20
_LEAST_TILE = 256


class FlatSearch:
    """All distances within a bank, tile by tile; and those of new clips."""

    def __init__(self, unit: Floats, domain_starts: Starts) -> None:
        self._unit, self._starts = unit, domain_starts

    def by_domain(self, distances: PairwiseDistances, length: int) -> list[NearestSoFar]:
        """The nearest other clips of every clip, in each domain."""
        found = [
            NearestSoFar(len(self._unit), each, self._unit.dtype)
            for each in lengths_of(length, self._starts)
        ]
        for rows, columns, block in distances.blocks():
            for nearest, (a, b) in zip(found, pairwise(self._starts), strict=True):
                first, last = max(a, columns.start), min(b, columns.stop)
                if first < last:
                    part = block[:, first - columns.start : last - columns.start]
                    nearest.see(rows, np.ascontiguousarray(part), int(first))
        return found

    def minima(
        self,
        distances: PairwiseDistances,
        lists: DomainLists,
        members: Bools,
        ratio_density: Floats,
        difference_density: Floats,
    ) -> tuple[Floats, Floats]:
        """The smallest distance over, and less, the density: (S, R, N) and (S, F, N)."""
        found = dense_minima(
            distances, members, self._starts, ratio_density, difference_density, False
        )
        return found.ratio, found.difference

    def against(
        self, rows: Floats, count: int, over: Floats, less: Floats, with_domains: bool
    ) -> tuple[Floats, DenseMinima]:
        """New clips, unit rows: their nearest, and their smallest values; see `Look`."""
        n, n_domains = len(rows), len(self._starts) - 1 if with_domains else 0
        nearest = NearestSoFar(n, count, self._unit.dtype)
        found = unbounded(n, n_domains, (over, less))
        domain_of = domain_of_clips(self._starts)
        for start, block in _tiles(self._unit, rows):
            tile = slice(start, start + len(block))
            kernels().scan_block(
                block,
                np.ones((1, len(block)), np.bool_),
                domain_of[tile],
                over[:, :, tile],
                less[:, :, tile],
                found.domain,
                found.ratio,
                found.difference,
            )
            if count:
                nearest.see(slice(0, n), np.ascontiguousarray(block.T), start)
        return nearest.distance, found

    def nearest(self, rows: Floats) -> tuple[NDArray[np.intp], Floats]:
        """The nearest clip of each row, and its distance."""
        found = NearestSoFar(len(rows), 1, self._unit.dtype)
        for start, block in _tiles(self._unit, rows):
            found.see(slice(0, len(rows)), np.ascontiguousarray(block.T), start)
        return found.index[:, 0].astype(np.intp), found.distance[:, 0]


def _tiles(unit: Floats, rows: Floats) -> Iterator[tuple[int, Floats]]:
    """First row and distances (tile, n) of parts of a bank."""
    step = min(len(unit), max(_LEAST_TILE, _TILE_BYTES // (unit.itemsize * len(rows))))
    for start in range(0, len(unit), step):
        yield start, cosine_distances(unit[start : start + step], rows)
