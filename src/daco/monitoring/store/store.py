"""Store: judged clips, the alarms they raised, and the messages still to be delivered."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Self

from sqlalchemy import insert, select

from daco.detector.verdict import Verdict
from daco.monitoring.alarms import DACO, AlarmRule
from daco.monitoring.store.database import Change, open_database
from daco.monitoring.store.outbox import (
    ALARM_CLEARED,
    ALARM_OPENED,
    RECORDING_REFUSED,
    Outbox,
    Receivers,
    post,
)
from daco.monitoring.store.people import People
from daco.monitoring.store.reading import ALARMS, Reader, id_of, read_alarms
from daco.monitoring.store.records import (
    KEY,
    NAME,
    TEXT,
    ConflictError,
    NewClip,
    Outcome,
    StoreError,
    check_text,
)
from daco.monitoring.store.schema import alarms
from daco.monitoring.store.writing import Rules, adapted_verdict, add_clips, save_source

MOST_AT_ONCE = 256
"""Clips that are committed together."""

log = logging.getLogger("daco.monitoring")


@dataclass(frozen=True)
class Store(Reader):
    """A database of judged clips and alarms; safe to share between threads and processes.

    Examples
    --------
    >>> import tempfile
    >>> from daco.detector.verdict import Verdict
    >>> from daco.monitoring.store import Person
    >>> folder = tempfile.TemporaryDirectory()
    >>> rules = lambda machine: AlarmRule.parse("every")
    >>> store = Store.open(f"sqlite:///{folder.name}/daco.db", rules=rules)
    >>> verdict = Verdict(
    ...     name="a.wav", machine="press", score=3.2, p_value=0.01, oddness=2.0, anomalous=True,
    ...     threshold=2.5, domain_weights={"source": 1.0}, nearest="normal.wav",
    ...     nearest_distance=0.1, reasons=(), seconds=10.0, windows=1, worst_window=None,
    ...     model_sha256="ab12", state="anomalous",
    ... )
    >>> new = NewClip(verdict, "press", datetime(2026, 3, 1, tzinfo=UTC), source_key="a.wav")
    >>> store.add(new).opened, store.add(new).known
    ((1,), True)
    >>> [(clip.id, clip.oddness) for clip in store.clips("press")]
    [(1, 2.0)]
    >>> store.people.acknowledge(1, Person("Kim"), "loose belt").state
    'acknowledged'
    >>> store.close(); folder.cleanup()
    """

    rules: Rules
    receivers: Receivers

    @classmethod
    def open(
        cls,
        url: str,
        *,
        rules: Rules = lambda machine: AlarmRule(),
        receivers: Receivers = lambda machine, kind: (),
        create: bool = True,
    ) -> Self:
        """Open the store of a URL; an empty database gets its tables.

        Parameters
        ----------
        url : str
            ``sqlite:///daco.db`` or ``postgresql://user@host/name``.
        rules : callable
            Returns the alarm rule of a machine; 3 of 5 by default.
        receivers : callable
            Returns the names of the receivers of messages of a kind about a machine (None for
            daco as a whole); nobody by default.
        create : bool
            Whether a database that does not exist is created; otherwise it is a `StoreError`.
        """
        return cls(open_database(url, create=create), rules, receivers)

    def close(self) -> None:
        """Commit what is waiting, and close all connections."""
        if "writer" in self.__dict__:
            self.writer.close()
        self.database.engine.dispose()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @cached_property
    def writer(self) -> _Writer:
        """The thread that commits clips."""
        return _Writer(self)

    @property
    def outbox(self) -> Outbox:
        """Messages that are still to be delivered."""
        return Outbox(self.database)

    @property
    def people(self) -> People:
        """What people do about clips, alarms and machines."""
        return People(self.database)

    def check(self) -> None:
        """Raise a `StoreError` unless the database can be written now."""
        self.database.check()

    def preview(self, new: NewClip) -> Verdict:
        """Judge a clip as if it was stored now, adapted if it has a calibration."""
        return adapted_verdict(new, self.adaptations(new.machine).get(new.machine))

    def add(self, new: NewClip) -> Outcome:
        """Store one clip; returns when it is on the disk. Clips of other threads go with it."""
        return self.writer.add(new)

    def add_many(self, new: Sequence[NewClip]) -> list[Outcome | ConflictError]:
        """Store clips in one transaction: all of them or, if anything goes wrong, none.

        Alarms are opened and cleared in the same transaction, by the clips in their order.
        """
        with self.database.changing() as change:
            return add_clips(change, self.rules, self.receivers, new)

    def reject(self, machine: str, source_key: str, *, name: str, stamp: str, reason: str) -> None:
        """Remember that a source is not a usable recording while it has this stamp.

        Its last clip stays known. `name` is what messages call the recording.
        """
        check_text("source_key", source_key, KEY)
        check_text("name", name, NAME)
        reason, now = reason[:TEXT], datetime.now(UTC)
        with self.database.changing() as change:
            row = {"machine_id": change.machine(machine).id, "source_key": source_key}
            row |= {"stamp": stamp, "reason": reason, "seen_at": now}
            save_source(change.connection, row)
            about = {"machine": machine, "name": name, "reason": reason}
            post(change.connection, self.receivers, RECORDING_REFUSED, now, about)

    def raise_alarm(
        self, machine: str | None, kind: str = DACO, cause: str = "", detail: str = ""
    ) -> int:
        """Open an alarm that is not about clips, and return its id; None means daco as a whole.

        There is one open alarm of a machine, kind and cause, a short name. `detail` is the sentence
        that people read; a changed one is updated.
        """
        check_text("detail", detail, TEXT)
        query = _open_alarm(machine, kind, cause)
        known = self._rows(query)  # most often nothing is new
        if known and known[0].detail == detail:
            return int(known[0].id)
        with self.database.changing() as change:
            now = datetime.now(UTC)
            row = change.connection.execute(query).first()
            if row is not None:
                change.update(alarms, row.id, detail=detail, last_at=now)
                return int(row.id)
            whose = None if machine is None else change.machine(machine).id
            values = {"machine_id": whose, "kind": kind, "cause": cause, "rule": ""}
            values |= {"detail": detail, "opened_at": now, "last_at": now}
            new = insert(alarms).values(changed=change.number, **values).returning(alarms.c.id)
            number = int(change.connection.execute(new).scalar_one())
            self._post(change, ALARM_OPENED, number, now)
            return number

    def clear_alarm(self, machine: str | None, kind: str = DACO, cause: str = "") -> int | None:
        """Clear the open alarm of a machine, kind and cause; None where there is none."""
        query = _open_alarm(machine, kind, cause)
        if not self._rows(query):
            return None
        with self.database.changing() as change:
            row = change.connection.execute(query).first()
            if row is None:
                return None
            now = datetime.now(UTC)
            change.update(alarms, row.id, cleared_at=now, cleared_by="recovery")
            self._post(change, ALARM_CLEARED, row.id, now)
            return int(row.id)

    def return_from_shelf(self, now: datetime | None = None) -> list[int]:
        """Send a message about alarms whose time on the shelf is over and whose cause lasts."""
        now = now or datetime.now(UTC)
        over = alarms.c.cleared_at.is_(None), alarms.c.shelved_until <= now
        query = select(alarms.c.id).where(*over).order_by(alarms.c.id)
        if not self._rows(query):
            return []
        with self.database.changing() as change:
            found = list(change.connection.scalars(query))
            for number in found:
                change.update(alarms, number, shelved_until=None)
                self._post(change, ALARM_OPENED, number, now)
            return found

    def _post(self, change: Change, event: str, number: int, now: datetime) -> None:
        (alarm,) = read_alarms(change.connection, ALARMS.where(alarms.c.id == number))
        machine = None if alarm.machine is None else change.machine(alarm.machine)
        if machine is not None and machine.out_of_service_since is not None:
            return
        data = {"machine": alarm.machine, "alarm": alarm.to_dict()}
        post(change.connection, self.receivers, event, now, data)


def _open_alarm(machine: str | None, kind: str, cause: str) -> Any:
    whose = alarms.c.machine_id.is_(None)
    if machine is not None:
        whose = alarms.c.machine_id == id_of(machine)
    open_one = alarms.c.kind == kind, alarms.c.cause == cause, alarms.c.cleared_at.is_(None)
    return select(alarms.c.id, alarms.c.detail).where(whose, *open_one)


class _Writer:
    """A thread that commits the waiting clips of all others together.

    Committing many clips at once makes it affordable that nothing is answered before it is on the
    disk.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.SimpleQueue[tuple[NewClip, Future[Outcome]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def add(self, clip: NewClip) -> Outcome:
        """Commit a clip; a StoreError if it was not committed."""
        answer: Future[Outcome] = Future()
        self._queue.put((clip, answer))
        return answer.result()

    def close(self) -> None:
        """Commit what is waiting, then end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        ended = False
        while not ended:
            batch = [self._queue.get()]
            while len(batch) < MOST_AT_ONCE and not self._queue.empty():
                batch.append(self._queue.get())
            waiting = [each for each in batch if each is not None]
            ended = len(waiting) < len(batch)
            outcomes = self._commit([clip for clip, _ in waiting]) if waiting else []
            for (_, answer), outcome in zip(waiting, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(outcome)

    def _commit(self, new: Sequence[NewClip]) -> Sequence[Outcome | Exception]:
        try:
            return self._store.add_many(new)
        except StoreError as error:
            # One exception raised in many threads would mix their tracebacks.
            return [StoreError(error.reason) for _ in new]
        except Exception as error:
            if len(new) == 1:
                log.exception("A clip could not be stored.")
                return [error]
        # One of them is at fault: store the others one by one.
        return [outcome for clip in new for outcome in self._commit([clip])]
