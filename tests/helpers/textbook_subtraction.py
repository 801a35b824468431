"""Subtraction of a far microphone as METHODS writes it: one sample, frame, frequency at a time."""

from __future__ import annotations

import numpy as np


def hann(window):
    return 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)


def stft(wave, window):
    """Complex spectra (frequencies, frames): centred, reflected, hop of half a window."""
    hop = window // 2
    padded = [wave[hop - i] for i in range(hop)]
    padded += list(wave)
    padded += [wave[len(wave) - 2 - i] for i in range(hop)]
    frames = 1 + (len(padded) - window) // hop
    columns = []
    for n in range(frames):
        frame = np.array(padded[n * hop : n * hop + window], np.float64) * hann(window)
        columns.append(np.fft.rfft(frame))
    return np.array(columns).T


def istft(spectra, window, length):
    hop = window // 2
    frames = spectra.shape[1]
    total, weight = np.zeros((2, (frames - 1) * hop + window))
    for n in range(frames):
        part = slice(n * hop, n * hop + window)
        total[part] += np.fft.irfft(spectra[:, n], window) * hann(window)
        weight[part] += hann(window) ** 2
    inner = slice(hop, hop + length)
    return total[inner] / weight[inner]


def least_squares(near, far, window=1024):
    peak = max(abs(x) for x in [*near, *far])
    scale = peak / 0.9 if peak > 1e-12 else 1.0
    C = stft(np.asarray(near, np.float64) / scale, window)
    F = stft(np.asarray(far, np.float64) / scale, window)
    Y = np.empty_like(C)
    for k in range(len(C)):
        numerator, denominator = 0j, 1e-12
        for n in range(C.shape[1]):
            numerator += C[k, n] * np.conj(F[k, n])
            denominator += abs(F[k, n]) ** 2
        Y[k] = C[k] - numerator / denominator * F[k]
    return istft(Y, window, len(near)) * scale


def spectral_subtraction(near, far, window=512):
    C, F = stft(np.asarray(near, np.float64), window), stft(np.asarray(far, np.float64), window)
    Y = np.empty_like(C)
    for k in range(len(C)):
        for n in range(C.shape[1]):
            c, f = abs(C[k, n]), abs(F[k, n])
            magnitude = c - f if c > f else 0.1 * c
            Y[k, n] = magnitude * np.exp(1j * np.angle(C[k, n]))
    return istft(Y, window, len(near))
