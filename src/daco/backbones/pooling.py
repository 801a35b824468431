"""Pooling of a grid (clips, time, bands, features) over time, and its modulation spectrum.

Grids are float32 of NumPy or torch, results are of the same kind. NumPy sums in float64, torch in
float32, in blocks. Silence and equal frames give no NaN, and powers are taken of shares of the
largest value, so that they do not overflow.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from daco.errors import InputError
from daco.validation import Float32s

STILL = 1e-8
"""Frames no further than this from their mean count as equal, and have equal weights."""

MODULATION_EDGES = (0.2, 0.7, 1.5, 3.0, 5.0, 8.0, 12.0, 15.7)
"""Edges of the modulation bands in hertz, about logarithmic."""

NEIGHBOURS = 8
"""Neighbouring frequencies whose log modulation is averaged."""

MODULATION_FLOOR = 1e-3
MIN_MODULATION_FRAMES = 8

# The recipe was fixed on 10 s clips at 16 kHz: 311 frames, 31.25 per second.
_REFERENCE = (311, 31.25)


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


def modulation_bands(
    frame_rate: float, edges: tuple[float, ...] = MODULATION_EDGES
) -> list[tuple[float, float]]:
    """The modulation bands, in hertz, that frames of this rate can show.

    >>> modulation_bands(3.125)
    [(0.2, 0.7), (0.7, 1.5)]
    """
    bands = [band for band in pairwise(edges) if sum(band) / 2 < frame_rate / 2]
    if not bands:
        raise InputError(
            f"The readout 'mod' needs frame_rate above {sum(edges[:2]):g} frames per "
            f"second. Got {frame_rate:g} instead. Use 'mean' for this grid."
        )
    return bands


def modulation(grid: Any, frame_rate: float) -> Any:
    """The readout ``mod`` of a grid (B, T, F, D): (B, modulation bands x groups x D).

    Each value is centred and Hann-windowed over time; the magnitude of its Fourier transform is
    averaged within `MODULATION_EDGES`; ``ln(1e-3 + .)``; averaged over groups of 8 neighbouring
    frequencies. Bands whose middle is above half the frame rate are left out.

    Notes
    -----
    A clip of any length has the same number of values, on the same scale. One shorter than 10 s
    is padded with zeros, so that every band holds the frequencies it has at 10 s; magnitudes are
    divided by the root of the window's energy relative to 10 s, so that noise of one strength
    gives one value. Below about 4 s the slowest bands cannot be told apart.
    """
    clips, frames, frequencies, features = grid.shape
    if frames < MIN_MODULATION_FRAMES:
        raise InputError(
            f"The readout 'mod' needs at least {MIN_MODULATION_FRAMES} frames, "
            f"{MIN_MODULATION_FRAMES / frame_rate:.2g} s. Got {frames} instead. "
            "Use longer clips or the readout 'mean'."
        )
    plan: tuple[Any, ...] = (
        *modulation_plan(int(frames), frame_rate),
        _group_matrix(int(frequencies)),
    )
    length = modulation_length(int(frames), frame_rate)
    moving = (grid - mean(grid, 1)[:, None]).reshape(clips, frames, -1)
    if isinstance(grid, np.ndarray):
        window, bands, groups = plan
        magnitude = np.abs(np.fft.rfft(moving * window[:, None], length, axis=1))
        level = np.log(np.float32(MODULATION_FLOOR) + bands @ magnitude)
    else:
        import torch

        window, bands, groups = (torch.as_tensor(part).to(grid) for part in plan)
        magnitude = torch.fft.rfft(moving * window[:, None], length, dim=1).abs()
        level = torch.log(MODULATION_FLOOR + bands @ magnitude)
    level = level.reshape(clips, len(bands), frequencies, features)
    return (groups @ level).reshape(clips, -1)


def modulation_length(
    frames: int, frame_rate: float, reference: tuple[int, float] = _REFERENCE
) -> int:
    """Frames that are Fourier transformed: a clip shorter than 10 s is padded with zeros."""
    return max(frames, round(frame_rate * reference[0] / reference[1]))


@lru_cache(maxsize=32)
def modulation_plan(
    frames: int,
    frame_rate: float,
    edges: tuple[float, ...] = MODULATION_EDGES,
    reference: tuple[int, float] = _REFERENCE,
) -> tuple[Float32s, Float32s]:
    """The window over time, and the matrix that averages magnitudes within each band."""
    window = np.hanning(frames)
    length = modulation_length(frames, frame_rate, reference)
    hertz = np.arange(length // 2 + 1) * frame_rate / length
    bands = modulation_bands(frame_rate, edges)
    inside = np.array([(low <= hertz) & (hertz < high) for low, high in bands])
    energy = reference[1] * np.sum(np.hanning(reference[0]) ** 2)
    scale = np.sqrt(energy / (frame_rate * np.sum(window**2)))
    weights = inside * (scale / inside.sum(axis=1, keepdims=True))
    return window.astype(np.float32), weights.astype(np.float32)


@lru_cache(maxsize=32)
def _group_matrix(frequencies: int) -> Float32s:
    """The matrix that averages groups of neighbouring frequencies; the last may be smaller."""
    group = np.arange(frequencies) // NEIGHBOURS
    member = group == np.arange(group[-1] + 1)[:, None]
    return (member / member.sum(axis=1, keepdims=True)).astype(np.float32)
