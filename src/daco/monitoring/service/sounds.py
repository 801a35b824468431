"""Where sounds are on disk: those of clips, and those of the model's healthy recordings."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

from daco.audio.formats import DEFAULT_LIMITS, FORMATS
from daco.files.hashing import sha256_of_file
from daco.monitoring.config import MachineConfig
from daco.monitoring.models import ModelInUse
from daco.monitoring.service.problems import not_found

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


def find_within(folder: Path, path: str) -> Path | None:
    """The recording at a path, if it is within the folder after links are resolved."""
    real = os.path.realpath(path)
    inside = real.startswith(os.path.realpath(folder) + os.sep)
    usable = inside and Path(real).suffix.lower() in FORMATS and os.path.isfile(real)
    return Path(real) if usable else None


def find_normals(folder: Path, machine: str, name: str) -> list[Path]:
    """Recordings under `folder` that may be the normal of a name, the likeliest first.

    A model file may come from anywhere: a name in it never leads to a file outside of the
    folder, whatever it contains and wherever links point.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or ".." in parts or Path(parts[-1]).suffix.lower() not in FORMATS:
        return []
    root = os.path.realpath(folder)
    if parts[0] == "/":
        candidates = [name]
    else:
        # As it was named, in a folder of the machine, or without the folders that `folder` has.
        candidates = [os.path.join(*parts), os.path.join(machine, *parts)]
        tail = Path(root).parts
        candidates += [
            os.path.join(*parts[drop:])
            for drop in range(1, len(parts))
            if tail[-drop:] == parts[:drop]
        ]
    paths = (find_within(folder, os.path.join(root, each)) for each in candidates)
    return [path for path in paths if path is not None]


def normal_recording(machine: MachineConfig, model: ModelInUse, index: int) -> Path:
    """The healthy recording of a row of a model, checked by its content."""
    names, sha256s = model.info.names, model.info.sha256s
    if index >= len(names):
        raise not_found(f"The model has {len(names)} healthy recordings, counted from 0.")
    if machine.healthy is None:
        raise not_found(
            "The folder of the healthy recordings is not known: set healthy for the machine in "
            "daco.toml."
        )
    if not sha256s[index]:
        raise not_found(
            "The model does not hold the hash of this recording, so that it cannot be told from "
            "another of the same name: fit the model again."
        )
    candidates = find_normals(machine.healthy, model.info.machine, names[index])
    if not candidates:
        raise not_found("This recording is not in the folder of the healthy recordings.")
    for path in candidates:
        if _sha256(path) == sha256s[index]:
            return path
    raise not_found(
        "The recording on disk is not the one in the model: it has the same name and other content."
    )


def _sha256(path: Path) -> str | None:
    """The hash of a file; None where it cannot be read, or is larger than a recording may be."""
    try:
        return sha256_of_file(path) if path.stat().st_size <= DEFAULT_LIMITS.bytes else None
    except OSError:
        return None
