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
from daco.monitoring.store.database import Change, Database, chunks
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
from daco.monitoring.store.schema import alarms, audit, clips, machines, notes
from daco.monitoring.store.writing import adaptation_of


@dataclass(frozen=True)
class People:
    """Records what people do; every method names who did it."""

    database: Database

    def acknowledge(self, alarm_id: int, who: Person, comment: str = "") -> StoredAlarm:
        """Record that a person has seen an alarm; its cause and state of the machine stay.

        The first acknowledgement stays; later ones return it unchanged.
        """
        with self._alarm(alarm_id) as (change, alarm):
            _acknowledge(change, alarm, who, comment)
            return _read_alarm(change, alarm_id)

    def shelve(self, alarm_id: int, until: datetime, who: Person, comment: str = "") -> StoredAlarm:
        """Put an open alarm aside until a time; it comes back then if its cause lasts."""
        check_text("comment", comment, TEXT)
        if until <= datetime.now(UTC):
            raise InputError("An alarm is shelved until a time in the future.")
        with self._alarm(alarm_id) as (change, alarm):
            if not alarm.is_open:
                raise InputError(f"Alarm {alarm_id} has cleared and cannot be shelved.")
            detail = f"until {until:%Y-%m-%d %H:%M}. {comment}".strip()
            _record(change.connection, who, "shelve", alarm.machine, alarm_id, detail[:TEXT])
            change.update(alarms, alarm_id, shelved_until=until)
            return _read_alarm(change, alarm_id)

    def unshelve(self, alarm_id: int, who: Person) -> StoredAlarm:
        """Take an alarm back from the shelf."""
        with self._alarm(alarm_id) as (change, alarm):
            _record(change.connection, who, "unshelve", alarm.machine, alarm_id)
            change.update(alarms, alarm_id, shelved_until=None)
            return _read_alarm(change, alarm_id)

    def clear(self, alarm_id: int, who: Person, comment: str = "") -> StoredAlarm:
        """Clear an alarm by hand; another one needs new clips. It is acknowledged as well."""
        with self._alarm(alarm_id) as (change, alarm):
            _acknowledge(change, alarm, who, comment)
            if alarm.is_open:
                _record(change.connection, who, "clear", alarm.machine, alarm_id, comment)
                now = datetime.now(UTC)
                change.update(alarms, alarm_id, cleared_at=now, cleared_by=who.name)
                if alarm.machine is not None:  # clips up to here count no longer
                    row = change.machine(alarm.machine)
                    recent, evidence = dict(row.recent), dict(row.evidence)
                    recent.pop(alarm.kind, None)
                    evidence.pop(alarm.kind, None)
                    change.update(machines, row.id, recent=recent, evidence=evidence)
            return _read_alarm(change, alarm_id)

    def answer_clip(self, clip_id: int, answer: str, who: Person, comment: str = "") -> StoredClip:
        """Record that a clip was a false alarm, or that it has a fault, heard or not."""
        with self.database.changing() as change:
            clip = _read_clip(change, clip_id)
            _answer(change, clip.machine, [clip_id], answer)
            about = clip.machine, f"clip {clip_id}", comment
            _record(change.connection, who, f"answer {answer}", *about)
            return _read_clip(change, clip_id)

    def answer_alarm(
        self, alarm_id: int, answer: str, who: Person, comment: str = ""
    ) -> StoredAlarm:
        """Record what an alarm was, for all of its clips; it is acknowledged as well."""
        with self._alarm(alarm_id) as (change, alarm):
            if alarm.machine is None or alarm.clip_id is None:
                raise InputError(f"Alarm {alarm_id} is not about recordings.")
            _acknowledge(change, alarm, who, comment)
            _answer(change, alarm.machine, _clips_of(change.connection, alarm), answer)
            about = alarm.machine, alarm_id, comment
            _record(change.connection, who, f"answer {answer}", *about)
            change.update(alarms, alarm_id, answer=answer)
            return _read_alarm(change, alarm_id)

    def declare_healthy(
        self, machine: str, n_clips: int, who: Person, *, model_sha256: str, rate: float
    ) -> Adaptation:
        """Take the next clips of a machine as healthy: the alarm limit follows them fast."""
        with self.database.changing() as change:
            row = change.machine(machine)
            state = for_model(adaptation_of(row), model_sha256, rate)
            after, now = row.last_clip_id or 0, datetime.now(UTC)
            state = state.declared_healthy(n_clips, who.name, after=after, at=now)
            detail = f"for {n_clips} recordings"
            _record(change.connection, who, "declare healthy", machine, None, detail)
            change.update(machines, row.id, adaptation=state.to_dict(), evidence={})
            return state

    def reset(self, machine: str, who: Person) -> bool:
        """Forget the adaptation of a machine: the model alone decides again."""
        with self.database.changing() as change:
            row = change.machine(machine)
            _record(change.connection, who, "reset adaptation", machine)
            change.update(machines, row.id, adaptation=None, evidence={})
            return row.adaptation is not None

    def set_out_of_service(self, machine: str, out: bool, who: Person, comment: str = "") -> None:
        """Stop or resume the alarms and messages of a machine; it is judged all the same."""
        with self.database.changing() as change:
            row, now = change.machine(machine), datetime.now(UTC)
            action = "out of service" if out else "in service"
            _record(change.connection, who, action, machine, None, comment)
            values: dict[str, Any] = {"recent": {}, "evidence": {}}
            values["out_of_service_since"] = now if out else None
            values["out_of_service_by"] = who.name if out else None
            change.update(machines, row.id, **values)
            if out:
                still_open = alarms.c.machine_id == row.id, alarms.c.cleared_at.is_(None)
                ended = {"cleared_at": now, "cleared_by": "out of service"}
                ended |= {"changed": change.number}
                change.connection.execute(update(alarms).where(*still_open).values(ended))

    def add_note(self, machine: str, text: str, who: Person, *, at: datetime | None = None) -> Note:
        """Write a note about a machine at a time, such as 'bearing changed'."""
        check_text("note", text, TEXT)
        if not text.strip():
            raise InputError("A note needs some text.")
        at = at or datetime.now(UTC)
        with self.database.changing() as change:
            number = change.machine(machine).id
            row = {"machine_id": number, "at": at, "text": text, "by": who.name}
            note = change.connection.execute(insert(notes).returning(notes.c.id), row).scalar_one()
            _record(change.connection, who, "note", machine, f"note {note}", text)
            change.update(machines, number)
            return Note(note, machine, at, text, who.name)

    def delete_clip(self, clip_id: int, who: Person) -> StoredClip:
        """Delete a clip, also from alarms; the caller deletes its recording if none else has it.

        Its source stays known, so that it is not judged again; trends keep its count.
        """
        with self.database.changing() as change:
            clip = _read_clip(change, clip_id)
            row = change.machine(clip.machine)
            change.connection.execute(delete(clips).where(clips.c.id == clip_id))
            later = alarms.c.machine_id == row.id, alarms.c.clip_id >= clip_id
            for alarm in read_alarms(change.connection, ALARMS.where(*later)):
                if clip_id in alarm.clip_ids:
                    kept = [each for each in alarm.clip_ids if each != clip_id]
                    change.update(alarms, alarm.id, clip_ids=kept)
            recent = {
                kind: [each for each in decisions if each[0] != clip_id]
                for kind, decisions in row.recent.items()
            }
            last = select(clips.c.id).where(clips.c.machine_id == row.id)
            last_id = change.connection.scalar(last.order_by(clips.c.id.desc()).limit(1))
            change.update(machines, row.id, recent=recent, last_clip_id=last_id)
            about = clip.machine, f"clip {clip_id}", clip.name[:TEXT]
            _record(change.connection, who, "delete clip", *about)
            return clip

    def audit(self, who: Person, action: str, detail: str = "") -> None:
        """Record something that a person did elsewhere: a test message, a backup."""
        with self.database.writing() as connection:
            _record(connection, who, action, detail=detail)

    @contextmanager
    def _alarm(self, alarm_id: int) -> Iterator[tuple[Change, StoredAlarm]]:
        with self.database.changing() as change:
            yield change, _read_alarm(change, alarm_id)


def _record(
    connection: Connection,
    who: Person,
    action: str,
    machine: str | None = None,
    target: object = None,
    detail: str = "",
) -> None:
    """Write who did what into the audit table; the target of an action is an alarm by default."""
    check_text("name of a person", who.name, 200)
    check_text("comment", detail, TEXT)
    row: dict[str, Any] = {"at": datetime.now(UTC), "who": who.name, "role": who.role}
    row |= {"action": action, "machine": machine, "detail": detail or None}
    row["target"] = f"alarm {target}" if isinstance(target, int) else target
    connection.execute(insert(audit), row)


def _acknowledge(change: Change, alarm: StoredAlarm, who: Person, comment: str) -> None:
    if alarm.acknowledged_at is None:
        _record(change.connection, who, "acknowledge", alarm.machine, alarm.id, comment)
        values = {"acknowledged_at": datetime.now(UTC), "acknowledged_by": who.name}
        change.update(alarms, alarm.id, **values, comment=comment)


def _read_alarm(change: Change, alarm_id: int) -> StoredAlarm:
    found = read_alarms(change.connection, ALARMS.where(alarms.c.id == alarm_id))
    if not found:
        raise MissingRowError(f"There is no alarm {alarm_id}.")
    return found[0]


def _read_clip(change: Change, clip_id: int) -> StoredClip:
    found = read_clips(change.connection, CLIPS.where(clips.c.id == clip_id))
    if not found:
        raise MissingRowError(f"There is no clip {clip_id}.")
    return found[0]


def _clips_of(connection: Connection, alarm: StoredAlarm) -> list[int]:
    """The clips that contributed to an alarm, and those of its state until it cleared."""
    of_state = clips.c.state == (ANOMALOUS if alarm.kind == FAULT else alarm.kind)
    later = clips.c.id > alarm.clip_id, clips.c.received_at <= alarm.last_at, of_state
    query = select(clips.c.id).join(machines).where(machines.c.name == alarm.machine, *later)
    return [*alarm.clip_ids, *connection.scalars(query)]


def _answer(change: Change, machine: str, numbers: Sequence[int], answer: str) -> None:
    """Write an answer to clips of a machine, and learn from it."""
    if answer not in get_args(Answer):
        raise InputError(f"An answer is 'false alarm' or 'fault'. Got {answer!r} instead.")
    row = change.machine(machine)
    state = adaptation_of(row)
    for some in chunks(numbers):
        mine = clips.c.id.in_(some)
        found = read_clips(change.connection, CLIPS.where(mine))
        answered = update(clips).where(mine).values(answer=answer, changed=change.number)
        change.connection.execute(answered)
        for clip in found:
            if state and state.model_sha256 == clip.model_sha256 and clip.answer != answer:
                weights, anomalous = clip.domain_weights, clip.anomalous
                state = state.after_answer(answer, clip.id, weights, anomalous=anomalous)
    if state is not None:
        change.update(machines, row.id, adaptation=state.to_dict())
