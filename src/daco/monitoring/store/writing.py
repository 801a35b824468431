"""Writing: clips, their sources, alarms, trends and messages about them, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, case, func, insert, select

from daco.detector.verdict import Verdict
from daco.monitoring.adaptation import JUDGED, Adaptation, for_model
from daco.monitoring.alarms import (
    FAULT,
    MOST_CLIPS,
    TREND,
    AlarmRule,
    AlarmState,
    Decision,
    Event,
    Extension,
    Opening,
    Recovery,
    add_up,
    advance,
    counts_for,
    kind_of,
)
from daco.monitoring.evidence import Evidence
from daco.monitoring.store.database import Change, insert_into
from daco.monitoring.store.outbox import ALARM_CLEARED, ALARM_OPENED, CLIP_SCORED, Receivers, post
from daco.monitoring.store.reading import ALARMS, CLIPS, read_alarms, read_clips
from daco.monitoring.store.records import VERDICT, ConflictError, NewClip, Outcome, StoredClip
from daco.monitoring.store.schema import alarms, clips, machines, notes, sources, trends
from daco.monitoring.trends import TREND_LIMIT, Trend, advance_trend

Rules = Callable[[str], AlarmRule]
"""The alarm rule of a machine."""

_SUMS = ("clips", "judged", "anomalous", "oddness_sum", "oddness_max")

# Built once: building a statement costs more than running it.
_KNOWN = select(sources).where(
    sources.c.machine_id == bindparam("machine"), sources.c.source_key == bindparam("key")
)
_NEW_CLIP = insert(clips).returning(clips.c.id)
_NEW_ALARM = insert(alarms).returning(alarms.c.id)
_STILL_OPEN = select(alarms.c.id, alarms.c.kind).where(
    alarms.c.machine_id == bindparam("machine"),
    alarms.c.cleared_at.is_(None),
    alarms.c.clip_id.is_not(None),
)


@dataclass
class _Machine:
    """A machine's row while clips are added; written back at the end."""

    id: int
    name: str
    in_service: bool
    counts: dict[str, Any]
    recent: dict[str, list[Any]]
    evidence: dict[str, Any]
    adaptation: Adaptation | None
    open_alarms: dict[str, int]  #: about clips, by kind
    learned: bool = False
    trend: dict[tuple[str, datetime], list[Any]] = field(default_factory=dict)


def add_clips(
    change: Change, rules: Rules, receivers: Receivers, new: Sequence[NewClip]
) -> list[Outcome | ConflictError]:
    """Store the clips that are not stored yet, in their order."""
    batch = _Batch(change, rules, receivers)
    outcomes = [batch.add(clip) for clip in new]
    batch.save_machines()
    return outcomes


class _Batch:
    """Clips that are added in one transaction."""

    def __init__(self, change: Change, rules: Rules, receivers: Receivers) -> None:
        self.change, self.connection = change, change.connection
        self.rules, self.receivers = rules, receivers
        self.machines: dict[str, _Machine] = {}

    def add(self, clip: NewClip) -> Outcome | ConflictError:
        """Store a clip, count it for alarms, and post messages about it."""
        if clip.machine not in self.machines:
            self.machines[clip.machine] = self._load(clip.machine)
        machine = self.machines[clip.machine]
        known = self._known(machine, clip)
        if known is not None:
            return known
        outcome = Outcome(self._insert(machine, clip))
        if machine.in_service:
            if clip.counts:
                outcome = self._count(machine, outcome.clip, clip.evidence_limit)
            self._announce(machine, outcome)
        return outcome

    def _load(self, name: str) -> _Machine:
        row = self.change.machine(name)
        still_open = self.connection.execute(_STILL_OPEN, {"machine": row.id})
        return _Machine(
            id=row.id,
            name=name,
            in_service=row.out_of_service_since is None,
            counts={key: getattr(row, key) for key in ("clips", "anomalous", "last_clip_id")},
            recent=dict(row.recent),
            evidence=dict(row.evidence),
            adaptation=adaptation_of(row),
            open_alarms={kind: number for number, kind in still_open},
        )

    def save_machines(self) -> None:
        """Write back what the clips have changed."""
        for machine in self.machines.values():
            values = {"recent": machine.recent, "evidence": machine.evidence, **machine.counts}
            if machine.learned and machine.adaptation is not None:
                values["adaptation"] = machine.adaptation.to_dict()
            self.change.update(machines, machine.id, **values)
            rows = [
                {"machine_id": machine.id, "period": period, "start": start}
                | dict(zip(_SUMS, sums, strict=True))
                for (period, start), sums in machine.trend.items()
            ]
            if rows:
                self.connection.execute(_add_trends(self.connection.dialect.name), rows)

    def _known(self, machine: _Machine, clip: NewClip) -> Outcome | ConflictError | None:
        """The outcome for a source that was processed before; None for a new recording."""
        if clip.source_key is None:
            return None
        key = {"machine": machine.id, "key": clip.source_key}
        row = self.connection.execute(_KNOWN, key).first()
        if row is None or row.clip_id is None:
            return None
        if row.audio_sha256 == clip.audio_sha256:
            if clip.stamp != row.stamp:  # the file was touched, and is the same
                source = {"machine_id": machine.id, "source_key": clip.source_key}
                source |= {"stamp": clip.stamp, "reason": None, "seen_at": clip.received_at}
                save_source(self.connection, source)
            stored = read_clips(self.connection, CLIPS.where(clips.c.id == row.clip_id))
            return Outcome(stored[0] if stored else None, known=True)
        if clip.stamp is not None:  # the file was overwritten
            return None
        return ConflictError("The key was used before, for a recording with other content.")

    def _insert(self, machine: _Machine, clip: NewClip) -> StoredClip:
        """Store a clip and its source, as judged by what was learned, and learn from it."""
        verdict = adapted_verdict(clip, machine.adaptation)
        row = {name: getattr(verdict, name) for name in VERDICT} | {
            "machine_id": machine.id,
            "changed": self.change.number,
            "time": clip.time,
            "received_at": clip.received_at,
            "recorded_at": clip.recorded_at,
            "audio_sha256": clip.audio_sha256,
            "audio_path": clip.audio_path,
            "findings": clip.findings,
        }
        number = self.connection.execute(_NEW_CLIP, row).scalar_one()
        stored = StoredClip.from_row({**row, "id": number, "machine": machine.name, "answer": None})
        if clip.source_key is not None:
            source = {"source_key": clip.source_key, "stamp": clip.stamp, "clip_id": number}
            source |= {"audio_sha256": clip.audio_sha256, "seen_at": clip.received_at}
            save_source(self.connection, {"machine_id": machine.id, "reason": None, **source})
        machine.counts["clips"] += 1
        machine.counts["anomalous"] += verdict.anomalous
        machine.counts["last_clip_id"] = number
        _sum_up(machine, stored)
        state = _adaptation(clip, machine.adaptation)
        if state is not None and verdict.state in JUDGED and (clip.adapt or state.left):
            machine.learned = True
            machine.adaptation = state.after_clip(
                number,
                verdict.score,
                verdict.domain_weights,
                anomalous=verdict.anomalous,
                alarm_is_open=FAULT in machine.open_alarms,
                at=clip.received_at,
            )
        return stored

    def _count(self, machine: _Machine, clip: StoredClip | None, limit: float | None) -> Outcome:
        """Apply the alarm rule to a clip, by kind; store what it opens, extends and clears."""
        assert clip is not None
        opened, cleared, rule = [], [], self.rules(machine.name)
        if machine.evidence.get("model") != clip.model_sha256:  # p-values of another model
            if "model" in machine.evidence:  # charts show the moment
                note = {"text": "The model or its alarm limit changed.", "by": "daco"}
                row = {"machine_id": machine.id, "at": clip.time, **note}
                self.connection.execute(insert(notes), row)
            machine.evidence = {"model": clip.model_sha256}
        kinds = {FAULT, TREND, kind_of(clip.state), *machine.open_alarms, *machine.recent} - {None}
        # A fault comes before a trend, which is of no interest then.
        for kind in sorted(kind for kind in kinds if kind and counts_for(kind, clip.state)):
            if kind == TREND:
                event = _follow_trend(rule, machine, clip)
            elif kind == FAULT and rule.adds_up and limit is not None:
                event = self._add_evidence(limit, machine, clip)
            else:
                event = _count_k_of_n(rule, machine, clip, kind)
            if isinstance(event, Opening):
                machine.open_alarms[kind] = self._open(rule, machine, clip, kind, event)
                opened.append(machine.open_alarms[kind])
            elif isinstance(event, Extension):
                values = {"last_at": clip.received_at, "n_clips": alarms.c.n_clips + 1}
                self.change.update(alarms, machine.open_alarms[kind], **values)
            elif isinstance(event, Recovery):
                cleared.append(machine.open_alarms.pop(kind))
                values = {"cleared_at": clip.received_at, "cleared_by": "recovery"}
                self.change.update(alarms, cleared[-1], **values)
        return Outcome(clip, tuple(opened), tuple(cleared))

    def _add_evidence(self, limit: float, machine: _Machine, clip: StoredClip) -> Event:
        is_open, known = FAULT in machine.open_alarms, machine.evidence.get(FAULT)
        # An alarm that another rule or model opened is as certain as one of this rule.
        before = Evidence(**known) if known else Evidence(limit if is_open else 0.0)
        after, event = add_up(limit, before, is_open, clip.id, clip.p_value)
        machine.evidence[FAULT] = asdict(after)
        machine.recent.pop(FAULT, None)
        if isinstance(event, Opening):
            judged = clips.c.machine_id == machine.id, clips.c.state.in_(JUDGED)
            last = select(clips.c.id).where(*judged).order_by(clips.c.id.desc())
            numbers = self.connection.scalars(last.limit(min(after.clips, MOST_CLIPS)))
            return Opening(clip.id, tuple(sorted(numbers)))
        return event

    def _open(
        self, rule: AlarmRule, machine: _Machine, clip: StoredClip, kind: str, event: Opening
    ) -> int:
        row = {"machine_id": machine.id, "changed": self.change.number, "kind": kind}
        row |= {"clip_id": clip.id, "clip_ids": event.contributing, "rule": str(rule)}
        row |= {"n_clips": len(event.contributing)}
        row |= {"opened_at": clip.received_at, "last_at": clip.received_at}
        if kind == TREND:
            row |= {"rule": TREND, "detail": self._since(machine)}
        return int(self.connection.execute(_NEW_ALARM, row).scalar_one())

    def _since(self, machine: _Machine) -> str:
        """When a rise began, in words."""
        own = select(clips.c.time).where(clips.c.machine_id == machine.id)
        rising = machine.evidence[TREND]["rising"]
        last = own.order_by(clips.c.id.desc()).limit(rising).subquery()
        begin = self.connection.execute(select(func.min(last.c.time))).scalar_one().astimezone()
        return f"It sounds more and more unusual since {begin.day} {begin:%B %Y}."

    def _announce(self, machine: _Machine, outcome: Outcome) -> None:
        """Post messages about a stored clip and the alarms that it opened and cleared."""
        clip = outcome.clip
        assert clip is not None
        about = {"machine": machine.name, "clip": clip.to_dict()}
        post(self.connection, self.receivers, CLIP_SCORED, clip.received_at, about)
        for number in (*outcome.opened, *outcome.cleared):
            kind = ALARM_OPENED if number in outcome.opened else ALARM_CLEARED
            (alarm,) = read_alarms(self.connection, ALARMS.where(alarms.c.id == number))
            if alarm.shelved_until is None or alarm.shelved_until < clip.received_at:
                data = {"alarm": alarm.to_dict(), **about}
                post(self.connection, self.receivers, kind, clip.received_at, data)


def _sum_up(machine: _Machine, clip: StoredClip) -> None:
    """Add a clip to the sums of its hour and day."""
    judged = clip.state in JUDGED
    hour = clip.time.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for key in (("hour", hour), ("day", hour.replace(hour=0))):
        sums = machine.trend.setdefault(key, [0, 0, 0, 0.0, None])
        sums[0] += 1
        if judged:
            sums[1] += 1
            sums[2] += clip.anomalous
            sums[3] += clip.oddness
            sums[4] = clip.oddness if sums[4] is None else max(clip.oddness, sums[4])


def _count_k_of_n(rule: AlarmRule, machine: _Machine, clip: StoredClip, kind: str) -> Event:
    recent = tuple(Decision(*each) for each in machine.recent.get(kind, ()))
    before = AlarmState(recent, kind in machine.open_alarms)
    state, event = advance(rule, before, Decision(clip.id, kind_of(clip.state) == kind))
    machine.recent[kind] = [list(each) for each in state.recent]
    if kind != FAULT and not state.is_open and not any(each for _, each in state.recent):
        del machine.recent[kind]  # nothing of this kind lately
    return event


def _follow_trend(rule: AlarmRule, machine: _Machine, clip: StoredClip) -> Event:
    if rule.never or FAULT in machine.open_alarms:
        return None
    known, is_open = machine.evidence.get(TREND), TREND in machine.open_alarms
    trend = advance_trend(Trend(**known) if known else Trend(), clip.p_value)
    if is_open:  # no more than the limit, so that the end of it is noticed
        trend = replace(trend, evidence=min(trend.evidence, TREND_LIMIT))
    machine.evidence[TREND] = asdict(trend)
    if is_open:
        return Recovery(clip.id) if trend.is_over else None
    return Opening(clip.id, ()) if trend.is_rising else None


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


def adaptation_of(machine: Any) -> Adaptation | None:
    """The adaptation in a machine's row; None where there is none."""
    return None if machine.adaptation is None else Adaptation.from_dict(machine.adaptation)


def save_source(connection: Connection, row: dict[str, Any]) -> None:
    """Insert a row of ``daco_sources``, or update the columns it has of the one that is there."""
    connection.execute(_upsert_source(connection.dialect.name, *row), row)


@cache
def _upsert_source(dialect: str, *columns: str) -> Any:
    new, keys = insert_into(dialect, sources), ("machine_id", "source_key")
    changed = {name: new.excluded[name] for name in columns if name not in keys}
    return new.on_conflict_do_update(index_elements=keys, set_=changed)


@cache
def _add_trends(dialect: str) -> Any:
    """A statement that adds the sums of an hour or a day to those that are there."""
    new = insert_into(dialect, trends)
    more, old = new.excluded, trends.c
    sums = {name: old[name] + more[name] for name in _SUMS[:-1]}
    larger = case((old.oddness_max > more.oddness_max, old.oddness_max), else_=more.oddness_max)
    sums["oddness_max"] = func.coalesce(larger, old.oddness_max)
    return new.on_conflict_do_update(index_elements=["machine_id", "period", "start"], set_=sums)
