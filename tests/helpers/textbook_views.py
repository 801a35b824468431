"""The weight-free views as their recipes are written down: one frame, band or group at a time.

Double precision throughout. ``rate`` is in hertz; at 16 kHz frames have 128, 8,192 and 512 samples.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from scipy.fft import next_fast_len

GROUPS = (1, 2, 3, 4, 5, 6, 8, 10, 14, 18, 23, 30, 39, 44, 50, 57, 65)
FAST = (1, 2, 3, 4.5, 6.5, 9, 12, 16, 22, 30, 40, 52, 62)


def spectra(wave, frame, hop, size=None):
    """Magnitudes of each frame."""
    window = np.hanning(frame)
    starts = range(0, len(wave) - frame + 1, hop)
    return [np.abs(np.fft.rfft(window * wave[s : s + frame], size)) for s in starts]


def env(wave, rate=16000):
    """Of a clip shorter than 20 s."""
    wave, hop = np.asarray(wave, np.float64), round(rate / 1000)
    frames = spectra(wave, 8 * hop, hop)
    count, hertz = len(frames), [k * rate / (8 * hop) for k in range(len(frames[0]))]
    columns = []
    for low, high in pairwise(GROUPS):
        bins = [k for k, f in enumerate(hertz) if 125 * low <= f < 125 * high]
        envelope = np.array(
            [math.sqrt(sum(m[k] ** 2 for k in bins) / max(1, len(bins))) for m in frames]
        )
        mean = envelope.mean()
        moving = envelope / mean - 1 if mean else envelope
        magnitude = np.abs(np.fft.rfft(np.hanning(count) * moving)) / math.sqrt(count)
        columns.append(
            peakiness(magnitude, [k * rate / hop / count for k in range(len(magnitude))])
        )
    return np.array(columns).T.ravel()


def peakiness(magnitude, hertz):
    """Of each modulation band."""
    edges = [*(0.6 * (500 / 0.6) ** (i / 40) for i in range(40)), 500]
    values = []
    for low, high in pairwise(edges):
        inside = [m for m, f in zip(magnitude, hertz, strict=True) if low <= f < high]
        if not inside:  # the next frequency, if there is one
            inside = [m for m, f in zip(magnitude, hertz, strict=True) if low <= f][:1] or [0.0]
        values.append(math.log(max(inside) + 1e-3) - math.log(sum(inside) / len(inside) + 1e-3))
    return values


def cep(wave, rate=16000):
    hop = round(0.256 * rate)
    powers = [m**2 for m in spectra(np.asarray(wave, np.float64), 2 * hop, hop)]
    level = np.array([math.log(p + 1e-12) for p in sum(powers) / len(powers)])
    level = np.hanning(len(level)) * (level - level.mean())
    magnitude = np.abs(np.fft.rfft(level)) * math.sqrt(4097 / len(level))
    edges = [math.floor(rate / 16000 * 8 * (1500 / 8) ** (i / 40) + 1e-9) for i in range(41)]
    values = []
    for low, high in pairwise(edges):
        inside = magnitude[max(1, low) : max(high, low + 1, 2)]
        values.append(math.log(sum(inside) / len(inside) + 1e-3))
    return np.array(values)


def mod60(wave, rate=16000):
    hop = round(0.008 * rate)
    size = next_fast_len(4 * hop, real=True)
    triangles = mel_triangles(rate, size, 64)
    frames = spectra(np.asarray(wave, np.float64), 4 * hop, hop, size)
    levels = np.array([10 * np.log10(triangles @ m**2 + 1e-10) for m in frames])
    frame_rate, window = rate / hop, np.hanning(len(levels))
    padded = max(len(levels), round(10 * 1247 / 1250 * frame_rate))
    moving = window[:, None] * (levels - levels.mean(0))
    magnitude = np.abs(np.fft.rfft(moving, padded, axis=0))
    magnitude *= math.sqrt(125 * sum(np.hanning(1247) ** 2) / (frame_rate * sum(window**2)))
    values = []
    for low, high in pairwise(FAST):
        bins = [k for k in range(len(magnitude)) if low <= k * frame_rate / padded < high]
        mean = magnitude[bins].mean(0)
        values += [math.log(mean[4 * g : 4 * g + 4].mean() + 1e-3) for g in range(16)]
    return np.array(values)


def mel_triangles(rate, size, bands):
    """Unnormalised HTK triangles; one without a frequency is read between the two around it."""
    top = 2595 * math.log10(1 + rate / 2 / 700)
    edges = [700 * (10 ** (top * i / (bands + 1) / 2595) - 1) for i in range(bands + 2)]
    hertz = np.arange(size // 2 + 1) * rate / size
    rows = []
    for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False):
        row = np.interp(hertz, [low, centre, high], [0, 1, 0])
        if not row.any():
            row = np.interp(
                np.arange(len(hertz)), np.array([-1, 0, 1]) + centre * size / rate, [0, 1, 0]
            )
        rows.append(row)
    return np.array(rows)
