"""Cosine distances within a bank, whole or block by block under a memory budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from daco.data.views import Bands, Views
from daco.method.kernels import Array, kernels
from daco.validation import Floats

Block = tuple[slice, slice, Array]
"""Rows, columns and distances of a part of a distance matrix."""

MEMORY_BUDGET = 256 * 2**20
"""Bytes the N x N distances of a bank may take before they are recomputed block by block."""


def unit_rows(X: Array, order: Any = None) -> Array:
    """Rows scaled to length 1, in another order where one is given; a zero row stays zero.

    The cosine of a zero row with anything is 0. Nothing is copied but the result.
    """
    return kernels(X).unit_rows(X, order)


def equal_views(X: Floats, bands: Bands) -> Floats:
    """Rows whose views have length 1 each, so that views count alike; others as they are."""
    if not isinstance(bands, Views) or len(bands.names) == 1:
        return X
    return np.hstack([unit_rows(view) for view in bands.split(X)])


def cosine_distances(A: Array, B: Array) -> Array:
    """1 - cos for unit rows, (len(A), len(B)), never negative.

    Identical directions differ from 0 by rounding alone; left there, that noise would be
    divided by other noise in the density ratio. Distances below 32 ulp are therefore 0.
    """
    K = kernels(A)
    return K.to_distances(K.products(A, B))


def fits(unit: Array, memory_budget: int) -> bool:
    """Whether the distances between unit rows (..., N, D) may be kept."""
    n, machines = unit.shape[-2], kernels(unit).machine_count(unit)
    return bool(machines * n * n * unit.itemsize <= memory_budget)


def distances_of_bands(unit: Array, lengths: Array) -> tuple[list[Array], Array]:
    """Distances in every band and between whole vectors, from one product for each band.

    Parameters
    ----------
    unit : (..., N, D)
        Whole vectors of length 1, their bands one after the other.
    lengths : (..., N, F)
        Of each band of each vector; none is 0.

    Returns
    -------
    (..., N, N) of each band, and of whole vectors; inf on the diagonals
    """
    K = kernels(unit)
    n, n_bands = lengths.shape[-2:]
    parts = unit.reshape(*unit.shape[:-1], n_bands, -1)
    bands, whole = [], K.full((*unit.shape[:-2], n, n), 0, unit)
    for band in range(n_bands):
        rows = parts[..., band, :] + 0  # contiguous
        cosines = K.products(rows, rows)
        whole += cosines
        cosines *= 1 / lengths[..., band, None]
        cosines *= 1 / lengths[..., None, :, band]
        bands.append(K.leave_out_diagonal(K.to_distances(cosines)))
    return bands, K.leave_out_diagonal(K.to_distances(whole))


class PairwiseDistances:
    """Distances between all clips of a bank; a clip's distance to itself is infinite.

    They are kept if they fit into ``memory_budget`` bytes; a larger bank computes square tiles of
    them whenever they are asked for, in memory that does not grow with N.
    """

    def __init__(
        self, unit: Array, memory_budget: int = MEMORY_BUDGET, kept: Array | None = None
    ) -> None:
        self.unit = unit
        self._kernels = kernels(unit)
        self._kept = kept
        if kept is None and fits(unit, memory_budget):
            self._kept = self._whole()

    def __len__(self) -> int:
        return int(self.unit.shape[-2])

    def blocks(self) -> Iterator[Block]:
        """(rows, columns, distances) that together cover every ordered pair once."""
        n = len(self)
        if self._kept is not None:
            yield slice(0, n), slice(0, n), self._kept
        else:
            for rows, columns, tile in self._tiles():
                yield rows, columns, tile
                if rows != columns:
                    yield columns, rows, self._kernels.transposed(tile)

    def rows(self, indices: Any) -> Array:
        """Distances of some clips to all clips; of tensors, clips are (machines, numbers)."""
        if self._kept is not None:
            return self._kept[indices]
        # Tiles are computed for one machine at a time.
        unit, clips = (self.unit[0], indices[1]) if self.unit.ndim == 3 else (self.unit, indices)
        distances = cosine_distances(unit[clips], unit)
        distances[self._kernels.xp.arange(len(clips)), clips] = float("inf")
        return distances

    def _tiles(self) -> Iterator[Block]:
        """The upper triangle."""
        n, step = len(self), self._kernels.TILE
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            for other in range(start, n, step):
                columns = slice(other, min(other + step, n))
                left, right = self.unit[..., rows, :], self.unit[..., columns, :]
                tile = cosine_distances(left, left if rows == columns else right)
                if rows == columns:
                    tile = self._kernels.leave_out_diagonal(tile)
                yield rows, columns, tile

    def _whole(self) -> Array:
        n = len(self)
        if n <= self._kernels.TILE:
            return next(self._tiles())[2]
        whole = self._kernels.full((*self.unit.shape[:-1], n), 0, self.unit)
        for rows, columns, tile in self._tiles():
            whole[..., rows, columns] = tile
            if rows != columns:
                whole[..., columns, rows] = tile.swapaxes(-1, -2)
        return whole
