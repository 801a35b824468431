"""Counting: what a clip does to the alarms of its machine, in the transaction of the clip."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from daco.monitoring.adaptation import JUDGED, Adaptation
from daco.monitoring.alarms import (
    FAULT,
    MOST_CLIPS,
    TREND,
    AlarmRule,
    AlarmState,
    Decision,
    Extension,
    Opening,
    Recovery,
    add_up,
    advance,
    counts_for,
    kind_of,
)
from daco.monitoring.evidence import Evidence
from daco.monitoring.store.records import Outcome, StoredClip
from daco.monitoring.store.schema import alarm_clips, alarms, clips
from daco.monitoring.trends import Trend, advance_trend

Event = Opening | Extension | Recovery | None

_NEW_ALARM = insert(alarms).returning(alarms.c.id)


@dataclass
class MachineState:
    """A machine's row while clips are added; written back at the end."""

    id: int
    name: str
    counts: dict[str, Any]
    recent: dict[str, list[Any]]
    evidence: dict[str, Any]
    in_service: bool
    open_alarms: dict[str, int]
    adaptation: Adaptation | None
    learned: bool = False
    trend: dict[tuple[str, datetime], list[Any]] = field(default_factory=dict)


def count(
    connection: Connection,
    change: int,
    rule: AlarmRule,
    limit: float | None,
    machine: MachineState,
    clip: StoredClip,
) -> Outcome:
    """Apply the alarm rule to a clip, by kind; store the alarms it opens, extends and clears."""
    opened, cleared = [], []
    if machine.evidence.get("model") != clip.model_sha256:  # p-values of another model
        machine.evidence = {"model": clip.model_sha256}
    kinds = {FAULT, TREND, kind_of(clip.state), *machine.open_alarms, *machine.recent} - {None}
    # A fault comes before a trend, which is of no interest then.
    for kind in sorted(kind for kind in kinds if kind and counts_for(kind, clip.state)):
        if kind == TREND:
            event = _follow_trend(rule, machine, clip)
        elif kind == FAULT and rule.adds_up and limit is not None:
            event = _add_evidence(connection, limit, machine, clip)
        else:
            event = _count_k_of_n(rule, machine, clip, kind)
        if isinstance(event, Opening):
            number = _open(connection, change, rule, machine, clip, kind, event)
            machine.open_alarms[kind] = number
            opened.append(number)
        elif isinstance(event, Extension):
            values = {"last_at": clip.received_at, "n_clips": alarms.c.n_clips + 1}
            _update_alarm(connection, change, machine.open_alarms[kind], **values)
        elif isinstance(event, Recovery):
            number = machine.open_alarms.pop(kind)
            values = {"cleared_at": clip.received_at, "cleared_by": "recovery"}
            _update_alarm(connection, change, number, **values)
            cleared.append(number)
    return Outcome(clip, tuple(opened), tuple(cleared))


def _count_k_of_n(rule: AlarmRule, machine: MachineState, clip: StoredClip, kind: str) -> Event:
    recent = tuple(Decision(*each) for each in machine.recent.get(kind, ()))
    before = AlarmState(recent, kind in machine.open_alarms)
    state, event = advance(rule, before, Decision(clip.id, kind_of(clip.state) == kind))
    machine.recent[kind] = [list(each) for each in state.recent]
    if kind != FAULT and not state.is_open and not any(each for _, each in state.recent):
        del machine.recent[kind]  # nothing of this kind lately
    return event


def _add_evidence(
    connection: Connection, limit: float, machine: MachineState, clip: StoredClip
) -> Event:
    is_open, known = FAULT in machine.open_alarms, machine.evidence.get(FAULT)
    # An alarm that another rule or model opened is as certain as one of this rule.
    before = Evidence.from_dict(known) if known else Evidence(limit if is_open else 0.0)
    after, event = add_up(limit, before, is_open, clip.id, clip.p_value)
    machine.evidence[FAULT] = after.to_dict()
    machine.recent.pop(FAULT, None)
    if isinstance(event, Opening):
        judged = clips.c.machine_id == machine.id, clips.c.state.in_(JUDGED)
        last = select(clips.c.id).where(*judged).order_by(clips.c.id.desc())
        numbers = connection.scalars(last.limit(min(after.clips, MOST_CLIPS)))
        return Opening(clip.id, tuple(sorted(numbers)))
    return event


def _follow_trend(rule: AlarmRule, machine: MachineState, clip: StoredClip) -> Event:
    if rule.never or FAULT in machine.open_alarms:
        return None
    known, is_open = machine.evidence.get(TREND), TREND in machine.open_alarms
    trend = advance_trend(Trend.from_dict(known) if known else Trend(), clip.p_value)
    trend = trend.capped() if is_open else trend
    machine.evidence[TREND] = trend.to_dict()
    if is_open:
        return Recovery(clip.id) if trend.is_over else None
    return Opening(clip.id, ()) if trend.is_rising else None


def _open(
    connection: Connection,
    change: int,
    rule: AlarmRule,
    machine: MachineState,
    clip: StoredClip,
    kind: str,
    event: Opening,
) -> int:
    row = {"machine_id": machine.id, "changed": change, "kind": kind, "rule": str(rule)}
    row |= {"clip_id": clip.id, "n_clips": len(event.contributing)}
    row |= {"opened_at": clip.received_at, "last_at": clip.received_at}
    if kind == TREND:
        row |= {"rule": TREND, "detail": _since(connection, machine)}
    number = int(connection.execute(_NEW_ALARM, row).scalar_one())
    if event.contributing:
        members = [{"alarm_id": number, "clip_id": each} for each in event.contributing]
        connection.execute(insert(alarm_clips), members)
    return number


def _since(connection: Connection, machine: MachineState) -> str:
    """When a rise began, in words."""
    own = select(clips.c.time).where(clips.c.machine_id == machine.id)
    rising = own.order_by(clips.c.id.desc()).limit(machine.evidence[TREND]["rising"]).subquery()
    begin = connection.execute(select(func.min(rising.c.time))).scalar_one().astimezone()
    return f"It sounds more and more unusual since {begin.day} {begin:%B %Y}."


def _update_alarm(connection: Connection, change: int, number: int, **values: Any) -> None:
    own = update(alarms).where(alarms.c.id == number)
    connection.execute(own.values(changed=change, **values))
