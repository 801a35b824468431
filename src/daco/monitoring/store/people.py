"""What people do: alarms acknowledged and shelved, answers, notes, machines out of service.

Everything is written to ``daco_audit`` in the same transaction. Answers change the adaptation of
the machine, and only the last one of a clip counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, get_args

from sqlalchemy import Connection, delete, insert, select, update

from daco.detector.ranges import ANOMALOUS
from daco.errors import InputError
from daco.monitoring.adaptation import Adaptation, Answer, for_model
from daco.monitoring.alarms import FAULT
from daco.monitoring.store.database import Database, chunks
from daco.monitoring.store.reading import ALARMS, CLIPS, read_alarms, read_clips
from daco.monitoring.store.records import (
    TEXT,
    MissingRowError,
    Note,
    Person,
    StoredAlarm,
    StoredClip,
    check_text,
)
from daco.monitoring.store.schema import (
    adaptations,
    alarm_clips,
    alarms,
    answers,
    audit,
    clips,
    machines,
    notes,
)
from daco.monitoring.store.writing import machine_row, read_adaptation, save_adaptation


def record(
    connection: Connection,
    who: Person,
    action: str,
    machine: str | None = None,
    target: object = None,
    detail: str | None = None,
) -> None:
    """Write who did what into the audit table."""
    check_text("name of a person", who.name, 200)
    check_text("detail", detail or "", TEXT)
    row = {"at": datetime.now(UTC), "who": who.name, "role": who.role, "action": action}
    row |= {"machine": machine, "detail": detail or None}
    connection.execute(insert(audit), {**row, "target": None if target is None else str(target)})


@dataclass(frozen=True)
class People:
    """Records what people do; every method names who did it."""

    database: Database

    def acknowledge(self, alarm_id: int, who: Person, comment: str = "") -> StoredAlarm:
        """Record that a person has seen an alarm; its cause and state of the machine stay.

        The first acknowledgement stays; later ones return it unchanged.
        """
        with self._alarm(alarm_id) as (connection, change, alarm):
            self._acknowledge(connection, change, alarm, who, comment)
            return _alarm(connection, alarm_id)

    def _acknowledge(
        self, connection: Connection, change: int, alarm: StoredAlarm, who: Person, comment: str
    ) -> None:
        if alarm.acknowledged_at is None:
            record(connection, who, "acknowledge", alarm.machine, alarm.id, comment)
            values = {"acknowledged_at": datetime.now(UTC), "acknowledged_by": who.name}
            _set(connection, change, alarm.id, **values, comment=comment)

    def shelve(self, alarm_id: int, until: datetime, who: Person, comment: str = "") -> StoredAlarm:
        """Put an open alarm aside until a time; it comes back then if its cause lasts."""
        if until <= datetime.now(UTC):
            raise InputError("An alarm is shelved until a time in the future.")
        with self._alarm(alarm_id) as (connection, change, alarm):
            if not alarm.is_open:
                raise InputError(f"Alarm {alarm_id} has cleared and cannot be shelved.")
            detail = f"until {until:%Y-%m-%d %H:%M}. {comment}".strip()
            record(connection, who, "shelve", alarm.machine, alarm_id, detail)
            _set(connection, change, alarm_id, shelved_until=until)
            return _alarm(connection, alarm_id)

    def unshelve(self, alarm_id: int, who: Person) -> StoredAlarm:
        """Take an alarm back from the shelf."""
        with self._alarm(alarm_id) as (connection, change, alarm):
            record(connection, who, "unshelve", alarm.machine, alarm_id)
            _set(connection, change, alarm_id, shelved_until=None)
            return _alarm(connection, alarm_id)

    def clear(self, alarm_id: int, who: Person, comment: str = "") -> StoredAlarm:
        """Clear an alarm by hand; another one needs new clips. It is acknowledged as well."""
        with self._alarm(alarm_id) as (connection, change, alarm):
            self._acknowledge(connection, change, alarm, who, comment)
            if alarm.is_open:
                record(connection, who, "clear", alarm.machine, alarm_id, comment)
                now = datetime.now(UTC)
                _set(connection, change, alarm_id, cleared_at=now, cleared_by=who.name)
                if alarm.machine is not None:
                    _forget_recent(connection, change, alarm.machine, alarm.kind)
            return _alarm(connection, alarm_id)

    def answer_clip(self, clip_id: int, answer: str, who: Person, comment: str = "") -> StoredClip:
        """Record that a clip was a false alarm, or that it has a fault, heard or not."""
        with self.database.changing() as (connection, change):
            clip = _clip(connection, clip_id)
            _answer(connection, change, clip.machine, [clip_id], None, answer, who, comment)
            record(connection, who, f"answer {answer}", clip.machine, f"clip {clip_id}", comment)
            return _clip(connection, clip_id)

    def answer_alarm(
        self, alarm_id: int, answer: str, who: Person, comment: str = ""
    ) -> StoredAlarm:
        """Record what an alarm was, for all of its clips; it is acknowledged as well."""
        with self._alarm(alarm_id) as (connection, change, alarm):
            if alarm.machine is None or alarm.clip_id is None:
                raise InputError(f"Alarm {alarm_id} is not about recordings.")
            self._acknowledge(connection, change, alarm, who, comment)
            numbers = _clips_of(connection, alarm)
            _answer(connection, change, alarm.machine, numbers, alarm_id, answer, who, comment)
            record(connection, who, f"answer {answer}", alarm.machine, alarm_id, comment)
            _set(connection, change, alarm_id, answer=answer)
            return _alarm(connection, alarm_id)

    def declare_healthy(
        self, machine: str, n_clips: int, who: Person, *, model_sha256: str, rate: float
    ) -> Adaptation:
        """Take the next clips of a machine as healthy: the alarm limit follows them fast."""
        with self.database.changing() as (connection, change):
            row = machine_row(connection, machine)
            state = for_model(read_adaptation(connection, row.id), model_sha256, rate)
            after, now = row.last_clip_id or 0, datetime.now(UTC)
            state = state.declared_healthy(n_clips, who.name, after=after, at=now)
            save_adaptation(connection, row.id, state)
            record(connection, who, "declare healthy", machine, None, f"for {n_clips} recordings")
            _touch(connection, change, machine, evidence={})
            return state

    def reset(self, machine: str, who: Person) -> bool:
        """Forget the adaptation of a machine: the model alone decides again."""
        with self.database.changing() as (connection, change):
            number = machine_row(connection, machine).id
            done = connection.execute(delete(adaptations).where(adaptations.c.machine_id == number))
            record(connection, who, "reset adaptation", machine)
            _touch(connection, change, machine, evidence={})
            return bool(done.rowcount)

    def set_out_of_service(self, machine: str, out: bool, who: Person, comment: str = "") -> None:
        """Stop or resume the alarms and messages of a machine; it is judged all the same."""
        with self.database.changing() as (connection, change):
            row = machine_row(connection, machine)
            now = datetime.now(UTC)
            record(
                connection, who, "out of service" if out else "in service", machine, None, comment
            )
            values: dict[str, Any] = {"out_of_service_since": now if out else None}
            values |= {"recent": {}, "evidence": {}}
            values |= {"out_of_service_by": who.name if out else None, "changed": change}
            connection.execute(update(machines).where(machines.c.id == row.id).values(values))
            if out:
                still_open = alarms.c.machine_id == row.id, alarms.c.cleared_at.is_(None)
                ended = {"cleared_at": now, "cleared_by": "out of service", "changed": change}
                connection.execute(update(alarms).where(*still_open).values(ended))

    def add_note(self, machine: str, text: str, who: Person, *, at: datetime | None = None) -> Note:
        """Write a note about a machine at a time, such as 'bearing changed'."""
        check_text("note", text, TEXT)
        if not text.strip():
            raise InputError("A note needs some text.")
        at = at or datetime.now(UTC)
        with self.database.changing() as (connection, change):
            number = machine_row(connection, machine).id
            row = {"machine_id": number, "at": at, "text": text, "by": who.name}
            note = connection.execute(insert(notes).returning(notes.c.id), row).scalar_one()
            record(connection, who, "note", machine, f"note {note}", text)
            _touch(connection, change, machine)
            return Note(note, machine, at, text, who.name)

    def delete_clip(self, clip_id: int, who: Person) -> StoredClip:
        """Delete a clip, also from alarms; the caller deletes its recording if none else has it.

        Its source stays known, so that it is not judged again; trends keep its count.
        """
        with self.database.changing() as (connection, change):
            clip = _clip(connection, clip_id)
            row = machine_row(connection, clip.machine)
            connection.execute(delete(alarm_clips).where(alarm_clips.c.clip_id == clip_id))
            connection.execute(delete(clips).where(clips.c.id == clip_id))
            recent = {
                kind: [each for each in decisions if each[0] != clip_id]
                for kind, decisions in row.recent.items()
            }
            last = select(clips.c.id).where(clips.c.machine_id == row.id)
            last_id = connection.scalar(last.order_by(clips.c.id.desc()).limit(1))
            values = {"recent": recent, "changed": change, "last_clip_id": last_id}
            connection.execute(update(machines).where(machines.c.id == row.id).values(values))
            record(connection, who, "delete clip", clip.machine, f"clip {clip_id}", clip.name)
            return clip

    def audit(self, who: Person, action: str, detail: str = "") -> None:
        """Record something that a person did elsewhere: a test message, a backup."""
        with self.database.writing() as connection:
            record(connection, who, action, detail=detail)

    @contextmanager
    def _alarm(self, alarm_id: int) -> Iterator[tuple[Connection, int, StoredAlarm]]:
        with self.database.changing() as (connection, change):
            yield connection, change, _alarm(connection, alarm_id)


def _alarm(connection: Connection, alarm_id: int) -> StoredAlarm:
    (alarm,) = read_alarms(connection, ALARMS.where(alarms.c.id == alarm_id)) or (None,)
    if alarm is None:
        raise MissingRowError(f"There is no alarm {alarm_id}.")
    return alarm


def _clip(connection: Connection, clip_id: int) -> StoredClip:
    (clip,) = read_clips(connection, CLIPS.where(clips.c.id == clip_id)) or (None,)
    if clip is None:
        raise MissingRowError(f"There is no clip {clip_id}.")
    return clip


def _clips_of(connection: Connection, alarm: StoredAlarm) -> list[int]:
    """The clips that contributed to an alarm, and those of its state until it cleared."""
    state = ANOMALOUS if alarm.kind == FAULT else alarm.kind
    later = (
        select(clips.c.id)
        .join(machines)
        .where(
            machines.c.name == alarm.machine,
            clips.c.id > alarm.clip_id,
            clips.c.received_at <= alarm.last_at,
            clips.c.state == state,
        )
    )
    return [*alarm.clip_ids, *connection.scalars(later)]


def _set(connection: Connection, change: int, alarm_id: int, **values: Any) -> None:
    own = update(alarms).where(alarms.c.id == alarm_id)
    connection.execute(own.values(changed=change, **values))


def _touch(connection: Connection, change: int, machine: str, **values: Any) -> None:
    own = update(machines).where(machines.c.name == machine)
    connection.execute(own.values(changed=change, **values))


def _forget_recent(connection: Connection, change: int, machine: str, kind: str) -> None:
    """Clips up to here no longer count for a kind of alarm."""
    row = machine_row(connection, machine)
    recent, evidence = dict(row.recent), dict(row.evidence)
    recent.pop(kind, None)
    evidence.pop(kind, None)
    own = update(machines).where(machines.c.name == machine)
    connection.execute(own.values(recent=recent, evidence=evidence, changed=change))


def _answer(
    connection: Connection,
    change: int,
    name: str,
    numbers: Sequence[int],
    alarm_id: int | None,
    answer: str,
    who: Person,
    comment: str,
) -> None:
    """Record an answer for clips of a machine, and learn from it."""
    if answer not in get_args(Answer):
        raise InputError(f"An answer is 'false alarm' or 'fault'. Got {answer!r} instead.")
    check_text("comment", comment, TEXT)
    machine = machine_row(connection, name).id
    state = read_adaptation(connection, machine)
    for some in chunks(numbers):
        mine = clips.c.id.in_(some)
        found = read_clips(connection, CLIPS.where(mine))
        row = {"machine_id": machine, "alarm_id": alarm_id, "answer": answer, "comment": comment}
        row |= {"answered_by": who.name, "answered_at": datetime.now(UTC)}
        if found:
            connection.execute(insert(answers), [{**row, "clip_id": clip.id} for clip in found])
        connection.execute(update(clips).where(mine).values(answer=answer, changed=change))
        for clip in found:
            if state and state.model_sha256 == clip.model_sha256 and clip.answer != answer:
                weights, anomalous = clip.domain_weights, clip.anomalous
                state = state.after_answer(answer, clip.id, weights, anomalous=anomalous)
    if state is not None:
        save_adaptation(connection, machine, state)
