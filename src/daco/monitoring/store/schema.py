"""The tables. Ids grow in the order of commits, and `changed` numbers every change of a row.

Table names start with ``daco_``: a PostgreSQL database can be shared. Another version of the tables
is refused; nothing is migrated.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from daco.errors import InputError
from daco.monitoring.store.records import StoreError

VERSION = 2
"""Of the tables below; any change of them needs another number."""

metadata = sa.MetaData()


class UTCDateTime(sa.TypeDecorator[datetime]):
    """A time with its zone: aware in Python, stored in UTC; SQLite does not store zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Check and convert a time to be written."""
        if value is not None and value.tzinfo is None:
            raise InputError(f"A time without its zone cannot be stored. Got {value!r}.")
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        """Add the zone to a time that was read."""
        return value and (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))


# SQLite autoincrements INTEGER PRIMARY KEY only; both hold 64 bits.
_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _column(name: str, kind: Any, *more: Any, null: bool = False, **options: Any) -> Any:
    return sa.Column(name, kind, *more, nullable=null, **options)


def _id() -> Any:
    return sa.Column("id", _BIG, sa.Identity(), primary_key=True)


def _machine(*, null: bool = False) -> Any:
    return _column("machine_id", _BIG, sa.ForeignKey("daco_machines.id"), null=null)


machines = sa.Table(
    "daco_machines",
    metadata,
    _id(),
    _column("name", sa.Text, unique=True),
    # Running counts: counting a million rows would be too slow for a page.
    _column("clips", _BIG, default=0),
    _column("anomalous", _BIG, default=0),
    _column("last_clip_id", _BIG, null=True),
    # Recent decisions by kind of alarm: {"fault": [[clip, anomalous], ...]}.
    _column("recent", sa.JSON, default=dict),
    # What adds up over clips: {"model": sha256, "fault": Evidence, "trend": Trend}.
    _column("evidence", sa.JSON, default=dict),
    _column("out_of_service_since", UTCDateTime, null=True),
    _column("out_of_service_by", sa.Text, null=True),
    _column("changed", _BIG, default=0),
    sqlite_autoincrement=True,
)

clips = sa.Table(
    "daco_clips",
    metadata,
    _id(),
    _machine(),
    _column("changed", _BIG, index=True),
    _column("time", UTCDateTime),
    _column("received_at", UTCDateTime),
    _column("recorded_at", UTCDateTime, null=True),
    _column("name", sa.Text),
    _column("state", sa.Text),
    _column("anomalous", sa.Boolean),
    _column("oddness", sa.Double),
    _column("p_value", sa.Double),
    _column("score", sa.Double),
    _column("threshold", sa.Double),
    _column("domain_weights", sa.JSON),
    _column("nearest", sa.Text),
    _column("nearest_distance", sa.Double),
    _column("reasons", sa.JSON),
    _column("seconds", sa.Double, null=True),
    _column("windows", sa.Integer),
    _column("worst_window", sa.Double, null=True),
    _column("views", sa.JSON),
    _column("basis", sa.Text),
    _column("extrapolated", sa.Boolean),
    _column("supported_rate", sa.Double),
    _column("model_sha256", sa.Text),
    _column("findings", sa.JSON(none_as_null=True), null=True),
    _column("audio_sha256", sa.Text, null=True, index=True),
    _column("audio_path", sa.Text, null=True),
    _column("answer", sa.Text, null=True),
    sa.Index("daco_clips_by_arrival", "machine_id", "id"),
    # Covers the queries that count by time, so that they do not read the rows.
    sa.Index("daco_clips_by_time", "machine_id", "time", "anomalous", "id"),
    sqlite_autoincrement=True,
)

sources = sa.Table(
    "daco_sources",
    metadata,
    sa.Column("machine_id", sa.ForeignKey("daco_machines.id"), primary_key=True),
    sa.Column("source_key", sa.Text, primary_key=True),
    _column("audio_sha256", sa.Text, null=True),
    _column("stamp", sa.Text, null=True),
    # No foreign key: a source stays known after its clip was removed, or every old recording
    # that is still in its folder would be judged again.
    _column("clip_id", _BIG, null=True),
    _column("reason", sa.Text, null=True),
    _column("seen_at", UTCDateTime),
    sqlite_with_rowid=False,
)

alarms = sa.Table(
    "daco_alarms",
    metadata,
    _id(),
    _machine(null=True),
    _column("changed", _BIG, index=True),
    _column("kind", sa.Text),
    _column("rule", sa.Text),
    _column("clip_id", _BIG, null=True),
    _column("n_clips", _BIG, default=0),
    _column("opened_at", UTCDateTime),
    _column("last_at", UTCDateTime),
    _column("cleared_at", UTCDateTime, null=True),
    _column("cleared_by", sa.Text, null=True),
    _column("acknowledged_at", UTCDateTime, null=True),
    _column("acknowledged_by", sa.Text, null=True),
    _column("shelved_until", UTCDateTime, null=True),
    _column("comment", sa.Text, null=True),
    _column("answer", sa.Text, null=True),
    # What an alarm that is not about clips is about, and the sentence about it.
    _column("cause", sa.Text, default=""),
    _column("detail", sa.Text, null=True),
    sa.Index("daco_alarms_by_machine", "machine_id", "id"),
    sqlite_autoincrement=True,
)
_open = alarms.c.cleared_at.is_(None)
sa.Index("daco_alarms_open", alarms.c.machine_id, sqlite_where=_open, postgresql_where=_open)

alarm_clips = sa.Table(
    "daco_alarm_clips",
    metadata,
    sa.Column("alarm_id", sa.ForeignKey("daco_alarms.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("clip_id", _BIG, primary_key=True, index=True),
    sqlite_with_rowid=False,
)

answers = sa.Table(
    "daco_answers",
    metadata,
    _id(),
    _machine(),
    # No foreign keys: what people said stays when clips and alarms are pruned.
    _column("clip_id", _BIG),
    _column("alarm_id", _BIG, null=True),
    _column("answer", sa.Text),
    _column("answered_by", sa.Text),
    _column("comment", sa.Text),
    _column("answered_at", UTCDateTime),
    sa.Index("daco_answers_by_machine", "machine_id", "id"),
    sqlite_autoincrement=True,
)

adaptations = sa.Table(
    "daco_adaptations",
    metadata,
    sa.Column("machine_id", sa.ForeignKey("daco_machines.id"), primary_key=True),
    _column("model_sha256", sa.Text),
    _column("state", sa.JSON),
    sqlite_with_rowid=False,
)

outbox = sa.Table(
    "daco_outbox",
    metadata,
    _id(),
    _column("key", sa.Text, unique=True),
    _column("receiver", sa.Text),
    _machine(null=True),
    _column("kind", sa.Text),
    _column("priority", sa.Integer),
    _column("body", sa.JSON),
    _column("created_at", UTCDateTime),
    _column("due_at", UTCDateTime),
    _column("attempts", sa.Integer, default=0),
    _column("refused_at", UTCDateTime, null=True),
    _column("last_error", sa.Text, null=True),
    sa.Index("daco_outbox_next", "receiver", "priority", "id"),
    sqlite_autoincrement=True,
)

audit = sa.Table(
    "daco_audit",
    metadata,
    _id(),
    _column("at", UTCDateTime),
    _column("who", sa.Text),
    _column("role", sa.Text),
    _column("action", sa.Text),
    _column("machine", sa.Text, null=True),
    _column("target", sa.Text, null=True),
    _column("detail", sa.Text, null=True),
    sqlite_autoincrement=True,
)

trends = sa.Table(
    "daco_trends",
    metadata,
    sa.Column("machine_id", sa.ForeignKey("daco_machines.id"), primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("start", UTCDateTime, primary_key=True),
    _column("clips", _BIG),
    _column("judged", _BIG),
    _column("anomalous", _BIG),
    _column("oddness_sum", sa.Double),
    _column("oddness_max", sa.Double, null=True),
    sqlite_with_rowid=False,
)

notes = sa.Table(
    "daco_notes",
    metadata,
    _id(),
    _machine(),
    _column("at", UTCDateTime),
    _column("text", sa.Text),
    _column("by", sa.Text),
    sa.Index("daco_notes_by_time", "machine_id", "at"),
    sqlite_autoincrement=True,
)

schema = sa.Table(
    "daco_schema",
    metadata,
    # "version", "change" (the number of the last change), "heartbeat" (seconds of the last check).
    sa.Column("name", sa.Text, primary_key=True),
    _column("value", _BIG),
)

_LOCK = 0x6461636F  # "daco": the PostgreSQL advisory lock while tables are created


def create_tables(connection: sa.Connection, label: str) -> None:
    """Create the tables of an empty database; a `StoreError` where another version has its own."""
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    if not is_created(connection, label):
        # checkfirst=False: a table of that name that daco did not create must not be written to.
        metadata.create_all(connection, checkfirst=False)
        values = {"version": VERSION, "change": 0, "heartbeat": 0}
        rows = [{"name": name, "value": value} for name, value in values.items()]
        connection.execute(sa.insert(schema), rows)


def is_created(connection: sa.Connection, label: str) -> bool:
    """Whether the database has the tables of this version; another version is a `StoreError`."""
    if not sa.inspect(connection).has_table(schema.name):
        return False
    columns = {column["name"] for column in sa.inspect(connection).get_columns(schema.name)}
    query = sa.select(schema.c.value).where(schema.c.name == "version")
    found = connection.scalar(query) if columns == {"name", "value"} else "of another kind"
    if found != VERSION:
        raise StoreError(
            f"{label}: the database has tables of version {found}; this daco uses version "
            f"{VERSION}. Choose another database: models and recordings are not affected."
        )
    return True
