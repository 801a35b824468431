"""Messages for others, written with what they are about and kept until they were delivered.

Delivery is at least once: who takes a message holds it for a while, and when nothing was heard
by then (a kill, a power cut) it is due again. Its key stays the same, so that a receiver can
tell the second copy.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, or_, select, update

from daco.monitoring.store.engine import Database
from daco.monitoring.store.records import iso
from daco.monitoring.store.schema import machines, outbox

CLIP_SCORED = "clip.scored"
ALARM_OPENED = "alarm.opened"
ALARM_RECOVERED = "alarm.recovered"
RECORDING_UNREADABLE = "recording.unreadable"
EVENTS = (CLIP_SCORED, ALARM_OPENED, ALARM_RECOVERED, RECORDING_UNREADABLE)
"""What a store can put into its outbox."""

LONGEST_WAIT = timedelta(hours=1)
"""No message waits longer for its next attempt; a due time beyond it is a clock set back."""

_ERROR = 500  # characters of a reason that are kept


@dataclass(frozen=True)
class Delivery:
    """A message that was taken: its key, its body as it is to be sent, and which attempt it is."""

    id: int
    key: str
    kind: str
    body: str
    attempt: int


@dataclass(frozen=True)
class Outbox:
    """The messages of a store, those of one machine or of all."""

    database: Database
    machine: str | None = None

    def of(self, machine: str) -> Outbox:
        """The messages of one machine only."""
        return Outbox(self.database, machine)

    def pending(self) -> int:
        """How many are still to be delivered."""
        query = self._mine(select(func.count()).select_from(outbox))
        with self.database.reading() as connection:
            return int(connection.execute(query).scalar_one())

    def take(self, hold: float, now: datetime | None = None) -> Delivery | None:
        """The oldest message that is due, ours for `hold` seconds; None when nothing is due."""
        now = now or datetime.now(UTC)
        query = self._mine(select(outbox)).where(
            or_(outbox.c.due_at <= now, outbox.c.due_at > now + LONGEST_WAIT)
        )
        query = query.order_by(outbox.c.id).limit(1)
        with self.database.reading() as connection:
            if connection.execute(query).first() is None:  # most often: then nobody is kept waiting
                return None
        with self.database.writing() as connection:
            locked = query.with_for_update(skip_locked=True, of=outbox)
            row = connection.execute(locked).first()
            if row is None:
                return None
            _update(connection, row.id, attempts=row.attempts + 1, due_at=now + _seconds(hold))
        return Delivery(row.id, row.key, row.kind, row.body, row.attempts + 1)

    def delivered(self, delivery: Delivery, now: datetime | None = None) -> None:
        """Mark a message as received by the other side."""
        with self.database.writing() as connection:
            _update(connection, delivery.id, delivered_at=now or datetime.now(UTC), last_error=None)

    def failed(
        self, delivery: Delivery, reason: str, wait: float, now: datetime | None = None
    ) -> None:
        """Put a message back, with the reason; it is due again after `wait` seconds."""
        due = (now or datetime.now(UTC)) + min(_seconds(wait), LONGEST_WAIT)
        with self.database.writing() as connection:
            _update(connection, delivery.id, due_at=due, last_error=reason[:_ERROR])

    def _mine(self, query: Any) -> Any:
        query = query.where(outbox.c.delivered_at.is_(None))
        if self.machine is None:
            return query
        mine = select(machines.c.id).where(machines.c.name == self.machine).scalar_subquery()
        return query.where(outbox.c.machine_id == mine)


def post(
    connection: Connection, machine: int, messages: Collection[tuple[str, datetime, dict[str, Any]]]
) -> None:
    """Put messages into the outbox, as part of the transaction that they are about."""
    rows = [
        {
            "machine_id": machine,
            "key": uuid.uuid4().hex,
            "kind": kind,
            "body": json.dumps({"type": kind, "timestamp": iso(at), "data": about}),
            "created_at": at,
            "due_at": at,
        }
        for kind, at, about in messages
    ]
    if rows:
        connection.execute(insert(outbox), rows)


def _update(connection: Connection, message: int, **values: Any) -> None:
    connection.execute(update(outbox).where(outbox.c.id == message).values(values))


def _seconds(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)
