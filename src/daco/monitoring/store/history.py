"""Reading: pages of clips, alarms, machines at a glance, and which sources were dealt with."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, Row, Select, case, func, select

from daco.errors import InputError
from daco.monitoring.store.records import (
    VERDICT,
    MachineSummary,
    Source,
    StoredAlarm,
    StoredClip,
)
from daco.monitoring.store.schema import alarm_clips, alarms, clips, machines, sources

LARGEST_PAGE = 10_000

_AT_ONCE = 500  # keys of one IN list

_CLIPS = select(clips, machines.c.name.label("machine")).join_from(clips, machines)
_ALARMS = select(alarms, machines.c.name.label("machine")).join_from(alarms, machines)


def machine_id(connection: Connection, machine: str) -> int | None:
    """The id of a machine's row; None before its first clip."""
    found = connection.execute(select(machines.c.id).where(machines.c.name == machine))
    return found.scalar_one_or_none()


def page_of_clips(
    connection: Connection,
    machine: str,
    limit: int,
    *,
    before: int | None = None,
    after: int | None = None,
    since: datetime | None = None,
) -> list[StoredClip]:
    """Clips of a machine, the newest first; see `Store.clips`."""
    of_machine = clips.c.machine_id == machine_id(connection, machine)
    query = _CLIPS.where(of_machine).limit(_page(limit))
    if before is not None:
        query = query.where(clips.c.id < before)
    if since is not None:
        query = query.where(clips.c.received_at >= since)
    if after is not None:
        query = query.where(clips.c.id > after).order_by(clips.c.id)
        return _clips(connection, query)[::-1]
    query = query.order_by(clips.c.id.desc())
    if since is None:
        return _clips(connection, query)
    # Among the next clips by id there are enough of that time, unless the time is nearly over.
    # Then its smallest id, by the index on times, keeps the search from going further back.
    reach = select(clips.c.id).where(of_machine).order_by(clips.c.id.desc())
    if before is not None:
        reach = reach.where(clips.c.id < before)
    edge = connection.scalar(reach.offset(4 * limit).limit(1))
    found = _clips(connection, query if edge is None else query.where(clips.c.id >= edge))
    if edge is None or len(found) == limit:
        return found
    first = select(func.min(clips.c.id)).where(of_machine, clips.c.received_at >= since)
    return _clips(connection, query.where(clips.c.id >= first.scalar_subquery()))


def clips_by_id(connection: Connection, ids: Iterable[int]) -> dict[int, StoredClip]:
    """Those of these clips that are there."""
    found = _clips(connection, _CLIPS.where(clips.c.id.in_(list(ids))))
    return {clip.id: clip for clip in found}


def page_of_alarms(
    connection: Connection,
    machine: str | None,
    limit: int,
    *,
    open_only: bool = False,
    before: int | None = None,
) -> list[StoredAlarm]:
    """Alarms, the newest first; of all machines where none is named."""
    query = _ALARMS.order_by(alarms.c.id.desc()).limit(_page(limit))
    if machine is not None:
        query = query.where(alarms.c.machine_id == machine_id(connection, machine))
    if open_only:
        query = query.where(alarms.c.closed_at.is_(None))
    if before is not None:
        query = query.where(alarms.c.id < before)
    return _alarms(connection, query)


def alarms_by_id(connection: Connection, ids: Sequence[int]) -> list[StoredAlarm]:
    """Those of these alarms that are there, in the order of their ids."""
    return _alarms(connection, _ALARMS.where(alarms.c.id.in_(ids)).order_by(alarms.c.id))


def summaries(connection: Connection) -> list[MachineSummary]:
    """One row per machine, by name."""
    # Sorted here: databases differ in how they order text.
    rows = sorted(connection.execute(select(machines)), key=lambda row: str(row.name))
    counts = select(alarms.c.machine_id, func.count()).where(alarms.c.closed_at.is_(None))
    counted = connection.execute(counts.group_by(alarms.c.machine_id))
    is_open: dict[int, int] = {row[0]: row[1] for row in counted}
    last = clips_by_id(connection, [row.last_clip_id for row in rows if row.last_clip_id])
    return [
        MachineSummary(
            row.name, row.clips, row.anomalous, is_open.get(row.id, 0), last.get(row.last_clip_id)
        )
        for row in rows
    ]


def counts_since(connection: Connection, since: datetime) -> dict[str, tuple[int, int]]:
    """Clips and anomalous clips of every machine since a time."""
    known = connection.execute(select(machines.c.id, machines.c.name)).all()
    counts = select(func.count(), func.coalesce(func.sum(case((clips.c.anomalous, 1), else_=0)), 0))
    found = {}
    for number, name in known:  # one by one, as the index on times is by machine
        mine = counts.where(clips.c.machine_id == number, clips.c.received_at >= since)
        total, anomalous = connection.execute(mine).one()
        found[name] = (int(total), int(anomalous))
    return found


def clip_of_source(connection: Connection, machine: str, source_key: str) -> StoredClip | None:
    """The clip that a source became, while it is kept."""
    of_source = select(sources.c.clip_id).where(
        sources.c.machine_id == machine_id(connection, machine), sources.c.source_key == source_key
    )
    found = _clips(connection, _CLIPS.where(clips.c.id == of_source.scalar_subquery()))
    return found[0] if found else None


def newest_scores(
    connection: Connection, machine: str, n: int, model_sha256: str | None
) -> NDArray[np.float64]:
    """Scores of the last clips, oldest first; those of one model where it is named."""
    query = (
        select(clips.c.score, clips.c.model_sha256)
        .where(clips.c.machine_id == machine_id(connection, machine))
        .order_by(clips.c.id.desc())
        .limit(_page(n))
    )
    found = connection.execute(query).all()
    used = [score for score, model in found if model_sha256 in (None, model)]
    return np.array(used[::-1], float)


def sources_of(connection: Connection, machine: str, keys: Sequence[str]) -> list[Source]:
    """Those of these sources of a machine that are known."""
    columns = (getattr(sources.c, name) for name in Source.__dataclass_fields__)
    query = select(*columns).where(sources.c.machine_id == machine_id(connection, machine))
    found = []
    for start in range(0, len(keys), _AT_ONCE):
        named = sources.c.source_key.in_(keys[start : start + _AT_ONCE])
        found += [Source(*row) for row in connection.execute(query.where(named))]
    return found


def _page(limit: int) -> int:
    if not 1 <= limit <= LARGEST_PAGE:
        raise InputError(f"A page holds 1 to {LARGEST_PAGE:,} rows. Got {limit!r} instead.")
    return limit


def _clips(connection: Connection, query: Select[Any]) -> list[StoredClip]:
    return [_clip(row) for row in connection.execute(query)]


def _clip(row: Row[Any]) -> StoredClip:
    said = row._mapping
    verdict = {
        "name": said["name"],
        "machine": said["machine"],
        "alarm": said["anomalous"],
        **{name: said[name] for name in VERDICT},
        **(said["more"] or {}),
    }
    return StoredClip(
        row.id,
        row.machine,
        row.received_at,
        row.recorded_at,
        verdict,
        row.audio_sha256,
        row.audio_path,
    )


def _alarms(connection: Connection, query: Select[Any]) -> list[StoredAlarm]:
    rows = connection.execute(query).all()
    members = connection.execute(
        select(alarm_clips)
        .where(alarm_clips.c.alarm_id.in_([row.id for row in rows]))
        .order_by(alarm_clips.c.clip_id)
    )
    of_alarm: dict[int, list[int]] = defaultdict(list)
    for alarm, clip in members:
        of_alarm[alarm].append(clip)
    return [
        StoredAlarm(
            row.id,
            row.machine,
            row.rule,
            row.clip_id,
            tuple(of_alarm[row.id]),
            row.opened_at,
            row.closed_at,
            row.closed_by,
            row.acknowledged_at,
            row.acknowledged_by,
            row.comment,
        )
        for row in rows
    ]
