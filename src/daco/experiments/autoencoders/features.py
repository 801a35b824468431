"""Log-mel frames and their context vectors, as the challenge's autoencoder sees them.

Frames of 1024 samples every 512 (periodic Hann window, centred, zeros beyond the ends), power
spectrum, 128 mel bands on Slaney's scale with triangles of equal area, decibels: the defaults of
librosa from version 0.10 on, which the baseline asks for. (Older versions mirrored the ends of a
recording instead; that changes its first and its last frame.)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import AudioError

FRAME = 1024
HOP = 512
MELS = 128
CONTEXT = 5
DIM = CONTEXT * MELS
FLOOR = 2.2e-16  # of a mel band's power, before the logarithm

_BREAK_HZ = 1000.0  # Slaney's scale: linear below, logarithmic above
_MEL_PER_HZ = 3 / 200
_BREAK_MEL = _BREAK_HZ * _MEL_PER_HZ
_LOG_STEP = np.log(6.4) / 27

Floats = NDArray[np.float32]


def log_mel(waveform: Floats, sample_rate: int) -> Floats:
    """Mel bands in decibels, (frames, 128), of one waveform.

    Raises
    ------
    AudioError
        The clip is too short for one context vector.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.experiments.autoencoders.features import log_mel
    >>> log_mel(np.zeros(160_000, np.float32), 16_000).shape
    (313, 128)
    """
    from scipy.fft import rfft

    if len(waveform) // HOP + 1 < CONTEXT:
        shortest = (CONTEXT - 1) * HOP
        raise AudioError(
            f"the autoencoder needs clips of at least {shortest} samples "
            f"({shortest / sample_rate:.3f} s at {sample_rate} Hz). Got {len(waveform)}: leave "
            "out shorter clips."
        )
    padded = np.pad(np.asarray(waveform, np.float32), FRAME // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, FRAME)[::HOP]
    spectrum = rfft(frames * _window())
    bands = (_sparse_bank(sample_rate) @ (spectrum.real**2 + spectrum.imag**2).T).T
    return np.ascontiguousarray(10 * np.log10(np.maximum(bands, np.float32(FLOOR))))


def context_vectors(frames: Floats) -> Floats:
    """Five consecutive frames side by side, (frames - 4, 640); a view, nothing is copied.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.experiments.autoencoders.features import context_vectors
    >>> frames = np.repeat(np.arange(6, dtype=np.float32)[:, None], 128, axis=1)
    >>> context_vectors(frames)[1, ::128]
    array([1., 2., 3., 4., 5.], dtype=float32)
    """
    flat = np.ascontiguousarray(frames).reshape(-1)
    return np.lib.stride_tricks.sliding_window_view(flat, DIM)[::MELS]


def mel_bank(sample_rate: int) -> NDArray[np.float64]:
    """Triangles over the frequencies of a frame, (128, 513), each of area 1 in hertz.

    At high sample rates the lowest bands can be narrower than the spectrum's resolution and
    empty: such a band is at the floor in every clip, as with librosa.
    """
    edges = _hertz(np.linspace(0.0, _mel(sample_rate / 2), MELS + 2))
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hertz = np.arange(FRAME // 2 + 1) * sample_rate / FRAME
    rising, falling = (hertz - low) / (centre - low), (high - hertz) / (high - centre)
    return np.maximum(0.0, np.minimum(rising, falling)) * 2 / (high - low)


@lru_cache(maxsize=8)
def _sparse_bank(sample_rate: int) -> Any:
    from scipy.sparse import csr_array

    # 1,009 of 65,664 weights count at 16 kHz.
    return csr_array(mel_bank(sample_rate).astype(np.float32))


@lru_cache(maxsize=1)
def _window() -> Floats:
    return np.hanning(FRAME + 1)[:-1].astype(np.float32)


def _mel(hertz: float) -> float:
    if hertz < _BREAK_HZ:
        return hertz * _MEL_PER_HZ
    return float(_BREAK_MEL + np.log(hertz / _BREAK_HZ) / _LOG_STEP)


def _hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = _BREAK_HZ * np.exp(_LOG_STEP * (mel - _BREAK_MEL))
    return np.where(mel < _BREAK_MEL, mel / _MEL_PER_HZ, above)
