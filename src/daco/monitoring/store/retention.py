"""Removal of old clips, alarms and sources, in small transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, or_, select

from daco.errors import InputError
from daco.monitoring.store.database import Database, chunks
from daco.monitoring.store.schema import alarm_clips, alarms, clips, machines, outbox, sources

_STEP = 5_000  # rows of one transaction, so that other writers wait for milliseconds only


@dataclass(frozen=True)
class Pruned:
    """Counts of removed clips and alarms, and the audio paths of the removed clips."""

    clips: int
    alarms: int
    audio_paths: tuple[str, ...]


def prune(
    database: Database,
    *,
    keep_days: float | None,
    keep_clips: int | None,
    machine: str | None,
    now: datetime | None,
) -> Pruned:
    """See `Store.prune`."""
    if keep_days is None and keep_clips is None:
        raise InputError("Say what to keep: keep_days, keep_clips, or both.")
    if (keep_days is not None and keep_days < 0) or (keep_clips is not None and keep_clips < 0):
        raise InputError("The 'keep_days' and 'keep_clips' of prune must not be negative.")
    oldest = None if keep_days is None else (now or datetime.now(UTC)) - timedelta(days=keep_days)
    with database.reading() as connection:
        named = select(machines.c.id)
        if machine is not None:
            named = named.where(machines.c.name == machine)
        known = list(connection.scalars(named))
        bounds = {number: _first_kept(connection, number, keep_clips) for number in known}
    removed, paths, gone = 0, [], 0
    for number, bound in bounds.items():
        old = [clips.c.id < bound]
        if oldest is not None:
            old.append(clips.c.received_at < oldest)
        gone += _prune_alarms(database, number, or_(*old))
        while True:
            found = _prune_clips(database, number, or_(*old))
            removed += len(found)
            paths += [path for path in found if path is not None]
            if len(found) < _STEP:
                break
    if oldest is not None:
        with database.writing() as connection:
            old_messages = outbox.c.created_at < oldest, outbox.c.machine_id.in_(known)
            connection.execute(delete(outbox).where(*old_messages))
    return Pruned(removed, gone, tuple(paths))


def _first_kept(connection: Connection, machine: int, keep: int | None) -> int:
    """The smallest id among the newest `keep` clips of a machine."""
    if keep is None:
        return 0
    ids = select(clips.c.id).where(clips.c.machine_id == machine).order_by(clips.c.id.desc())
    if keep == 0:
        return int(connection.scalar(ids.limit(1)) or 0) + 1
    return int(connection.scalar(ids.offset(keep - 1).limit(1)) or 0)


def _prune_alarms(database: Database, machine: int, old: ColumnElement[bool]) -> int:
    """Remove closed alarms whose completing clip is old; open alarms stay."""
    of_old = select(clips.c.id).where(clips.c.machine_id == machine, old)
    closed = and_(
        alarms.c.machine_id == machine,
        alarms.c.closed_at.is_not(None),
        alarms.c.clip_id.in_(of_old),
    )
    with database.writing() as connection:
        return connection.execute(delete(alarms).where(closed)).rowcount


def _prune_clips(database: Database, machine: int, old: ColumnElement[bool]) -> list[str | None]:
    """Remove one step of clips; their audio paths, None for clips without one."""
    needed = select(alarm_clips.c.clip_id)
    first = (
        select(clips.c.id)
        .where(clips.c.machine_id == machine, old, clips.c.id.not_in(needed))
        .order_by(clips.c.id)
        .limit(_STEP)
    )
    with database.writing() as connection:
        gone = delete(clips).where(clips.c.id.in_(first)).returning(clips.c.audio_path)
        return list(connection.scalars(gone))


def forget_sources(
    database: Database, machine: str, prefix: str, is_gone: Callable[[str], bool]
) -> int:
    """See `Store.forget_sources`."""
    own = select(machines.c.id).where(machines.c.name == machine).scalar_subquery()
    unused = (
        sources.c.machine_id == own,
        func.substr(sources.c.source_key, 1, len(prefix)) == prefix,
        ~exists().where(clips.c.id == sources.c.clip_id),
    )
    forgotten, last = 0, ""
    while True:
        step = select(sources.c.source_key).where(*unused, sources.c.source_key > last)
        with database.reading() as connection:
            ordered = step.order_by(sources.c.source_key).limit(_STEP)
            found = list(connection.scalars(ordered))
        gone = [key for key in found if is_gone(key)]
        for some in chunks(gone):
            named = sources.c.source_key.in_(some)
            with database.writing() as connection:
                # Only sources still without a clip: another watcher may have stored one.
                forgotten += connection.execute(delete(sources).where(*unused, named)).rowcount
        if len(found) < _STEP:
            return forgotten
        last = found[-1]
