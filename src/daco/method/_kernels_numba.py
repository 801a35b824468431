"""The NumPy kernels with their four hot loops compiled by numba; machine code is cached on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from daco.method import _kernels_numpy
from daco.validation import Bools, Float64s, Floats, Indices


def __getattr__(name: str) -> Any:
    """All other kernels are the NumPy ones."""
    return getattr(_kernels_numpy, name)


def subset_sums(
    lists: _kernels_numpy.NearestLists,
    members: Bools,
    orders: Sequence[int],
    orders_outside: int,
    distances_of: Callable[[Indices], Floats] | None,
) -> tuple[Floats, NDArray[np.int32]]:
    """As the NumPy kernel."""
    return _kernels_numpy.subset_sums(
        lists, members, orders, orders_outside, distances_of, _sums_of_subset
    )


def _sums_of_subset(
    distance: Floats, index: NDArray[np.int32], member: Bools, orders: Indices, orders_outside: int
) -> tuple[Floats, NDArray[np.int32], Indices]:
    sums = np.full((len(orders), len(distance)), np.inf, distance.dtype)
    first = np.zeros(len(distance), np.int32)
    short = np.zeros(len(distance), np.bool_)
    _subset_sums(distance, index, member, orders, orders_outside, sums, first, short)
    return sums, first, np.flatnonzero(short)


@njit(cache=True, nogil=True)
def _subset_sums(  # type: ignore[no-untyped-def]
    distance, index, member, orders, orders_outside, sums, first, short
):
    n, length = distance.shape
    for i in range(n):
        total = distance.dtype.type(0)
        found = 0
        order = 0
        n_orders = len(orders) if member[i] else orders_outside
        if n_orders == 0:
            continue
        for j in range(length):
            if member[index[i, j]]:
                total += distance[i, j]
                if found == 0:
                    first[i] = index[i, j]
                found += 1
                if found == orders[order]:
                    sums[order, i] = total
                    order += 1
                    if order == n_orders:
                        break
        short[i] = order < n_orders


@njit(cache=True, nogil=True)
def scan_block(  # type: ignore[no-untyped-def]
    block, members, domain_of, ratio_density, difference_density, domain, ratio, difference
):
    """Lower the running minima over the rows of a block; its columns are the clips."""
    n_rows, n_columns = block.shape
    n_ratio, n_difference = ratio.shape[1], difference.shape[1]
    with_domains = domain.shape[1] > 0
    for s in range(len(members)):
        for j in range(n_rows):
            if not members[s, j]:
                continue
            row = block[j]
            # Comparisons in this order compile to one vector minimum per lane, without fast-math.
            if with_domains:
                nearest = domain[s, domain_of[j]]
                for i in range(n_columns):
                    nearest[i] = row[i] if row[i] < nearest[i] else nearest[i]
            for v in range(n_ratio):
                density = ratio_density[s, v, j]
                best = ratio[s, v]
                for i in range(n_columns):
                    value = row[i] / density
                    best[i] = value if value < best[i] else best[i]
            for v in range(n_difference):
                density = difference_density[s, v, j]
                best = difference[s, v]
                for i in range(n_columns):
                    value = row[i] - density
                    best[i] = value if value < best[i] else best[i]


def count_below(large: Float64s, small: Float64s) -> tuple[Indices, Indices]:
    """As the NumPy kernel."""
    below = np.empty(small.shape, np.int64)
    up_to = np.empty(small.shape, np.int64)
    _count_below(np.ascontiguousarray(large), small, below, up_to)
    return below, up_to


@njit(cache=True, nogil=True)
def _count_below(large, small, below, up_to):  # type: ignore[no-untyped-def]
    n = large.shape[1]
    for row in range(large.shape[0]):
        for column in range(small.shape[1]):
            point = small[row, column]
            # 32-bit counters and one condition a loop: four times faster vector code.
            count = np.int32(0)
            for i in range(n):
                count += np.int32(large[row, i] < point)
            below[row, column] = count
            count = np.int32(0)
            for i in range(n):
                count += np.int32(large[row, i] <= point)
            up_to[row, column] = count


def count_below_sorted(ascending: Float64s, points: Float64s) -> tuple[Indices, Indices]:
    """As the NumPy kernel."""
    below = np.empty(points.shape, np.int64)
    up_to = np.empty(points.shape, np.int64)
    _count_below_sorted(ascending, points, np.argsort(points, axis=-1), below, up_to)
    return below, up_to


@njit(cache=True, nogil=True)
def _count_below_sorted(ascending, points, order, below, up_to):  # type: ignore[no-untyped-def]
    n = ascending.shape[1]
    for row in range(ascending.shape[0]):
        values = ascending[row]
        less = not_above = 0
        for column in order[row]:  # in ascending order both counts only grow
            point = points[row, column]
            while less < n and values[less] < point:
                less += 1
            not_above = max(not_above, less)
            while not_above < n and values[not_above] <= point:
                not_above += 1
            below[row, column] = less
            up_to[row, column] = not_above


def map_quantiles(
    knots: Float64s, levels: Float64s, scale: Float64s, scores: Float64s, order: Indices
) -> Float64s:
    """As the NumPy kernel."""
    mapped = np.empty(scores.shape)
    _map_quantiles(knots, levels, scale[:, 0], scores, order, mapped)
    return mapped


@njit(cache=True, nogil=True)
def _map_quantiles(knots, levels, scale, scores, order, mapped):  # type: ignore[no-untyped-def]
    last = knots.shape[1] - 1
    top = levels[last]
    for row in range(len(scores)):
        x = knots[row]
        j = -1  # the last knot that is not above the score
        for i in order[row]:
            score = scores[row, i]
            while j < last and x[j + 1] <= score:
                j += 1
            if j < 0:
                mapped[row, i] = levels[0]
            elif j < last:
                slope = (levels[j + 1] - levels[j]) / (x[j + 1] - x[j])
                mapped[row, i] = slope * (score - x[j]) + levels[j]
            elif score > x[last]:
                exceedance = score - x[last]
                mapped[row, i] = top + (1 - top) * (exceedance / (exceedance + scale[row]))
            else:
                mapped[row, i] = top
