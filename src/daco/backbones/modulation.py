"""The modulation spectrum of a grid: how strongly each of its values moves at which speed."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.backbones.pooling import mean
from daco.errors import InputError

MODULATION_EDGES = (0.2, 0.7, 1.5, 3.0, 5.0, 8.0, 12.0, 15.7)
"""Edges of the modulation bands in hertz, about logarithmic."""

NEIGHBOURS = 8
"""Neighbouring frequencies whose log modulation is averaged."""

MODULATION_FLOOR = 1e-3
MIN_MODULATION_FRAMES = 8

# The recipe was fixed on 10 s clips at 16 kHz: 311 frames, 31.25 per second.
_REFERENCE_FRAMES, _REFERENCE_RATE = 311, 31.25


def modulation_bands(frame_rate: float) -> list[tuple[float, float]]:
    """The modulation bands, in hertz, that frames of this rate can show.

    >>> modulation_bands(3.125)
    [(0.2, 0.7), (0.7, 1.5)]
    """
    bands = [band for band in pairwise(MODULATION_EDGES) if sum(band) / 2 < frame_rate / 2]
    if not bands:
        raise InputError(
            f"The readout 'mod' needs frame_rate above {sum(MODULATION_EDGES[:2]):g} frames per "
            f"second. Got {frame_rate:g} instead. Use 'mean' for this grid."
        )
    return bands


def modulation(grid: Any, frame_rate: float) -> Any:
    """The readout ``mod`` of a grid (B, T, F, D): (B, modulation bands x groups x D).

    Each value is centred and Hann-windowed over time; the magnitude of its Fourier transform is
    averaged within `MODULATION_EDGES`; ``ln(1e-3 + .)``; averaged over groups of 8 neighbouring
    frequencies.

    Notes
    -----
    A clip of any length has the same number of values, on the same scale. One shorter than 10 s
    is padded with zeros after the window, which interpolates its spectrum so that every band
    holds the frequencies it has at 10 s; magnitudes are divided by the root of the window's
    energy relative to 10 s, so that noise of one strength gives one value. At 10 s both change
    nothing. Below about 4 s the slowest bands run into each other: no clip can tell motions
    slower than itself apart. Bands whose middle lies above half the frame rate are left out.
    """
    clips, frames, frequencies, features = grid.shape
    if frames < MIN_MODULATION_FRAMES:
        raise InputError(
            f"The readout 'mod' needs at least {MIN_MODULATION_FRAMES} frames, "
            f"{MIN_MODULATION_FRAMES / frame_rate:.2g} s. Got {frames} instead. "
            "Use longer clips or the readout 'mean'."
        )
    plan: tuple[Any, ...] = (
        *_modulation_plan(int(frames), frame_rate),
        _group_matrix(int(frequencies)),
    )
    length = _fft_length(int(frames), frame_rate)
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


def _fft_length(frames: int, frame_rate: float) -> int:
    return max(frames, round(frame_rate * _REFERENCE_FRAMES / _REFERENCE_RATE))


@lru_cache(maxsize=32)
def _modulation_plan(
    frames: int, frame_rate: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The window over time, and the matrix that averages magnitudes within each band."""
    window = np.hanning(frames)
    length = _fft_length(frames, frame_rate)
    hertz = np.arange(length // 2 + 1) * frame_rate / length
    edges = modulation_bands(frame_rate)
    inside = np.array([(low <= hertz) & (hertz < high) for low, high in edges])
    reference = _REFERENCE_RATE * np.sum(np.hanning(_REFERENCE_FRAMES) ** 2)
    scale = np.sqrt(reference / (frame_rate * np.sum(window**2)))
    bands = inside * (scale / inside.sum(axis=1, keepdims=True))
    return window.astype(np.float32), bands.astype(np.float32)


@lru_cache(maxsize=32)
def _group_matrix(frequencies: int) -> NDArray[np.float32]:
    """The matrix that averages groups of neighbouring frequencies; the last may be smaller."""
    group = np.arange(frequencies) // NEIGHBOURS
    member = group == np.arange(group[-1] + 1)[:, None]
    return (member / member.sum(axis=1, keepdims=True)).astype(np.float32)
