"""Messages to deliver about clips and alarms, written in the transaction of what they are about."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, func, insert, or_, select, update

from daco.monitoring.store.database import Database
from daco.monitoring.store.records import iso
from daco.monitoring.store.schema import machines, outbox

CLIP_SCORED = "clip.scored"
ALARM_OPENED = "alarm.opened"
ALARM_RECOVERED = "alarm.recovered"
RECORDING_UNREADABLE = "recording.unreadable"
EVENTS = (CLIP_SCORED, ALARM_OPENED, ALARM_RECOVERED, RECORDING_UNREADABLE)
"""Kinds of messages that a store can put into its outbox."""

LONGEST_WAIT = timedelta(hours=1)
"""Longest wait for the next attempt; a later due time means that the clock was set back."""

_LONGEST_ERROR = 500


def post(
    connection: Connection, machine: int, messages: Collection[tuple[str, datetime, dict[str, Any]]]
) -> None:
    """Put messages into the outbox, in the transaction of the clips they are about."""
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


@dataclass(frozen=True)
class Delivery:
    """A message that was taken: its key, its body, and the number of this attempt."""

    id: int
    key: str
    kind: str
    body: str
    attempt: int


@dataclass(frozen=True)
class Outbox:
    """Messages to deliver, those of one machine or of all, kept until they were delivered.

    Delivery is at least once: a message that was taken and neither delivered nor failed within
    its time (a kill, a power cut) is due again, with the same key.
    """

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
        """Take the oldest message that is due, for `hold` seconds; None when nothing is due."""
        now = now or datetime.now(UTC)
        due = or_(outbox.c.due_at <= now, outbox.c.due_at > now + LONGEST_WAIT)
        query = self._mine(select(outbox)).where(due).order_by(outbox.c.id).limit(1)
        with self.database.reading() as connection:
            if connection.execute(query).first() is None:  # most often: no writer waits then
                return None
        with self.database.writing() as connection:
            row = connection.execute(query.with_for_update(skip_locked=True, of=outbox)).first()
            if row is None:
                return None
            values = {"attempts": row.attempts + 1, "due_at": now + timedelta(seconds=hold)}
            connection.execute(update(outbox).where(outbox.c.id == row.id).values(values))
        return Delivery(row.id, row.key, row.kind, row.body, row.attempts + 1)

    def mark_delivered(self, delivery: Delivery, now: datetime | None = None) -> None:
        """Mark a message as delivered."""
        self._update(delivery, delivered_at=now or datetime.now(UTC), last_error=None)

    def put_back(
        self, delivery: Delivery, reason: str, wait: float, now: datetime | None = None
    ) -> None:
        """Put a message back, with the reason; it is due again after `wait` seconds."""
        due = (now or datetime.now(UTC)) + min(timedelta(seconds=wait), LONGEST_WAIT)
        self._update(delivery, due_at=due, last_error=reason[:_LONGEST_ERROR])

    def _update(self, delivery: Delivery, **values: Any) -> None:
        with self.database.writing() as connection:
            connection.execute(update(outbox).where(outbox.c.id == delivery.id).values(values))

    def _mine(self, query: Any) -> Any:
        query = query.where(outbox.c.delivered_at.is_(None))
        if self.machine is None:
            return query
        mine = select(machines.c.id).where(machines.c.name == self.machine)
        return query.where(outbox.c.machine_id == mine.scalar_subquery())
