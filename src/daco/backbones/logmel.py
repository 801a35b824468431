"""LogMel: the weight-free embeddings; how each mel band moves. NumPy and SciPy only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from daco.backbones.classical import VIEWS, mel_levels, mel_plan, shortest_clip
from daco.backbones.protocol import Backbone
from daco.backbones.readout import MIN_MODULATION_FRAMES, pool
from daco.errors import InputError
from daco.validation import Float32s

MEL_BANDS = 128
HOP_SECONDS = 0.032
MIN_SAMPLE_RATE = 1000

BLEND_VIEWS = ("mod", "mod60", "env", "cep")
"""Readouts that together describe more than each of them, for a blend of views."""

_CLIPS = 8  # clips whose modulation is computed at once: more would leave the cache


class LogMel(Backbone):
    """Log-mel bands in decibels, described by the spectrum of their changes over time.

    Frames of 64 ms with a hop of 32 ms (symmetric Hann window, not centred), power spectrum, 128
    unnormalised HTK mel bands from 0 Hz to half the sample rate, ``10 log10(. + 1e-10)``. The
    default readout ``mod`` (`daco.backbones.readout.pool`) gives 7 modulation bands x 16 groups of
    8 mel bands = 112 values, which hardly depend on the level of the recording. ``mean`` and
    ``std`` (128 values each) are over time alone. ``env`` (640 values), ``cep`` (40) and ``mod60``
    (192) are computed from the waveform itself (`daco.backbones.classical`) and meant for clips of
    1 s or longer; a clip below 0.512 s is padded with silence.

    Parameters
    ----------
    sample_rate : int
        Rate of the waveforms, at least 1000 Hz. At low rates mel bands can be narrower than the
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
    readouts = ("mod", "mean", "std", *VIEWS)
    default_readout = "mod"
    has_weights = False
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
        self._plan = mel_plan(self.sample_rate, HOP_SECONDS, 2, MEL_BANDS)

    @property
    def default_views(self) -> tuple[str, ...]:
        """Readouts that it has beside another network if none is named."""
        return BLEND_VIEWS

    def embed_many(self, waveforms: Any, readouts: Sequence[str]) -> dict[str, Float32s]:
        """Compute several readouts of the same clips; the bands are computed once."""
        for readout in readouts:
            self.check_readout(readout)
        checked = self.float_waveforms(waveforms)
        parts: dict[str, list[Float32s]] = {readout: [] for readout in readouts}
        for first in range(0, len(checked), _CLIPS):
            clips = checked[first : first + _CLIPS]
            grid = None if VIEWS.keys() >= parts.keys() else self._bands(clips)
            for readout, rows in parts.items():
                rows.append(self._read_out(readout, clips, grid))
        return {readout: np.concatenate(rows) for readout, rows in parts.items()}

    def _read_out(self, readout: str, clips: Float32s, grid: Any) -> Float32s:
        if readout in VIEWS:
            missing = shortest_clip(self.sample_rate) - clips.shape[1]
            if missing > 0:
                clips = np.pad(clips, ((0, 0), (0, missing)))
            return np.stack([VIEWS[readout](clip, self.sample_rate) for clip in clips])
        name = "band" if readout == "mean" else readout
        return np.asarray(pool(grid, name, frame_rate=self.frame_rate))

    def grid(self, waveforms: Any) -> Float32s:
        """Compute log-mel bands in decibels, (clips, frames, 128, 1) float32."""
        return np.ascontiguousarray(self._bands(self.float_waveforms(waveforms)))

    def _bands(self, waveforms: Float32s) -> Float32s:
        levels = np.stack([mel_levels(waveform, *self._plan) for waveform in waveforms])
        return levels.transpose(0, 2, 1)[..., None]
