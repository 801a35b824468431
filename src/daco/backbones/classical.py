"""Weight-free views of machine diagnosis: envelope spectrum, cepstrum and fast modulation.

The recipes were fixed on clips of 10 s at 16 kHz and are scaled to other rates and lengths: frames
keep their duration, edges of bands their frequency in hertz (or time lag in seconds), and noise of
one strength has one magnitude. The number of values is always the same; the functions say what a
band has that a rate or a length cannot show. The level of a recording cancels, down to the floors
of each recipe. Digital silence gives ln(1e-3) in every value: the smallest value that there is.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from daco.backbones.readout import modulation_length, modulation_plan
from daco.validation import Float32s, Indices

POWER_FLOOR = 1e-10  # of a mel band: noise of -120 dB of full scale in ``mod60``
CEPSTRUM_FLOOR = 1e-12  # of a power spectrum: noise of -155 dB of full scale
FLOOR = 1e-3  # added to magnitudes of motion before their logarithm

ENVELOPE_GROUPS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 18, 23, 30, 39, 44, 50, 57, 65)
"""Edges of the frequency groups of ``env``, in units of 125 Hz."""

ENVELOPE_EDGES = np.geomspace(0.6, 500, 41)
"""Edges of the modulation bands of ``env`` in hertz."""

CEPSTRUM_EDGES = np.geomspace(8, 1500, 41)
"""Edges of the quefrency bands of ``cep`` in bins of 1/8 ms, which is 1 ms to 188 ms."""

FAST_EDGES = (1.0, 2.0, 3.0, 4.5, 6.5, 9.0, 12.0, 16.0, 22.0, 30.0, 40.0, 52.0, 62.0)
"""Edges of the modulation bands of ``mod60`` in hertz."""

FAST_MEL_BANDS, FAST_NEIGHBOURS = 64, 4

_REFERENCE_RATE = 16_000
_SEGMENT_SECONDS = 10
_FAST_REFERENCE = (1247, 125.0)  # frames of 10 s, and frames per second
_CEPSTRUM_REFERENCE = 4097  # frequencies
_BLOCK = 1 << 17  # samples transformed at once: bounds the memory of an hour-long clip


class Framing(NamedTuple):
    """Frames of a waveform, not centred, and the length of their Fourier transform."""

    hop: int
    window: NDArray[Any]
    fft_length: int

    def count(self, samples: int) -> int:
        """Number of frames in a number of samples."""
        return 1 + (samples - len(self.window)) // self.hop

    def powers(self, waveform: Float32s) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Power spectra of blocks of frames, (frames, frequencies), and which frames they are."""
        from scipy.fft import rfft

        frames = np.lib.stride_tricks.sliding_window_view(waveform, len(self.window))[:: self.hop]
        at_once = max(1, _BLOCK // len(self.window))
        for first in range(0, len(frames), at_once):
            rows = slice(first, first + at_once)
            spectrum = rfft(frames[rows] * self.window, self.fft_length)
            yield rows, spectrum.real**2 + spectrum.imag**2

    def segments(self, waveform: Float32s, sample_rate: int) -> Iterator[Float32s]:
        """Equal parts of 10 s to 20 s, of as many frames each; a shorter clip as it is."""
        parts = max(1, len(waveform) // (_SEGMENT_SECONDS * sample_rate))
        step = self.count(len(waveform)) // parts * self.hop
        for start in range(0, parts * step, step):
            yield waveform[start : start + step - self.hop + len(self.window)]


def framing(
    sample_rate: int, seconds: float, hops: int, *, dtype: Any = np.float32, fast: bool = False
) -> Framing:
    """Frames of `hops` hops with a symmetric Hann window; a `fast` FFT pads to a fast length."""
    from scipy.fft import next_fast_len

    hop = round(seconds * sample_rate)
    window = np.hanning(hops * hop).astype(dtype)
    length = next_fast_len(len(window), real=True) if fast else len(window)
    return Framing(hop, window, length)


def mel_filters(sample_rate: int, fft_length: int, bands: int = 128) -> NDArray[np.float64]:
    """Triangles of HTK mel bands over the FFT's frequencies, (bands, fft_length // 2 + 1)."""
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hertz = np.arange(fft_length // 2 + 1) * sample_rate / fft_length
    filters = np.maximum(
        0, np.minimum((hertz - low) / (centre - low), (high - hertz) / (high - centre))
    )
    empty = ~filters.any(axis=1)
    between = np.maximum(0, 1 - np.abs(hertz - centre) * fft_length / sample_rate)
    filters[empty] = between[empty]
    return filters


def _levels(waveform: Float32s, frames: Framing, filters: Float32s) -> Float32s:
    """Powers of bands over time, (bands, frames); filters are (bands, frequencies)."""
    # Time last, because the filters and the modulation both run along contiguous time.
    levels = np.empty((filters.shape[0], frames.count(len(waveform))), np.float32)
    for columns, power in frames.powers(waveform):
        levels[:, columns] = filters @ power.T
    return levels


def mel_levels(waveform: Float32s, frames: Framing, filters: Float32s) -> Float32s:
    """Mel bands in decibels, (bands, frames) float32."""
    levels = _levels(waveform, frames, filters)
    levels += np.float32(POWER_FLOOR)
    np.log10(levels, out=levels)
    levels *= np.float32(10)
    return levels


@lru_cache(maxsize=8)
def mel_plan(sample_rate: int, seconds: float, hops: int, bands: int) -> tuple[Framing, Float32s]:
    """Frames and mel filters, dense: to load sparse matrices takes longer than to score a clip."""
    frames = framing(sample_rate, seconds, hops, fast=True)
    filters = mel_filters(sample_rate, frames.fft_length, bands)
    return frames, filters.astype(np.float32)


def envelope_peaks(waveform: Float32s, sample_rate: int) -> Float32s:
    """The view ``env``: how much single repetition rates of the envelope stand out, 640 values.

    Frames of 8 ms every 1 ms; root mean square of the magnitudes within 16 groups of frequencies
    from 125 Hz to 8 kHz, divided by its mean over the clip, less 1; Hann window and Fourier
    transform over time; in each of 40 modulation bands from 0.6 to 500 Hz
    ``ln(max + 1e-3) - ln(mean + 1e-3)`` of the magnitudes. The order is modulation band, group.

    A recording of 20 s or longer is the mean over equal segments of 10 s to 20 s, because the
    largest of more frequencies is larger. Groups above half the sample rate, and modulation bands
    with one frequency only (the slow ones of short clips), are 0. Levels cancel without a floor.
    """
    frames, groups = _envelope_plan(sample_rate)
    frame_rate = sample_rate / frames.hop
    segments = frames.segments(waveform, sample_rate)
    values = [_peakiness(_levels(segment, frames, groups), frame_rate) for segment in segments]
    return np.mean(values, axis=0).T.astype(np.float32).ravel()


@lru_cache(maxsize=8)
def _envelope_plan(sample_rate: int) -> tuple[Framing, Float32s]:
    """The frames, and the matrix (groups, frequencies) that averages powers of groups."""
    frames = framing(sample_rate, 0.001, 8)
    hertz = np.arange(frames.fft_length // 2 + 1) * sample_rate / frames.fft_length
    edges = 125.0 * np.array(ENVELOPE_GROUPS)[:, None]
    inside = (edges[:-1] <= hertz) & (hertz < edges[1:])
    groups = inside / np.maximum(1, inside.sum(axis=1, keepdims=True))
    return frames, groups.astype(np.float32)


@lru_cache(maxsize=8)
def _peak_bands(frames: int, frame_rate: float) -> tuple[Indices, int]:
    """First frequency of each modulation band of ``env``, and the one after the last band."""
    hertz = np.arange(frames // 2 + 1) * frame_rate / frames
    edges = np.searchsorted(hertz, ENVELOPE_EDGES)
    return edges[:-1], max(int(edges[-1]), int(edges[-2]) + 1)


def _peakiness(levels: Float32s, frame_rate: float) -> NDArray[np.float64]:
    """Peakiness of each group's powers (groups, frames) in each modulation band."""
    from scipy.fft import rfft

    frames = levels.shape[1]
    np.sqrt(levels, out=levels)
    mean = levels.mean(axis=1, keepdims=True, dtype=np.float64)
    silent = mean == 0
    levels /= np.where(silent, 1, mean).astype(np.float32)
    levels -= ~silent
    levels *= np.hanning(frames).astype(np.float32)
    magnitude = np.zeros((len(levels), frames // 2 + 2), np.float32)  # 0 for bands that are beyond
    np.abs(rfft(levels, axis=1), out=magnitude[:, :-1])
    magnitude /= np.float32(np.sqrt(frames))
    starts, stop = _peak_bands(frames, frame_rate)
    sizes = np.maximum(1, np.diff(starts, append=stop))
    magnitude = magnitude[:, :stop]
    largest = np.maximum.reduceat(magnitude, starts, axis=1).astype(np.float64)
    if largest.max() < FLOOR:  # nothing moves
        return np.full(largest.shape, np.log(FLOOR))
    average = np.add.reduceat(magnitude, starts, axis=1, dtype=np.float64) / sizes
    return np.log((largest + FLOOR) / (average + FLOOR))


def cepstrum(waveform: Float32s, sample_rate: int) -> Float32s:
    """The view ``cep``: regular patterns along frequency, of harmonics and echoes, 40 values.

    Mean power spectrum of frames of 0.512 s every 0.256 s; ``ln(P + 1e-12)`` less its mean over
    frequency; Hann window and Fourier transform along frequency; ``ln(mean + 1e-3)`` of the
    magnitudes within 40 bands of quefrency from 1 ms to 188 ms.

    Magnitudes are divided by the root of the number of frequencies. A recording of 20 s or longer
    is the mean over equal segments of 10 s to 20 s: a spectrum of more frames has less noise.
    One of fewer than 10 s has more, and larger values. The floor matters where a recording has no
    power at all, such as above the cut-off of a low-pass filter.
    """
    from scipy.fft import rfft

    # In double precision: between the lines of loud harmonics there may be 130 dB less.
    frames = framing(sample_rate, 0.256, 2, dtype=np.float64)
    window = np.hanning(frames.fft_length // 2 + 1)
    window *= np.sqrt(_CEPSTRUM_REFERENCE / len(window))
    edges = np.floor(CEPSTRUM_EDGES * sample_rate / _REFERENCE_RATE).astype(np.intp)
    starts = np.maximum(1, edges[:-1])
    stop = max(int(edges[-1]), int(starts[-1]) + 1)
    sizes = np.maximum(1, np.diff(starts, append=stop))
    values = []
    for segment in frames.segments(waveform, sample_rate):
        power = sum(power.sum(axis=0) for _, power in frames.powers(segment))
        level = np.log(power / frames.count(len(segment)) + CEPSTRUM_FLOOR)
        magnitude = np.abs(rfft((level - level.mean()) * window))
        sums = np.add.reduceat(magnitude[:stop], starts)
        values.append(np.log(sums / sizes + FLOOR))
    return np.mean(values, axis=0).astype(np.float32)


def fast_modulation(waveform: Float32s, sample_rate: int) -> Float32s:
    """The view ``mod60``: how each mel band moves, 1 to 62 Hz, 192 values.

    Frames of 32 ms every 8 ms, 64 mel bands up to half the sample rate in decibels, less their
    mean over time; Hann window and Fourier transform over time; mean magnitude within 12
    modulation bands, then over groups of 4 neighbouring mel bands; ``ln(. + 1e-3)``. The order is
    modulation band, group.

    Shorter and longer clips are treated as by `daco.backbones.readout.modulation`. The floor of
    the power matters in bands with less power than noise of -120 dB of full scale, which is below
    what 16 bits resolve.
    """
    from scipy.fft import rfft

    frames, filters = mel_plan(sample_rate, 0.008, 4, FAST_MEL_BANDS)
    levels = mel_levels(waveform, frames, filters)
    levels -= levels.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    frame_rate = sample_rate / frames.hop
    count = levels.shape[1]
    window, bands = modulation_plan(count, frame_rate, FAST_EDGES, _FAST_REFERENCE)
    levels *= window
    length = modulation_length(count, frame_rate, _FAST_REFERENCE)
    groups = levels.reshape(-1, FAST_NEIGHBOURS, count)
    # A group at a time: an hour of all would take a multiple of the waveform's memory.
    magnitudes = np.stack([np.abs(rfft(group, length)).mean(axis=0) for group in groups])
    return np.log(bands @ magnitudes.T + np.float32(FLOOR)).ravel()


VIEWS = {"env": envelope_peaks, "cep": cepstrum, "mod60": fast_modulation}
"""Each takes one waveform, float32 of at least one frame of ``cep``, and its sample rate."""


def shortest_clip(sample_rate: int) -> int:
    """Fewest samples that all views are defined for: one frame of ``cep``."""
    return 2 * round(0.256 * sample_rate)
