"""Writing: a clip, its source, its alarm and the messages about them, in one transaction.

Whoever writes to a machine holds its row, so that its clips come one after the other: ids grow
in the order of commits, and no alarm is opened twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from daco.errors import InputError
from daco.monitoring.alarms import AlarmRule, AlarmState, Decision, Opened, advance
from daco.monitoring.store.history import alarms_by_id, clips_by_id
from daco.monitoring.store.outbox import (
    ALARM_OPENED,
    ALARM_RECOVERED,
    CLIP_SCORED,
    RECORDING_UNREADABLE,
    post,
)
from daco.monitoring.store.records import (
    KEY,
    NAME,
    TEXT,
    Added,
    NewClip,
    StoredAlarm,
    StoredClip,
    checked_text,
)
from daco.monitoring.store.schema import alarm_clips, alarms, clips, machines, sources

_AT_ONCE = 500  # keys of one IN list

# Made once: putting a statement together costs more than running it.
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
    """By dialect, a statement that makes a source's row or changes these columns of it."""
    made = {}
    for dialect in (sqlite, postgresql):
        new = dialect.insert(sources)
        key = [sources.c.machine_id, sources.c.source_key]
        values = {name: new.excluded[name] for name in changed}
        made[dialect.__name__.rpartition(".")[2]] = new.on_conflict_do_update(
            index_elements=key, set_=values
        )
    return made


_REMEMBER = _upserts("audio_sha256", "stamp", "clip_id", "reason")
_REJECT = _upserts("stamp", "reason")
_MAKE_MACHINE = {
    "sqlite": sqlite.insert(machines).on_conflict_do_nothing(),
    "postgresql": postgresql.insert(machines).on_conflict_do_nothing(),
}


@dataclass(frozen=True)
class Policy:
    """When an alarm opens, and which events are to be delivered to others."""

    rule: AlarmRule
    events: frozenset[str]


def add_clips(connection: Connection, policy: Policy, new: Sequence[NewClip]) -> list[Added | None]:
    """Store those that are not there yet; None stands for one that is."""
    added: list[Added | None] = [None] * len(new)
    # In the order of names: two that write to the same machines never wait for each other.
    for name in sorted({clip.machine for clip in new}):
        machine = _hold_machine(connection, name)
        places = [place for place, clip in enumerate(new) if clip.machine == name]
        places = _not_there_yet(connection, machine.id, new, places)
        if not places:
            continue
        fresh = [new[place] for place in places]
        ids = _insert_clips(connection, machine.id, fresh)
        _remember_sources(connection, machine.id, fresh, ids)
        outcome = _raise_alarms(connection, policy, machine, fresh, ids)
        for place, each in zip(places, outcome, strict=True):
            added[place] = each
        _announce(connection, policy, machine.id, outcome)
    return added


def reject_source(
    connection: Connection,
    policy: Policy,
    machine: str,
    source_key: str,
    *,
    name: str,
    stamp: str,
    reason: str,
    at: datetime,
) -> None:
    """Remember that a source cannot be used in this state, and why; its last clip stays known."""
    checked_text("source_key", source_key, KEY)
    checked_text("name", name, NAME)
    checked_text("reason", reason, TEXT)
    row = _hold_machine(connection, machine)
    said = {"machine_id": row.id, "source_key": source_key, "stamp": stamp, "reason": reason}
    connection.execute(_REJECT[connection.dialect.name], said)
    if RECORDING_UNREADABLE in policy.events:
        about = {"machine": machine, "name": name, "reason": reason}
        post(connection, row.id, [(RECORDING_UNREADABLE, at, about)])


def restamp_source(connection: Connection, machine: str, source_key: str, stamp: str) -> None:
    """Note that a source looks different from outside and is the same within."""
    row = _hold_machine(connection, machine)
    found = (sources.c.machine_id == row.id) & (sources.c.source_key == source_key)
    connection.execute(update(sources).where(found).values(stamp=stamp, reason=None))


def acknowledge_alarm(
    connection: Connection, alarm_id: int, who: str, comment: str, at: datetime
) -> StoredAlarm:
    """Acknowledge an alarm, and close it if it is open; the first who does so stays."""
    checked_text("name of who acknowledges", who, 200)
    checked_text("comment", comment, TEXT)
    found = alarms_by_id(connection, [alarm_id])
    if found:
        machine = _hold_machine(connection, found[0].machine)
        found = alarms_by_id(connection, [alarm_id])  # as it is now that nobody else writes
    if not found:
        raise InputError(f"There is no alarm {alarm_id}.")
    alarm = found[0]
    if alarm.acknowledged_at is not None:
        return alarm
    said: dict[str, Any] = {"acknowledged_at": at, "acknowledged_by": who, "comment": comment}
    if alarm.is_open:
        said |= {"closed_at": at, "closed_by": "acknowledgement"}
        # What has been seen counts no more: a new alarm needs new clips.
        newest = {"counted_after": machine.last_clip_id}
        connection.execute(update(machines).where(machines.c.id == machine.id).values(newest))
    connection.execute(update(alarms).where(alarms.c.id == alarm_id).values(said))
    return alarms_by_id(connection, [alarm_id])[0]


def _hold_machine(connection: Connection, name: str) -> Row[Any]:
    """The machine's row, made where there is none, locked until the transaction ends."""
    row = connection.execute(_MACHINE, {"machine": name}).first()
    if row is None:
        connection.execute(_MAKE_MACHINE[connection.dialect.name], {"name": name})
        row = connection.execute(_MACHINE, {"machine": name}).one()
    return row


def _not_there_yet(
    connection: Connection, machine: int, new: Sequence[NewClip], places: Sequence[int]
) -> list[int]:
    """Places of clips whose source is unknown, or holds another recording by now."""
    keys = (key for place in places if (key := new[place].source_key) is not None)
    known: dict[str, tuple[str | None, bool]] = {}
    while chunk := list(islice(keys, _AT_ONCE)):
        found = connection.execute(_KNOWN, {"machine": machine, "keys": chunk})
        known |= {key: (sha256, clip is not None) for key, sha256, clip in found}
    fresh = []
    for place in places:
        clip = new[place]
        if clip.source_key is not None:
            if known.get(clip.source_key) == (clip.audio_sha256, True):
                continue
            known[clip.source_key] = (clip.audio_sha256, True)
        fresh.append(place)
    return fresh


def _insert_clips(connection: Connection, machine: int, fresh: Sequence[NewClip]) -> list[int]:
    rows = [
        {
            "machine_id": machine,
            "received_at": clip.received_at,
            "recorded_at": clip.recorded_at,
            "audio_sha256": clip.audio_sha256,
            "audio_path": clip.audio_path,
            **clip.columns,
        }
        for clip in fresh
    ]
    return list(connection.scalars(_NEW_CLIPS, rows))


def _remember_sources(
    connection: Connection, machine: int, fresh: Sequence[NewClip], ids: Sequence[int]
) -> None:
    latest = {  # of two recordings under one key, the later is what is there now
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
    """Pass the clips through the rule; the alarms opened and closed on the way are stored."""
    since = {"machine": machine.id, "after": machine.counted_after, "first": ids[0]}
    recent = connection.execute(_RECENT, {**since, "memory": policy.rule.memory})
    still_open = list(connection.scalars(_STILL_OPEN, {"machine": machine.id}))
    decisions = tuple(Decision(*row) for row in recent)[::-1]
    state = AlarmState(decisions, bool(still_open))
    counted_after, added = machine.counted_after, []
    for clip, number in zip(fresh, ids, strict=True):
        state, event = advance(policy.rule, state, Decision(number, clip.columns["anomalous"]))
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
        "more_anomalous": sum(clip.columns["anomalous"] for clip in fresh),
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
    """Messages about what was just stored, read back so that they say what the store holds."""
    if not policy.events:
        return
    wanted = [
        each for each in outcome if CLIP_SCORED in policy.events or each != Added(each.clip_id)
    ]
    of_clip: dict[int, StoredClip] = {}
    for chunk in _chunks([each.clip_id for each in wanted]):
        of_clip |= clips_by_id(connection, chunk)
    changed = [each.opened for each in wanted if each.opened is not None]
    changed += [alarm for each in wanted for alarm in each.recovered]
    of_alarm = {
        alarm.id: alarm.to_dict()
        for chunk in _chunks(changed)
        for alarm in alarms_by_id(connection, chunk)
    }
    messages = []
    for each in wanted:
        clip = of_clip[each.clip_id]
        about, at = clip.to_dict(), clip.received_at
        messages.append((CLIP_SCORED, at, {"clip": about}))
        if each.opened is not None:
            messages.append((ALARM_OPENED, at, {"alarm": of_alarm[each.opened], "clip": about}))
        for alarm in each.recovered:
            messages.append((ALARM_RECOVERED, at, {"alarm": of_alarm[alarm], "clip": about}))
    post(connection, machine, [each for each in messages if each[0] in policy.events])


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]
