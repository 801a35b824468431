"""Retention: old clips, alarms and messages are removed in one place; backup and restore.

What belongs to alarms that have not cleared or that nobody has acknowledged is kept.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, case, delete, exists, func, select

from daco.errors import InputError
from daco.monitoring.store.database import Database, chunks, parse_url
from daco.monitoring.store.reading import UNFINISHED, id_of
from daco.monitoring.store.records import AHEAD, StoreError
from daco.monitoring.store.schema import (
    VERSION,
    alarms,
    audit,
    clips,
    machines,
    outbox,
    sources,
    trends,
)

JUMP = timedelta(days=30)
"""A clock this far beyond the newest clip may be wrong."""

HOURS_KEPT = timedelta(days=400)
"""Hourly trends; those of days are kept."""

FEWEST = 1000
"""Clips of a machine up to which any share may be removed at once."""

_HAS_CLIP = exists().where(clips.c.id == sources.c.clip_id)
_STEP = 5_000  # rows removed in one transaction


@dataclass(frozen=True)
class Removal:
    """What a prune removed, and why it refused to go on for some machines."""

    clips: int = 0
    alarms: int = 0
    problems: tuple[str, ...] = ()


def prune(
    database: Database,
    keep: Callable[[str], timedelta],
    *,
    now: datetime | None = None,
    force: bool = False,
) -> Removal:
    """Remove what is older than `keep` says of its machine.

    To remove most of a history is refused without `force`, since a clock that is wrong would have
    the same effect.
    """
    now = now or datetime.now(UTC)
    with database.reading() as connection:
        rows = connection.execute(select(machines.c.id, machines.c.name)).all()
        last = connection.scalar(select(func.max(clips.c.received_at)))
    n_clips, n_alarms, problems = 0, 0, []
    for number, name in rows:
        oldest = now - keep(name)
        problem = None if force else _problem(database, number, name, oldest, now, last)
        if problem is not None:
            problems.append(problem)
            continue
        over = alarms.c.machine_id == number, alarms.c.last_at < oldest, ~UNFINISHED
        with database.writing() as connection:
            n_alarms += connection.execute(delete(alarms).where(*over)).rowcount
        n_clips += _remove_clips(database, number, oldest)
        # Keys of uploads go with their clips; those of files stay, which have a stamp.
        own = sources.c.machine_id == number, sources.c.stamp.is_(None)
        _forget(database, *own, sources.c.seen_at < oldest)
    if not problems:
        _remove_the_rest(database, now - max((keep(name) for _, name in rows), default=JUMP), now)
    return Removal(n_clips, n_alarms, tuple(problems))


def _problem(
    database: Database,
    machine: int,
    name: str,
    oldest: datetime,
    now: datetime,
    last: datetime | None,
) -> str | None:
    """Why nothing of a machine should be removed now; `last` is the newest clip of all."""
    is_old = case((clips.c.received_at < oldest, 1), else_=0)
    query = select(func.count(), func.sum(is_old), func.max(clips.c.received_at))
    with database.reading() as connection:
        total, old, newest = connection.execute(query.where(clips.c.machine_id == machine)).one()
    if not old:
        return None
    if last is not None and now > last + JUMP:
        return (
            f"No machine has sent a recording since {last:%Y-%m-%d}, so the clock may be wrong. "
            f"Nothing old of {name} is removed until one comes."
        )
    if newest > now + AHEAD:
        return (
            f"Recordings of {name} are from the future ({newest:%Y-%m-%d %H:%M}), so the clock is "
            "or was wrong. Nothing old is removed until that is over."
        )
    if total > FEWEST and 2 * old > total:
        return (
            f"{old:,} of {total:,} recordings of {name} would be removed at once. If the clock and "
            "'keep' in daco.toml are right, run: daco history --prune"
        )
    return None


def _remove_clips(database: Database, machine: int, oldest: datetime) -> int:
    removed, old = 0, (clips.c.machine_id == machine, clips.c.received_at < oldest)
    for numbers in _pages(database, clips.c.id, *old):
        with database.writing() as connection:
            kept = _evidence(connection, alarms.c.machine_id == machine)
            for some in chunks([each for each in numbers if each not in kept]):
                removed += connection.execute(delete(clips).where(clips.c.id.in_(some))).rowcount
    return removed


def _remove_the_rest(database: Database, oldest: datetime, now: datetime) -> None:
    old_hours = trends.c.period == "hour", trends.c.start < now - HOURS_KEPT
    with database.writing() as connection:
        connection.execute(delete(outbox).where(outbox.c.created_at < oldest))
        connection.execute(delete(audit).where(audit.c.at < min(oldest, now - HOURS_KEPT)))
        connection.execute(delete(trends).where(*old_hours))


def forget_sources(
    database: Database, machine: str, prefix: str, is_gone: Callable[[str], bool]
) -> None:
    """Forget sources that are gone and have no clip any more.

    `is_gone` is called with each key that begins with `prefix` and has no clip. A source that
    still exists must stay known, or it would be judged again.
    """
    key = sources.c.source_key
    own = sources.c.machine_id == id_of(machine), func.substr(key, 1, len(prefix)) == prefix
    _forget(database, *own, is_gone=is_gone)


def _forget(
    database: Database, *where: Any, is_gone: Callable[[str], bool] = lambda key: True
) -> None:
    """Forget the sources of a query that have no clip."""
    unused = (*where, ~_HAS_CLIP)
    for keys in _pages(database, sources.c.source_key, *unused):
        for some in chunks([key for key in keys if is_gone(key)]):
            with database.writing() as connection:
                # Only sources still without a clip: another process may have stored one.
                gone = delete(sources).where(*unused, sources.c.source_key.in_(some))
                connection.execute(gone)


def _pages(database: Database, column: Any, *where: Any) -> Iterator[list[Any]]:
    """The values of a column that grows, in steps: other writers wait for milliseconds only."""
    query, last = select(column).where(*where).order_by(column).limit(_STEP), None
    while True:
        page = query if last is None else query.where(column > last)
        with database.reading() as connection:
            values = list(connection.scalars(page))
        yield values
        if len(values) < _STEP:
            return
        last = values[-1]


def _evidence(connection: Connection, *where: Any) -> set[int]:
    """Clips of alarms that are not finished."""
    found = connection.scalars(select(alarms.c.clip_ids).where(UNFINISHED, *where))
    return {number for numbers in found for number in numbers}


def protected_audio(database: Database) -> set[str]:
    """SHA-256 of the recordings of alarms that are not finished."""
    found: set[str | None] = set()
    with database.reading() as connection:
        for some in chunks(sorted(_evidence(connection))):
            query = select(clips.c.audio_sha256).where(clips.c.id.in_(some))
            found.update(connection.scalars(query))
    return {sha256 for sha256 in found if sha256 is not None}


def stored_audio(database: Database, hashes: Sequence[str]) -> set[str]:
    """Those of these SHA-256 that a stored clip has."""
    found: set[str] = set()
    with database.reading() as connection:
        for some in chunks(hashes):
            query = select(clips.c.audio_sha256).where(clips.c.audio_sha256.in_(some))
            found.update(connection.scalars(query))
    return found


def backup(database: Database, path: Path) -> None:
    """Copy an SQLite database while it is in use."""
    if database.path is None:
        raise InputError("A PostgreSQL database is saved with pg_dump, and restored with psql.")
    if path.exists():
        raise InputError(f"{path} exists. Choose another name.")
    try:
        path.touch(mode=0o600)
        with closing(sqlite3.connect(database.path)) as old, closing(sqlite3.connect(path)) as new:
            old.backup(new)
    except (OSError, sqlite3.Error) as error:
        path.unlink(missing_ok=True)
        raise StoreError(f"{path}: the copy could not be written ({error}).") from None


def restore(path: Path, url: str) -> None:
    """Put a copy in the place of an SQLite database that no process uses."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite" or not parsed.database:
        raise InputError("A PostgreSQL database is restored with psql.")
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as old:
            query = "SELECT value FROM daco_schema WHERE name = 'version'"
            if old.execute(query).fetchone() != (VERSION,):
                raise StoreError(f"{path}: a backup of another version of daco.")
            _overwrite(old, Path(parsed.database))
    except sqlite3.Error as error:
        raise StoreError(f"{path}: not a backup of daco ({error}).") from None


def _overwrite(old: sqlite3.Connection, file: Path) -> None:
    """Copy a database over a file, which may be damaged."""
    file.touch(mode=0o600)
    try:
        with closing(sqlite3.connect(file)) as new:
            old.backup(new)
    except sqlite3.Error as error:
        if "locked" in str(error):
            raise StoreError(f"{file}: in use. Stop the monitor, and try again.") from None
        for suffix in ("", "-wal", "-shm"):
            file.with_name(file.name + suffix).unlink(missing_ok=True)
        file.touch(mode=0o600)
        with closing(sqlite3.connect(file)) as new:
            old.backup(new)
