"""The machines the service knows: one per model file, loaded again when the file changes.

What is served is a snapshot, replaced as a whole once a new set of models is loaded and workers
for it are there. A file that is broken leaves the machine with the model it had, and says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from daco.detector.modelfile import MAX_FILE, SUFFIX
from daco.errors import DataError
from daco.monitoring.service.pool import Pool
from daco.monitoring.service.processes import Nursery, NurseryLostError
from daco.monitoring.service.settings import MACHINE_ID, Settings

POLL_SECONDS = 1.0
MOST_MODELS = 1000
MOST_BYTES = 1 << 32
"""Of all model files together; they are kept in memory, so that a good one outlives its file."""

Signature = tuple[int, int, int]

log = logging.getLogger("daco.monitoring.service")


@dataclass(frozen=True)
class Machine:
    """What the service knows of a machine's model; `id` is the stem of its file."""

    id: str
    machine: str
    config: str
    threshold: float
    false_alarm_rate: float
    domains: Mapping[str, int]
    model_sha256: str
    backbone: str | None
    sample_rate: int | None
    created: str | None
    names: tuple[str, ...] = field(repr=False)
    sha256s: tuple[str, ...] = field(repr=False)
    problem: str | None = None

    @cached_property
    def index_of(self) -> Mapping[str, int]:
        """The row of each normal by its name."""
        return {name: row for row, name in reversed(list(enumerate(self.names)))}


@dataclass(frozen=True)
class Snapshot:
    """All machines by id, and what is wrong with files that are none, by their names."""

    machines: Mapping[str, Machine] = field(default_factory=dict)
    problems: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class _File:
    """A model file as it was when it was read; `good` is the content that was last usable."""

    signature: Signature
    data: bytes | None
    good: bytes | None
    problem: str | None


class Registry:
    """Keeps a snapshot in step with the folder, and the pool's workers in step with it.

    Parameters
    ----------
    settings : Settings
    pool : Pool
        Is given the workers of every new set of models.
    scratch : Path
        Where workers may write.
    on_change : callable
        Called with the id of a machine and ``"added"``, ``"changed"``, ``"removed"`` or
        ``"broken"``.
    """

    def __init__(
        self,
        settings: Settings,
        pool: Pool,
        scratch: Path,
        on_change: Callable[[str, str], None] = lambda machine, change: None,
    ) -> None:
        self.snapshot = Snapshot()
        self.is_loaded = False
        self._settings, self._pool, self._scratch = settings, pool, scratch
        self._on_change = on_change
        self._files: dict[str, _File] = {}
        self._nursery: Nursery | None = None

    def get(self, machine: str) -> Machine | None:
        """The machine of an id."""
        return self.snapshot.machines.get(machine)

    async def watch(self) -> None:
        """Keep in step until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            try:
                await self.refresh()
            except Exception:  # whatever it was, the next round may go well
                log.exception("the models could not be looked at")

    async def refresh(self) -> None:
        """Load what has changed; returns when the new set is in use."""
        seen = await asyncio.to_thread(_signatures, self._settings.models)
        lost = self._nursery is None or not self._nursery.is_alive
        if not lost and seen == {name: file.signature for name, file in self._files.items()}:
            return
        files = await asyncio.to_thread(_read_changed, self._settings.models, seen, self._files)
        await self._load(files)

    async def _load(self, files: dict[str, _File]) -> None:
        blamed: dict[str, str] = {}
        while True:
            nursery = await Nursery.start(self._settings, self._scratch)
            try:
                tried, machines = await _load_all(nursery, files, blamed)
                await nursery.open()
                break
            except _LoadCrashError as crash:  # the process died on one file: go on without it
                if crash.file in blamed:
                    raise NurseryLostError from None
                blamed[crash.file] = "it cannot be loaded: the process that tried has ended."
            except BaseException:
                await nursery.kill()
                raise
        await self._pool.adopt(nursery)
        self._files, self._nursery, self.is_loaded = tried, nursery, True
        before = self.snapshot
        self.snapshot = Snapshot(
            machines,
            {
                name: file.problem
                for name, file in sorted(tried.items())
                if file.problem and file.good is None
            },
        )
        self._announce(before)

    def _announce(self, before: Snapshot) -> None:
        for machine, change in _changes(before, self.snapshot):
            detail = self.snapshot.machines.get(machine)
            reason = f": {detail.problem}" if detail and detail.problem else ""
            log.info("model %s: %s%s", machine, change, reason)
            self._on_change(machine, change)
        for name, problem in self.snapshot.problems.items():
            if before.problems.get(name) != problem:
                log.warning("model %s is not used: %s", name, problem)


class _LoadCrashError(Exception):
    def __init__(self, file: str) -> None:
        super().__init__(file)
        self.file = file


async def _load_all(
    nursery: Nursery, files: Mapping[str, _File], blamed: Mapping[str, str]
) -> tuple[dict[str, _File], dict[str, Machine]]:
    """Every file with what became of it, and the machines that can be served."""
    tried: dict[str, _File] = {}
    machines: dict[str, Machine] = {}
    for name, file in sorted(files.items()):
        machine, current = name.removesuffix(SUFFIX), file
        found: Machine | None = None
        if name in blamed:
            current = replace(file, data=None, problem=blamed[name])
        elif file.data is not None:
            found, problem = await _load_one(nursery, name, machine, file.data)
            good = file.data if found else file.good
            current = replace(file, data=None, good=good, problem=problem)
        if found is None and current.good is not None:
            found, _ = await _load_one(nursery, name, machine, current.good)
        if found is not None:
            machines[machine] = replace(found, problem=current.problem)
        tried[name] = current
    return tried, machines


async def _load_one(
    nursery: Nursery, name: str, machine: str, data: bytes
) -> tuple[Machine | None, str | None]:
    try:
        said, texts = await nursery.load(machine, data)
    except NurseryLostError:
        raise _LoadCrashError(name) from None
    if "error" in said:
        return None, said["error"]
    names = tuple(texts.decode().split("\0"))  # and after them as many hashes
    half = len(names) // 2
    return Machine(id=machine, names=names[:half], sha256s=names[half:], **said), None


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
    """The model files of a folder, and by what a change of them is noticed."""
    found: dict[str, Signature] = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.endswith(SUFFIX) or entry.name.startswith("."):
                continue
            with contextlib.suppress(OSError):  # gone meanwhile, or a link to nowhere
                status = entry.stat()
                found[entry.name] = (status.st_mtime_ns, status.st_size, status.st_ino)
    return found


def _read_changed(
    folder: Path, seen: Mapping[str, Signature], known: Mapping[str, _File]
) -> dict[str, _File]:
    """The files as they are now; of those that did not change, what was known of them."""
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
        # A pipe of that name must not make anybody wait.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DataError("it is no regular file.")
            if status.st_size > min(most, MAX_FILE):
                raise DataError("it is too large, alone or with all the others.")
            return file.read(status.st_size + 1)
    except OSError as error:
        raise DataError(f"it cannot be read ({error.strerror}).") from None


def described(machine: Machine) -> dict[str, Any]:
    """What others are told of a machine's model."""
    return {
        "id": machine.id,
        "machine": machine.machine,
        "config": machine.config,
        "threshold": machine.threshold,
        "false_alarm_rate": machine.false_alarm_rate,
        "domains": dict(machine.domains),
        "model_sha256": machine.model_sha256,
        "backbone": machine.backbone,
        "created": machine.created,
        "problem": machine.problem,
    }
