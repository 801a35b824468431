"""Plain levels of a recording: overall, by octave band, how long it is loud, how like noise.

They say whether a clip is in the range of the normals (:mod:`daco.detector.ranges`). No score
may use them: levels differ between recording sessions for reasons that are not the machine's.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from daco.backbones.classical import Framing, framing
from daco.backbones.protocol import Backbone
from daco.validation import Float32s, Indices

CENTRES = (63, 125, 250, 500, 1000, 2000, 4000, 8000)
"""Nominal centres of the octave bands, in hertz."""

QUANTITIES = ("level", *(f"{hertz} Hz" for hertz in CENTRES), "duty", "flatness")
"""Levels in dB of full scale, a percentage, and dB below white noise."""

LEVELS = "levels"
"""Their name beside the readouts of a network, and that of their column in a table (as text)."""

FLOOR = 1e-14  # a power of -140 dB of full scale
_EDGES = 1000 * 2.0 ** np.arange(-4.5, 4.5)
_LOUD = 0.95  # quantile of the frames' powers that is the loud part of a clip
_ON = 0.1  # share of it from which on a frame counts


@lru_cache(maxsize=8)
def _plan(sample_rate: int) -> tuple[Framing, float, Indices]:
    """Frames, factor from sums of power spectra to mean squares, and edges of bands."""
    frames = framing(sample_rate, 0.064, 2)
    hertz = np.arange(frames.fft_length // 2 + 1) * sample_rate / frames.fft_length
    window = frames.window.astype(np.float64)
    return frames, 2 / (len(window) * float(window @ window)), np.searchsorted(hertz, _EDGES)


def sound_levels(waveforms: Any, sample_rate: int) -> Float32s:
    """The `QUANTITIES` of clips (clips, samples) of float32, (clips, len(QUANTITIES)) float32.

    Frames of 128 ms (Hann window) every 64 ms. ``level`` is the mean power from 44 Hz up, in
    decibels; a sine of full scale has -3.01. The octave bands end at 11.3 kHz or half the sample
    rate; one above it has -140 dB. ``duty`` is the percentage of frames with at least a tenth of
    the power of the loud ones (95 % quantile). ``flatness`` is the geometric over the arithmetic
    mean of the spectrum from 44 Hz to 5.7 kHz: 0 dB for white noise, less for all else.

    >>> sine = 0.1 * np.sin(2 * np.pi * 1000 * np.arange(16000, dtype=np.float32) / 16000)
    >>> levels = dict(zip(QUANTITIES, sound_levels(sine[None], 16000)[0].tolist()))
    >>> round(levels["level"], 2), round(levels["1000 Hz"], 2), levels["duty"]
    (-23.01, -23.01, 100.0)
    """
    plan = _plan(int(sample_rate))
    return np.stack([_levels(np.asarray(wave), *plan) for wave in waveforms])


def _levels(wave: Any, framed: Framing, scale: float, edges: Indices) -> Float32s:
    missing = len(framed.window) - len(wave)
    wave = np.pad(wave, (0, missing)) if missing > 0 else wave
    first, middle = edges[0], edges[-2]
    spectrum, by_frame = np.zeros(framed.fft_length // 2 + 1), []
    for _, power in framed.powers(wave):  # in blocks: an hour is never transformed at once
        spectrum += power.sum(axis=0, dtype=np.float64)
        by_frame.append(power[:, first:].sum(axis=1, dtype=np.float64))
    frames = np.concatenate(by_frame)
    spectrum *= scale / len(frames)
    total = np.concatenate([[0.0], np.cumsum(spectrum)])
    bands = total[edges[1:]] - total[edges[:-1]]
    powers = np.array([total[-1] - total[first], *bands])
    shape = spectrum[first:middle] + FLOOR * FLOOR
    flatness = 10 * (np.log10(shape).mean() - np.log10(shape.mean()))
    duty = 100 * np.mean(frames >= _ON * np.quantile(frames, _LOUD))
    return np.array([*10 * np.log10(powers + FLOOR), duty, flatness], np.float32)


def level_network(networks: Sequence[Backbone]) -> Backbone:
    """The network whose waveforms the levels are taken of, whatever the order of several."""
    return min(networks, key=lambda each: (each.sample_rate, each.resampler))


def levels_text(levels: Float32s) -> list[str]:
    """The levels of each clip as text, for a column of a table."""
    return [" ".join(f"{value:.2f}" for value in row) for row in levels.tolist()]


def parse_levels(column: Iterable[Any]) -> Float32s | None:
    """The levels in a column of a table; None where a clip has none."""
    try:
        levels = np.array([str(text).split() for text in column], np.float32)
    except ValueError:
        return None
    usable = levels.ndim == 2 and levels.shape[1] == len(QUANTITIES) and np.isfinite(levels).all()
    return levels if usable else None
