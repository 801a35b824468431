"""Removes the far microphone's sound from the waveform of the near one.

Both methods work on short-time spectra: periodic Hann window, hop of half a window, centred
frames, reflected edges. They run over blocks of frames, so that an hour of sound needs little
more memory than its waveforms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from daco.errors import AudioError, InputError
from daco.validation import Float32s

Spectra = NDArray[np.complex64]

LSQ_WINDOW = 1024
SPECSUB_WINDOW = 512
"""Samples of a window at 16 kHz, the rate of DCASE 2026."""

PEAK = 0.9
POWER_FLOOR = 1e-12
FLOOR_GAIN = np.float32(0.1)

_SILENT = 1e-12
_BLOCK = 64  # frames transformed at once: more would leave the cache
_KEPT = 1024  # frames whose spectra are kept, 8 MiB


def least_squares(near: Float32s, far: Float32s, window: int = LSQ_WINDOW) -> Float32s:
    """Remove what is coherent with the far microphone from the near one.

    The spectrum of the far microphone is multiplied by one complex gain per frequency, so that its
    subtraction leaves the least power. The result has the level of the input.

    Parameters
    ----------
    near, far : float32 arrays of shape (n,)
        Waveforms of more than half a window; shorter ones raise an `AudioError`.
    window : int
        Samples of a window, an even number; 1024 by default.

    Returns
    -------
    float32 array of shape (n,)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> machine, hall = rng.normal(size=(2, 160_000)).astype(np.float32)
    >>> clean = least_squares(machine + 3 * hall, hall)
    >>> print(f"{np.corrcoef(machine, machine + 3 * hall)[0, 1]:.2f}")
    0.32
    >>> print(f"{np.corrcoef(machine, clean)[0, 1]:.2f}")
    1.00
    """
    pair = _pad(near, far, window)
    peak = max(max(float(wave.max()), -float(wave.min())) for wave in pair)
    scale = np.float32(peak / PEAK if peak > _SILENT else 1)
    for wave in pair:
        wave /= scale
    # The spectra of a clip are kept; those of a long recording are computed twice.
    spectra = list(_spectra(pair, window)) if pair[0].size <= _KEPT * window // 2 else None
    # Frames after the last whole hop serve the reconstruction alone.
    frames = 1 + len(near) // (window // 2)
    left = range(frames, 0, -_BLOCK)
    blocks = zip(left, spectra or _spectra(pair, window), strict=False)
    gain = far_gain((c[:n], f[:n]) for n, (c, f) in blocks).astype(np.complex64)
    rest = (c - gain * f for c, f in spectra or _spectra(pair, window))
    clean = _waveform(rest, len(near), window)
    clean *= scale
    return clean


def spectral_subtraction(near: Float32s, far: Float32s, window: int = SPECSUB_WINDOW) -> Float32s:
    """Subtract the magnitudes of the far microphone from those of the near one.

    ``|Y| = |C| - |F|`` where the near spectrum C is larger than the far spectrum F, else
    ``0.1 |C|``, in each frame and frequency, with the phase of C.

    Parameters
    ----------
    near, far, window
        As in `least_squares`; the default window has 512 samples.

    Returns
    -------
    float32 array of shape (n,)

    Examples
    --------
    >>> wave = np.random.default_rng(0).normal(size=16000).astype(np.float32)
    >>> quiet = spectral_subtraction(wave, wave)
    >>> bool(np.allclose(quiet, 0.1 * wave, atol=1e-6))
    True
    """
    blocks = _spectra(_pad(near, far, window), window)
    return _waveform((c * magnitude_gain(c, f) for c, f in blocks), len(near), window)


def far_gain(blocks: Iterable[tuple[Spectra, Spectra]]) -> NDArray[np.complex128]:
    """The complex gain of every frequency that removes most of the far microphone's power.

    ``H[k] = sum_n C[k, n] conj(F[k, n]) / (sum_n |F[k, n]|^2 + 1e-12)`` leaves
    ``1 - |coherence|^2`` of the near power, the least that one gain can leave. `blocks` are near
    and far spectra of shape (frames, frequencies), some frames at a time.
    """
    cross, power = 0, 0
    for c, f in blocks:
        cross = cross + (c * f.conj()).sum(axis=0, dtype=np.complex128)
        power = power + (f.real**2 + f.imag**2).sum(axis=0, dtype=np.float64)
    return np.asarray(cross / (power + POWER_FLOOR))


def magnitude_gain(near: Spectra, far: Spectra) -> Float32s:
    """The factors, at least 0, of spectral subtraction for each value of the near spectra."""
    c, f = np.abs(near), np.abs(far)
    louder = c > f
    share = np.divide(f, c, out=np.zeros_like(c), where=louder)
    return np.where(louder, 1 - share, FLOOR_GAIN)


def _pad(near: Float32s, far: Float32s, window: int) -> list[Float32s]:
    """Both microphones with half a window more at both ends, mirrored."""
    if window < 4 or window % 2:
        raise InputError(f"The window must be an even number of samples, 4 at least. Got {window}.")
    if np.ndim(near) != 1 or np.shape(near) != np.shape(far):
        raise InputError(
            "near and far must be one row of samples each, equally many. "
            f"Got shapes {np.shape(near)} and {np.shape(far)}."
        )
    hop, samples = window // 2, len(near)
    if samples <= hop:
        raise AudioError(
            f"{samples} samples are too few to subtract the far microphone, which takes more "
            f"than {hop}. Use longer clips, or channel 0."
        )
    pads = (hop, hop + _more(samples, hop))
    return [np.pad(np.asarray(wave, np.float32), pads, mode="reflect") for wave in (near, far)]


def _more(samples: int, hop: int) -> int:
    """Samples added at the end for one frame more.

    Under the very end of the last window a sample would be divided by nearly 0, and the clip
    would end in a click.
    """
    over = samples % hop
    return hop - over if over > 3 * hop // 4 else 0


def _spectra(pair: list[Float32s], window: int) -> Iterator[tuple[Spectra, Spectra]]:
    """Spectra of both microphones, (frames, frequencies) each, block by block."""
    from scipy.fft import rfft

    cut = np.lib.stride_tricks.sliding_window_view
    near, far = (cut(wave, window)[:: window // 2] for wave in pair)
    taper = _hann(window)
    for first in range(0, len(near), _BLOCK):
        block = slice(first, first + _BLOCK)
        yield rfft(near[block] * taper), rfft(far[block] * taper)


def _waveform(blocks: Iterable[Spectra], samples: int, window: int) -> Float32s:
    """The waveform whose frames have these spectra: weighted overlap-add."""
    from scipy.fft import irfft

    hop, taper = window // 2, _hann(window)
    last = 1 + (samples + _more(samples, hop)) // hop
    halves = np.zeros((last + 1, hop), np.float32)  # a frame is two of them
    first = 0
    for spectra in blocks:
        frames = irfft(spectra, window) * taper
        stop = first + len(frames)
        halves[first:stop] += frames[:, :hop]
        halves[first + 1 : stop + 1] += frames[:, hop:]
        first = stop
    weight = taper**2
    halves[1:last] /= weight[:hop] + weight[hop:]
    halves[last] /= weight[hop:]
    return halves[1:].reshape(-1)[:samples]


@lru_cache(maxsize=8)
def _hann(window: int) -> Float32s:
    taper = np.hanning(window + 1)[:-1].astype(np.float32)
    taper.flags.writeable = False
    return taper
