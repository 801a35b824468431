"""Messages to deliver, one row per receiver, written in the transaction of what they are about."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, func, insert, or_, select, update

from daco.monitoring.store.database import Database
from daco.monitoring.store.records import MissingRowError, iso
from daco.monitoring.store.schema import outbox

ALARM_OPENED = "alarm.opened"  # and again when an alarm comes back from the shelf
ALARM_CLEARED = "alarm.cleared"
CLIP_SCORED = "clip.scored"
RECORDING_REFUSED = "recording.refused"
"""Kinds of messages."""

LONGEST_WAIT = timedelta(hours=24)
"""Longest wait for the next attempt; a later due time means that the clock was set back."""

_PRIORITY = {ALARM_OPENED: 0, ALARM_CLEARED: 1}
_LONGEST_ERROR = 500

Receivers = Callable[[str | None, str], Sequence[str]]
"""The receivers of messages of a kind about a machine, or about daco as a whole."""


@dataclass(frozen=True)
class Delivery:
    """A message for a receiver; `key` is the same at every attempt."""

    id: int
    key: str
    receiver: str
    kind: str
    body: dict[str, Any]
    created_at: datetime
    attempts: int
    last_error: str | None = None
    refused_at: datetime | None = None

    @property
    def machine(self) -> str | None:
        """The machine that it is about; None for daco as a whole."""
        return self.body["data"].get("machine")

    @property
    def alarm(self) -> dict[str, Any]:
        """The alarm that it is about, as `StoredAlarm.to_dict` made it; empty without one."""
        return self.body["data"].get("alarm") or {}


def post(
    connection: Connection,
    receivers: Receivers,
    kind: str,
    at: datetime,
    data: dict[str, Any],
) -> None:
    """Put a message about ``data["machine"]`` into the outbox, once per receiver."""
    rows = [
        {
            "key": uuid.uuid4().hex,
            "receiver": name,
            "kind": kind,
            "priority": _PRIORITY.get(kind, 2),
            "body": {"type": kind, "timestamp": iso(at), "data": data},
            "created_at": at,
            "due_at": at,
        }
        for name in dict.fromkeys(receivers(data["machine"], kind))
    ]
    if rows:
        connection.execute(insert(outbox), rows)


@dataclass(frozen=True)
class Outbox:
    """Messages to deliver, kept until they were delivered, refused ones until they are discarded.

    Delivery is at least once: a message that was taken and neither delivered nor failed within
    its time (a kill, a power cut) is due again, with the same key.
    """

    database: Database

    def take(self, receiver: str, hold: float, now: datetime | None = None) -> Delivery | None:
        """Take the next message of a receiver for `hold` seconds: alarms first, then the oldest."""
        now = now or datetime.now(UTC)
        due = or_(outbox.c.due_at <= now, outbox.c.due_at > now + LONGEST_WAIT)
        mine = outbox.c.receiver == receiver, outbox.c.refused_at.is_(None), due
        query = select(outbox).where(*mine).order_by(outbox.c.priority, outbox.c.id).limit(1)
        with self.database.reading() as connection:
            if connection.execute(query).first() is None:  # most often: no writer waits then
                return None
        with self.database.writing() as connection:
            row = connection.execute(query.with_for_update(skip_locked=True)).mappings().first()
            if row is None:
                return None
            values = {"attempts": row["attempts"] + 1, "due_at": now + _wait(hold)}
            connection.execute(update(outbox).where(outbox.c.id == row["id"]).values(values))
        return _delivery({**row, **values})

    def retry(
        self, delivery: Delivery, reason: str, wait: float, now: datetime | None = None
    ) -> None:
        """Put a message back, with the reason; it is due again after `wait` seconds."""
        due = (now or datetime.now(UTC)) + _wait(wait)
        self._update(delivery.id, due_at=due, last_error=reason[:_LONGEST_ERROR])

    def refuse(self, delivery: Delivery, reason: str) -> None:
        """Set a message aside that its receiver will never take; it blocks no other."""
        reason, now = reason[:_LONGEST_ERROR], datetime.now(UTC)
        self._update(delivery.id, refused_at=now, last_error=reason)

    def hurry(self, receiver: str) -> None:
        """Make all waiting messages of a receiver due now: it answers again."""
        mine = update(outbox).where(outbox.c.receiver == receiver, outbox.c.attempts > 0)
        with self.database.writing() as connection:
            connection.execute(mine.values(due_at=datetime.now(UTC)))

    def resend(self, message: int) -> None:
        """Try a message that was set aside again, now."""
        if not self._update(message, refused_at=None, due_at=datetime.now(UTC)):
            raise MissingRowError(f"There is no message {message}.")

    def discard(self, message: int) -> None:
        """Remove a message: it was delivered, or nobody wants it."""
        with self.database.writing() as connection:
            connection.execute(delete(outbox).where(outbox.c.id == message))

    def pending(self, *, refused: bool = False) -> dict[str, int]:
        """Count the messages that are still to be delivered, or were refused, by receiver."""
        own = outbox.c.refused_at.is_not(None) if refused else outbox.c.refused_at.is_(None)
        query = select(outbox.c.receiver, func.count()).where(own)
        with self.database.reading() as connection:
            rows = connection.execute(query.group_by(outbox.c.receiver))
            return {row[0]: row[1] for row in rows}

    def untold(self, receiver: str) -> set[int]:
        """The alarms whose opening a receiver has not been told yet."""
        query = select(outbox.c.body).where(
            outbox.c.receiver == receiver, outbox.c.kind == ALARM_OPENED
        )
        with self.database.reading() as connection:
            return {body["data"]["alarm"]["id"] for body in connection.scalars(query)}

    def refused(self, limit: int = 100) -> list[Delivery]:
        """The messages that were set aside, the newest first."""
        query = select(outbox).where(outbox.c.refused_at.is_not(None))
        with self.database.reading() as connection:
            rows = connection.execute(query.order_by(outbox.c.id.desc()).limit(limit)).mappings()
            return [_delivery(row) for row in rows]

    def forget_receivers(self, known: Sequence[str]) -> None:
        """Remove messages of receivers that are configured no more.

        Those of the last day stay: another process may have other receivers.
        """
        oldest = datetime.now(UTC) - timedelta(days=1)
        gone = outbox.c.receiver.not_in(list(known)), outbox.c.created_at < oldest
        with self.database.writing() as connection:
            connection.execute(delete(outbox).where(*gone))

    def _update(self, message: int, **values: Any) -> int:
        with self.database.writing() as connection:
            done = connection.execute(update(outbox).where(outbox.c.id == message).values(values))
            return int(done.rowcount)


def _delivery(row: Any) -> Delivery:
    return Delivery(**{name: row[name] for name in Delivery.__dataclass_fields__})


def _wait(seconds: float) -> timedelta:
    """Seconds as a time within bounds; whoever asks for a wait may ask for anything."""
    return timedelta(seconds=min(max(0.0, seconds), LONGEST_WAIT.total_seconds()))
