"""What people say: who takes care of an alarm, what it was, and that a machine is healthy.

Answers change the machine's adaptation in the same transaction, and only the last one of a clip
counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, get_args

from sqlalchemy import Connection, Select, delete, func, insert, select, update

from daco.errors import InputError
from daco.monitoring.adaptation import Adaptation, Answer, for_model
from daco.monitoring.feedback import Rates
from daco.monitoring.store.database import Database
from daco.monitoring.store.records import (
    ALARMS,
    CLIPS,
    TEXT,
    MissingRowError,
    StoredAlarm,
    StoredClip,
    check_text,
    read_alarms,
    read_clips,
)
from daco.monitoring.store.schema import adaptations, alarms, answers, clips, machines
from daco.monitoring.store.writing import lock_machine, read_adaptation, save_adaptation

MOST_RATED = 10_000
"""The last clips of a machine among which rates are counted."""


@dataclass(frozen=True)
class StoredAnswer:
    """An answer of a person."""

    clip_id: int
    alarm_id: int | None
    answer: str
    answered_by: str
    comment: str
    answered_at: datetime

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}


@dataclass(frozen=True)
class People:
    """Records what people say about the clips and alarms of a store.

    Examples
    --------
    >>> import tempfile
    >>> from daco.monitoring.store import Store
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store.open(f"sqlite:///{folder.name}/daco.db")
    >>> state = store.people.declare_healthy("press", 100, "Kim", model_sha256="ab12", rate=0.1)
    >>> store.people.adaptation("press").left
    100
    >>> store.people.reset("press"), store.people.adaptation("press")
    (True, None)
    >>> store.close(); folder.cleanup()
    """

    database: Database

    def answer_clip(
        self, clip_id: int, answer: str, by: str, comment: str = "", *, at: datetime | None = None
    ) -> StoredClip:
        """Record that a clip was a false alarm, or that it has a fault, heard or not."""
        at = at or datetime.now(UTC)
        with self.database.writing() as connection:
            (clip,) = read_clips(connection, CLIPS.where(clips.c.id == clip_id)) or (None,)
            if clip is None:
                raise MissingRowError(f"There is no clip {clip_id}.")
            row = {"answer": answer, "answered_by": by, "comment": comment, "answered_at": at}
            return _answer(connection, clip.machine, [clip_id], row)[0]

    def answer_alarm(
        self, alarm_id: int, answer: str, by: str, comment: str = "", *, at: datetime | None = None
    ) -> StoredAlarm:
        """Record what an alarm was, for all of its clips; it is acknowledged as well."""
        at = at or datetime.now(UTC)
        with self.database.writing() as connection:
            alarm = acknowledge(connection, alarm_id, by, comment, at)
            row = {"answer": answer, "answered_by": by, "comment": comment, "answered_at": at}
            _answer(connection, alarm.machine, alarm.clip_ids, {**row, "alarm_id": alarm_id})
            connection.execute(update(alarms).where(alarms.c.id == alarm_id).values(answer=answer))
            return replace(alarm, answer=answer)

    def answers(self, machine: str | None = None, limit: int = 100) -> list[StoredAnswer]:
        """The last answers, of one machine or of all, the newest first."""
        query = select(*(answers.c[each.name] for each in fields(StoredAnswer))).join(machines)
        if machine is not None:
            query = query.where(machines.c.name == machine)
        with self.database.reading() as connection:
            rows = connection.execute(query.order_by(answers.c.id.desc()).limit(limit))
            return [StoredAnswer(*row) for row in rows]

    def false_alarms(self, machine: str) -> list[StoredClip]:
        """The clips of a machine that were answered to be false alarms, oldest first."""
        query = CLIPS.where(machines.c.name == machine, clips.c.answer == "false alarm")
        with self.database.reading() as connection:
            return read_clips(connection, query.order_by(clips.c.id))

    def rates(self, machine: str, model_sha256: str) -> Rates:
        """The realised rates of one model, by the answers to the machine's last clips."""
        last = (
            select(clips.c.state, clips.c.answer, clips.c.model_sha256)
            .join(machines)
            .where(machines.c.name == machine)
            .order_by(clips.c.id.desc())
            .limit(MOST_RATED)
            .subquery()
        )
        query: Select[Any] = select(last.c.state, last.c.answer, func.count())
        query = query.where(last.c.model_sha256 == model_sha256)
        with self.database.reading() as connection:
            rows = connection.execute(query.group_by(last.c.state, last.c.answer))
            return Rates.from_counts({(state, answer): n for state, answer, n in rows})

    def adaptations(self, *names: str) -> dict[str, Adaptation]:
        """What was learned about these machines, or about all, by their names."""
        query = select(machines.c.name, adaptations.c.state).join_from(adaptations, machines)
        query = query.where(machines.c.name.in_(names)) if names else query
        with self.database.reading() as connection:
            return {name: Adaptation.from_dict(state) for name, state in connection.execute(query)}

    def adaptation(self, machine: str) -> Adaptation | None:
        """What was learned about a machine; None where nothing was."""
        return self.adaptations(machine).get(machine)

    def declare_healthy(
        self, machine: str, clips: int, by: str, *, model_sha256: str, rate: float
    ) -> Adaptation:
        """Take the next clips of a machine as healthy: the threshold follows them fast."""
        check_text("name of who declares the machine healthy", by, 200)
        with self.database.writing() as connection:
            row = lock_machine(connection, machine)
            state = for_model(read_adaptation(connection, row.id), model_sha256, rate)
            after, now = row.last_clip_id or 0, datetime.now(UTC)
            state = state.declared_healthy(clips, by, after=after, at=now)
            save_adaptation(connection, row.id, state)
            return state

    def reset(self, machine: str) -> bool:
        """Forget the adaptation of a machine: the model alone decides again."""
        with self.database.writing() as connection:
            number = lock_machine(connection, machine).id
            done = connection.execute(delete(adaptations).where(adaptations.c.machine_id == number))
            return bool(done.rowcount)


def _answer(
    connection: Connection, name: str, numbers: Sequence[int], row: dict[str, Any]
) -> list[StoredClip]:
    """Record an answer, a row of ``daco_answers``, for clips of a machine."""
    answer = row["answer"]
    if answer not in get_args(Answer):
        raise InputError(f"An answer is 'false alarm' or 'fault'. Got {answer!r} instead.")
    check_text("name of who answers", row["answered_by"], 200)
    check_text("comment", row["comment"], TEXT)
    machine = lock_machine(connection, name).id
    state = read_adaptation(connection, machine)
    mine = clips.c.id.in_(numbers)
    found = read_clips(connection, CLIPS.where(mine))
    rows = [{"alarm_id": None, **row, "machine_id": machine, "clip_id": each} for each in numbers]
    connection.execute(insert(answers), rows)
    connection.execute(update(clips).where(mine).values(answer=answer))
    if state is not None:
        for clip in found:
            if state.model_sha256 == clip.model_sha256 and clip.answer != answer:
                weights, anomalous = clip.domain_weights, clip.alarm
                state = state.after_answer(answer, clip.id, weights, anomalous=anomalous)
        save_adaptation(connection, machine, state)
    return [replace(clip, answer=answer) for clip in found]


def acknowledge(
    connection: Connection, alarm_id: int, who: str, comment: str, at: datetime
) -> StoredAlarm:
    """Record that a person takes care of an alarm; it is closed if it is open.

    The first acknowledgement stays; later ones return it unchanged.
    """
    check_text("name of who acknowledges", who, 200)
    check_text("comment", comment, TEXT)
    this = alarms.c.id == alarm_id
    (alarm,) = read_alarms(connection, ALARMS.where(this)) or (None,)
    if alarm is not None:
        machine = lock_machine(connection, alarm.machine)
        # Again, now that nobody else can write.
        (alarm,) = read_alarms(connection, ALARMS.where(this)) or (None,)
    if alarm is None:
        raise MissingRowError(f"There is no alarm {alarm_id}.")
    if alarm.acknowledged_at is not None:
        return alarm
    changes = {"acknowledged_at": at, "acknowledged_by": who, "comment": comment}
    if alarm.is_open:
        changes |= {"closed_at": at, "closed_by": "acknowledgement"}
        # Clips up to here no longer count: a new alarm needs new clips.
        after = {**machine.counted_by_kind, alarm.kind: machine.last_clip_id}
        own = update(machines).where(machines.c.id == machine.id)
        connection.execute(own.values(counted_by_kind=after))
    connection.execute(update(alarms).where(this).values(changes))
    return read_alarms(connection, ALARMS.where(this))[0]
