"""Features of a recording that a person can name: band levels, tones, repetition, events.

Each family describes another side of the sound, so that a change shows in few of them: levels are
those of the steady noise floor, without tones and short events; tones are lines that last;
harmonics are lines at equal distances (the cepstrum's question, asked by a comb); repetition is the
spectrum of the envelopes; events are short peaks of the envelopes. What is far below the whole
sound counts in none of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.errors import InputError
from daco.validation import Float32s, Float64s

LEAST_SECONDS = 2.0
TONE_FRAME = 1.0  # seconds; lines 2 Hz apart are separate
ENVELOPE_FRAME = 0.008  # seconds
ENVELOPE_RATE = 1000.0  # values of an envelope a second
SMOOTHING = 0.032  # seconds; shorter events count by their energy
LOWEST_TONE, LOWEST_BAND = 50.0, 100.0  # hertz; below is the room's noise
RATES = np.geomspace(0.7, 250.0, 69)
"""Edges of the cells of repetition rates in hertz, an eighth of an octave each."""
SPACINGS = np.arange(25.0, 600.0, 0.1)
SPACING_CELLS = np.geomspace(25.0, 600.0, 38)
"""Edges of the cells of the distance between harmonics in hertz."""
ORDERS = 6  # harmonics that a comb looks at
LINE_DB = 25.0  # a line that stands out further is no better harmonic

# Power that is added to both sides of a comparison, relative to the whole sound in decibels.
_FAINT_BAND, _FAINT_NEW, _FAINT_LINE, _FAINT_ENVELOPE = -40.0, -20.0, -45.0, -28.0
_LEAST_DEPTH = 0.03  # of a modulation
_SILENCE = 1e-20


class Bands(NamedTuple):
    """Edges in hertz of the bands of levels, the cells of tones, and the bands of envelopes."""

    levels: Float64s
    tones: Float64s
    envelopes: Float64s


@lru_cache(maxsize=8)
def bands(sample_rate: int) -> Bands:
    """Levels have a quarter of an octave, at least 80 Hz; tones 1/36; envelopes about a half."""
    top = 0.48 * sample_rate
    levels = [LOWEST_BAND]
    while levels[-1] < top:
        levels.append(levels[-1] + max(80.0, 0.19 * levels[-1]))
    levels[-1] = top
    tones = LOWEST_TONE * 2.0 ** np.arange(0, np.log2(top / LOWEST_TONE), 1 / 36)
    envelopes = [125.0]
    while envelopes[-1] < top:
        envelopes.append(envelopes[-1] + 125.0 * max(1, round(0.4 * envelopes[-1] / 125.0)))
    envelopes[-1] = min(envelopes[-1], sample_rate / 2)
    return Bands(np.array(levels), tones, np.array(envelopes))


@dataclass(frozen=True, eq=False)
class SoundFeatures:
    """Features of one recording, in decibels, and the frequencies in hertz where they were found.

    ``overall`` is its level; ``levels`` the noise floor of each band; ``tones``, ``harmonics`` and
    ``repetition`` (band, rate) how far the strongest line of each cell stands out; ``lines`` are
    tones that may be fainter, since a healthy one can be missing; ``events`` the
    peak of each envelope over its median; ``course`` the envelopes over their medians, (band,
    millisecond).
    """

    overall: float
    levels: Float32s
    tones: Float32s
    tone_hz: Float32s
    lines: Float32s
    line_hz: Float32s
    harmonics: Float32s
    harmonics_hz: Float32s
    repetition: Float32s
    repetition_hz: Float32s
    events: Float32s
    course: Float32s


def sound_features(waveform: NDArray[Any], sample_rate: int) -> SoundFeatures:
    """Features of a waveform of shape (n,) and at least 2 s."""
    wave = np.asarray(waveform, np.float32)
    if wave.ndim != 1 or len(wave) < LEAST_SECONDS * sample_rate or not np.isfinite(wave).all():
        raise InputError(
            f"Findings need one channel of finite numbers, at least {LEAST_SECONDS:g} s long. Got "
            f"an array of shape {wave.shape} at {sample_rate} Hz."
        )
    wave = wave - wave.mean()
    edges = bands(sample_rate)
    power, hertz = steady_spectrum(wave, sample_rate)
    floor, levels = _levels(power, hertz, edges.levels)
    tones, tone_hz = _strongest(_standing_out(power, floor, _FAINT_NEW), hertz, edges.tones)
    standing_out = _standing_out(power, floor, _FAINT_LINE)
    lines, line_hz = _strongest(standing_out, hertz, edges.tones)
    comb = _comb(standing_out, hertz[1])
    harmonics, harmonics_hz = _strongest(comb, SPACINGS, SPACING_CELLS)
    envelopes = _envelopes(wave, sample_rate, edges.envelopes)
    repetition, repetition_hz = _repetition(envelopes)
    course = _course(envelopes)
    return SoundFeatures(
        overall=_decibels(np.mean(np.square(wave, dtype=np.float64))),
        levels=levels,
        tones=tones,
        tone_hz=tone_hz,
        lines=lines,
        line_hz=line_hz,
        harmonics=harmonics,
        harmonics_hz=harmonics_hz,
        repetition=repetition,
        repetition_hz=repetition_hz,
        events=course.max(axis=1),
        course=course,
    )


def _decibels(power: Any) -> Any:
    return 10 * np.log10(power + _SILENCE)


def steady_spectrum(wave: Float32s, sample_rate: int) -> tuple[Float64s, Float64s]:
    """Median over time of the power spectrum, and its frequencies in hertz."""
    from scipy.fft import next_fast_len, rfft

    size = next_fast_len(round(TONE_FRAME * sample_rate), real=True)
    frames = np.lib.stride_tricks.sliding_window_view(wave, size)[:: size // 4]
    transform = rfft(frames * np.hanning(size).astype(np.float32), axis=1)
    power = np.median(transform.real**2 + transform.imag**2, axis=0).astype(np.float64)
    hertz = np.arange(len(power)) * sample_rate / size
    power[hertz < LOWEST_TONE / 2] = 0
    return power, hertz


def _levels(power: Float64s, hertz: Float64s, edges: Float64s) -> tuple[Float64s, Float32s]:
    """The noise floor of each frequency, and the level of the floor in each band."""
    first = np.searchsorted(hertz, edges)
    middles = [np.median(power[low:high]) for low, high in pairwise(first)]
    centres = (edges[1:] + edges[:-1]) / 2
    floor = 10 ** (np.interp(hertz, centres, _decibels(np.array(middles))) / 10)
    faint = power.sum() * 10 ** (_FAINT_BAND / 10)
    return floor, _decibels(middles * np.diff(first) + faint).astype(np.float32)


def _standing_out(power: Float64s, floor: Float64s, faint_db: float) -> Float64s:
    """Decibels of a spectrum over its floor."""
    faint = power.sum() * 10 ** (faint_db / 10)
    return _decibels(power + faint) - _decibels(floor + faint)


def _strongest(values: NDArray[Any], axis: Float64s, edges: Float64s) -> tuple[Float32s, Float32s]:
    """The largest value in each cell between edges, and where on the axis it is."""
    first = np.searchsorted(axis, edges)
    highest = np.empty((*values.shape[:-1], len(edges) - 1), np.float32)
    where = np.empty_like(highest)
    for cell, (low, high) in enumerate(pairwise(first)):
        low = min(low, values.shape[-1] - 1)
        part = values[..., low : max(high, low + 1)]
        best = part.argmax(axis=-1)
        highest[..., cell] = part.max(axis=-1)
        where[..., cell] = axis[low + best]
    return highest, where


def _comb(lines: Float64s, resolution: float) -> Float64s:
    """How far lines at the multiples of each spacing stand out of what is half-way between."""
    from scipy.ndimage import maximum_filter1d

    lines = maximum_filter1d(np.clip(lines, 0, LINE_DB), 3)
    halves = np.arange(1, 2 * ORDERS + 1)[:, None] / 2
    at = np.round(SPACINGS * halves / resolution).astype(np.intp)
    values = np.where(at < len(lines), lines[np.minimum(at, len(lines) - 1)], 0)
    return values[1::2].mean(axis=0) - values[::2].mean(axis=0)


def _envelopes(wave: Float32s, sample_rate: int, edges: Float64s) -> Float32s:
    """Power of each band over time, (bands, milliseconds)."""
    from scipy.fft import rfft

    size = round(ENVELOPE_FRAME * sample_rate)
    frames = np.lib.stride_tricks.sliding_window_view(wave, size)
    starts = np.arange(0, len(frames), sample_rate / ENVELOPE_RATE).astype(np.intp)
    window = np.hanning(size).astype(np.float32)
    first = np.round(edges * size / sample_rate).astype(np.intp)
    out = np.empty((len(edges) - 1, len(starts)), np.float32)
    for start in range(0, len(starts), 4096):
        block = slice(start, start + 4096)
        transform = rfft(frames[starts[block]] * window, axis=1)
        power = transform.real**2 + transform.imag**2
        out[:, block] = np.add.reduceat(power[:, : first[-1]], first[:-1], axis=1).T
    return out + np.float32(out.sum(axis=0).mean() * 10 ** (_FAINT_ENVELOPE / 10) + _SILENCE)


def _repetition(power: Float32s) -> tuple[Float32s, Float32s]:
    """How far the strongest rate of each cell stands out in each band, and the rate."""
    from scipy.fft import rfft
    from scipy.ndimage import median_filter

    envelope = np.sqrt(power)
    envelope = envelope / envelope.mean(axis=1, keepdims=True) - 1
    count = envelope.shape[1]
    window = np.hanning(count).astype(np.float32)
    depth = np.abs(rfft(envelope * window, axis=1)) * (2 / window.sum())
    rates = np.arange(depth.shape[1]) * ENVELOPE_RATE / count
    kept = rates <= RATES[-1]
    depth, rates = depth[:, kept], rates[kept]
    floor = median_filter(depth, (1, 61), mode="reflect")
    return _strongest(_decibels((depth + _LEAST_DEPTH) / (floor + _LEAST_DEPTH)) * 2, rates, RATES)


def _course(power: Float32s) -> Float32s:
    """Smoothed power of each band over its median, in decibels."""
    from scipy.ndimage import uniform_filter1d

    smooth = uniform_filter1d(power, round(SMOOTHING * ENVELOPE_RATE), axis=1, mode="nearest")
    return _decibels(smooth) - _decibels(np.median(smooth, axis=1, keepdims=True))
