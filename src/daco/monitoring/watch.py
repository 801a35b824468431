"""Watching a folder: every new recording is judged and stored exactly once.

What makes a recording new is its place and its content. A file is looked at again when its size
or times differ from what the store remembers, and is a new recording only if its bytes differ as
well: files that are touched, copied back or re-dated by a file system come to nothing.
Verdict, alarm, messages and the note that the file was dealt with are one transaction, so that a
kill at any moment leaves a file either done or not begun.

In memory are the files that lie in the folder; the store knows about those that did. What it
knows is forgotten when the file is gone and its clip, too: see `Watcher.forget_gone`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from daco.audio.decode import probe
from daco.detector.model import MachineModel
from daco.detector.modelfile import SUFFIX
from daco.detector.verdict import Hearing, Verdict, judge
from daco.embedding.frontend import Listener
from daco.errors import AudioError, DacoError, InputError
from daco.files.hashing import sha256_of_file
from daco.monitoring.arrivals import Arrivals, Look, Seen, Stamp, look
from daco.monitoring.store import Added, Store, StoreError
from daco.monitoring.store.records import KEY, TEXT
from daco.text import quantity


@dataclass(frozen=True)
class Scored:
    """A recording that was judged and stored."""

    verdict: Verdict
    added: Added


@dataclass(frozen=True)
class Unusable:
    """A file that is no usable recording, and why; told once until it changes."""

    name: str
    reason: str


@dataclass(frozen=True)
class Remark:
    """Something else a person should know."""

    text: str


Event = Scored | Unusable | Remark


class ModelInUse:
    """A model file and what was last good in it; read again when the file changes.

    Parameters
    ----------
    path : Path
        The file; the machine goes by its name without the ending, as in ``daco serve``.
    hearing : Hearing

    Raises
    ------
    DacoError
        At the start, where there is nothing good yet to go on with.
    """

    def __init__(self, path: Path, hearing: Hearing) -> None:
        self.path, self.hearing = path, hearing
        self.machine = path.name.removesuffix(SUFFIX) or path.name
        self._signature = _signature(path)
        self.model = MachineModel.load(path)
        self.listener = self._listener(self.model)

    def _listener(self, model: MachineModel) -> Listener:
        return Listener(model.frontend, weights=self.hearing.weights, device=self.hearing.device)

    def refresh(self) -> str | None:
        """Use the file as it is now; a sentence if that changed or failed to change anything."""
        signature = _signature(self.path)
        if signature in (self._signature, None):  # while it is being replaced, or was removed
            return None
        self._signature = signature
        try:
            model = MachineModel.load(self.path)
            same = model.frontend == self.model.frontend
            listener = self.listener if same else self._listener(model)
        except DacoError as error:
            return f"The changed model is not used, the one before goes on: {error}"
        if model.sha256 == self.model.sha256:
            return None
        self.model, self.listener = model, listener
        normals = quantity(len(model), "normal")
        return f"The model has changed: {normals}, threshold {model.threshold:.4g}."

    def judge(self, path: Path, name: str) -> Verdict:
        """The verdict of the model in use on one recording."""
        return judge(
            self.model,
            self.listener,
            path,
            name=name,
            window=self.hearing.window,
            hop=self.hearing.hop,
            aggregate=self.hearing.aggregate,
        )


class Watcher:
    """A folder, the model that judges what arrives in it, and the store it goes to.

    Parameters
    ----------
    model : ModelInUse
    folder : Path
        With all folders below it. Its resolved path is part of what tells recordings apart,
        so that several folders of one machine can go to the same store.
    store : Store
    settle : float
        Seconds that a file must have stood still; see `daco.monitoring.arrivals`.
    clock : callable
        Seconds that only grow.
    """

    def __init__(
        self,
        model: ModelInUse,
        folder: Path,
        store: Store,
        *,
        settle: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder. Give the folder of the recordings.")
        self.model, self.folder, self.store = model, folder.resolve(), store
        self._clock = clock
        self._prefix = f"{self.folder.as_posix().rstrip('/')}/"
        self._arrivals = Arrivals(settle, patience=10 * settle, recall=self._dealt_with)
        self.look_seconds = 0.0  # what the last look took, without what came of it
        self._obstacles: tuple[str, ...] = ()
        self._store_is_away = False
        self._forgets = False

    def _dealt_with(self, paths: Sequence[str]) -> dict[str, Seen]:
        keys = [self._prefix + path for path in paths]
        known = self.store.sources(self.model.machine, keys)
        return {
            each.source_key.removeprefix(self._prefix): Seen.parse(
                each.stamp or "", each.audio_sha256
            )
            for each in known
        }

    @property
    def waiting(self) -> list[str]:
        """Files that are new and not dealt with yet: most likely still being written."""
        return self._arrivals.waiting

    def forget_gone(self) -> None:
        """Have the next look forget files that are gone, if their clips are no longer kept.

        They would be new recordings if they came back. A look that finds no recording, or a
        folder that cannot be opened, forgets nothing, since a network drive may only be away; nor
        are the files of a folder forgotten that is there and empty.
        """
        self._forgets = True

    def poll(
        self, *, second_try: bool = True, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """Look at the folder once, and deal with what has arrived, oldest first.

        It can be left at any point: what was yielded is stored, the rest waits for the next look.

        Parameters
        ----------
        second_try : bool
            A file that cannot be used gets another chance at a later look before it is told.
        stop : callable
            Asked before each recording.
        """
        begun = self._clock()
        found = look(self.folder)
        self.look_seconds = self._clock() - begun
        if found.obstacles != self._obstacles:
            self._obstacles = found.obstacles
            yield from map(Remark, found.obstacles)
        try:
            self._forget(found)
            for path in self._arrivals.ready(found.files, self._clock()):
                if stop():
                    return
                if remark := self.model.refresh():
                    yield Remark(remark)
                event = self._deal_with(path, second_try)
                if self._store_is_away:
                    self._store_is_away = False
                    yield Remark("The database is back.")
                if event is not None:
                    yield event
            if remark := self.model.refresh():
                yield Remark(remark)
        except StoreError as error:  # nothing is lost: the files are still there
            if not self._store_is_away:
                yield Remark(f"{error} Recordings wait until it is back.")
            self._store_is_away = True

    def _forget(self, found: Look) -> None:
        if self._forgets and found.files and found.is_complete:
            is_gone = _Gone(self.folder, found)
            self.store.forget_sources(
                self.model.machine, self._prefix, lambda key: is_gone(key[len(self._prefix) :])
            )
            self._forgets = False

    def _deal_with(self, path: str, second_try: bool) -> Event | None:
        stamp, file = self._arrivals.stamp_of(path), self.folder / path
        before = self._arrivals.seen.get(path)
        known = None if before is None else before.sha256
        verdict = None
        try:
            if len(self._prefix + path) > KEY:
                raise InputError(f"its path is longer than {KEY} characters.")
            probe(file)  # so that nothing is read in full that is no recording, or too large
            sha256 = sha256_of_file(file)
            if sha256 != known:
                verdict = self.model.judge(file, path)
        except (AudioError, InputError, OSError) as error:
            if not _is_still(file, stamp) or (not self._arrivals.failed(path) and second_try):
                return None
            return self._reject(path, Seen(stamp, known), error)
        if not _is_still(file, stamp):
            return None  # written to, or removed, since the look: the next one sees it
        if verdict is None:
            self._same_again(path, Seen(stamp, sha256))
            return None
        return self._store(path, Seen(stamp, sha256), verdict)

    def _store(self, path: str, seen: Seen, verdict: Verdict) -> Event | None:
        added = self.store.add(
            verdict.to_dict(),
            machine=self.model.machine,
            received_at=datetime.now(UTC),
            recorded_at=_recorded_at(seen.stamp),
            source_key=self._prefix + path,
            audio_sha256=seen.sha256,
            audio_path=self._prefix + path,
            stamp=seen.text(),
        )
        self._arrivals.done(path, seen)
        # None: another watcher was faster, or a commit had succeeded whose answer was lost.
        return None if added is None else Scored(verdict, added)

    def _same_again(self, path: str, seen: Seen) -> None:
        self.store.restamp(self.model.machine, self._prefix + path, seen.text())
        self._arrivals.done(path, seen)

    def _reject(self, path: str, seen: Seen, error: Exception) -> Event:
        reason = error.reason if isinstance(error, DacoError) else str(error)
        if isinstance(error, OSError):
            reason = f"cannot be read ({error.strerror or error})."
        key = self._prefix + path
        if len(key) <= KEY:
            self.store.reject(
                self.model.machine,
                key,
                name=path,
                stamp=seen.text(),
                reason=reason[:TEXT],
                at=datetime.now(UTC),
            )
        self._arrivals.done(path, seen)
        return Unusable(path, reason)


class _Gone:
    """Says of a path whether its file was removed, and not only a drive that holds it."""

    def __init__(self, folder: Path, found: Look) -> None:
        self._folder, self._files = folder, found.files
        self._full: set[str] = set()  # folders with a recording in or below them
        for path in found.files:
            place = _parent(path)
            while place not in self._full:
                self._full.add(place)
                place = _parent(place)

    def __call__(self, path: str) -> bool:
        if path in self._files or self._may_be_there(path):
            return False
        place = _parent(path)
        while place and not os.path.isdir(self._folder / place):
            place = _parent(place)
        return place in self._full

    def _may_be_there(self, path: str) -> bool:
        """A look passes over a link to nowhere, and over what cannot be looked at right now."""
        try:
            os.lstat(self._folder / path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            pass
        return True


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _is_still(path: Path, stamp: Stamp) -> bool:
    try:
        return Stamp.of(path) == stamp
    except OSError:
        return False


def _signature(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _recorded_at(stamp: Stamp) -> datetime | None:
    """When the file was last written to, by the clock of its file system."""
    try:
        return datetime.fromtimestamp(stamp.mtime_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):  # a year no calendar has
        return None
