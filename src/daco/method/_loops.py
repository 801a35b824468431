"""The loops of the criterion over many halves of a bank, compiled by numba.

They are loaded with the first criterion; scoring clips does not need them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile a loop; its machine code is kept on disk where a folder for it can be written."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return numba.njit(nogil=True)(function)


@_compiled
def member_sums(distance, index, member, orders, n_outside, sums, first, short):  # type: ignore[no-untyped-def]
    """Sum distances to the nearest members of a subset, from lists of the nearest clips.

    ``sums[o, i]`` is over the ``orders[o]`` nearest members of clip i and ``first[i]`` the nearest
    one; ``short[i]`` marks a list with too few members. Clips outside the subset have the first
    ``n_outside`` sums only.
    """
    n, length = distance.shape
    for i in range(n):
        n_orders = len(orders) if member[i] else n_outside
        if n_orders == 0:
            continue
        total = distance.dtype.type(0)
        found = 0
        order = 0
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


@_compiled
def lower_minima(block, members, domain_of, densities, divides, domain, least):  # type: ignore[no-untyped-def]
    """Lower running minima by the rows of a block of distances; its columns are the clips.

    For each subset s and member j: ``domain[s, g]`` by ``d``, and ``least[s, v]`` by
    ``d / densities[s, v, j]`` where v divides, else by ``d - densities[s, v, j]``.
    """
    n_rows, n_columns = block.shape
    for s in range(len(members)):
        for j in range(n_rows):
            if not members[s, j]:
                continue
            row = block[j]
            # Comparisons in this order compile to one vector minimum, without fast-math.
            nearest = domain[s, domain_of[j]]
            for i in range(n_columns):
                nearest[i] = row[i] if row[i] < nearest[i] else nearest[i]
            for v in range(len(divides)):
                density = densities[s, v, j]
                best = least[s, v]
                if divides[v]:
                    for i in range(n_columns):
                        value = row[i] / density
                        best[i] = value if value < best[i] else best[i]
                else:
                    for i in range(n_columns):
                        value = row[i] - density
                        best[i] = value if value < best[i] else best[i]


@_compiled
def count_below(large, small, below, up_to):  # type: ignore[no-untyped-def]
    """Count the values of each row of `large` that are < and <= each value of `small`."""
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
