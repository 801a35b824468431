"""Recordings that arrive as files: found by listing folders, taken when they are complete.

Listing is the truth and works on network drives; changes that the operating system reports only
make the next listing come sooner. Times without a change are measured from the first listing that
showed them, never by the clock of a file server.
"""

from __future__ import annotations

import heapq
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from daco.data.sources import scan_folder
from daco.errors import DacoError
from daco.monitoring.store import Store
from daco.monitoring.store.records import KEY, Outcome, Recording
from daco.monitoring.times import time_in_path

MOST_AT_ONCE = 50
"""Files of one machine that are processed before the others have their turn."""

_SHARE = 20.0  # of the time is not spent on listing folders again
_SOON = 0.2  # seconds between two listings of a folder that changes
_REST = 5.0  # seconds after a failure that all files share

log = logging.getLogger("daco.monitoring")


@dataclass
class _Waiting:
    status: os.stat_result
    stamp: str
    since: float
    tries: int = 0


@dataclass
class Arrivals:
    """Decides from one listing to the next which files are new and complete.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> def file(size, ns):
    ...     return {"a.wav": SimpleNamespace(st_size=size, st_mtime_ns=ns, st_ctime_ns=ns)}
    >>> arrivals = Arrivals(settle=2)
    >>> arrivals.ready(file(100, 1), now=0), arrivals.ready(file(200, 5), now=1.9)
    ([], [])
    >>> arrivals.ready(file(200, 5), now=3.9)
    ['a.wav']
    >>> arrivals.record("a.wav", "200:5:5")
    >>> arrivals.ready(file(200, 5), now=60)
    []
    """

    settle: float  #: seconds without a change after which a file is complete
    #: called with paths that were not listed before; returns the stamps of those that were
    #: processed earlier
    recall: Callable[[Sequence[str]], Mapping[str, str | None]] = lambda paths: {}
    processed: dict[str, str | None] = field(default_factory=dict, init=False)
    waiting: dict[str, _Waiting] = field(default_factory=dict, init=False)

    def ready(self, files: Mapping[str, os.stat_result], now: float) -> list[str]:
        """Paths to process now, in the order in which the files were written.

        Files that are no longer listed are forgotten. `now` is of a clock that only goes forward.
        """
        new = [path for path in files if path not in self.processed and path not in self.waiting]
        if new:
            self.processed.update(self.recall(new))
        self.processed = {path: self.processed[path] for path in files if path in self.processed}
        waiting = {}
        for path, status in files.items():
            stamp = stamp_of(status)
            if path not in self.processed or self.processed[path] != stamp:
                before = self.waiting.get(path)
                unchanged = before is not None and before.stamp == stamp
                waiting[path] = before if before and unchanged else _Waiting(status, stamp, now)
        self.waiting = waiting
        due = [path for path, each in waiting.items() if self._is_due(each, now)]
        return sorted(due, key=lambda path: (waiting[path].status.st_mtime_ns, path))

    def _is_due(self, file: _Waiting, now: float) -> bool:
        unchanged = now - file.since
        if file.tries:  # a slow copy may only have paused
            return unchanged >= 10 * self.settle
        # Renamed, or its times set, long after it was written: both times are the file server's,
        # so that their difference is right even if its clock is wrong.
        aged = (file.status.st_ctime_ns - file.status.st_mtime_ns) * 1e-9
        return unchanged >= self.settle or aged >= self.settle

    def record(self, path: str, stamp: str) -> None:
        """Record that a file was processed."""
        self.processed[path] = stamp
        self.waiting.pop(path, None)


def stamp_of(status: os.stat_result) -> str:
    """Size and times of a file as text; only an equal stamp says that it did not change.

    A recorder without a clock gives every file the same time, and many files have the same size.
    """
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


class FolderWatch:
    """The folder of one machine with all folders below it.

    `handle` judges and stores a recording; its second argument says whether it is the last try.
    `problem` is called with a sentence while something is wrong with the folder, and with None.
    """

    def __init__(
        self,
        machine: str,
        folder: Path,
        settle: float,
        store: Store,
        handle: Callable[[Recording, bool], Outcome],
        problem: Callable[[str | None], None],
    ) -> None:
        self.machine, self.folder = machine, folder.absolute()
        self._store, self._handle, self._problem = store, handle, problem
        self.prefix = f"{os.path.realpath(folder).rstrip('/')}/"
        self.arrivals = Arrivals(settle, self._recall)
        self.look_seconds = 0.0
        self.failure: str | None = None  #: of all files; they wait

    def _recall(self, paths: Sequence[str]) -> dict[str, str | None]:
        known = self._store.sources(self.machine, [self.prefix + path for path in paths])
        return {each.source_key.removeprefix(self.prefix): each.stamp for each in known}

    def look(self, *, last_try: bool = False, stop: Callable[[], bool] = lambda: False) -> bool:
        """List the folder once, and process what has arrived; True when there is more to do.

        With `last_try`, a file that cannot be used is not tried again later.
        """
        started = time.monotonic()
        scan = scan_folder(self.folder)
        self.look_seconds = time.monotonic() - started
        problems = scan._replace(broken=[]).problems()
        if str(self.folder) in scan.closed:
            problems = [f"The folder {self.folder} cannot be read: it was removed or unmounted."]
        self._problem(" ".join(problems) or None)
        files = {path: each for path, each in scan.files.items() if stat.S_ISREG(each.st_mode)}
        try:
            ready = self.arrivals.ready(files, started)
            for path in ready[:MOST_AT_ONCE]:
                if stop():
                    return False
                self._process(path, last_try)
        except DacoError as error:  # nothing is lost: they are still there
            if self.failure is None:
                log.warning("%s: %s Recordings wait.", self.machine, error)
            self.failure = str(error)
            return False
        if self.failure is not None:
            log.info("%s: recordings are judged again.", self.machine)
        self.failure = None
        return len(ready) > MOST_AT_ONCE

    def _process(self, path: str, last_try: bool) -> None:
        file = self.arrivals.waiting[path]
        recording = Recording(
            machine=self.machine,
            name=path,
            data=self.folder / path,
            source_key=self.prefix + path,
            stamp=file.stamp,
            recorded_at=time_in_path(path),
        )
        if len(self.prefix + path) > KEY:
            self.arrivals.record(path, file.stamp)
            log.warning("%s: %s is left out: its path is too long.", self.machine, path)
            return
        is_final = last_try or file.tries > 0
        outcome = self._handle(recording, is_final)
        if outcome.refused and not is_final:
            file.tries += 1
        elif outcome.clip is not None or outcome.known or outcome.refused:
            self.arrivals.record(path, file.stamp)

    def is_removed(self, files: Iterable[str]) -> Callable[[str], bool]:
        """Whether a source was removed, and not only the drive that holds it unmounted."""
        present = set(files)
        nonempty = {str(up) for path in present for up in PurePosixPath(path).parents}

        def check(key: str) -> bool:
            path = key.removeprefix(self.prefix)
            # A listing leaves out broken links, and files that cannot be read at the moment.
            if path in present or os.path.lexists(self.folder / path):
                return False
            folders = PurePosixPath(path).parents
            nearest = next((up for up in folders if (self.folder / up).is_dir()), None)
            return str(nearest) in nonempty

        return check


class FolderSource:
    """Watches the folders of all machines with a few threads.

    `poll` are the seconds between two listings of a folder in which nothing happens; more where
    listing all folders takes more than a twentieth of the time.
    """

    def __init__(self, folders: Sequence[FolderWatch], threads: int, poll: float = 1.0) -> None:
        self.folders = list(folders)
        self._poll = poll
        self._stop = threading.Event()
        self._changed = threading.Condition()
        # When each folder is listed next, None while it is; and a heap of these times, in which
        # those that have changed stay until they come up.
        self._due: list[float | None] = [0.0] * len(self.folders)
        self._heap = [(0.0, number) for number in range(len(self.folders))]
        self._targets = [self._work] * threads + [self._listen] if folders else []
        self._running: list[threading.Thread] = []

    def start(self) -> None:
        """Begin to watch."""
        for target in self._targets:
            thread = threading.Thread(target=target, name="folders", daemon=True)
            thread.start()
            self._running.append(thread)

    def stop(self) -> None:
        """End after the recordings that are being judged."""
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        for thread in self._running:
            thread.join()

    def _work(self) -> None:
        while (number := self._take()) is not None:
            folder, wait = self.folders[number], 60.0
            try:
                more = folder.look(stop=self._stop.is_set)
                wait = self._wait(folder, more)
            except Exception:
                log.exception("%s: the folder could not be looked at", folder.machine)
            with self._changed:
                self._plan(number, time.monotonic() + wait)

    def _take(self) -> int | None:
        """The folder that is to be listed now; waits for it. None at the end."""
        with self._changed:
            while not self._stop.is_set():
                if not self._heap:
                    self._changed.wait()
                    continue
                due, number = self._heap[0]
                wait = due - time.monotonic()
                if self._due[number] != due or wait <= 0:
                    heapq.heappop(self._heap)
                    if self._due[number] == due:
                        self._due[number] = None
                        return number
                else:
                    self._changed.wait(wait)
        return None

    def _plan(self, number: int, due: float) -> None:
        self._due[number] = due
        heapq.heappush(self._heap, (due, number))
        self._changed.notify()

    def _wait(self, folder: FolderWatch, more: bool) -> float:
        """Seconds until a folder is listed again."""
        if folder.failure is not None:
            return _REST
        if more:
            return 0.0
        usual = max(self._poll, _SHARE * sum(each.look_seconds for each in self.folders))
        if folder.arrivals.waiting:
            usual = min(usual, max(_SOON, folder.arrivals.settle / 2))
        return max(usual, _SHARE * folder.look_seconds)

    def _listen(self) -> None:
        """Let changes that the operating system reports make the next listing come sooner."""
        import watchfiles

        logging.getLogger("watchfiles").setLevel(logging.WARNING)
        logged = False
        while not self._stop.is_set():
            numbers = {str(each.folder): n for n, each in enumerate(self.folders)}
            present = [path for path in numbers if os.path.isdir(path)]
            try:
                changes = watchfiles.watch(
                    *present, stop_event=self._stop, rust_timeout=10_000, yield_on_timeout=True,
                    ignore_permission_denied=True, watch_filter=None, raise_interrupt=False,
                )  # fmt: skip
                for some in changes:
                    for _, path in some:
                        self._hurry(numbers, path)
                    if len(present) < sum(map(os.path.isdir, numbers)):
                        break  # one has appeared
            except Exception as error:  # no inotify here, or too many folders for it
                if not logged:
                    log.info("Changes of folders are not reported (%s): they are listed.", error)
                logged = True
                self._stop.wait(60.0)

    def _hurry(self, numbers: Mapping[str, int], path: str) -> None:
        """List the folder of a path soon."""
        while path not in numbers and path != os.path.dirname(path):
            path = os.path.dirname(path)
        soon = time.monotonic() + _SOON
        with self._changed:
            number = numbers.get(path)
            due = None if number is None else self._due[number]
            if number is not None and due is not None and due > soon:
                self._plan(number, soon)
