"""New recordings in a folder: found by listing it repeatedly, taken when they are complete.

Listing works on network drives, which do not report changes. The time without a change is measured
from the first listing that showed it, never by the clock of the file server.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from daco.data.sources import scan_folder
from daco.errors import InputError


def stamp_of(status: os.stat_result) -> str:
    """Size and times of a file as text; only an equal stamp says that it did not change.

    A recorder without a clock gives every file the same time, and many files have the same size.
    """
    return f"{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


class ProcessedFile(NamedTuple):
    """The stamp of a file when it was processed, and the hash of the recording it last held."""

    stamp: str | None
    sha256: str | None = None


class Listing(NamedTuple):
    """Recordings of a folder, a sentence per obstacle, and whether every folder could be opened."""

    files: dict[str, os.stat_result]
    obstacles: tuple[str, ...]
    is_complete: bool = True


def list_recordings(folder: Path) -> Listing:
    """All recordings below a folder, by their path relative to it.

    Hidden files and broken links are left out, links to folders are followed once. Obstacles are
    folders that cannot be opened, names that are not UTF-8 and recordings of formats that daco
    does not read.
    """
    scan = scan_folder(folder)
    files = {path: each for path, each in scan.files.items() if stat.S_ISREG(each.st_mode)}
    # A link may point to a drive that is not mounted at the moment.
    return Listing(files, tuple(scan._replace(broken=[]).problems()), not scan.closed)


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
    >>> arrivals.record("a.wav", ProcessedFile("200:5:5"))
    >>> arrivals.ready(file(200, 5), now=60)
    []
    """

    settle: float  #: seconds without a change after which a file is complete
    #: seconds after which a file that could not be used is tried once more, for the last time
    #: until it changes: a slow copy may only have paused
    patience: float = 20.0
    #: called with paths that were not listed before; returns those that were processed earlier
    recall: Callable[[Sequence[str]], Mapping[str, ProcessedFile]] = lambda paths: {}
    processed: dict[str, ProcessedFile] = field(default_factory=dict, init=False)
    _waiting: dict[str, _Waiting] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.settle < float("inf"):
            raise InputError(f"The seconds to settle must be >= 0. Got {self.settle!r} instead.")

    def ready(self, files: Mapping[str, os.stat_result], now: float) -> list[str]:
        """Paths to process now, in the order in which the files were written.

        Files that are no longer listed are forgotten. `now` is of a clock that only goes forward.
        """
        new = [path for path in files if path not in self.processed and path not in self._waiting]
        if new:
            self.processed.update(self.recall(new))
        self.processed = {path: self.processed[path] for path in files if path in self.processed}
        waiting = {}
        for path, status in files.items():
            stamp = stamp_of(status)
            if path not in self.processed or self.processed[path].stamp != stamp:
                before = self._waiting.get(path)
                unchanged = before is not None and before.stamp == stamp
                waiting[path] = before if before and unchanged else _Waiting(status, stamp, now)
        self._waiting = waiting
        due = [path for path, each in waiting.items() if self._is_due(each, now)]
        return sorted(due, key=lambda path: (waiting[path].status.st_mtime_ns, path))

    def _is_due(self, file: _Waiting, now: float) -> bool:
        unchanged = now - file.since
        if file.tries:
            return file.tries == 1 and unchanged >= self.patience
        # Renamed, or its times set, long after it was written: both times are the file server's,
        # so that their difference is right even if its clock is wrong.
        aged = (file.status.st_ctime_ns - file.status.st_mtime_ns) * 1e-9
        return unchanged >= self.settle or aged >= self.settle

    @property
    def waiting(self) -> list[str]:
        """Paths that are new and not processed yet."""
        return list(self._waiting)

    def status_of(self, path: str) -> os.stat_result:
        """The status of a waiting file when it was listed."""
        return self._waiting[path].status

    def record_failure(self, path: str) -> bool:
        """Record that a file could not be used; True when that was the last try."""
        self._waiting[path].tries += 1
        return self._waiting[path].tries > 1

    def record(self, path: str, processed: ProcessedFile) -> None:
        """Record that a file was processed."""
        self.processed[path] = processed
        self._waiting.pop(path, None)
