"""Sounds on disk: the healthy recordings of a model, and spectrograms of recordings as numbers.

The page draws two spectrograms on one scale, with hertz and seconds.
"""

from __future__ import annotations

import base64
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from fastapi import HTTPException

from daco.audio.decode import read_audio
from daco.audio.formats import DEFAULT_LIMITS, FORMATS, AudioLimits
from daco.errors import AudioError
from daco.files.hashing import sha256_of_file
from daco.monitoring.models import ModelInUse
from daco.monitoring.tables import MachineConfig

MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
    ".mp3": "audio/mpeg",
}

COLUMNS = 400
"""Most columns of a picture; a column holds the loudest of its frames."""

FLOOR = -128.0
"""Decibels that a byte of 0 means."""


def normal_recording(machine: MachineConfig, model: ModelInUse, index: int) -> Path:
    """The healthy recording of a row of a model, checked by its content."""
    names, sha256s = model.info.names, model.info.sha256s
    if index >= len(names):
        detail = f"The model has {len(names)} healthy recordings, counted from 0."
    elif machine.healthy is None:
        detail = (
            "The folder of the healthy recordings is not known: set healthy for the machine in "
            "daco.toml."
        )
    elif not sha256s[index]:
        detail = (
            "The model does not hold the hash of this recording, so that it cannot be told from "
            "another of the same name: fit the model again."
        )
    else:
        detail = "This recording is not in the folder of the healthy recordings."
        for path in _candidates(machine.healthy, model.info.machine, names[index]):
            if _sha256(path) == sha256s[index]:
                return path
            detail = (
                "The recording on disk is not the one in the model: it has the same name and "
                "other content."
            )
    raise HTTPException(404, detail)


def _candidates(folder: Path, machine: str, name: str) -> list[Path]:
    """Recordings under `folder` that may be the normal of a name, the likeliest first.

    A model file may come from anywhere: a name in it never leads to a file outside of the
    folder, whatever it contains and wherever links point.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or ".." in parts or "\0" in name:
        return []
    root = folder.resolve()
    # As it was named, in a folder of the machine, or without the folders that `folder` has.
    tails = [parts, (machine, *parts)]
    tails += [parts[drop:] for drop in range(1, len(parts)) if root.parts[-drop:] == parts[:drop]]
    paths = [root.joinpath(*tail).resolve() for tail in tails]
    return [
        path
        for path in paths
        if path.is_relative_to(root) and path.suffix.lower() in FORMATS and path.is_file()
    ]


def _sha256(path: Path) -> str | None:
    """The hash of a file; None where it cannot be read, or is larger than a recording may be."""
    try:
        return sha256_of_file(path) if path.stat().st_size <= DEFAULT_LIMITS.bytes else None
    except OSError:
        return None


def picture(path: Path, sample_rate: int, limits: AudioLimits) -> dict[str, Any]:
    """The spectrogram of a recording's first channel up to half the sample rate.

    Returns what `schemas.Picture` has; an `AudioError` that does not name the path where the
    recording cannot be decoded. It runs in a worker.
    """
    from daco.backbones.logmel import LogMel

    try:
        wave = read_audio(path, sample_rate=sample_rate, limits=limits)
    except AudioError as error:
        raise AudioError(error.reason) from None
    bands = LogMel(sample_rate).grid(wave[None])[0, :, :, 0].T
    step = -(-bands.shape[1] // COLUMNS)
    padded = np.pad(bands, ((0, 0), (0, -bands.shape[1] % step)), mode="edge")
    levels = padded.reshape(len(bands), -1, step).max(axis=2)
    # Centres of mel bands from 0 Hz to half the sample rate.
    top = 2595 * np.log10(1 + sample_rate / 2 / 700)
    mel = top * np.arange(1, len(bands) + 1) / (len(bands) + 1)
    power = float(np.mean(np.square(wave, dtype=np.float64)))
    return {
        "seconds": len(wave) / sample_rate,
        "bands": levels.shape[0],
        "columns": levels.shape[1],
        "hertz": np.round(700 * (10 ** (mel / 2595) - 1), 1).tolist(),
        "levels": base64.b64encode(
            np.clip(np.rint(levels - FLOOR), 0, 255).astype(np.uint8).tobytes()
        ).decode(),
        "loudness": round(10 * np.log10(power + 1e-10), 1),
    }
