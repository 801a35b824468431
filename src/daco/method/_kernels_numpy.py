"""The hot loops in plain NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from daco.validation import Floats

_ROWS_AT_ONCE = 256  # of the scan: keeps its temporaries in the cache


def subset_sums(
    distance: Floats,
    index: NDArray[np.int32],
    member: NDArray[np.bool_],
    orders: NDArray[np.intp],
    orders_outside: int,
) -> tuple[Floats, NDArray[np.int32], NDArray[np.intp]]:
    """Sums over the nearest members in each list, the nearest, and the rows that hold too few.

    Of rows outside the subset only the first ``orders_outside`` orders need be right.
    """
    wanted = orders.max()
    in_subset = member.take(index)
    rank = np.cumsum(in_subset, axis=1, dtype=np.uint32)
    chosen = in_subset & (rank <= wanted)
    sums = np.full((len(orders), len(distance)), np.inf, distance.dtype)
    too_few = rank[:, -1] < wanted
    if too_few.any():
        full = np.flatnonzero(~too_few)
        nearest = distance[full][chosen[full]].reshape(-1, wanted)
        sums[:, full] = np.cumsum(nearest, axis=1)[:, orders - 1].T
    else:
        nearest = distance[chosen].reshape(-1, wanted)
        sums[:] = np.cumsum(nearest, axis=1)[:, orders - 1].T
    first = np.take_along_axis(index, in_subset.argmax(axis=1)[:, None], axis=1)[:, 0]
    needed = member if orders_outside == 0 else slice(None)
    asked = np.zeros(len(distance), np.bool_)
    asked[needed] = True
    return sums, first, np.flatnonzero(too_few & asked)


def scan_block(
    block: Floats,
    members: NDArray[np.bool_],
    domain_of: NDArray[np.intp],
    ratio_density: Floats,
    difference_density: Floats,
    domain: Floats,
    ratio: Floats,
    difference: Floats,
) -> None:
    """Lower the running minima over the rows of a block; its columns are the clips."""
    for s, member in enumerate(members):
        chosen = np.flatnonzero(member)
        for start in range(0, len(chosen), _ROWS_AT_ONCE):
            rows = chosen[start : start + _ROWS_AT_ONCE]
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


def count_below(
    large: NDArray[np.float64], small: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """How many of ``large`` are < and <= each of ``small``, row by row, by comparing all."""
    below = np.empty(small.shape, np.int64)
    up_to = np.empty(small.shape, np.int64)
    for column in range(small.shape[1]):
        point = small[:, column, None]
        below[:, column] = np.count_nonzero(large < point, axis=1)
        up_to[:, column] = np.count_nonzero(large <= point, axis=1)
    return below, up_to


def map_quantiles(
    knots: NDArray[np.float64],
    levels: NDArray[np.float64],
    scale: NDArray[np.float64],
    scores: NDArray[np.float64],
    order: NDArray[np.intp],
) -> NDArray[np.float64]:
    """Interpolate each row of scores between its knots, with a rational tail above them.

    ``order`` sorts each row of ``scores``, which makes the search local.
    """
    mapped = np.empty(scores.shape)
    for row, into in enumerate(order):
        mapped[row, into] = np.interp(scores[row, into], knots[row], levels)
    beyond = np.nonzero(scores > knots[:, -1:])
    exceedance = scores[beyond] - knots[beyond[0], -1]
    top = levels[-1]
    mapped[beyond] = top + (1 - top) * (exceedance / (exceedance + scale[beyond[0]]))
    return mapped
