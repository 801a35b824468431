"""LogMel: the weight-free embedding; how each mel band moves. NumPy and SciPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.audio.pcm import INT16_SCALE
from daco.backbones.pooling import MIN_MODULATION_FRAMES
from daco.backbones.protocol import Backbone
from daco.backbones.readout import pool
from daco.errors import InputError
from daco.validation import Float32s

MEL_BANDS = 128
HOP_SECONDS = 0.032
POWER_FLOOR = 1e-10
MIN_SAMPLE_RATE = 1000

_BLOCK = 1024  # frames transformed at once: bounds the memory of an hour-long clip
_CLIPS = 8  # clips whose modulation is computed at once: more would leave the cache


class LogMel(Backbone):
    """Log-mel bands in decibels, read out as the spectrum of their motion.

    Frames of 64 ms with a hop of 32 ms (symmetric Hann window, not centred), power spectrum, 128
    unnormalised HTK mel bands from 0 Hz to half the sample rate, ``10 log10(. + 1e-10)``. The
    default readout ``mod`` (`daco.backbones.readout.pool`) gives 7 modulation bands x 16 groups of
    8 mel bands = 112 values. It needs no weights and no download, and hardly depends on the level
    of the recording. ``mean`` (128 values) and ``meanstd`` (256) are over time alone, because a
    mean over the mel bands would leave one number. There are no readouts that keep bands apart:
    a mel band has one feature, whose direction says nothing, and clamping decibels at 0 nothing
    either.

    Parameters
    ----------
    sample_rate : int
        Of the waveforms, at least 1000 Hz. At low rates mel bands can be narrower than the
        resolution of a frame; such a band is interpolated from the two frequencies around it.

    Examples
    --------
    >>> import numpy as np
    >>> net = LogMel()
    >>> waveforms = np.random.default_rng(0).normal(size=(2, 16000)).astype(np.float32)
    >>> net.embed(waveforms).shape, net.grid(waveforms).shape
    ((2, 112), (2, 30, 128, 1))
    """

    name = "logmel"
    readouts = ("mod", "mean", "meanstd")
    default_readout = "mod"
    has_weights = False
    takes_int16 = True
    parameters = 0

    def __init__(self, sample_rate: int = 16000) -> None:
        if not float(sample_rate).is_integer() or sample_rate < MIN_SAMPLE_RATE:
            raise InputError(
                f"sample_rate must be a whole number of at least {MIN_SAMPLE_RATE} Hz. "
                f"Got {sample_rate} instead."
            )
        self.sample_rate = int(sample_rate)
        self.hop = round(HOP_SECONDS * self.sample_rate)
        self.frame_rate = self.sample_rate / self.hop
        self.shortest = (MIN_MODULATION_FRAMES + 1) * self.hop
        self._window = np.hanning(2 * self.hop).astype(np.float32)
        self._fft_length, self._filters = _front_end(self.sample_rate, 2 * self.hop)

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        """Several readouts of the same clips; the bands are computed once."""
        for readout in readouts:
            self.check_readout(readout)
        checked = self._checked(waveforms)
        parts: dict[str, list[Float32s]] = {readout: [] for readout in readouts}
        for first in range(0, len(checked), _CLIPS):
            grid = self._bands(checked[first : first + _CLIPS])
            for readout, rows in parts.items():
                shape = (*grid.shape[:2], 1, MEL_BANDS) if readout == "mean" else grid.shape
                rows.append(pool(grid.reshape(shape), readout, frame_rate=self.frame_rate))
        return {readout: np.concatenate(rows) for readout, rows in parts.items()}

    def grid(self, waveforms: Any) -> Float32s:
        """Log-mel bands in decibels, (B, frames, 128, 1) float32."""
        return np.ascontiguousarray(self._bands(self._checked(waveforms)))

    def _bands(self, waveforms: Float32s) -> Float32s:
        from scipy.fft import rfft

        frame = 2 * self.hop
        count = 1 + (waveforms.shape[1] - frame) // self.hop
        # Time last, because the filters and the modulation both run along contiguous time.
        bands = np.empty((len(waveforms), MEL_BANDS, count), np.float32)
        for clip, waveform in enumerate(waveforms):
            frames = np.lib.stride_tricks.sliding_window_view(waveform, frame)[:: self.hop]
            for first in range(0, count, _BLOCK):
                block = frames[first : first + _BLOCK] * self._window
                spectrum = rfft(block, self._fft_length)
                power = spectrum.real**2 + spectrum.imag**2
                bands[clip, :, first : first + _BLOCK] = self._filters @ power.T
        bands += np.float32(POWER_FLOOR)
        np.log10(bands, out=bands)
        bands *= np.float32(10)
        return bands.transpose(0, 2, 1)[..., None]

    def _checked(self, waveforms: Any) -> Float32s:
        if hasattr(waveforms, "detach"):
            waveforms = waveforms.detach().cpu().numpy()
        array = np.asarray(waveforms)
        allowed = array.dtype.kind == "f" or array.dtype == np.int16
        self.check_waveforms(array.shape, array.dtype, allowed=allowed)
        if array.dtype == np.int16:
            return array.astype(np.float32) * INT16_SCALE
        array = array.astype(np.float32, copy=False)
        if not np.isfinite(array).all():
            first = int(np.argmin(np.isfinite(array).all(axis=1)))
            raise InputError(f"waveforms[{first}] contains NaN or infinity. Drop that clip.")
        return array


def mel_filters(sample_rate: int, fft_length: int) -> NDArray[np.float64]:
    """Triangles of the 128 HTK mel bands over the FFT's frequencies, (128, fft_length // 2 + 1)."""
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, MEL_BANDS + 2) / 2595) - 1)
    low, centre, high = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    hertz = np.arange(fft_length // 2 + 1) * sample_rate / fft_length
    filters = np.maximum(
        0, np.minimum((hertz - low) / (centre - low), (high - hertz) / (high - centre))
    )
    empty = ~filters.any(axis=1)
    between = np.maximum(0, 1 - np.abs(hertz - centre) * fft_length / sample_rate)
    filters[empty] = between[empty]
    return filters


def _front_end(sample_rate: int, frame: int) -> tuple[int, Any]:
    from scipy.fft import next_fast_len
    from scipy.sparse import csr_array

    fft_length = next_fast_len(frame, real=True)
    # Sparse: 1,013 of 65,664 weights count, and no threaded matrix product gets in the way of
    # the threads that read files.
    return fft_length, csr_array(mel_filters(sample_rate, fft_length).astype(np.float32))
