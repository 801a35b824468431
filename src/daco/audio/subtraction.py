"""Removes the far microphone's sound from the waveform of the near one.

Both methods work on short-time spectra: periodic Hann window, hop of half a window, centred
frames, reflected edges. They run over blocks of frames, so that an hour of sound needs little
more memory than its waveforms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from daco.errors import AudioError
from daco.validation import Float32s

Spectra = NDArray[np.complex64]

LSQ_WINDOW, SPECSUB_WINDOW = 1024, 512  # samples at 16 kHz, the rate of DCASE 2026
_PEAK = 0.9  # of the waveforms whose spectra are compared with the floor of the power
_POWER_FLOOR = 1e-12
_FLOOR_GAIN = np.float32(0.1)
_BLOCK = 64  # frames transformed at once: more would leave the cache


def least_squares(near: Float32s, far: Float32s, window: int = LSQ_WINDOW) -> Float32s:
    """Remove what is coherent with the far microphone from the near one.

    ``Y = C - H F`` with one complex gain per frequency, ``H = sum_n C F* / (sum_n |F|^2 + 1e-12)``,
    which leaves the least power that one gain can leave. The result has the level of the input.

    Parameters
    ----------
    near, far : float32 arrays of shape (n,)
        Waveforms of more than half a window; shorter ones raise an `AudioError`.
    window : int
        Samples of a window, an even number.

    Returns
    -------
    float32 array of shape (n,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> machine, hall = rng.normal(size=(2, 160_000)).astype(np.float32)
    >>> clean = least_squares(machine + 3 * hall, hall)
    >>> print(f"{np.corrcoef(machine, clean)[0, 1]:.2f}")
    1.00
    """
    pair = _pad(near, far, window)
    peak = max(max(float(wave.max()), -float(wave.min())) for wave in pair)
    scale = np.float32(peak / _PEAK or 1)
    pair /= scale
    whole = 1 + len(near) // (window // 2)  # frames after it serve the reconstruction alone
    gain = far_gain(_spectra(pair, window, whole)).astype(np.complex64)
    rest = (c - gain * f for c, f in _spectra(pair, window))
    clean = _waveform(rest, len(near), window)
    clean *= scale
    return clean


def spectral_subtraction(near: Float32s, far: Float32s, window: int = SPECSUB_WINDOW) -> Float32s:
    """Subtract the magnitudes of the far microphone from those of the near one.

    ``|Y| = |C| - |F|`` where the near spectrum C is larger than the far spectrum F, else
    ``0.1 |C|``, in each frame and frequency, with the phase of C. Parameters and result are those
    of `least_squares`; the default window has 512 samples.

    >>> wave = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    >>> bool(np.allclose(spectral_subtraction(wave, wave), 0.1 * wave, atol=1e-6))
    True
    """
    blocks = _spectra(_pad(near, far, window), window)
    return _waveform((c * magnitude_gain(c, f) for c, f in blocks), len(near), window)


def far_gain(blocks: Iterable[tuple[Spectra, Spectra]]) -> NDArray[np.complex128]:
    """The gain of every frequency, of near and far spectra (frames, frequencies) in blocks."""
    cross, power = 0, 0
    for c, f in blocks:
        cross = cross + (c * f.conj()).sum(axis=0, dtype=np.complex128)
        power = power + (f.real**2 + f.imag**2).sum(axis=0, dtype=np.float64)
    return np.asarray(cross / (power + _POWER_FLOOR))


def magnitude_gain(near: Spectra, far: Spectra) -> Float32s:
    """The factors, at least 0, of spectral subtraction for each value of the near spectra."""
    c, f = np.abs(near), np.abs(far)
    share = np.divide(f, c, out=np.ones_like(c), where=c > f)
    return np.where(c > f, 1 - share, _FLOOR_GAIN)


def _pad(near: Float32s, far: Float32s, window: int) -> Float32s:
    """Both microphones with half a window more at both ends, mirrored, (2, samples)."""
    hop, samples = window // 2, len(near)
    if samples <= hop:
        raise AudioError(
            f"{samples} samples are too few to subtract the far microphone, which takes more "
            f"than {hop}. Use longer clips, or channel 0."
        )
    # Under the end of the last window a sample would be divided by nearly 0 and become a click.
    over = samples % hop
    more = hop - over if over > 3 * hop // 4 else 0
    pair = np.empty((2, samples + 2 * hop + more), np.float32)
    for row, wave in zip(pair, (near, far), strict=True):
        row[:] = np.pad(np.asarray(wave, np.float32), (hop, hop + more), mode="reflect")
    return pair


def _spectra(
    pair: Float32s, window: int, frames: int | None = None
) -> Iterator[tuple[Spectra, Spectra]]:
    """Spectra of both microphones, (frames, frequencies) each, block by block."""
    from scipy.fft import rfft

    views = np.lib.stride_tricks.sliding_window_view(pair, window, axis=1)[:, :: window // 2]
    views = views[:, :frames]
    for first in range(0, views.shape[1], _BLOCK):
        near, far = rfft(views[:, first : first + _BLOCK] * _hann(window))
        yield near, far


def _waveform(blocks: Iterable[Spectra], samples: int, window: int) -> Float32s:
    """The waveform whose frames have these spectra: weighted overlap-add."""
    from scipy.fft import irfft

    hop, taper = window // 2, _hann(window)
    halves = np.zeros((samples // hop + 3, hop), np.float32)  # a frame is two of them
    first = 0
    for spectra in blocks:
        frames = irfft(spectra, window) * taper
        stop = first + len(frames)
        halves[first:stop] += frames[:, :hop]
        halves[first + 1 : stop + 1] += frames[:, hop:]
        first = stop
    rising, falling = (taper**2).reshape(2, hop)
    halves[1:first] /= rising + falling
    halves[first] /= falling
    return halves[1:].reshape(-1)[:samples]


def _hann(window: int) -> Float32s:
    return np.hanning(window + 1)[:-1].astype(np.float32)
