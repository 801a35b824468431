"""Models in use: the last good model of each machine, loaded again when its file changes.

Whatever goes wrong while a model is loaded, the one before stays in use, and `problem` says why. A
model of another machine is refused.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from daco.detector.modelfile import MAX_FILE
from daco.errors import DacoError, DataError
from daco.files.hashing import sha256_of_bytes
from daco.monitoring.store.records import BusyError
from daco.monitoring.tables import MachineConfig
from daco.monitoring.worker import ModelInfo

FRESH_SECONDS = 1.0
"""For how long a model file is not looked at again."""

log = logging.getLogger("daco.monitoring")


@dataclass(frozen=True)
class ModelInUse:
    """A model: what it is, and its file, so that it outlives the file."""

    machine: str  #: the id of the machine
    info: ModelInfo
    file: bytes = field(repr=False)
    file_sha256: str


@dataclass
class _Entry:
    lock: threading.Lock = field(default_factory=threading.Lock)
    looked_at: float = -FRESH_SECONDS
    stamp: tuple[int, int, int] | None = None
    in_use: ModelInUse | None = None
    problem: str | None = None


class Models:
    """The models of all machines; `describe` loads one from its bytes, and may raise anything."""

    def __init__(
        self, machines: Mapping[str, MachineConfig], describe: Callable[[bytes], ModelInfo]
    ) -> None:
        self._machines, self._describe = machines, describe
        self._entries = {machine: _Entry() for machine in machines}

    def get(self, machine: str) -> ModelInUse | None:
        """The model of a machine; None where there has never been a usable one."""
        entry = self._entries[machine]
        # While one thread loads a changed model, the others use the one before.
        if entry.lock.acquire(blocking=entry.in_use is None):
            try:
                if time.monotonic() - entry.looked_at >= FRESH_SECONDS:
                    self._refresh(self._machines[machine], entry)
                    entry.looked_at = time.monotonic()
            finally:
                entry.lock.release()
        return entry.in_use

    def problem(self, machine: str) -> str | None:
        """Why the file of a machine's model cannot be used at the moment."""
        return self._entries[machine].problem

    def _refresh(self, machine: MachineConfig, entry: _Entry) -> None:
        stamp = None
        try:
            status = machine.model.stat()
            stamp = status.st_mtime_ns, status.st_size, status.st_ino
            if stamp == entry.stamp:
                return
            data = _read(machine.model)
            sha256 = sha256_of_bytes(data)
            if entry.in_use is None or entry.in_use.file_sha256 != sha256:
                info = self._describe(data)
                before = info if entry.in_use is None else entry.in_use.info
                if info.machine != before.machine and not machine.force:
                    raise DataError(
                        f"it is the model of another machine ({info.machine}, not "
                        f"{before.machine}). If that is meant, set force = true for the machine "
                        "in daco.toml."
                    )
                entry.in_use = ModelInUse(machine.id, info, data, sha256)
                log.info("%s: the model %s is in use.", machine.id, machine.model)
            entry.stamp, entry.problem = stamp, None
        except BusyError:  # the next look may succeed
            return
        except Exception as error:
            entry.stamp = None if isinstance(error, OSError) else stamp
            kept = "" if entry.in_use is None else " The one before stays in use."
            entry.problem = _reason(error) + kept


def _reason(error: Exception) -> str:
    if isinstance(error, DacoError):
        return str(error)
    if isinstance(error, OSError):
        return f"{error.filename}: cannot be read ({error.strerror})."
    return f"it is damaged ({type(error).__name__}: {error})."


def _read(path: Path) -> bytes:
    # O_NONBLOCK: opening a pipe of that name must not wait.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise DataError("it is not a regular file.")
        if status.st_size > MAX_FILE:
            raise DataError("it is too large.")
        return file.read(status.st_size + 1)
