"""Writing: a clip, its source, its alarm and the messages about them, in one transaction.

A writer locks the machine's row first, so that the clips of a machine are written one after the
other: ids grow in the order of commits, and no alarm is opened twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule, AlarmState, Decision, Opened, advance
from daco.monitoring.store.database import chunks
from daco.monitoring.store.outbox import (
    ALARM_OPENED,
    ALARM_RECOVERED,
    CLIP_SCORED,
    RECORDING_UNREADABLE,
    post,
)
from daco.monitoring.store.records import (
    ALARMS,
    CLIPS,
    KEY,
    NAME,
    TEXT,
    Added,
    NewClip,
    StoredAlarm,
    checked_text,
    read_alarms,
    read_clips,
)
from daco.monitoring.store.schema import alarm_clips, alarms, clips, machines, sources

# Built once: building a statement costs more than running it.
_MACHINE = select(machines).where(machines.c.name == bindparam("machine")).with_for_update()
_KNOWN = select(sources.c.source_key, sources.c.audio_sha256, sources.c.clip_id).where(
    sources.c.machine_id == bindparam("machine"),
    sources.c.source_key.in_(bindparam("keys", expanding=True)),
)
_NEW_CLIPS = insert(clips).returning(clips.c.id, sort_by_parameter_order=True)
_RECENT = (
    select(clips.c.id, clips.c.anomalous)
    .where(clips.c.machine_id == bindparam("machine"), clips.c.id > bindparam("after"))
    .where(clips.c.id < bindparam("first"))
    .order_by(clips.c.id.desc())
    .limit(bindparam("memory"))
)
_STILL_OPEN = select(alarms.c.id).where(
    alarms.c.machine_id == bindparam("machine"), alarms.c.closed_at.is_(None)
)
_NEW_ALARM = insert(alarms).returning(alarms.c.id)
_COUNT = (
    update(machines)
    .where(machines.c.id == bindparam("machine"))
    .values(
        clips=machines.c.clips + bindparam("more"),
        anomalous=machines.c.anomalous + bindparam("more_anomalous"),
        last_clip_id=bindparam("last"),
        counted_after=bindparam("after"),
    )
)


def _upserts(*changed: str) -> dict[str, Any]:
    """By dialect, a statement that inserts a source's row or updates these columns of it."""
    statements = {}
    for name, dialect in (("sqlite", sqlite), ("postgresql", postgresql)):
        new = dialect.insert(sources)
        statements[name] = new.on_conflict_do_update(
            index_elements=[sources.c.machine_id, sources.c.source_key],
            set_={column: new.excluded[column] for column in changed},
        )
    return statements


_REMEMBER = _upserts("audio_sha256", "stamp", "clip_id", "reason")
_REJECT = _upserts("stamp", "reason")
_MAKE_MACHINE = {
    "sqlite": sqlite.insert(machines).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(machines).on_conflict_do_nothing(),
}


@dataclass(frozen=True)
class Policy:
    """When an alarm opens, and which events are put into the outbox."""

    rule: AlarmRule
    events: frozenset[str]


def add_clips(connection: Connection, policy: Policy, new: Sequence[NewClip]) -> list[Added | None]:
    """Store the clips that are not stored yet; the result has None for the others."""
    added: list[Added | None] = [None] * len(new)
    # In the order of names, so that two writers of the same machines never deadlock.
    for name in sorted({clip.machine for clip in new}):
        machine = _lock_machine(connection, name)
        indices = [index for index, clip in enumerate(new) if clip.machine == name]
        indices = _not_stored_yet(connection, machine.id, new, indices)
        if not indices:
            continue
        fresh = [new[index] for index in indices]
        ids = list(connection.scalars(_NEW_CLIPS, [clip.row(machine.id) for clip in fresh]))
        _remember_sources(connection, machine.id, fresh, ids)
        outcome = _raise_alarms(connection, policy, machine, fresh, ids)
        for index, each in zip(indices, outcome, strict=True):
            added[index] = each
        _announce(connection, policy, machine.id, outcome)
    return added


def reject_source(
    connection: Connection,
    policy: Policy,
    machine: str,
    source: dict[str, str],
    *,
    name: str,
    at: datetime,
) -> None:
    """Remember why a source with this stamp cannot be used; its last clip stays known."""
    checked_text("source_key", source["source_key"], KEY)
    checked_text("name", name, NAME)
    checked_text("reason", source["reason"], TEXT)
    row = _lock_machine(connection, machine)
    connection.execute(_REJECT[connection.dialect.name], {"machine_id": row.id, **source})
    if RECORDING_UNREADABLE in policy.events:
        message = {"machine": machine, "name": name, "reason": source["reason"]}
        post(connection, row.id, [(RECORDING_UNREADABLE, at, message)])


def restamp_source(connection: Connection, machine: str, source_key: str, stamp: str) -> None:
    """Record the new stamp of a source whose content is unchanged."""
    row = _lock_machine(connection, machine)
    own = (sources.c.machine_id == row.id) & (sources.c.source_key == source_key)
    connection.execute(update(sources).where(own).values(stamp=stamp, reason=None))


def acknowledge_alarm(
    connection: Connection, alarm_id: int, who: str, comment: str, at: datetime
) -> StoredAlarm:
    """Acknowledge an alarm, and close it if it is open; the first acknowledgement stays."""
    checked_text("name of who acknowledges", who, 200)
    checked_text("comment", comment, TEXT)
    query = ALARMS.where(alarms.c.id == alarm_id)
    found = read_alarms(connection, query)
    if not found:
        raise InputError(f"There is no alarm {alarm_id}.")
    machine = _lock_machine(connection, found[0].machine)
    found = read_alarms(connection, query)  # again, now that nobody else can write
    if not found:
        raise InputError(f"There is no alarm {alarm_id}.")
    if found[0].acknowledged_at is not None:
        return found[0]
    values: dict[str, Any] = {"acknowledged_at": at, "acknowledged_by": who, "comment": comment}
    if found[0].is_open:
        values |= {"closed_at": at, "closed_by": "acknowledgement"}
        # Clips up to here no longer count: a new alarm needs new clips.
        newest = {"counted_after": machine.last_clip_id}
        connection.execute(update(machines).where(machines.c.id == machine.id).values(newest))
    connection.execute(update(alarms).where(alarms.c.id == alarm_id).values(values))
    return read_alarms(connection, query)[0]


def _lock_machine(connection: Connection, name: str) -> Row[Any]:
    """The machine's row, created if necessary, locked until the transaction ends."""
    row = connection.execute(_MACHINE, {"machine": name}).first()
    if row is None:
        connection.execute(_MAKE_MACHINE[connection.dialect.name], {"name": name})
        row = connection.execute(_MACHINE, {"machine": name}).one()
    return row


def _not_stored_yet(
    connection: Connection, machine: int, new: Sequence[NewClip], indices: Sequence[int]
) -> list[int]:
    """Indices of clips whose source is unknown, or has another recording by now."""
    keys = [key for index in indices if (key := new[index].source_key) is not None]
    known: dict[str, tuple[str | None, bool]] = {}
    for some in chunks(keys):
        rows = connection.execute(_KNOWN, {"machine": machine, "keys": some})
        known |= {key: (sha256, clip is not None) for key, sha256, clip in rows}
    fresh = []
    for index in indices:
        clip = new[index]
        if clip.source_key is not None:
            if known.get(clip.source_key) == (clip.audio_sha256, True):
                continue
            known[clip.source_key] = (clip.audio_sha256, True)
        fresh.append(index)
    return fresh


def _remember_sources(
    connection: Connection, machine: int, fresh: Sequence[NewClip], ids: Sequence[int]
) -> None:
    latest = {  # of two recordings with one key, the later counts
        clip.source_key: {
            "machine_id": machine,
            "source_key": clip.source_key,
            "audio_sha256": clip.audio_sha256,
            "stamp": clip.stamp,
            "clip_id": number,
            "reason": None,
        }
        for clip, number in zip(fresh, ids, strict=True)
        if clip.source_key is not None
    }
    if latest:
        connection.execute(_REMEMBER[connection.dialect.name], list(latest.values()))


def _raise_alarms(
    connection: Connection,
    policy: Policy,
    machine: Row[Any],
    fresh: Sequence[NewClip],
    ids: Sequence[int],
) -> list[Added]:
    """Apply the alarm rule to the clips; store the alarms it opens and closes."""
    since = {"machine": machine.id, "after": machine.counted_after, "first": ids[0]}
    recent = connection.execute(_RECENT, {**since, "memory": policy.rule.memory})
    still_open = list(connection.scalars(_STILL_OPEN, {"machine": machine.id}))
    decisions = tuple(Decision(*row) for row in recent)[::-1]
    state = AlarmState(decisions, bool(still_open))
    counted_after, added = machine.counted_after, []
    for clip, number in zip(fresh, ids, strict=True):
        state, event = advance(policy.rule, state, Decision(number, clip.verdict.alarm))
        opened, recovered = None, ()
        if isinstance(event, Opened):
            opened = _open_alarm(connection, policy.rule, machine.id, event, clip.received_at)
            still_open.append(opened)
        elif event:
            recovered, still_open = tuple(still_open), []
            connection.execute(
                update(alarms)
                .where(alarms.c.id.in_(recovered))
                .values(closed_at=clip.received_at, closed_by="recovery")
            )
        if event:
            counted_after = number
        added.append(Added(number, opened, recovered))
    counts = {
        "machine": machine.id,
        "more": len(fresh),
        "more_anomalous": sum(clip.verdict.alarm for clip in fresh),
        "last": ids[-1],
        "after": counted_after,
    }
    connection.execute(_COUNT, counts)
    return added


def _open_alarm(
    connection: Connection, rule: AlarmRule, machine: int, event: Opened, at: datetime
) -> int:
    values = {"machine_id": machine, "rule": str(rule), "clip_id": event.clip, "opened_at": at}
    number = connection.scalars(_NEW_ALARM, values).one()
    members = [{"alarm_id": number, "clip_id": clip} for clip in event.contributing]
    connection.execute(insert(alarm_clips), members)
    return number


def _announce(
    connection: Connection, policy: Policy, machine: int, outcome: Sequence[Added]
) -> None:
    """Post messages about the stored clips, read back so that they hold what the store holds."""
    if not policy.events:
        return
    wanted = [
        each for each in outcome if CLIP_SCORED in policy.events or each != Added(each.clip_id)
    ]
    clip_of = {
        clip.id: clip
        for some in chunks([each.clip_id for each in wanted])
        for clip in read_clips(connection, CLIPS.where(clips.c.id.in_(some)))
    }
    changed = [each.opened for each in wanted if each.opened is not None]
    changed += [alarm for each in wanted for alarm in each.recovered]
    alarm_of = {
        alarm.id: alarm.to_dict()
        for some in chunks(changed)
        for alarm in read_alarms(connection, ALARMS.where(alarms.c.id.in_(some)))
    }
    messages = []
    for each in wanted:
        clip, at = clip_of[each.clip_id].to_dict(), clip_of[each.clip_id].received_at
        messages.append((CLIP_SCORED, at, {"clip": clip}))
        if each.opened is not None:
            messages.append((ALARM_OPENED, at, {"alarm": alarm_of[each.opened], "clip": clip}))
        for alarm in each.recovered:
            messages.append((ALARM_RECOVERED, at, {"alarm": alarm_of[alarm], "clip": clip}))
    post(connection, machine, [each for each in messages if each[0] in policy.events])
