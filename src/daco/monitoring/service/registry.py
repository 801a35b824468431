"""The machines that the service knows: one per model file, loaded again when the file changes.

The served machines are a snapshot, replaced once workers with the changed models are forked. When a
file breaks, its machine keeps the last good model and reports the problem.
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

from daco.detector.decision import ReferenceScores
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
    """A machine's model with the names and SHA-256 of its normals, and what it decides by."""

    sample_rate: int | None
    reference: ReferenceScores = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    sha256s: tuple[str, ...] = field(repr=False)

    @classmethod
    def from_reply(cls, machine: str, reply: dict[str, Any]) -> Machine:
        """The machine of an id from what the model server says of its model."""
        parsed: dict[str, Any] = {name: tuple(reply[name]) for name in ("names", "sha256s")}
        reference = reply["reference"]
        domains = tuple(reference["domains"])
        parsed["reference"] = ReferenceScores(**reference | {"domains": domains})
        return cls(id=machine, **reply | parsed)

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


@dataclass
class _ModelFile:
    """A model file; `good` is the content that was last usable, `pending` is not loaded yet."""

    signature: Signature | None = None
    pending: bytes | None = None
    good: bytes | None = None
    machine: Machine | None = None  # in the present server
    problem: str | None = None


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
        self._files: dict[str, _ModelFile] = {}

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
        known = {name: file.signature for name, file in self._files.items()}
        is_alive = self.server is not None and self.server.is_alive
        is_pending = any(file.pending is not None for file in self._files.values())
        if is_alive and seen == known and not is_pending:
            self._pool.refill()
            return
        for name in known.keys() - seen.keys():
            del self._files[name]
            if self.server is not None:
                with contextlib.suppress(ModelServerLostError):
                    self.server.drop(name.removesuffix(SUFFIX))
        self._read_changed(seen)
        server = self._load_all()
        self._pool.use(server)
        machines, problems = {}, {}
        for name, file in sorted(self._files.items()):
            if file.machine is not None:
                machines[file.machine.id] = replace(file.machine, problem=file.problem)
            elif file.problem:
                problems[name] = file.problem
        self.snapshot, self.is_loaded = Snapshot(machines, problems), True

    def _read_changed(self, seen: Mapping[str, Signature]) -> None:
        for number, (name, signature) in enumerate(sorted(seen.items())):
            file = self._files.setdefault(name, _ModelFile())
            if file.signature == signature:
                continue
            file.signature, file.pending, file.problem = signature, None, None
            others = [each for each in self._files.values() if each is not file]
            size = sum(len(each.pending or each.good or b"") for each in others)
            try:
                if not MACHINE_ID.fullmatch(name.removesuffix(SUFFIX)):
                    raise DataError("its name must be 1 to 100 letters, digits, '.', '_' or '-'.")
                if number >= MOST_MODELS:
                    raise DataError(f"more than {MOST_MODELS} models in one folder.")
                file.pending = _read(self._settings.models / name, MOST_BYTES - size)
            except DataError as error:
                file.problem = str(error)

    def _load_all(self) -> ModelServer:
        """Load changed files into the server, and all good ones into a new server."""
        while True:
            if self.server is None or not self.server.is_alive:
                self.server = ModelServer(self._settings, self._scratch)
                for file in self._files.values():
                    file.machine = None
            for name, file in sorted(self._files.items()):
                try:
                    _load(self.server, name.removesuffix(SUFFIX), file)
                except ModelServerLostError:  # go on without this file
                    if file.pending is None:
                        raise
                    file.pending = None
                    file.problem = "it cannot be loaded: the process that tried has ended."
                    break
            else:
                return self.server


def _load(server: ModelServer, machine: str, file: _ModelFile) -> None:
    """Load a file's new content; if that cannot be used, the last good one stays or comes back."""
    if file.pending is not None:
        reply = server.load(machine, file.pending)
        file.problem = reply.get("error")
        if file.problem is None:
            file.good, file.machine = file.pending, Machine.from_reply(machine, reply)
        file.pending = None
    if file.machine is None and file.good is not None:
        reply = server.load(machine, file.good)
        if "error" not in reply:
            file.machine = Machine.from_reply(machine, reply)


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
