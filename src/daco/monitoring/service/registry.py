"""The machines that the service knows: one per model file, loaded again when the file changes.

The served machines are a snapshot, replaced once the changed models are loaded and workers with
them are forked. When a file breaks, its machine keeps the last good model and reports the problem.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from daco.detector.modelfile import MAX_FILE, SUFFIX
from daco.errors import DataError
from daco.monitoring.service.schemas import ModelInfo
from daco.monitoring.service.settings import MACHINE_ID, Settings
from daco.monitoring.service.workers import ModelServer, ModelServerLostError, WorkerPool

POLL_SECONDS = 1.0
MOST_MODELS = 1000
MOST_BYTES = 1 << 32
"""Of all model files together; they are kept in memory, so that a good one outlives its file."""

Signature = tuple[int, int, int]

log = logging.getLogger("daco.monitoring.service")


@dataclass(frozen=True, kw_only=True)
class Machine(ModelInfo):
    """A machine's model with the names and SHA-256 of its normals."""

    sample_rate: int | None
    names: tuple[str, ...] = field(repr=False)
    sha256s: tuple[str, ...] = field(repr=False)

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """The row of each normal by its name."""
        return {name: row for row, name in reversed(list(enumerate(self.names)))}

    def to_dict(self) -> dict[str, Any]:
        """The fields that clients see."""
        return {each.name: getattr(self, each.name) for each in fields(ModelInfo)}


@dataclass(frozen=True)
class Snapshot:
    """All machines by id, and the problems of unusable files by their names."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    """A model file as it was read; `good` is the content that was last usable."""

    signature: Signature
    data: bytes | None
    good: bytes | None
    problem: str | None


class _LoadCrashError(Exception):
    """The model server ended while it loaded a file."""

    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file


class Registry:
    """Keeps the snapshot and the pool's workers up to date with the folder of models.

    `on_change` is called with the id of a machine and "added", "changed", "removed" or "broken".
    Workers may write to `scratch`.
    """

    def __init__(
        self,
        settings: Settings,
        pool: WorkerPool,
        scratch: Path,
        on_change: Callable[[str, str], None] = lambda machine, change: None,
    ) -> None:
        self.snapshot = Snapshot()
        self.is_loaded = False
        self.server: ModelServer | None = None
        self._settings, self._pool, self._scratch = settings, pool, scratch
        self._on_change = on_change
        self._files: dict[str, _File] = {}
        self._loaded: dict[str, Machine] = {}  # by file name: the models in the server

    def get(self, machine: str) -> Machine | None:
        """The machine of an id."""
        return self.snapshot.machines.get(machine)

    async def watch(self) -> None:
        """Refresh until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
            except Exception:  # the next round may succeed
                log.exception("the models could not be loaded")

    async def refresh(self) -> None:
        """Load what has changed; returns when the new models are in use."""
        before = self.snapshot
        await asyncio.to_thread(self._refresh)
        if self.snapshot is before:
            return
        for machine, change in _changes(before, self.snapshot):
            known = self.snapshot.machines.get(machine)
            reason = f": {known.problem}" if known and known.problem else ""
            log.info("model %s: %s%s", machine, change, reason)
            self._on_change(machine, change)
        for name, problem in self.snapshot.problems.items():
            if before.problems.get(name) != problem:
                log.warning("model %s is not used: %s", name, problem)

    def _refresh(self) -> None:
        seen = _signatures(self._settings.models)
        is_alive = self.server is not None and self.server.is_alive
        if is_alive and seen == {name: file.signature for name, file in self._files.items()}:
            self._pool.refill()
            return
        files = _read_changed(self._settings.models, seen, self._files)
        blamed: dict[str, str] = {}
        while True:
            if self.server is None or not self.server.is_alive:
                self.server, self._loaded = ModelServer(self._settings, self._scratch), {}
            try:
                self._files = self._load(self.server, files, blamed)
                break
            except _LoadCrashError as crash:  # go on without this file
                if crash.file in blamed:
                    raise ModelServerLostError from None
                blamed[crash.file] = "it cannot be loaded: the process that tried has ended."
        self._pool.use(self.server)
        machines = {
            machine.id: replace(machine, problem=self._files[name].problem)
            for name, machine in sorted(self._loaded.items())
        }
        problems = {
            name: file.problem
            for name, file in sorted(self._files.items())
            if file.problem and file.good is None
        }
        self.snapshot, self.is_loaded = Snapshot(machines, problems), True

    def _load(
        self, server: ModelServer, files: Mapping[str, _File], blamed: Mapping[str, str]
    ) -> dict[str, _File]:
        """Load changed files into the server, and all good ones into a new server."""
        for name in self._loaded.keys() - files.keys():
            server.drop(name.removesuffix(SUFFIX))
            del self._loaded[name]
        loaded_files = {}
        for name, file in sorted(files.items()):
            current = file
            if name in blamed:
                current = replace(file, data=None, problem=blamed[name])
            elif file.data is not None:
                problem = self._load_one(server, name, file.data)
                good = file.good if problem else file.data
                current = replace(file, data=None, good=good, problem=problem)
            if name not in self._loaded and current.good is not None:
                self._load_one(server, name, current.good)
            loaded_files[name] = current
        return loaded_files

    def _load_one(self, server: ModelServer, name: str, data: bytes) -> str | None:
        """Load a model; the reason why it cannot be used, or None."""
        machine = name.removesuffix(SUFFIX)
        try:
            reply = server.load(machine, data)
        except ModelServerLostError:
            raise _LoadCrashError(name) from None
        if "error" in reply:
            return str(reply["error"])
        names, sha256s = tuple(reply.pop("names")), tuple(reply.pop("sha256s"))
        self._loaded[name] = Machine(id=machine, names=names, sha256s=sha256s, **reply)
        return None


def _changes(before: Snapshot, after: Snapshot) -> list[tuple[str, str]]:
    changes = []
    for machine in sorted({*before.machines, *after.machines}):
        old, new = before.machines.get(machine), after.machines.get(machine)
        if old is None:
            changes.append((machine, "added"))
        elif new is None:
            changes.append((machine, "removed"))
        elif new.model_sha256 != old.model_sha256:
            changes.append((machine, "changed"))
        elif new.problem and new.problem != old.problem:
            changes.append((machine, "broken"))
    return changes


def _signatures(folder: Path) -> dict[str, Signature]:
    """The model files of a folder; a signature differs when the file has changed."""
    signatures: dict[str, Signature] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(SUFFIX) or entry.name.startswith("."):
                continue
            with contextlib.suppress(OSError):  # removed meanwhile, or a broken link
                status = entry.stat()
                signatures[entry.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return signatures


def _read_changed(
    folder: Path, seen: Mapping[str, Signature], known: Mapping[str, _File]
) -> dict[str, _File]:
    """The files as they are now; an unchanged file is not read again."""
    files: dict[str, _File] = {}
    total = 0
    for name, signature in sorted(seen.items()):
        old = known.get(name)
        if old is not None and old.signature == signature:
            files[name] = old
            total += len(old.good or b"")
            continue
        data, problem = None, None
        try:
            if not MACHINE_ID.fullmatch(name.removesuffix(SUFFIX)):
                raise DataError("its name must be 1 to 100 letters, digits, '.', '_' or '-'.")
            if len(files) >= MOST_MODELS:
                raise DataError(f"more than {MOST_MODELS} models in one folder.")
            data = _read(folder / name, MOST_BYTES - total)
            total += len(data)
        except DataError as error:
            problem = str(error)
        files[name] = _File(signature, data, old.good if old else None, problem)
    return files


def _read(path: Path, most: int) -> bytes:
    try:
        # O_NONBLOCK: opening a pipe of that name must not wait.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DataError("it is not a regular file.")
            if status.st_size > min(most, MAX_FILE):
                raise DataError("it is too large, alone or with all the others.")
            return file.read(status.st_size + 1)
    except OSError as error:
        raise DataError(f"it cannot be read ({error.strerror}).") from None
