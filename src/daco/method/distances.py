"""Cosine distances within a bank, whole or block by block under a memory budget."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.validation import Floats

MEMORY_BUDGET = 256 * 2**20
"""Bytes the N x N distances of a bank may take before they are recomputed block by block."""

TILE = 1024
"""Rows and columns of one product. Fixed, so that results do not depend on the budget."""

_ROWS_AT_ONCE = 4096

_NOISE_ULPS = 32  # copies were up to 10 apart, the closest clips of real machines 2,600


def unit_rows(X: Floats, order: NDArray[np.intp] | None = None) -> Floats:
    """Rows scaled to length 1, in another order where one is given; a zero row stays zero.

    The cosine of a zero row with anything is 0. Nothing is copied but the result.
    """
    unit = np.empty_like(X)
    for start in range(0, len(X), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        unit[rows] = _unit(X[rows] if order is None else X[order[rows]])
    return unit


def _unit(X: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        norms = np.linalg.norm(X, axis=1, keepdims=True)
    info = np.finfo(X.dtype)
    # Squares of very large or small values leave the float range: bring those rows to scale 1.
    unsafe = np.flatnonzero(~((norms > 1e4 * np.sqrt(info.tiny)) & (norms < info.max))[:, 0])
    if unsafe.size:
        X = X.copy()
        peak = np.abs(X[unsafe]).max(axis=1, keepdims=True)
        X[unsafe] /= np.where(peak > 0, peak, 1)
        norms[unsafe] = np.linalg.norm(X[unsafe], axis=1, keepdims=True)
        norms[norms == 0] = 1
    return X / norms


def cosine_distances(A: Floats, B: Floats) -> Floats:
    """1 - cos for unit rows, (len(A), len(B)), never negative.

    Identical directions differ from 0 by rounding alone; left there, that noise would be
    divided by other noise in the density ratio. Distances below 32 ulp are therefore 0.
    """
    return distances_of_cosines(A @ B.T)


def distances_of_cosines(cosines: Floats) -> Floats:
    """1 - cos, in place."""
    distances = np.subtract(1, cosines, out=cosines)
    distances[distances < _NOISE_ULPS * np.finfo(distances.dtype).eps] = 0
    return distances


def fits(n: int, dtype: np.dtype[Any], memory_budget: int) -> bool:
    """Whether the distances of n clips may be kept."""
    return n * n * dtype.itemsize <= memory_budget


def distances_of_bands(unit: Floats, lengths: Floats) -> tuple[list[Floats], Floats]:
    """Distances in every band and between whole vectors, from one product for each band.

    Parameters
    ----------
    unit : (N, D)
        Whole vectors of length 1, their bands one after the other.
    lengths : (F, N)
        Of each band of each vector; none is 0.

    Returns
    -------
    (N, N) of each band, and of whole vectors; inf on the diagonals
    """
    parts = unit.reshape(len(unit), len(lengths), -1)
    bands, whole = [], np.zeros((len(unit), len(unit)), unit.dtype)
    for band, length in enumerate(lengths):
        rows = np.ascontiguousarray(parts[:, band])
        cosines = rows @ rows.T
        whole += cosines
        cosines *= 1 / length[:, None]
        cosines *= 1 / length
        bands.append(distances_of_cosines(cosines))
    for distances in (*bands, distances_of_cosines(whole)):
        np.fill_diagonal(distances, np.inf)
    return bands, whole


class PairwiseDistances:
    """All distances between the clips of one bank; a clip's distance to itself is inf.

    The matrix is kept when it fits ``memory_budget`` bytes, otherwise every pass over
    ``blocks`` computes it again, tile by tile, in memory that does not grow with N.
    """

    def __init__(
        self, unit: Floats, memory_budget: int = MEMORY_BUDGET, kept: Floats | None = None
    ) -> None:
        self.unit = unit
        self._kept = kept
        if kept is None and fits(len(unit), unit.dtype, memory_budget):
            self._kept = self._whole()

    def __len__(self) -> int:
        return len(self.unit)

    def blocks(self) -> Iterator[tuple[slice, slice, Floats]]:
        """(rows, columns, distances) that together cover every ordered pair once."""
        n = len(self)
        if self._kept is not None:
            yield slice(0, n), slice(0, n), self._kept
        else:
            for rows, columns, tile in self._tiles():
                yield rows, columns, tile
                if rows != columns:
                    yield columns, rows, np.ascontiguousarray(tile.T)

    def rows(self, indices: np.ndarray) -> Floats:
        """Distances of some clips to all clips."""
        if self._kept is not None:
            return self._kept[indices]
        distances = cosine_distances(self.unit[indices], self.unit)
        distances[np.arange(len(indices)), indices] = np.inf
        return distances

    def _tiles(self) -> Iterator[tuple[slice, slice, Floats]]:
        """The upper triangle."""
        n = len(self)
        for start in range(0, n, TILE):
            rows = slice(start, min(start + TILE, n))
            for other in range(start, n, TILE):
                columns = slice(other, min(other + TILE, n))
                tile = cosine_distances(self.unit[rows], self.unit[columns])
                if rows == columns:
                    np.fill_diagonal(tile, np.inf)
                yield rows, columns, tile

    def _whole(self) -> Floats:
        n = len(self)
        if n <= TILE:
            return next(self._tiles())[2]
        whole = np.empty((n, n), dtype=self.unit.dtype)
        for rows, columns, tile in self._tiles():
            whole[rows, columns] = tile
            if rows != columns:
                whole[columns, rows] = tile.T
        return whole
