"""Recordings on disk: uploads kept under the hash of their content, and the normals' own."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from daco.audio.formats import DEFAULT_LIMITS, FORMATS, suffix_of_content
from daco.errors import DataError
from daco.files.atomic import atomic_write

_KEPT = re.compile(r"[0-9a-f]{2}/[0-9a-f]{64}\.(wav|flac|ogg|aiff|mp3)", re.ASCII)
_MEDIA_TYPES = {
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
    ".oga": "audio/ogg",
    ".opus": "audio/ogg",
    ".aif": "audio/aiff",
    ".aiff": "audio/aiff",
    ".mp3": "audio/mpeg",
}

_Version = tuple[int, int, int, int]

log = logging.getLogger("daco.monitoring.service")


def media_type_of(path: Path) -> str:
    """The type a recording is sent as."""
    return _MEDIA_TYPES[path.suffix.lower()]


class Recordings:
    """Kept uploads of a folder, at most so many bytes of them; the oldest go first.

    The folder belongs to the service alone. A file is named by the SHA-256 of its content, so
    that nothing a client says becomes part of a path and the same recording is kept once.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        self.folder = folder
        self._most = most_bytes
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder}: cannot be made ({error.strerror}).") from None
        self._sizes = _found(folder)
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
                os.utime(path)  # it is as young as its last use
        else:
            with contextlib.suppress(OSError):  # what it was, writing says
                path.parent.mkdir(mode=0o700, exist_ok=True)
            with atomic_write(path) as temporary:
                temporary.write_bytes(data)
        with self._lock:
            if name not in self._sizes:
                self._sizes[name] = len(data)
                self.bytes += len(data)
        self._forget_oldest()
        return name

    def find(self, name: str | None) -> Path | None:
        """Where a kept recording lies; None where it is not kept or no name of ours."""
        if name is None or not _KEPT.fullmatch(name):
            return None
        with self._lock:
            return self.folder / name if name in self._sizes else None

    def remove(self, names: Sequence[str], before: float | None = None) -> None:
        """Forget recordings; with `before`, only those not used since that time."""
        for name in names:
            path = self.find(name)
            if path is None or (before is not None and _last_use(path) >= before):
                continue
            with self._lock:
                size = self._sizes.pop(name, None)
                self.bytes -= size or 0
            with contextlib.suppress(OSError):
                path.unlink()

    def _forget_oldest(self) -> None:
        while True:
            with self._lock:
                # The newest stays, however small the bound: it was just promised.
                if self.bytes <= self._most or len(self._sizes) <= 1:
                    return
                oldest = next(iter(self._sizes))
            self.remove((oldest,))


def _last_use(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _found(folder: Path) -> OrderedDict[str, int]:
    """Sizes of the recordings that are there, the oldest first."""
    found = []
    for path in folder.glob("??/*"):
        name = f"{path.parent.name}/{path.name}"
        if _KEPT.fullmatch(name):
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_mtime_ns, name, status.st_size))
    return OrderedDict((name, size) for _, name, size in sorted(found))


class Hashes:
    """SHA-256 of files on disk; one that looks the same from outside is not read again."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[Path, tuple[_Version, str]] = OrderedDict()

    def of(self, path: Path) -> str | None:
        """The hash of a file; None where it cannot be read or is larger than a recording may be."""
        try:
            with path.open("rb") as file:
                version = _version(file.fileno())
                with self._lock:
                    kept = self._kept.get(path)
                    if kept is not None and kept[0] == version:
                        self._kept.move_to_end(path)
                        return kept[1]
                if version[0] > DEFAULT_LIMITS.bytes:
                    return None
                found = hashlib.file_digest(file, "sha256").hexdigest()
                if _version(file.fileno()) != version:  # written to while it was read
                    return None
        except OSError:
            return None
        with self._lock:
            self._kept[path] = (version, found)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return found


def _version(handle: int) -> _Version:
    status = os.fstat(handle)
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def find_normals(folder: Path, machine: str, name: str) -> list[Path]:
    """Recordings under `folder` that may be the normal of a name, the likeliest first.

    A model file may come from anywhere, so that a name in it leads to no file outside of the
    folder, whatever it looks like and wherever links point.
    """
    parts = PurePosixPath(name.replace("\\", "/")).parts
    if not parts or ".." in parts or Path(parts[-1]).suffix.lower() not in FORMATS:
        return []
    root = os.path.realpath(folder)
    if parts[0] == "/":
        places = [name]
    else:
        # As it was named, in a folder of the machine, or without the folders that `folder` is.
        places = [os.path.join(*parts), os.path.join(machine, *parts)]
        tail = Path(root).parts
        places += [
            os.path.join(*parts[drop:])
            for drop in range(1, len(parts))
            if tail[-drop:] == parts[:drop]
        ]
    found = (find_within((folder,), os.path.join(root, place)) for place in places)
    return [path for path in found if path is not None]


def find_within(folders: Sequence[Path], path: str) -> Path | None:
    """A recording at a path, if it really lies within one of the folders."""
    real = os.path.realpath(path)
    inside = any(real.startswith(os.path.realpath(folder) + os.sep) for folder in folders)
    usable = inside and Path(real).suffix.lower() in FORMATS and os.path.isfile(real)
    return Path(real) if usable else None
