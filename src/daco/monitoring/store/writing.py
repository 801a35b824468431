"""Writing: a clip, its source, its alarms, trends and messages about them, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from daco.detector.verdict import Verdict
from daco.monitoring.adaptation import JUDGED, Adaptation, for_model
from daco.monitoring.alarms import FAULT, AlarmRule
from daco.monitoring.store.counting import MachineState, count
from daco.monitoring.store.outbox import (
    ALARM_CLEARED,
    ALARM_OPENED,
    CLIP_SCORED,
    Receivers,
    post,
)
from daco.monitoring.store.reading import ALARMS, CLIPS, read_alarms, read_clips
from daco.monitoring.store.records import (
    VERDICT,
    ConflictError,
    NewClip,
    Outcome,
    StoredClip,
)
from daco.monitoring.store.schema import (
    adaptations,
    alarms,
    clips,
    machines,
    sources,
    trends,
)

Rules = Callable[[str], AlarmRule]
"""The alarm rule of a machine."""

_DIALECTS: dict[str, ModuleType] = {"sqlite": sqlite, "postgresql": postgresql}

# Built once: building a statement costs more than running it.
_MACHINE = select(machines).where(machines.c.name == bindparam("machine"))
_KNOWN = select(sources).where(
    sources.c.machine_id == bindparam("machine"), sources.c.source_key == bindparam("key")
)
_NEW_CLIP = insert(clips).returning(clips.c.id)
_STILL_OPEN = select(alarms.c.id, alarms.c.kind).where(
    alarms.c.machine_id == bindparam("machine"),
    alarms.c.cleared_at.is_(None),
    alarms.c.clip_id.is_not(None),
)


def machine_row(connection: Connection, name: str) -> Any:
    """The row of a machine, created if necessary."""
    row = connection.execute(_MACHINE, {"machine": name}).first()
    if row is None:
        new = _DIALECTS[connection.dialect.name].insert(machines).on_conflict_do_nothing()
        connection.execute(new, {"name": name})
        row = connection.execute(_MACHINE, {"machine": name}).one()
    return row


def add_clips(
    connection: Connection, change: int, rules: Rules, receivers: Receivers, new: Sequence[NewClip]
) -> list[Outcome | ConflictError]:
    """Store the clips that are not stored yet, in their order."""
    machine_of: dict[str, MachineState] = {}
    outcomes: list[Outcome | ConflictError] = []
    for clip in new:
        if clip.machine not in machine_of:
            machine_of[clip.machine] = _load(connection, clip.machine)
        machine = machine_of[clip.machine]
        known = _known(connection, machine.id, clip)
        if known is not None:
            outcomes.append(known)
            continue
        stored = _insert(connection, change, machine, clip)
        outcome = Outcome(stored)
        if clip.counts and machine.in_service:
            rule, limit = rules(clip.machine), clip.evidence_limit
            outcome = count(connection, change, rule, limit, machine, stored)
        if machine.in_service:
            _announce(connection, receivers, machine, outcome)
        outcomes.append(outcome)
    for machine in machine_of.values():
        _save(connection, change, machine)
    return outcomes


def _load(connection: Connection, name: str) -> MachineState:
    row = machine_row(connection, name)
    return MachineState(
        id=row.id,
        name=name,
        counts={"clips": row.clips, "anomalous": row.anomalous, "last_clip_id": row.last_clip_id},
        recent=dict(row.recent),
        evidence=dict(row.evidence),
        in_service=row.out_of_service_since is None,
        open_alarms={
            kind: number for number, kind in connection.execute(_STILL_OPEN, {"machine": row.id})
        },
        adaptation=read_adaptation(connection, row.id),
    )


def _save(connection: Connection, change: int, machine: MachineState) -> None:
    own = update(machines).where(machines.c.id == machine.id)
    state = {"recent": machine.recent, "evidence": machine.evidence}
    connection.execute(own.values(**machine.counts, **state, changed=change))
    if machine.learned and machine.adaptation is not None:
        save_adaptation(connection, machine.id, machine.adaptation)
    names = ("clips", "judged", "anomalous", "oddness_sum", "oddness_max")
    rows = [
        {"machine_id": machine.id, "period": period, "start": start}
        | dict(zip(names, sums, strict=True))
        for (period, start), sums in machine.trend.items()
    ]
    if rows:
        connection.execute(_add_trends(connection.dialect.name), rows)


def _known(connection: Connection, machine: int, clip: NewClip) -> Outcome | ConflictError | None:
    """The outcome for a source that was processed before; None for a new recording."""
    if clip.source_key is None:
        return None
    row = connection.execute(_KNOWN, {"machine": machine, "key": clip.source_key}).first()
    if row is None or row.clip_id is None:
        return None
    if row.audio_sha256 == clip.audio_sha256:
        if clip.stamp != row.stamp:  # the file was touched, and is the same
            source = {"machine_id": machine, "source_key": clip.source_key, "stamp": clip.stamp}
            save_source(connection, source | {"reason": None, "seen_at": clip.received_at})
        stored = read_clips(connection, CLIPS.where(clips.c.id == row.clip_id))
        return Outcome(stored[0] if stored else None, known=True)
    if clip.stamp is not None:  # the file was overwritten
        return None
    return ConflictError("The key was used before, for a recording with other content.")


def _insert(
    connection: Connection, change: int, machine: MachineState, clip: NewClip
) -> StoredClip:
    """Store a clip and its source, as judged by what was learned, and learn from it."""
    verdict = adapted_verdict(clip, machine.adaptation)
    row = {name: getattr(verdict, name) for name in VERDICT} | {
        "machine_id": machine.id,
        "changed": change,
        "time": clip.time,
        "received_at": clip.received_at,
        "recorded_at": clip.recorded_at,
        "audio_sha256": clip.audio_sha256,
        "audio_path": clip.audio_path,
        "findings": clip.findings,
    }
    number = connection.execute(_NEW_CLIP, row).scalar_one()
    stored = StoredClip.from_row({**row, "id": number, "machine": machine.name, "answer": None})
    if clip.source_key is not None:
        source = {"source_key": clip.source_key, "stamp": clip.stamp, "clip_id": number}
        source |= {"audio_sha256": clip.audio_sha256, "seen_at": clip.received_at}
        save_source(connection, {"machine_id": machine.id, "reason": None, **source})
    counts = machine.counts
    counts["clips"] += 1
    counts["anomalous"] += verdict.anomalous
    counts["last_clip_id"] = number
    judged = verdict.state in JUDGED
    hour = stored.time.replace(minute=0, second=0, microsecond=0)
    for key in (("hour", hour), ("day", hour.replace(hour=0))):
        sums = machine.trend.setdefault(key, [0, 0, 0, 0.0, None])
        sums[0] += 1
        if judged:
            sums[1] += 1
            sums[2] += verdict.anomalous
            sums[3] += verdict.oddness
            sums[4] = max(verdict.oddness, -1.0 if sums[4] is None else sums[4])
    state = _adaptation(clip, machine.adaptation)
    if state is not None and judged and (clip.adapt or state.left):
        machine.adaptation = state.after_clip(
            number,
            verdict.score,
            verdict.domain_weights,
            anomalous=verdict.anomalous,
            alarm_is_open=FAULT in machine.open_alarms,
            at=clip.received_at,
        )
        machine.learned = True
    return stored


def adapted_verdict(clip: NewClip, state: Adaptation | None) -> Verdict:
    """The verdict on a clip after what was learned about its machine."""
    state = _adaptation(clip, state)
    if state is None or clip.calibration is None:
        return clip.verdict
    return state.adapted(clip.verdict, clip.calibration.reference)


def _adaptation(clip: NewClip, state: Adaptation | None) -> Adaptation | None:
    """What was learned with the clip's model; None where its score alone decides.

    That a person has declared the machine healthy counts with or without `adapt`.
    """
    if clip.calibration is None:
        return None
    state = for_model(state, clip.verdict.model_sha256, clip.calibration.rate)
    return state if clip.adapt or state.declared_at is not None else None


def _announce(
    connection: Connection, receivers: Receivers, machine: MachineState, outcome: Outcome
) -> None:
    """Post messages about a stored clip and the alarms that it opened and cleared."""
    clip = outcome.clip
    assert clip is not None
    about, whose = {"machine": machine.name, "clip": clip.to_dict()}, (machine.id, machine.name)
    post(connection, receivers, whose, CLIP_SCORED, clip.received_at, about)
    for number in (*outcome.opened, *outcome.cleared):
        kind = ALARM_OPENED if number in outcome.opened else ALARM_CLEARED
        (alarm,) = read_alarms(connection, ALARMS.where(alarms.c.id == number))
        if alarm.shelved_until is None or alarm.shelved_until < clip.received_at:
            data = {"alarm": alarm.to_dict(), **about}
            post(connection, receivers, whose, kind, clip.received_at, data)


def read_adaptation(connection: Connection, machine: int) -> Adaptation | None:
    """The adaptation of a machine; None where there is none."""
    own = adaptations.c.machine_id == machine
    state = connection.scalar(select(adaptations.c.state).where(own))
    return None if state is None else Adaptation.from_dict(state)


def save_adaptation(connection: Connection, machine: int, state: Adaptation) -> None:
    """Store the adaptation of a machine."""
    values = {"model_sha256": state.model_sha256, "state": state.to_dict()}
    new = _DIALECTS[connection.dialect.name].insert(adaptations)
    new = new.on_conflict_do_update(index_elements=["machine_id"], set_=values)
    connection.execute(new, {"machine_id": machine, **values})


def save_source(connection: Connection, row: dict[str, Any]) -> None:
    """Insert a row of ``daco_sources``, or update the columns it has of the one that is there."""
    connection.execute(_upsert_source(connection.dialect.name, *row), row)


@cache
def _upsert_source(dialect: str, *columns: str) -> Any:
    new = _DIALECTS[dialect].insert(sources)
    keys = ("machine_id", "source_key")
    changed = {name: new.excluded[name] for name in columns if name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=changed)


@cache
def _add_trends(dialect: str) -> Any:
    """A statement that adds the sums of an hour or a day to those that are there."""
    new = _DIALECTS[dialect].insert(trends)
    more, old = new.excluded, trends.c
    sums = {
        name: old[name] + more[name] for name in ("clips", "judged", "anomalous", "oddness_sum")
    }
    larger = case((old.oddness_max > more.oddness_max, old.oddness_max), else_=more.oddness_max)
    sums["oddness_max"] = func.coalesce(larger, old.oddness_max)
    return new.on_conflict_do_update(index_elements=["machine_id", "period", "start"], set_=sums)
