"""Spectrograms as numbers: the page draws two of them on one scale, with hertz and seconds."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.audio.decode import read_audio
from daco.audio.formats import AudioLimits
from daco.backbones.logmel import LogMel
from daco.errors import AudioError

COLUMNS = 400
"""Most columns; a column holds the loudest of its frames."""

FLOOR = -128.0
"""Decibels that a byte of 0 means."""

_QUIET = 1e-10


def band_centres(bands: int, sample_rate: int) -> NDArray[np.float64]:
    """Hertz of the centres of mel bands from 0 Hz to half the sample rate."""
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    mel = top * np.arange(1, bands + 1) / (bands + 1)
    return np.asarray(700 * (10 ** (mel / 2595) - 1))


def picture(path: Path, sample_rate: int, limits: AudioLimits) -> dict[str, Any]:
    """The spectrogram of a recording's first channel up to half the sample rate.

    Parameters
    ----------
    path : Path
    sample_rate : int
    limits : AudioLimits

    Returns
    -------
    dict
        As `daco.monitoring.service.schemas.Picture`.

    Raises
    ------
    AudioError
        The recording cannot be decoded; the path is not named.
    """
    try:
        wave = read_audio(path, sample_rate=sample_rate, limits=limits)
    except AudioError as error:
        raise AudioError(error.reason) from None
    bands = LogMel(sample_rate).grid(wave[None])[0, :, :, 0].T
    step = -(-bands.shape[1] // COLUMNS)
    padded = np.pad(bands, ((0, 0), (0, -bands.shape[1] % step)), mode="edge")
    levels = padded.reshape(len(bands), -1, step).max(axis=2)
    power = float(np.mean(np.square(wave, dtype=np.float64)))
    return {
        "seconds": len(wave) / sample_rate,
        "bands": levels.shape[0],
        "columns": levels.shape[1],
        "hertz": [round(float(each), 1) for each in band_centres(len(bands), sample_rate)],
        "levels": base64.b64encode(
            np.clip(np.rint(levels - FLOOR), 0, 255).astype(np.uint8).tobytes()
        ).decode(),
        "loudness": round(10 * np.log10(power + _QUIET), 1),
    }
