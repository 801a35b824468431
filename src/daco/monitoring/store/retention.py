"""Removal of old clips, alarms and sources, in small transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, exists, func, select

from daco.monitoring.store.database import Database, chunks
from daco.monitoring.store.schema import alarm_clips, alarms, clips, machines, outbox, sources

_STEP = 5_000  # rows of one transaction, so that other writers wait for milliseconds only


@dataclass(frozen=True)
class Pruned:
    """Counts of removed clips and alarms, and the audio paths of the removed clips."""

    clips: int
    alarms: int
    audio_paths: tuple[str, ...]


def prune(database: Database, oldest: datetime, machine: str | None) -> Pruned:
    """Remove what was received before a time; see `Store.prune`."""
    own = select(machines.c.id)
    if machine is not None:
        own = own.where(machines.c.name == machine)
    with database.reading() as connection:
        numbers = list(connection.scalars(own))
    removed_alarms, paths = 0, []
    for number in numbers:
        old = (clips.c.machine_id == number, clips.c.received_at < oldest)
        # A closed alarm goes with its completing clip; an open one stays, with its clips.
        closed = delete(alarms).where(
            alarms.c.machine_id == number,
            alarms.c.closed_at.is_not(None),
            alarms.c.clip_id.in_(select(clips.c.id).where(*old)),
        )
        with database.writing() as connection:
            removed_alarms += connection.execute(closed).rowcount
        free = clips.c.id.not_in(select(alarm_clips.c.clip_id))
        some = select(clips.c.id).where(*old, free).order_by(clips.c.id).limit(_STEP)
        step = delete(clips).where(clips.c.id.in_(some)).returning(clips.c.audio_path)
        while True:
            with database.writing() as connection:
                removed = list(connection.scalars(step))
            paths += removed
            if len(removed) < _STEP:
                break
    messages = outbox.c.created_at < oldest, outbox.c.machine_id.in_(numbers)
    with database.writing() as connection:
        connection.execute(delete(outbox).where(*messages))
    return Pruned(len(paths), removed_alarms, tuple(path for path in paths if path is not None))


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
            keys = list(connection.scalars(step.order_by(sources.c.source_key).limit(_STEP)))
        for some in chunks([key for key in keys if is_gone(key)]):
            named = sources.c.source_key.in_(some)
            with database.writing() as connection:
                # Only sources still without a clip: another watcher may have stored one.
                forgotten += connection.execute(delete(sources).where(*unused, named)).rowcount
        if len(keys) < _STEP:
            return forgotten
        last = keys[-1]
