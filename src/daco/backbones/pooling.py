"""Pooling over time: a grid (clips, time, bands, features) to what it was as a whole.

Grids are float32 of NumPy or torch, results are of the same kind. NumPy adds up in float64, torch
in float32, which it does in blocks. Silence and frames that are all alike give no NaN, and powers
are taken of shares of the largest value, so that they do not overflow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

STILL = 1e-8
"""Frames nowhere further than this from their mean count as equal: relative deviation pooling
then weighs all alike."""


def mean(grid: Any, axes: int | tuple[int, ...]) -> Any:
    """The mean over some axes."""
    if isinstance(grid, np.ndarray):
        # Along a strided axis NumPy adds in plain order, which an hour of float32 does not bear.
        return grid.mean(axes, dtype=np.float64).astype(np.float32)
    return grid.mean(axes)


def mean_and_deviation(grid: Any) -> Any:
    """Temporal mean, then temporal standard deviation, (B, 2 F D)."""
    mu = mean(grid, 1)
    deviation = mean((grid - mu[:, None]) ** 2, 1) ** 0.5
    both = (mu.reshape(len(grid), -1), deviation.reshape(len(grid), -1))
    return np.concatenate(both, axis=1) if isinstance(grid, np.ndarray) else _torch().cat(both, 1)


def band_mean(grid: Any) -> Any:
    """Temporal mean of every band, (B, F, D)."""
    # Divided before they are added: the sum of a clip's values may be too large for float32.
    return mean(grid, 1) if isinstance(grid, np.ndarray) else (grid / grid.shape[1]).sum(1)


def band_max(grid: Any) -> Any:
    """Temporal maximum of every band, (B, F, D)."""
    return _library(grid).amax(grid, 1)


def generalised_mean(grid: Any, power: float, weights: Any = None) -> Any:
    """GeM: the root of the temporal mean of powers of the positive part, (B, F, D).

    With weights (B, T, F) or (B, T, 1) that sum to 1 over time, the mean is a weighted one.
    """
    powers = grid.clip(min=0)
    # Shares of the largest value, so that no power is too large and not all are too small.
    top = _library(grid).amax(powers, axis=1, keepdims=True)
    powers /= _or_one(top)
    powers **= power
    total = band_mean(powers) if weights is None else weighted_mean(powers, weights)
    return top[:, 0] * total ** (1 / power)


def weighted_mean(grid: Any, weights: Any) -> Any:
    """The temporal mean with weights (B, T, F) or (B, T, 1) that sum to 1 over time."""
    return _sum(grid * weights[..., None], 1)


def deviation_weights(grid: Any, gamma: float, *, shared: bool) -> Any:
    """Weights of relative deviation pooling: frames far from the clip's mean count for more.

    ``(1 + rho)**gamma``, scaled to sum to 1 over time; ``rho`` is a frame's distance from the
    mean relative to the furthest frame's. The result is (B, T, F), each band with weights of its
    own, or ``shared`` (B, T, 1), from the distances of all bands together.
    """
    library = _library(grid)
    features = (2, 3) if shared else (3,)
    # Of the halves, because a difference of huge values overflows; ratios are the same.
    away = grid / 2
    away -= band_mean(away)[:, None]
    highest, lowest = (
        extreme(away, axis=(1, *features), keepdims=True)
        for extreme in (library.amax, library.amin)
    )
    largest = library.maximum(highest, -lowest)
    away /= _or_one(largest)
    away *= away
    distance = _sum(away, features) ** 0.5
    if shared:
        distance = distance[..., None]
    furthest = library.amax(distance, axis=1, keepdims=True)
    # Where there is motion the furthest frame is at least 1 away, in units of the largest value.
    moving = largest.reshape(furthest.shape) > STILL / 2 / furthest.clip(min=1)
    growth = library.log1p(moving * distance / _or_one(furthest))
    weights = library.exp(gamma * (growth - library.amax(growth, axis=1, keepdims=True)))
    return weights / weights.sum(axis=1, keepdims=True)


def _or_one(values: Any) -> Any:
    """The values, and 1 where they are 0: a denominator for what is 0 as well."""
    return values + (values == 0)


def _sum(values: Any, axes: int | tuple[int, ...]) -> Any:
    if isinstance(values, np.ndarray):
        return values.sum(axes, dtype=np.float64)
    return values.sum(axes)


def _library(grid: Any) -> Any:
    return np if isinstance(grid, np.ndarray) else _torch()


def _torch() -> Any:
    import torch

    return torch
