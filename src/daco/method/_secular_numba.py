"""The search for secular roots compiled by numba; it agrees with NumPy to rounding."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from daco.method.secular import CLOSE, MOST_STEPS

Doubles = NDArray[np.float64]


def solve(
    gaps: Doubles, weights: Doubles, value: Doubles
) -> tuple[NDArray[np.intp], Doubles, Doubles]:
    """Origins, offsets and slopes (n, d) of the roots; ``value`` is that between the poles."""
    origin = np.empty(value.shape, np.intp)
    offset, slope = np.empty((2, *value.shape))
    gaps_of = np.ascontiguousarray(gaps.T)
    # Arguments, not globals: machine code on disk would not notice that they changed.
    _solve(gaps_of, weights, value, origin, offset, slope, CLOSE, MOST_STEPS)
    return origin, offset, slope


@njit(cache=True, nogil=True, error_model="numpy")
def _solve(  # type: ignore[no-untyped-def]
    gaps, weights, middle, origin, offset, slope, close, most_steps
):
    n, d = middle.shape
    low, high, value, slopes = np.empty(d), np.empty(d), np.empty(d), np.empty(d)
    active, x, table = np.empty(d, np.intp), np.empty(d), np.empty((len(gaps), d))
    for i in range(n):
        for j in range(d):
            above = middle[i, j] > 0
            o, p = (j, j + 1) if above else (j + 1, j)
            across = gaps[p, o]
            half = across / 2
            low[j], high[j] = (-half, 0.0) if above else (0.0, -half)
            a, b = weights[i, o], weights[i, p]
            constant = middle[i, j] + (a - b) / half
            origin[i, j] = o
            offset[i, j] = _between(constant, a, b, across, low[j], high[j], close)
            active[j] = j
        n_active, n_listed = d, 0
        for _ in range(most_steps):
            if n_active != n_listed:  # side by side, the gaps of the roots looked for vectorise
                n_listed = n_active
                for k in range(len(gaps)):
                    for q in range(n_active):
                        table[k, q] = gaps[k, origin[i, active[q]]]
            for q in range(n_active):
                x[q] = offset[i, active[q]]
                value[q], slopes[q] = 0.0, 0.0
            for k in range(len(gaps)):
                weight = weights[i, k]
                row = table[k]
                for q in range(n_active):
                    inverse = 1 / (row[q] + x[q])
                    term = weight * inverse
                    value[q] += term
                    slopes[q] += term * inverse
            left = 0
            for q in range(n_active):
                j, at = active[q], x[q]
                o = origin[i, j]
                p = j + 1 if o == j else j
                across = gaps[p, o]
                if value[q] > 0:
                    low[j] = at
                else:
                    high[j] = at
                a = weights[i, o]
                away = at + across
                b = max((slopes[q] - a / (at * at)) * (away * away), weights[i, p])
                constant = value[q] - a / at - b / away
                new = _between(constant, a, b, across, low[j], high[j], close)
                offset[i, j] = new
                away = new + across
                slope[i, j] = a / (new * new) + b / (away * away)
                if abs(new - at) > close * abs(at):
                    active[left] = j
                    left += 1
            n_active = left
            if n_active == 0:
                break


@njit(cache=True, nogil=True, error_model="numpy")
def _between(constant, a, b, across, low, high, close):  # type: ignore[no-untyped-def]
    linear = constant * across + a + b
    spread = np.sqrt(max(linear * linear - 4 * constant * a * across, 0.0))
    x = -2 * a * across / (linear + spread) if linear >= 0 else (spread - linear) / (2 * constant)
    slack = close * min(abs(low), abs(high))
    inside = x >= low - slack and x <= high + slack and x != 0
    return x if inside else (low + high) / 2
