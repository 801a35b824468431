"""Unit rows, cosine distances in blocks of bounded memory, and lists of nearest neighbours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from daco.data.views import Views
from daco.validation import Floats, Indices

MEMORY_BUDGET = 256 * 2**20
"""Bytes that the N x N distances of a bank may take before they are computed in blocks."""

NOISE_ULPS = 32
"""Smaller distances are rounding: copies were up to 10 ulp apart, the closest clips of real
machines 2,600."""

_BLOCK_BYTES = 32 * 2**20
_ROWS_AT_ONCE = 4096
_USUAL_REACH = 17  # one more than the most neighbours in the paper's grid, for clips left out


def unit_rows(X: Floats, order: Indices | None = None) -> Floats:
    """Rows scaled to length 1, in another order where one is given; a zero row stays zero."""
    if order is None and len(X) <= _ROWS_AT_ONCE:
        return _scaled(X)
    unit = np.empty_like(X)
    for start in range(0, len(X), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        unit[rows] = _scaled(X[rows] if order is None else X[order[rows]])
    return unit


def _scaled(X: Floats) -> Floats:
    with np.errstate(over="ignore", under="ignore"):
        lengths = np.linalg.norm(X, axis=1, keepdims=True)
    info = np.finfo(X.dtype)
    # Squares of very large or small values leave the float range: bring those rows to scale 1.
    unsafe = np.flatnonzero(~((lengths > 1e4 * np.sqrt(info.tiny)) & (lengths < info.max)))
    if unsafe.size:
        X = X.copy()
        largest = np.abs(X[unsafe]).max(axis=1, keepdims=True)
        X[unsafe] /= np.where(largest > 0, largest, 1)
        lengths[unsafe] = np.linalg.norm(X[unsafe], axis=1, keepdims=True)
        lengths[lengths == 0] = 1
    return X / lengths


def cosine_distances(A: Floats, B: Floats) -> Floats:
    """1 - cos for unit rows, (len(A), len(B)), never negative.

    Below 32 ulp they are 0: a density ratio would divide rounding noise by other noise.
    """
    distances = A @ B.T
    np.subtract(1, distances, out=distances)
    distances[distances < NOISE_ULPS * np.finfo(distances.dtype).eps] = 0
    return distances


def equal_views(X: Floats, views: Views) -> Floats:
    """Rows whose views have length 1 each, so that views count alike; one view as it is."""
    if len(views.names) == 1:
        return X
    return np.hstack([unit_rows(part) for part in views.split(X)])


class BankDistances:
    """Distances between all clips, infinite to itself; kept if they fit into the budget."""

    def __init__(self, unit: Floats, memory_budget: int = MEMORY_BUDGET) -> None:
        self.unit = unit
        self._keep = len(unit) ** 2 * unit.itemsize <= memory_budget
        self._lists: NearestLists | None = None
        self._reach = 0

    def __getstate__(self) -> dict[str, object]:
        state = dict(self.__dict__)
        state.pop("_kept", None)  # computed again where it is needed
        return state

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield the distances of some clips to all clips, (rows, N), block by block."""
        n = len(self.unit)
        if self._keep:
            yield slice(0, n), self._kept
            return
        step = max(1, _BLOCK_BYTES // (n * self.unit.itemsize))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            yield rows, self._compute(np.arange(rows.start, rows.stop))

    def rows(self, clips: Indices) -> Floats:
        """Distances of some clips to all clips, (len(clips), N)."""
        return self._kept[clips] if self._keep else self._compute(clips)

    def lists(self, k: int) -> NearestLists:
        """The nearest other clips of each, at least k of them even in a random half of the bank."""
        if self._lists is None or self._reach < k:
            self._reach = max(k, _USUAL_REACH)
            length = _list_length(self._reach, len(self.unit))
            parts = [_nearest(block, length) for _, block in self.blocks()]
            distance, index = map(np.concatenate, zip(*parts, strict=True))
            self._lists = NearestLists(distance, index.astype(np.int32))
        return self._lists

    @cached_property
    def _kept(self) -> Floats:
        # Blocks of rows against later columns: the other triangle is its transpose.
        n, step = len(self.unit), 1024
        whole = np.empty((n, n), self.unit.dtype)
        for start in range(0, n, step):
            rows = slice(start, start + step)
            whole[rows, start:] = cosine_distances(self.unit[rows], self.unit[start:])
            whole[start + step :, rows] = whole[rows, start + step :].T
        np.fill_diagonal(whole, np.inf)
        return whole

    def _compute(self, clips: Indices) -> Floats:
        distances = cosine_distances(self.unit[clips], self.unit)
        distances[np.arange(len(clips)), clips] = np.inf
        return distances


@dataclass(frozen=True)
class NearestLists:
    """For each clip its nearest others, (N, length), by distance and then in their order."""

    distance: Floats
    index: NDArray[np.int32]

    @property
    def complete(self) -> bool:
        """Whether every other clip is in the list."""
        return self.distance.shape[1] == len(self.distance) - 1

    def sums(self, k: int) -> Floats:
        """Summed distance of each clip to its k nearest others, (N,)."""
        return np.cumsum(self.distance[:, :k], axis=1)[:, -1]


def _list_length(k: int, n: int) -> int:
    """Length with which a random half has fewer than k in one row of 80,000 (k = 16)."""
    return min(n - 1, 2 * k + int(8 * np.sqrt(k)))


def _nearest(block: Floats, length: int) -> tuple[Floats, Indices]:
    """The smallest values of each row in ascending order, and their columns."""
    columns = np.argpartition(block, length - 1, axis=1)[:, :length]
    columns.sort(axis=1)
    values = np.take_along_axis(block, columns, axis=1)
    order = np.argsort(values, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(columns, order, axis=1)
