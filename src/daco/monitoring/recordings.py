"""Kept recordings on disk, named by the SHA-256 of their content: keep, find, evict.

Nothing that a client sends becomes part of a path. Recordings are kept after their verdicts are
committed, and never take the last space of a disk, which the database needs.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from io import BytesIO
from pathlib import Path

from daco.audio.formats import suffix_of_content
from daco.errors import DataError
from daco.files.atomic import TEMPORARY, atomic_write
from daco.monitoring.times import changed_at

RESERVE = 100 << 20
"""Bytes of a disk that kept recordings leave free."""

_KEPT = re.compile(r"([0-9a-f]{64})\.(wav|flac|ogg|aiff|mp3)", re.ASCII)
_ABANDONED = 600.0  # seconds after which an unfinished file belongs to nobody
_HEADER = 64


class Recordings:
    """Recordings kept in a folder, up to a number of bytes; the oldest are removed first.

    `protected` returns the SHA-256 of those that stay: the evidence of alarms that are not
    finished. `reserve` are bytes of the disk to leave free.
    """

    def __init__(
        self,
        folder: Path,
        most_bytes: int,
        protected: Callable[[], Collection[str]] = tuple,
        reserve: int = RESERVE,
    ) -> None:
        self.folder = folder
        self._most, self._protected, self._reserve = most_bytes, protected, reserve
        self._lock = threading.Lock()
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(f"{folder}: cannot be created ({error.strerror}).") from None
        files = []
        for path in folder.glob("??/*"):
            with contextlib.suppress(OSError):
                status, match = path.stat(), _KEPT.fullmatch(path.name)
                if match:
                    files.append((status.st_mtime_ns, match[1], path.name, status.st_size))
                elif TEMPORARY in path.name and time.time() - status.st_mtime > _ABANDONED:
                    path.unlink()  # a kill left it
        self._files = OrderedDict((sha, (name, size)) for _, sha, name, size in sorted(files))
        self.bytes = sum(size for _, size in self._files.values())

    def keep(self, sha256: str, data: bytes | Path) -> None:
        """Write a recording; a `DataError` when there is no space, or the disk refuses."""
        with self._lock:
            if sha256 in self._files:
                self._files.move_to_end(sha256)
                return
        try:
            with BytesIO(data) if isinstance(data, bytes) else data.open("rb") as file:
                head = file.read(_HEADER)
                size = file.seek(0, os.SEEK_END)
        except OSError as error:
            raise DataError(f"{data!s}: cannot be kept ({error.strerror}).") from None
        if size > self._most:
            raise DataError(f"It has {size:,} bytes, more than audio_size for all recordings.")
        self.evict(size)
        if self.bytes + size > self._most:
            raise DataError(
                "audio_size is full of recordings of alarms that are open or that nobody has "
                "acknowledged. Acknowledge old alarms, or raise audio_size in daco.toml."
            )
        if self._free() < size + self._reserve:
            raise DataError(f"{self.folder}: the disk is full, so recordings are not kept.")
        name = f"{sha256}{suffix_of_content(head) or '.mp3'}"
        path = self.folder / sha256[:2] / name
        with contextlib.suppress(OSError):  # writing reports the reason
            path.parent.mkdir(mode=0o700, exist_ok=True)
        with atomic_write(path) as temporary:
            os.chmod(temporary, 0o600)
            if isinstance(data, bytes):
                temporary.write_bytes(data)
            else:
                shutil.copyfile(data, temporary)
        with self._lock:
            if sha256 not in self._files:
                self._files[sha256] = (name, size)
                self.bytes += size

    def find(self, sha256: str | None) -> Path | None:
        """The path of a kept recording; None where it is not kept."""
        with self._lock:
            kept = self._files.get(sha256 or "")
        path = None if kept is None else self.folder / kept[0][:2] / kept[0]
        return path if path is not None and path.is_file() else None

    def remove(self, sha256: str) -> None:
        """Remove a recording."""
        with self._lock:
            name, size = self._files.pop(sha256, ("", 0))
            self.bytes -= size
        if name:
            (self.folder / name[:2] / name).unlink(missing_ok=True)

    def evict(self, more: int) -> int:
        """Remove the oldest recordings until there is space for `more` bytes; return how many."""
        removed, protected = 0, None
        with self._lock:
            oldest = list(self._files)
        for sha256 in oldest:
            if self.bytes + more <= self._most and self._free() >= more + self._reserve:
                break
            protected = self._protected() if protected is None else protected
            if sha256 not in protected:
                self.remove(sha256)
                removed += 1
        return removed

    def prune(self, is_stored: Callable[[list[str]], set[str]]) -> None:
        """Remove recordings that no stored clip has."""
        with self._lock:
            names = list(self._files)
        for sha256 in set(names) - is_stored(names):
            written_at = changed_at(self.find(sha256))
            # One whose clip is being stored by another process is young.
            if written_at is None or time.time() - written_at.timestamp() > _ABANDONED:
                self.remove(sha256)

    def has_space(self) -> bool:
        """Whether recordings can be kept without taking the last space of the disk."""
        return self._free() >= self._reserve

    def _free(self) -> int:
        try:
            return shutil.disk_usage(self.folder).free
        except OSError:
            return 0
