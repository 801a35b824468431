"""Watching a folder: every new recording is judged and stored exactly once.

A file is read again when its size or times have changed, and judged again only if its bytes have.
All that follows from it is one transaction: a kill leaves a file either processed or untouched.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

from daco.audio.decode import probe
from daco.detector.model import MachineModel
from daco.detector.modelfile import SUFFIX
from daco.detector.verdict import ScoreOptions, Verdict, judge
from daco.embedding.frontend import Listener
from daco.errors import AudioError, DacoError, InputError
from daco.files.hashing import sha256_of_file
from daco.monitoring.adaptation import Calibration
from daco.monitoring.arrivals import Arrivals, Listing, ProcessedFile, list_recordings, stamp_of
from daco.monitoring.store import Addition, NewClip, Store, StoreError
from daco.monitoring.store.records import KEY, TEXT
from daco.text import quantity


@dataclass(frozen=True)
class NewVerdict:
    """A recording that was judged and stored."""

    verdict: Verdict
    added: Addition


@dataclass(frozen=True)
class UnusableFile:
    """A file that is not a usable recording, and why; reported once until it changes."""

    name: str
    reason: str


@dataclass(frozen=True)
class Remark:
    """A sentence that a person should read."""

    text: str


Event = NewVerdict | UnusableFile | Remark


class ModelInUse:
    """The last good content of a model file; loaded again when the file changes.

    The name of the file without ``.daco`` names the machine, as in ``daco serve``. A file that
    cannot be used at the start raises a `DacoError`.
    """

    def __init__(self, path: Path, options: ScoreOptions) -> None:
        self.path, self.options = path, options
        self.machine = path.name.removesuffix(SUFFIX) or path.name
        self._stamp = _present_stamp(path)
        self.model = MachineModel.load(path)
        self.listener = self._listener(self.model)

    def _listener(self, model: MachineModel) -> Listener:
        return Listener(model.frontend, weights=self.options.weights, device=self.options.device)

    def refresh(self) -> str | None:
        """Load the file again if it changed; return a sentence if it did or is unusable."""
        stamp = _present_stamp(self.path)
        if stamp in (self._stamp, None):  # None: removed, or just being replaced
            return None
        self._stamp = stamp
        try:
            model = MachineModel.load(self.path)
            same = model.frontend == self.model.frontend
            listener = self.listener if same else self._listener(model)
        except DacoError as error:
            return f"The changed model cannot be used. The previous one stays in use: {error}"
        if model.sha256 == self.model.sha256:
            return None
        self.model, self.listener = model, listener
        normals = quantity(len(model), "normal")
        return f"The model has changed: {normals}, threshold estimated {model.basis_sentence}."

    def judge(self, path: Path, name: str) -> Verdict:
        """Judge one recording with the model in use."""
        return judge(self.model, self.listener, path, name=name, options=self.options)


class Watcher:
    """Judges the recordings that arrive in a folder and stores the verdicts.

    Parameters
    ----------
    model : ModelInUse
    folder : Path
        The folder, with all folders below it. Its resolved path is part of the keys of the sources,
        so that several folders of one machine can use the same store.
    store : Store
    adapt : bool
        Whether decisions are adapted to what was learned about the machine
        (:mod:`daco.monitoring.adaptation`).
    settle : float
        Seconds without a change after which a file is complete.
    clock : callable
        Returns a time in seconds that never goes back.
    """

    def __init__(
        self,
        model: ModelInUse,
        folder: Path,
        store: Store,
        *,
        adapt: bool = False,
        settle: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not folder.is_dir():
            raise InputError(f"{folder} is not a folder. Give the folder of the recordings.")
        self.model, self.folder, self.store = model, folder.resolve(), store
        self.adapt = adapt
        self._clock = clock
        self._prefix = f"{self.folder.as_posix().rstrip('/')}/"
        self._arrivals = Arrivals(settle, patience=10 * settle, recall=self._recall)
        self.look_seconds = 0.0  # duration of the last listing
        self._obstacles: tuple[str, ...] = ()
        self._store_failed = False
        self._forget_at_next_poll = False

    def _recall(self, paths: Sequence[str]) -> dict[str, ProcessedFile]:
        known = self.store.sources(self.model.machine, [self._prefix + path for path in paths])
        return {
            each.source_key.removeprefix(self._prefix): ProcessedFile(each.stamp, each.audio_sha256)
            for each in known
        }

    @property
    def waiting(self) -> list[str]:
        """Names of new files that are not processed yet, most likely still being written."""
        return self._arrivals.waiting

    def forget_gone(self) -> None:
        """Let the next poll forget files that are gone, if their clips are no longer kept.

        They would be new recordings if they came back. Nothing is forgotten when no recording is
        listed or a folder cannot be opened, since a network drive may be away; nor are the files
        of a folder forgotten that exists and is empty.
        """
        self._forget_at_next_poll = True

    def poll(
        self, *, second_try: bool = True, stop: Callable[[], bool] = lambda: False
    ) -> Iterator[Event]:
        """List the folder once, process what has arrived, oldest first, and yield the events.

        The events are `NewVerdict`, `UnusableFile` and `Remark`. You may stop the iteration at any
        point, and `stop` is called before each recording: what was yielded is stored, the rest
        waits for the next poll. With `second_try`, a file that cannot be used is tried once more at
        a later poll before it is reported.
        """
        started = self._clock()
        listing = list_recordings(self.folder)
        self.look_seconds = self._clock() - started
        if listing.obstacles != self._obstacles:
            self._obstacles = listing.obstacles
            yield from map(Remark, listing.obstacles)
        try:
            self._forget(listing)
            for path in self._arrivals.ready(listing.files, self._clock()):
                if stop():
                    return
                if remark := self.model.refresh():
                    yield Remark(remark)
                event = self._process(path, second_try)
                if self._store_failed:
                    self._store_failed = False
                    yield Remark("The database is back.")
                if event is not None:
                    yield event
            if remark := self.model.refresh():
                yield Remark(remark)
        except StoreError as error:  # nothing is lost: the files are still there
            if not self._store_failed:
                yield Remark(f"{error} Recordings wait until it is back.")
            self._store_failed = True

    def _forget(self, listing: Listing) -> None:
        if not (self._forget_at_next_poll and listing.files and listing.is_complete):
            return
        nonempty = {str(up) for path in listing.files for up in PurePosixPath(path).parents}

        def is_removed(key: str) -> bool:
            """Whether a file was removed, and not only the drive that holds it."""
            path = key.removeprefix(self._prefix)
            # A listing leaves out broken links, and files that cannot be read at the moment.
            if path in listing.files or _may_exist(self.folder / path):
                return False
            folders = PurePosixPath(path).parents
            present = next((up for up in folders if (self.folder / up).is_dir()), None)
            return str(present) in nonempty

        self.store.forget_sources(self.model.machine, self._prefix, is_removed)
        self._forget_at_next_poll = False

    def _process(self, path: str, second_try: bool) -> Event | None:
        status, file = self._arrivals.status_of(path), self.folder / path
        key, stamp = self._prefix + path, stamp_of(status)
        before = self._arrivals.processed.get(path)
        known = None if before is None else before.sha256
        verdict = added = None
        try:
            if len(key) > KEY:
                raise InputError(f"its path is longer than {KEY} characters.")
            probe(file)  # before all of it is read: it may not be a recording, or too large
            sha256 = sha256_of_file(file)
            if sha256 != known:
                verdict = self.model.judge(file, path)
        except (AudioError, InputError, OSError) as error:
            if _present_stamp(file) != stamp:
                return None
            if not self._arrivals.record_failure(path) and second_try:
                return None
            event = self._reject(path, stamp, error)
            self._arrivals.record(path, ProcessedFile(stamp, known))
            return event
        if _present_stamp(file) != stamp:
            return None  # written to, or removed, since it was listed
        if verdict is None:
            self.store.restamp(self.model.machine, key, stamp)
        else:
            model = self.model.model
            calibration = Calibration(model.reference, model.false_alarm_rate)
            new = NewClip(
                verdict,
                self.model.machine,
                received_at=datetime.now(UTC),
                recorded_at=_recorded_at(status),
                source_key=key,
                audio_sha256=sha256,
                audio_path=key,
                stamp=stamp,
                calibration=calibration if self.adapt else None,
            )
            added = self.store.add(new)
        self._arrivals.record(path, ProcessedFile(stamp, sha256))
        # None: another watcher was faster, or an earlier commit succeeded whose answer was lost.
        return None if added is None else NewVerdict(added.verdict, added)

    def _reject(self, path: str, stamp: str, error: Exception) -> UnusableFile:
        reason = error.reason if isinstance(error, DacoError) else str(error)
        if isinstance(error, OSError):
            reason = f"cannot be read ({error.strerror or error})."
        key, machine = self._prefix + path, self.model.machine
        if len(key) <= KEY:
            about = {"stamp": stamp, "reason": reason[:TEXT]}
            self.store.reject(machine, key, name=path, at=datetime.now(UTC), **about)
        return UnusableFile(path, reason)


def _may_exist(path: Path) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        pass
    return True


def _present_stamp(path: Path) -> str | None:
    try:
        return stamp_of(path.stat())
    except OSError:
        return None


def _recorded_at(status: os.stat_result) -> datetime | None:
    """When the file was last written to, by the clock of its file system."""
    try:
        return datetime.fromtimestamp(status.st_mtime_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):  # beyond the calendar
        return None
