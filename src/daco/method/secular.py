"""Roots of secular equations: eigenvalues of a symmetric matrix that lost a rank-one part.

``sum_k weights[k] / (mu - poles[k]) = 0`` has one root between any two neighbouring poles. The
roots of many equations that share their poles are found together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.method.kernels import kernels

Doubles = NDArray[np.float64]
Indices = NDArray[np.intp]

_LEAST_WEIGHT = 1e-30  # of a pole that has none: its root moves by as little, but is one
_LEAST_GAP = 1e-110  # between equal poles; what is squared on the way stays a number
_DIGITS = 38  # natural logarithm of the accuracy of condensed poles
CLOSE = 1e-12  # relative size of a last step: the root is then exact, its slope to this
MOST_STEPS = 200
_ELEMENTS = 2**16  # of a work array: those of one step stay in the cache


class Roots(NamedTuple):
    """Roots (n, d), each as a pole and an offset from it: exact also very close to a pole.

    ``gaps[o, k]`` is pole o less pole k; ``slope`` is ``sum_k weights[k] / (mu - poles[k])**2``.
    """

    gaps: Doubles
    origin: Indices
    offset: Doubles
    slope: Doubles

    def less_poles(self, rows: slice) -> Doubles:
        """Each root of some equations less each pole, (rows, d, K)."""
        differences = self.gaps[self.origin[rows]]
        differences += self.offset[rows, :, None]
        return differences


def condensed(poles: Doubles, d: int) -> tuple[int, Doubles, Doubles]:
    """Fewer poles that act the same, to rounding, on every root above ``poles[d]``.

    From far away many poles look like few: their weights go to Chebyshev points of the
    interval that holds them, by interpolation of 1 / (mu - pole).

    Parameters
    ----------
    poles : (K,)
        Descending, none negative.

    Returns
    -------
    kept : int
        So many poles at the top stay as they are.
    points : (Q,)
        Where the others go.
    shares : (K - kept, Q)
        What each of them gives to each point.
    """
    nearest = np.arange(d + 1, len(poles))
    with np.errstate(divide="ignore", over="ignore"):
        distance = 2 * poles[d] / poles[nearest] - 1  # of mu, where the interval is [-1, 1]
        rate = np.log(distance + np.sqrt(distance**2 - 1))
        needed = np.ceil(_DIGITS / rate) + 4
    costs = nearest + needed
    best = int(np.argmin(costs)) if len(costs) else 0
    if not len(costs) or costs[best] >= len(poles):
        return len(poles), np.empty(0), np.empty((0, 0))
    kept, count = int(nearest[best]), int(needed[best])
    top = poles[kept]
    if top == 0:
        return kept, np.zeros(1), np.ones((len(poles) - kept, 1))
    angles = (np.arange(count) + 0.5) * np.pi / count
    degrees = np.arange(count)
    at_points = np.cos(np.outer(degrees, angles)) * (2 / count)
    at_points[0] /= 2
    where = np.arccos(np.clip(2 * poles[kept:] / top - 1, -1, 1))
    return kept, top / 2 * (1 + np.cos(angles)), np.cos(np.outer(where, degrees)) @ at_points


def secular_roots(poles: Doubles, weights: Doubles, d: int) -> Roots:
    """The d largest roots of each of n equations.

    Parameters
    ----------
    poles : (K,)
        The first d + 1 descend and lie above all others.
    weights : (n, K)
        Those of the first d + 1 poles are not negative. A pole without weight is a root
        itself, and so is one of two equal poles.
    """
    gaps = poles[: d + 1, None] - poles
    order = np.arange(len(poles)) - np.arange(d + 1)[:, None]
    gaps = np.where(order * gaps > 0, gaps, np.sign(order) * _LEAST_GAP)
    weights = weights.copy()
    np.maximum(weights[:, : d + 1], _LEAST_WEIGHT, out=weights[:, : d + 1])
    upper = np.arange(d)
    at_middle = gaps[:d] - gaps[upper, upper + 1, None] / 2
    at_middle[upper, upper + 1] = gaps[upper, upper + 1] / 2
    value = weights @ (1 / at_middle).T
    solve = _solve
    if kernels().__name__.endswith("numba"):
        from daco.method._secular_numba import solve
    return Roots(gaps, *solve(gaps, weights, value))


def _solve(gaps: Doubles, weights: Doubles, value: Doubles) -> tuple[Indices, Doubles, Doubles]:
    """Origins, offsets and slopes (n, d) of the roots; ``value`` is that between the poles."""
    origin = np.empty(value.shape, np.intp)
    offset, slope = np.empty((2, *value.shape))
    step = max(1, _ELEMENTS // gaps.size)
    for start in range(0, len(value), step):
        part = slice(start, start + step)
        origin[part], offset[part], slope[part] = _solve_some(gaps, weights[part], value[part])
    return origin, offset, slope


def _solve_some(
    gaps: Doubles, weights: Doubles, value: Doubles
) -> tuple[Indices, Doubles, Doubles]:
    clip, upper = np.indices(value.shape).reshape(2, -1)
    # The sign of the function tells which pole is nearer to the root.
    above = value.ravel() > 0
    origin, other = np.where(above, upper, upper + 1), np.where(above, upper + 1, upper)
    near, far, across = weights[clip, origin], weights[clip, other], gaps[origin, other]
    half = across / 2
    low, high = np.where(above, -half, 0.0), np.where(above, 0.0, -half)
    offset = _between(value.ravel() + (near - far) / half, near, far, across, low, high)
    slope = np.empty_like(offset)
    by_pole, gaps_of = np.ascontiguousarray(weights.T), np.ascontiguousarray(gaps.T)
    active = np.arange(offset.size)
    for _ in range(MOST_STEPS):
        if active.size == 1:  # sums of one column are taken in another order
            active = np.repeat(active, 2)
        x, a, far_away = offset[active], near[active], across[active]
        inverse = gaps_of.take(origin[active], axis=1)
        inverse += x
        np.reciprocal(inverse, out=inverse)
        terms = by_pole.take(clip[active], axis=1)
        terms *= inverse
        value = terms.sum(axis=0)
        terms *= inverse
        slopes = terms.sum(axis=0)
        low[active] = np.where(value > 0, x, low[active])
        high[active] = np.where(value > 0, high[active], x)
        # The nearer pole keeps its weight, the other takes what the slope says of all others.
        away = x + far_away
        b = np.maximum((slopes - a / (x * x)) * (away * away), far[active])
        new = _between(value - a / x - b / away, a, b, far_away, low[active], high[active])
        offset[active] = new
        away = new + far_away
        slope[active] = a / (new * new) + b / (away * away)
        active = active[np.abs(new - x) > CLOSE * np.abs(x)]
        if not active.size:
            break
    shape = len(weights), len(gaps) - 1
    return origin.reshape(shape), offset.reshape(shape), slope.reshape(shape)


def _between(
    constant: Doubles, a: Doubles, b: Doubles, across: Doubles, low: Doubles, high: Doubles
) -> Doubles:
    """The root of constant + a/x + b/(x + across) in its interval, or else the middle of it."""
    linear = constant * across + a + b
    spread = np.sqrt(np.maximum(linear * linear - 4 * constant * a * across, 0))
    stable = linear >= 0
    x = np.where(stable, -2 * a * across, spread - linear)
    x /= np.where(stable, linear + spread, 2 * constant)
    # Rounding may carry a root that has converged across the last bound.
    slack = CLOSE * np.minimum(np.abs(low), np.abs(high))
    inside = (x >= low - slack) & (x <= high + slack) & (x != 0)
    return np.where(inside, x, (low + high) / 2)
