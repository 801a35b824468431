"""The kernels in plain NumPy: arrays of one machine, without an axis of machines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.validation import Bools, Float64s, Floats, Indices

xp = np

TILE = 1024
"""Rows and columns of one product. Fixed, so that results do not depend on the memory budget."""

QUERY_BYTES = 64 * 2**20
"""Distances of new clips that are computed at once."""

NOISE_ULPS = 32
"""Smaller distances are rounding: copies were up to 10 ulp apart, the closest clips of real
machines 2,600."""

_SPLIT_BYTES = 8 * 2**20
_MIN_SPLITS = 20  # at once, because distances that are not kept are computed again for each part
_ROWS_AT_ONCE = 4096
_SCANNED_ROWS = 256  # keeps the temporaries of a scan in the cache
_SELECTION_BYTES = 32 * 2**20
_SPARSE = 16  # sorting whole rows pays where more than this part of a block is nearer


def exact_products(array: Any) -> AbstractContextManager[None]:
    """A context in which products have the precision of their factors."""
    return nullcontext()


def splits_at_once(bytes_per_split: int) -> int:
    """How many splits of the criterion are scored together."""
    return max(_MIN_SPLITS, _SPLIT_BYTES // bytes_per_split)


def machine_count(unit: Floats) -> int:
    """The machines of an array of rows."""
    return 1


def from_host(array: NDArray[Any], like: Any) -> NDArray[Any]:
    """A host array where the computation is."""
    return array


def to_host(array: NDArray[Any]) -> NDArray[Any]:
    """An array of the computation as a NumPy array."""
    return array


def double(array: Floats) -> Float64s:
    """A float64 copy."""
    return array.astype(np.float64)


def cast(array: Floats, like: Floats) -> Floats:
    """In the precision of another array."""
    return array.astype(like.dtype)


def full(shape: Sequence[int], value: float, like: Floats) -> Floats:
    """A new array in the precision of another."""
    return np.full(shape, value, like.dtype)


def arange(n: int, like: Any) -> Float64s:
    """0, 1, ..., n - 1 in float64."""
    return np.arange(n, dtype=np.float64)


def sort(array: Floats) -> Floats:
    """Sorted along the last axis."""
    return np.sort(array, axis=-1)


def sorting_order(array: Floats) -> Indices:
    """Indices that sort the last axis, for `map_quantiles`."""
    return np.argsort(array, axis=-1)


def take_along(array: Floats, index: Indices) -> Floats:
    """Elements along the last axis; the index is repeated over axes of length 1."""
    return np.take_along_axis(array, index, axis=-1)


def weighted_sum(weights: Floats, maps: Floats, out: Floats) -> None:
    """Sum over domains: (S, G, n) and (S, G, n) into (S, n)."""
    np.einsum("sgn,sgn->sn", weights, maps, out=out)


def unit_rows(X: Floats, order: Indices | None = None) -> Floats:
    """Rows scaled to length 1, in another order where one is given; a zero row stays zero."""
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


def products(A: Floats, B: Floats) -> Floats:
    """A @ B.T."""
    return A @ B.T


def to_distances(cosines: Floats) -> Floats:
    """1 - cos in place, with rounding noise set to 0."""
    distances = np.subtract(1, cosines, out=cosines)
    distances[distances < NOISE_ULPS * np.finfo(distances.dtype).eps] = 0
    return distances


def leave_out_diagonal(distances: Floats) -> Floats:
    """Distances of clips to themselves at infinity, in place."""
    np.fill_diagonal(distances, np.inf)
    return distances


def transposed(block: Floats) -> Floats:
    """A contiguous transpose."""
    return np.ascontiguousarray(block.T)


def smallest(distances: Floats, count: int) -> Floats:
    """The smallest values of each column (N, n) in ascending order: (1, n, count)."""
    by_clip = distances.T.copy()  # partitioned in place, so never a view
    by_clip.partition(count - 1, axis=1)
    return np.sort(by_clip[:, :count], axis=1)[None]


def nearest(distances: Floats) -> tuple[Indices, Floats]:
    """Row and value of the smallest distance in each column."""
    first = distances.argmin(axis=0)
    return first, distances[first, np.arange(distances.shape[1])]


class NearestLists:
    """The nearest of all clips seen so far, for each clip in ascending order of distance.

    Ties fall to the clip that was seen first. Where fewer than ``length`` were seen, the rest
    are at infinity.
    """

    def __init__(self, unit: Floats, length: int) -> None:
        self.distance = np.full((len(unit), length), np.inf, unit.dtype)
        self.index = np.zeros((len(unit), length), np.int32)

    def see(self, rows: slice, block: Floats, first_index: int) -> None:
        """Distances of some rows to clips numbered from ``first_index``; inf marks no clip."""
        into, length = self.distance[rows], self.distance.shape[1]
        if not length or not block.size:
            return
        new = bool(np.isinf(into[:, 0]).all())
        if not new:
            hits = block < into[:, -1:]
            if np.count_nonzero(hits) * _SPARSE <= block.size:
                # Of a large bank nearly nothing is nearer than the lists: no need to sort it.
                row, column = np.nonzero(hits)
                self._merge(rows, row, block[row, column], (column + first_index).astype(np.int32))
                return
        step = max(1, _SELECTION_BYTES // (8 * block.shape[1]))
        for start in range(0, block.shape[0], step):
            part = slice(start, min(start + step, block.shape[0]))
            near, where = _smallest_of_rows(block[part], first_index, length)
            if new:
                into[part, : near.shape[1]] = near
                self.index[rows][part, : near.shape[1]] = where
                continue
            row = np.repeat(np.arange(part.start, part.stop), near.shape[1])
            self._merge(rows, row, near.ravel(), where.ravel())

    def _merge(self, rows: slice, row: Indices, near: Floats, where: NDArray[np.int32]) -> None:
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

    def sums(self, orders: Sequence[int]) -> Floats:
        """(1, len(orders), N): summed distance of each clip to its nearest 1..order others."""
        summed = np.cumsum(self.distance[:, : max(orders)], axis=1)
        return summed[:, np.array(orders) - 1].T[None]


def _smallest_of_rows(
    block: Floats, first_index: int, length: int
) -> tuple[Floats, NDArray[np.int32]]:
    """The smallest values of each row in ascending order, and the numbers of their columns."""
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


def subset_sums(
    lists: NearestLists,
    members: Bools,
    orders: Sequence[int],
    orders_outside: int,
    distances_of: Callable[[Indices], Floats] | None,
    find_sums: Callable[..., Any] | None = None,
) -> tuple[Floats, NDArray[np.int32]]:
    """Sums over the nearest members (S, len(orders), N), and the nearest of them (S, N).

    Clips outside a subset have the first ``orders_outside`` sums only. Rows whose list holds
    too few members are completed from ``distances_of`` them.
    """
    at, n = np.array(orders), len(lists.distance)
    sums = np.empty((len(members), len(orders), n), lists.distance.dtype)
    first = np.empty((len(members), n), np.int32)
    for s, member in enumerate(members):
        sums[s], first[s], short = (find_sums or _subset_sums)(
            lists.distance, lists.index, member, at, orders_outside
        )
        if short.size and distances_of is not None:
            inside = np.flatnonzero(member)
            for part in np.array_split(short, -(-short.size * n // 2**22)):
                to_members = distances_of(part)[:, inside]
                first[s, part] = inside[to_members.argmin(axis=1)]
                near = np.sort(to_members, axis=1)[:, : at.max()]
                sums[s, :, part] = np.cumsum(near, axis=1)[:, at - 1]
    return sums, first


def _subset_sums(
    distance: Floats, index: NDArray[np.int32], member: Bools, orders: Indices, orders_outside: int
) -> tuple[Floats, NDArray[np.int32], Indices]:
    """Sums and nearest member of one subset, and the rows that hold too few."""
    wanted = orders.max()
    in_subset = member.take(index)
    rank = np.cumsum(in_subset, axis=1, dtype=np.uint32)
    chosen = in_subset & (rank <= wanted)
    sums = np.full((len(orders), len(distance)), np.inf, distance.dtype)
    too_few = rank[:, -1] < wanted
    if too_few.any():
        rows = np.flatnonzero(~too_few)
        near = distance[rows][chosen[rows]].reshape(-1, wanted)
        sums[:, rows] = np.cumsum(near, axis=1)[:, orders - 1].T
    else:
        near = distance[chosen].reshape(-1, wanted)
        sums[:] = np.cumsum(near, axis=1)[:, orders - 1].T
    first = np.take_along_axis(index, in_subset.argmax(axis=1)[:, None], axis=1)[:, 0]
    asked = member if orders_outside == 0 else np.ones(len(distance), np.bool_)
    return sums, first, np.flatnonzero(too_few & asked)


def scan_block(
    block: Floats,
    members: Bools,
    domain_of: Indices,
    ratio_density: Floats,
    difference_density: Floats,
    domain: Floats,
    ratio: Floats,
    difference: Floats,
) -> None:
    """Lower the running minima over the rows of a block; its columns are the clips."""
    for s, member in enumerate(members):
        chosen = np.flatnonzero(member)
        for start in range(0, len(chosen), _SCANNED_ROWS):
            rows = chosen[start : start + _SCANNED_ROWS]
            part = block[rows]
            codes = domain_of[rows]
            edges = np.flatnonzero(np.diff(codes, prepend=-1, append=-1))
            for first, last in pairwise(edges if domain.shape[1] else ()):
                into = domain[s, codes[first]]
                np.minimum(into, part[first:last].min(axis=0), out=into)
            for v, density in enumerate(ratio_density[s]):
                into = ratio[s, v]
                np.minimum(into, (part / density[rows, None]).min(axis=0), out=into)
            for v, density in enumerate(difference_density[s]):
                into = difference[s, v]
                np.minimum(into, (part - density[rows, None]).min(axis=0), out=into)


def count_below(large: Float64s, small: Float64s) -> tuple[Indices, Indices]:
    """How many of ``large`` are < and <= each of ``small``, row by row, by comparing all."""
    below = np.empty(small.shape, np.int64)
    up_to = np.empty(small.shape, np.int64)
    for column in range(small.shape[1]):
        point = small[:, column, None]
        below[:, column] = np.count_nonzero(large < point, axis=1)
        up_to[:, column] = np.count_nonzero(large <= point, axis=1)
    return below, up_to


def count_below_sorted(ascending: Float64s, points: Float64s) -> tuple[Indices, Indices]:
    """How many of ``ascending`` are < and <= each of some points, row by row, by searching."""
    below = [np.searchsorted(x, y, "left") for x, y in zip(ascending, points, strict=True)]
    up_to = [np.searchsorted(x, y, "right") for x, y in zip(ascending, points, strict=True)]
    return np.array(below), np.array(up_to)


def count_below_self(small: Float64s) -> tuple[Indices, Indices]:
    """How many of a sorted row are < and <= each of its own values."""
    n = small.shape[1]
    position = np.arange(n)
    rises = np.ones(small.shape, np.bool_)
    rises[:, 1:] = small[:, 1:] > small[:, :-1]
    below = np.maximum.accumulate(np.where(rises, position, 0), axis=1)
    falls = np.ones(small.shape, np.bool_)
    falls[:, :-1] = rises[:, 1:]
    up_to = np.minimum.accumulate(np.where(falls, position + 1, n)[:, ::-1], axis=1)[:, ::-1]
    return below, up_to


def map_quantiles(
    knots: Float64s, levels: Float64s, scale: Float64s, scores: Float64s, order: Indices
) -> Float64s:
    """Interpolate each row of scores between its knots, with a rational tail above them.

    ``order`` sorts each row of ``scores``, which makes the search local.
    """
    mapped = np.empty(scores.shape)
    for row, into in enumerate(order):
        mapped[row, into] = np.interp(scores[row, into], knots[row], levels)
    beyond = np.nonzero(scores > knots[:, -1:])
    exceedance = scores[beyond] - knots[beyond[0], -1]
    top = levels[-1]
    mapped[beyond] = top + (1 - top) * (exceedance / (exceedance + scale[beyond[0], 0]))
    return mapped
