"""Recordings on disk: kept uploads, the normals' recordings, and spectrograms of both as PNG.

Spectrograms show the mel bands a detector uses, in colours for a light or a dark page.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from daco.audio.decode import read_audio
from daco.audio.formats import DEFAULT_LIMITS, FORMATS, AudioLimits, suffix_of_content
from daco.backbones.logmel import LogMel
from daco.errors import AudioError, DataError
from daco.files.atomic import atomic_write
from daco.files.hashing import sha256_of_file

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
WIDTH, ZOOM = 800, 2
"""Most columns of a picture, and rows of pixels per mel band."""

DEPTH = 70.0
"""Decibels from the darkest to the brightest colour."""

_KEPT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.(wav|flac|ogg|aiff|mp3)", re.ASCII)
_STEP = 10.0  # of the brightest level: similar recordings get the same scale
_THEMES = {
    "dark": ("#10141a", "#3b1f63", "#8c2a6b", "#d9524b", "#f79a3e", "#fcf6c8"),
    "light": ("#ffffff", "#fbdca8", "#f0925c", "#c9416b", "#7c2278", "#1d1038"),
}


class Recordings:
    """Uploads kept in a folder, up to a number of bytes; the oldest are removed first.

    Only the service uses the folder. A file is named by the SHA-256 of its content, so that
    nothing a client sends becomes part of a path and the same recording is kept once.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self._most = most_bytes
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder}: cannot be created ({error.strerror}).") from None
        files = []
        for path in folder.glob("??/*"):
            name = f"{path.parent.name}/{path.name}"
            if _KEPT.fullmatch(name):
                with contextlib.suppress(OSError):
                    status = path.stat()
                    files.append((status.st_mtime_ns, name, status.st_size))
        self._sizes = OrderedDict((name, size) for _, name, size in sorted(files))
        self.bytes = sum(self._sizes.values())

    def keep(self, sha256: str, data: bytes) -> str:
        """Write a recording and return its name; a `DataError` when the disk refuses."""
        name = f"{sha256[:2]}/{sha256}{suffix_of_content(data) or '.mp3'}"
        path = self.folder / name
        with self._lock:
            known = name in self._sizes
            if known:
                self._sizes.move_to_end(name)
        if known:
            with contextlib.suppress(OSError):
                os.utime(path)  # the oldest file is the one not used for longest
        else:
            with contextlib.suppress(OSError):  # writing reports the reason
                path.parent.mkdir(mode=0o700, exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_bytes(data)
        with self._lock:
            if name not in self._sizes:
                self._sizes[name] = len(data)
                self.bytes += len(data)
        self._remove_oldest()
        return name

    def find(self, name: str) -> Path | None:
        """The path of a kept recording; None where it is not kept or the name is not valid."""
        with self._lock:
            return self.folder / name if name in self._sizes else None

    def remove(self, names: Sequence[str], before: float | None = None) -> None:
        """Remove recordings; with `before`, only those not used since that time."""
        for name in names:
            path = self.find(name)
            if path is None or (before is not None and _last_use(path) >= before):
                continue
            with self._lock:
                self.bytes -= self._sizes.pop(name, 0)
            with contextlib.suppress(OSError):
                path.unlink()

    def _remove_oldest(self) -> None:
        while True:
            with self._lock:
                # The newest stays, however small the bound: its clip refers to it.
                if self.bytes <= self._most or len(self._sizes) <= 1:
                    return
                oldest = next(iter(self._sizes))
            self.remove((oldest,))


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def sha256_of_recording(path: Path) -> str | None:
    """The hash of a file; None where it cannot be read, or is larger than a recording may be."""
    try:
        return sha256_of_file(path) if path.stat().st_size <= DEFAULT_LIMITS.bytes else None
    except OSError:
        return None


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
    paths = (find_within((folder,), os.path.join(root, each)) for each in candidates)
    return [path for path in paths if path is not None]


def find_within(folders: Sequence[Path], path: str) -> Path | None:
    """The recording at a path, if it is within one of the folders after links are resolved."""
    real = os.path.realpath(path)
    inside = any(real.startswith(os.path.realpath(folder) + os.sep) for folder in folders)
    usable = inside and Path(real).suffix.lower() in FORMATS and os.path.isfile(real)
    return Path(real) if usable else None


def draw_spectrogram(path: Path, theme: str, sample_rate: int, limits: AudioLimits) -> bytes:
    """A PNG of a recording's first channel: time to the right, mel bands upwards.

    Frequencies up to half the `sample_rate` are shown. An AudioError does not name the path.
    """
    try:
        wave = read_audio(path, sample_rate=sample_rate, limits=limits)
    except AudioError as error:
        raise AudioError(error.reason) from None
    levels = _mel_levels(wave, sample_rate)
    brightest = np.ceil(np.percentile(levels, 99.5) / _STEP) * _STEP
    share = np.clip((levels - brightest) / DEPTH + 1, 0, 1)
    pixels = np.rint(share * 255).astype(np.uint8)[::-1].repeat(ZOOM, axis=0)
    image = Image.fromarray(pixels)
    image.putpalette(palette(theme))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def _mel_levels(wave: NDArray[Any], sample_rate: int) -> NDArray[np.float32]:
    """Decibels of the mel bands, (bands, columns); a column holds the loudest of its frames."""
    bands = LogMel(sample_rate).grid(wave[None])[0, :, :, 0].T
    step = -(-bands.shape[1] // WIDTH)
    padded = np.pad(bands, ((0, 0), (0, -bands.shape[1] % step)), mode="edge")
    return np.asarray(padded.reshape(len(bands), -1, step).max(axis=2), np.float32)


@cache
def palette(theme: str) -> bytes:
    """256 colours, three bytes each, from the quietest to the loudest."""
    anchors = np.array([list(bytes.fromhex(colour[1:])) for colour in _THEMES[theme]], float)
    positions = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(positions, np.arange(len(anchors)), channel) for channel in anchors.T]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes()
