"""Readouts: a network's grid (clips, time, frequency, features) to one vector per clip."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from daco.errors import InputError
from daco.validation import Float32s

READOUTS = ("mean", "band", "max", "std", "rdp", "mod")
"""Readouts of every grid; ``mod`` needs its frame rate."""

MODULATION_EDGES = (0.2, 0.7, 1.5, 3.0, 5.0, 8.0, 12.0, 15.7)
"""Edges of the modulation bands of ``mod``, in hertz."""

MODULATION_FLOOR = 1e-3
MIN_MODULATION_FRAMES = 8
NEIGHBOURS = 8  # frequencies whose modulation is averaged

_RDP_EXPONENT = 4
_STILL = 1e-8  # frames that are nearer to their mean than this do not move
# The recipe of ``mod`` was fixed on 10 s clips at 16 kHz: 311 frames, 31.25 per second.
_REFERENCE = (311, 31.25)


def pool(grid: Any, name: str, *, frame_rate: float | None = None) -> Any:
    """Pool a grid of features, of NumPy or torch, into one float32 vector per clip.

    Parameters
    ----------
    grid : array or tensor of shape (B, T, F, D)
        Clips, time, frequency bands, features.
    name : str
        ``mean``: over time and frequency, (B, D). ``band``, ``max``, ``std``: mean, maximum and
        standard deviation over time of every band, side by side, band 0 first, (B, F D). ``rdp``:
        relative deviation pooling, ``sum_t w_t x_t`` of every band with ``w_t`` proportional to
        ``(1 + d_t / max_s d_s)**4``; ``d_t`` is the distance of a frame from the mean over time,
        (B, F D). ``mod``: modulation spectrum, see :func:`modulation`.
    frame_rate : float, optional
        Frames per second of the grid; ``mod`` needs it.

    Examples
    --------
    >>> import numpy as np
    >>> grid = np.ones((2, 40, 16, 3), np.float32)
    >>> pool(grid, "mean").shape, pool(grid, "band").shape
    ((2, 3), (2, 48))
    >>> pool(grid, "mod", frame_rate=31.25).shape  # 7 bands x 2 groups x 3 features
    (2, 42)
    """
    if name not in READOUTS:
        raise InputError(f"A grid has no readout {name!r}. It has {', '.join(READOUTS)}.")
    if getattr(grid, "ndim", None) != 4 or 0 in tuple(grid.shape):
        raise InputError(
            "The grid must have shape (clips, time, frequency, features), none of them 0. "
            f"Got {tuple(getattr(grid, 'shape', ()))} instead."
        )
    if name == "mod":
        return modulation(grid, frame_rate)
    if not isinstance(grid, np.ndarray):
        return _pooled(grid.float(), name).reshape(len(grid), -1)
    # In double precision, clip by clip: an hour of float32 cannot be added up in plain order.
    clips = [_pooled(clip[None].astype(np.float64), name) for clip in grid]
    return np.concatenate(clips).astype(np.float32).reshape(len(grid), -1)


def _pooled(x: Any, name: str) -> Any:
    if name == "mean":
        return x.mean((1, 2))
    if name == "band":
        return x.mean(1)
    if name == "max":
        return _library(x).amax(x, 1)
    away = x - x.mean(1)[:, None]
    if name == "std":
        return (away**2).mean(1) ** 0.5
    distance = (away**2).sum(3) ** 0.5
    furthest = _library(x).amax(distance, 1)[:, None]
    weights = (1 + (furthest > _STILL) * distance / (furthest + (furthest == 0))) ** _RDP_EXPONENT
    return (weights[..., None] * x).sum(1) / weights.sum(1)[..., None]


def _library(x: Any) -> Any:
    if isinstance(x, np.ndarray):
        return np
    import torch

    return torch


def modulation(grid: Any, frame_rate: float | None) -> Any:
    """Compute the readout ``mod`` of a grid (B, T, F, D): (B, modulation bands x groups x D).

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
    if frame_rate is None:
        raise InputError("The readout 'mod' needs frame_rate, the grid's frames per second.")
    clips, frames, frequencies, features = grid.shape
    if frames < MIN_MODULATION_FRAMES:
        raise InputError(
            f"The readout 'mod' needs at least {MIN_MODULATION_FRAMES} frames, "
            f"{MIN_MODULATION_FRAMES / frame_rate:.2g} s. Got {frames} instead. "
            "Use longer clips or the readout 'mean'."
        )
    library, length = _library(grid), modulation_length(int(frames), frame_rate)
    plan: Sequence[Any] = (*modulation_plan(int(frames), frame_rate), _groups(int(frequencies)))
    if library is np:
        moving = grid - grid.mean(1, dtype=np.float64).astype(np.float32)[:, None]
    else:
        moving = grid.float() - grid.float().mean(1)[:, None]
        plan = [library.as_tensor(part, device=grid.device) for part in plan]
    window, bands, groups = plan
    moving = moving.reshape(clips, frames, -1) * window[:, None]
    magnitude = abs(library.fft.rfft(moving, length, -2))
    level = library.log(bands @ magnitude + MODULATION_FLOOR)
    return (groups @ level.reshape(clips, len(bands), frequencies, features)).reshape(clips, -1)


def modulation_bands(
    frame_rate: float, edges: tuple[float, ...] = MODULATION_EDGES
) -> list[tuple[float, float]]:
    """The modulation bands, in hertz, that frames of this rate can show."""
    bands = [band for band in pairwise(edges) if sum(band) / 2 < frame_rate / 2]
    if not bands:
        raise InputError(
            f"The readout 'mod' needs frame_rate above {sum(edges[:2]):g} frames per "
            f"second. Got {frame_rate:g} instead. Use 'mean' for this grid."
        )
    return bands


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
def _groups(frequencies: int) -> Float32s:
    """The matrix that averages groups of neighbouring frequencies; the last may be smaller."""
    group = np.arange(frequencies) // NEIGHBOURS
    member = group == np.arange(group[-1] + 1)[:, None]
    return (member / member.sum(axis=1, keepdims=True)).astype(np.float32)
