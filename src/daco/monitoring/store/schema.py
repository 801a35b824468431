"""The tables: machines, their clips and alarms, what was dealt with, and what is to be delivered.

Ids grow in the order of arrival within a machine, and pages are cut by them: a clock that was
set back reorders nothing. Every name starts with ``daco_``, so that a PostgreSQL database may
be shared with others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Identity,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    TypeDecorator,
)

from daco.errors import InputError

metadata = MetaData()


class UTCDateTime(TypeDecorator[datetime]):
    """An instant: aware in Python, stored in UTC, refused where no zone is known."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To UTC, which is also what SQLite, that knows no zones, is given."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise InputError(f"A time without its zone cannot be stored. Got {value!r}.")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Back as an aware time in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _big() -> Any:
    # SQLite counts rows by INTEGER PRIMARY KEY only; both hold 64 bits.
    return BigInteger().with_variant(Integer, "sqlite")


def _id() -> Column[int]:
    return Column("id", _big(), Identity(), primary_key=True)


def _machine() -> Column[int]:
    return Column("machine_id", _big(), ForeignKey("daco_machines.id"), nullable=False)


machines = Table(
    "daco_machines",
    metadata,
    _id(),
    Column("name", Text, nullable=False, unique=True),
    # Counted here, since counting a million rows takes longer than a page may.
    Column("clips", _big(), nullable=False, default=0),
    Column("anomalous", _big(), nullable=False, default=0),
    Column("last_clip_id", _big()),
    # Alarms count the clips after this one: the last opening, recovery or acknowledgement.
    Column("counted_after", _big(), nullable=False, default=0),
    sqlite_autoincrement=True,
)

clips = Table(
    "daco_clips",
    metadata,
    _id(),
    _machine(),
    Column("received_at", UTCDateTime, nullable=False),
    Column("recorded_at", UTCDateTime),
    Column("anomalous", Boolean, nullable=False),
    Column("score", Double, nullable=False),
    Column("threshold", Double, nullable=False),
    Column("p_value", Double, nullable=False),
    Column("name", Text, nullable=False),
    Column("domain_weights", JSON, nullable=False),
    Column("nearest", Text),
    Column("nearest_distance", Double),
    Column("reasons", JSON, nullable=False),
    Column("seconds", Double),
    Column("windows", Integer),
    Column("worst_window", Double),
    Column("model_sha256", Text),
    Column("audio_sha256", Text),
    Column("audio_path", Text),
    Column("more", JSON(none_as_null=True)),
    Index("daco_clips_by_arrival", "machine_id", "id"),
    # With all that is counted or bounded by time, so that the rows themselves are not read.
    Index("daco_clips_by_time", "machine_id", "received_at", "anomalous", "id"),
    sqlite_autoincrement=True,
)

sources = Table(
    "daco_sources",
    metadata,
    Column("machine_id", ForeignKey("daco_machines.id"), primary_key=True),
    Column("source_key", Text, primary_key=True),
    Column("audio_sha256", Text),
    Column("stamp", Text),
    # No foreign key: that a source was dealt with outlives its clip, or pruning would bring
    # every old recording back that still lies in its folder.
    Column("clip_id", _big()),
    Column("reason", Text),
    sqlite_with_rowid=False,
)

alarms = Table(
    "daco_alarms",
    metadata,
    _id(),
    _machine(),
    Column("rule", Text, nullable=False),
    Column("clip_id", _big(), ForeignKey("daco_clips.id"), nullable=False, index=True),
    Column("opened_at", UTCDateTime, nullable=False),
    Column("closed_at", UTCDateTime),
    Column("closed_by", Text),
    Column("acknowledged_at", UTCDateTime),
    Column("acknowledged_by", Text),
    Column("comment", Text),
    Index("daco_alarms_by_machine", "machine_id", "id"),
    sqlite_autoincrement=True,
)
Index(
    "daco_alarms_open",
    alarms.c.machine_id,
    alarms.c.id,
    sqlite_where=alarms.c.closed_at.is_(None),
    postgresql_where=alarms.c.closed_at.is_(None),
)

alarm_clips = Table(
    "daco_alarm_clips",
    metadata,
    Column("alarm_id", ForeignKey("daco_alarms.id", ondelete="CASCADE"), primary_key=True),
    Column("clip_id", ForeignKey("daco_clips.id"), primary_key=True, index=True),
    sqlite_with_rowid=False,
)

outbox = Table(
    "daco_outbox",
    metadata,
    _id(),
    _machine(),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("created_at", UTCDateTime, nullable=False),
    Column("attempts", Integer, nullable=False, default=0),
    Column("due_at", UTCDateTime, nullable=False),
    Column("delivered_at", UTCDateTime),
    Column("last_error", Text),
    sqlite_autoincrement=True,
)
Index(
    "daco_outbox_pending",
    outbox.c.id,
    sqlite_where=outbox.c.delivered_at.is_(None),
    postgresql_where=outbox.c.delivered_at.is_(None),
)
