"""Recordings that arrive in a folder: found by looking again and again, taken when they are whole.

Looking works on network drives, where nobody tells of changes. A file is taken when its size
and time of change have stood still for a while, measured by how long it has been watched, never
by the clock that wrote the time: clocks of file servers are wrong, and are set back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from daco.audio.formats import is_readable, is_unreadable
from daco.data.clips import not_read
from daco.errors import InputError
from daco.text import name_list, quantity
from daco.validation import is_utf8


class Stamp(NamedTuple):
    """How a file looks from outside: bytes, and its times of change and of status change."""

    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Stamp:
        """The stamp of a file as it is now."""
        return cls.read(os.stat(path))

    @classmethod
    def read(cls, status: os.stat_result) -> Stamp:
        """The stamp in what the system says of a file."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class Seen(NamedTuple):
    """How a file looked when it was dealt with, and the hash of the recording it last held.

    Nothing in it can be trusted to tell that a file was NOT changed but the stamp as a whole:
    a recorder without a clock gives every file the same time, and many have the same size.
    """

    stamp: Stamp
    sha256: str | None = None

    def text(self) -> str:
        """The stamp, to be written down.

        >>> Seen(Stamp(320044, 5, 7)).text()
        '320044:5:7'
        """
        return ":".join(map(str, self.stamp))

    @classmethod
    def parse(cls, text: str, sha256: str | None) -> Seen:
        """Back from its text; of what is not ours, something that no file looks like."""
        try:
            size, mtime, ctime = map(int, text.split(":"))
        except ValueError:
            return cls(Stamp(-1, 0, 0), sha256)
        return cls(Stamp(size, mtime, ctime), sha256)


class Look(NamedTuple):
    """One look at a folder: the recordings with their stamps, and a sentence per obstacle.

    It is complete if every folder could be opened.
    """

    files: dict[str, Stamp]
    obstacles: tuple[str, ...]
    is_complete: bool = True


def look(folder: Path) -> Look:
    """All recordings below a folder, by their path relative to it.

    Hidden files are passed over, links to folders are followed once, and a broken link is no
    file. A folder that cannot be opened is an obstacle, and so are names that are not UTF-8 and
    recordings of a format that is not read.
    """
    files: dict[str, Stamp] = {}
    closed: list[str] = []
    unnamed: list[str] = []
    unreadable: list[str] = []
    entered: set[tuple[int, int]] = set()
    pending = [("", os.fspath(folder))]
    while pending:
        prefix, place = pending.pop()
        try:
            status = os.stat(place)
            if (status.st_dev, status.st_ino) in entered:
                continue
            entered.add((status.st_dev, status.st_ino))
            below = _look_into(place, prefix, files, unnamed, unreadable)
        except OSError:
            closed.append(prefix or os.fspath(folder))
            continue
        # In the order of names: of two links to one folder, the same is followed every time.
        pending.extend(sorted(below, reverse=True))
    obstacles = []
    if closed:
        obstacles.append(f"{quantity(closed, 'folder')} could not be opened: {name_list(closed)}.")
    if unnamed:
        obstacles.append(f"{quantity(unnamed, 'name')} not UTF-8, left out: {name_list(unnamed)}.")
    return Look(files, (*obstacles, *not_read(sorted(unreadable))), not closed)


def _look_into(
    place: str,
    prefix: str,
    files: dict[str, Stamp],
    unnamed: list[str],
    unreadable: list[str],
) -> list[tuple[str, str]]:
    """Add one folder's recordings to `files`; the folders below it."""
    below = []
    with os.scandir(place) as entries:
        for entry in entries:
            name = entry.name
            if name.startswith(".") or name == "__MACOSX":
                continue
            try:
                # A name that ends like a recording is one, unless it is no plain file.
                if is_readable(name) and entry.is_file():
                    path = prefix + name
                    if is_utf8(path):
                        files[path] = Stamp.read(entry.stat())
                    else:
                        unnamed.append(path)
                elif is_unreadable(name) and entry.is_file():
                    unreadable.append(prefix + name)
                elif entry.is_dir():
                    below.append((f"{prefix}{name}/", entry.path))
            except OSError:  # gone in this moment, or a link in a circle
                continue
    return below


@dataclass
class _Waiting:
    stamp: Stamp
    since: float
    tries: int = 0


@dataclass
class Arrivals:
    """Which files are new and whole, from one look to the next.

    What is remembered is about files that are there; `recall` knows about all others.

    Parameters
    ----------
    settle : float
        Seconds that a file must have stood still before it is taken.
    patience : float
        Seconds of standing still after which a file that could not be used is tried once
        more, for the last time until it changes: a slow copy may only have paused.
    recall : callable
        Called with the paths of files that were not there before; returns what was dealt with
        of them, by path.

    Examples
    --------
    >>> arrivals = Arrivals(settle=2)
    >>> growing, whole = {"a.wav": Stamp(100, 1, 1)}, {"a.wav": Stamp(200, 5, 5)}
    >>> arrivals.ready(growing, now=0), arrivals.ready(whole, now=1.9)
    ([], [])
    >>> arrivals.ready(whole, now=3.9)
    ['a.wav']
    >>> arrivals.done("a.wav", Seen(whole["a.wav"]))
    >>> arrivals.ready(whole, now=60)
    []
    """

    settle: float
    patience: float = 20.0
    recall: Callable[[Sequence[str]], Mapping[str, Seen]] = lambda paths: {}
    seen: dict[str, Seen] = field(default_factory=dict, init=False)
    _waiting: dict[str, _Waiting] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not 0 <= self.settle < float("inf"):
            raise InputError(f"The seconds to settle must be >= 0. Got {self.settle!r} instead.")

    def ready(self, files: Mapping[str, Stamp], now: float) -> list[str]:
        """Paths to be taken now, in the order in which the files were written.

        Parameters
        ----------
        files : mapping
            Of a look; what is no longer there is forgotten.
        now : float
            Of a clock that only goes forward.
        """
        new = [path for path in files if path not in self.seen and path not in self._waiting]
        if new:
            self.seen.update(self.recall(new))
        present: dict[str, Seen] = {}
        waiting: dict[str, _Waiting] = {}
        for path, stamp in files.items():
            seen = self.seen.get(path)
            if seen is not None:
                present[path] = seen
                if seen.stamp == stamp:
                    continue
            before = self._waiting.get(path)
            unchanged = before is not None and before.stamp == stamp
            waiting[path] = before if before and unchanged else _Waiting(stamp, now)
        self.seen, self._waiting = present, waiting
        taken = [path for path, each in waiting.items() if self._is_due(each, now)]
        return sorted(taken, key=lambda path: (waiting[path].stamp.mtime_ns, path))

    def _is_due(self, file: _Waiting, now: float) -> bool:
        still = now - file.since
        if file.tries:
            return file.tries == 1 and still >= self.patience
        # Renamed, or its times set, long after it was written: both are the file server's
        # times, so their difference is right even if its clock is wrong.
        aged = (file.stamp.ctime_ns - file.stamp.mtime_ns) * 1e-9
        return still >= self.settle or aged >= self.settle

    @property
    def waiting(self) -> list[str]:
        """Paths that are new and not dealt with yet."""
        return list(self._waiting)

    def stamp_of(self, path: str) -> Stamp:
        """The stamp with which a file that is ready was found."""
        return self._waiting[path].stamp

    def failed(self, path: str) -> bool:
        """Note that a file could not be used; True when that was the last try."""
        self._waiting[path].tries += 1
        return self._waiting[path].tries > 1

    def done(self, path: str, seen: Seen) -> None:
        """Note that a file was dealt with."""
        self.seen[path] = seen
        self._waiting.pop(path, None)
