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

VERSION = 3
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


def _columns(kind: Any, *names: str, null: bool = False, **options: Any) -> list[Any]:
    """Columns of one type."""
    return [sa.Column(name, kind, nullable=null, **options) for name in names]


def _table(name: str, *columns: Any) -> sa.Table:
    """A table whose rows have an id that grows."""
    number = sa.Column("id", _BIG, sa.Identity(), primary_key=True)
    return sa.Table(name, metadata, number, *columns, sqlite_autoincrement=True)


def _machine(*, null: bool = False, primary_key: bool = False) -> Any:
    of = sa.ForeignKey("daco_machines.id")
    return sa.Column("machine_id", _BIG, of, nullable=null, primary_key=primary_key)


machines = _table(
    "daco_machines",
    *_columns(sa.Text, "name", unique=True),
    # Running counts: counting a million rows would be too slow for a page.
    *_columns(_BIG, "clips", "anomalous", "changed", default=0),
    *_columns(_BIG, "last_clip_id", null=True),
    # Recent decisions by kind of alarm: {"fault": [[clip, anomalous], ...]}; and what adds up
    # over clips: {"model": sha256, "fault": Evidence, "trend": Trend}.
    *_columns(sa.JSON, "recent", "evidence", default=dict),
    *_columns(sa.JSON(none_as_null=True), "adaptation", null=True),
    *_columns(UTCDateTime, "out_of_service_since", null=True),
    *_columns(sa.Text, "out_of_service_by", null=True),
)

clips = _table(
    "daco_clips",
    _machine(),
    *_columns(_BIG, "changed", index=True),
    *_columns(UTCDateTime, "time", "received_at"),
    *_columns(UTCDateTime, "recorded_at", null=True),
    # The verdict.
    *_columns(sa.Text, "name", "state", "nearest", "basis", "model_sha256"),
    *_columns(sa.Boolean, "anomalous", "extrapolated"),
    *_columns(sa.Double, "oddness", "p_value", "score", "threshold"),
    *_columns(sa.Double, "nearest_distance", "supported_rate"),
    *_columns(sa.Double, "seconds", "worst_window", null=True),
    *_columns(sa.Integer, "windows"),
    *_columns(sa.JSON, "domain_weights", "reasons", "views"),
    *_columns(sa.JSON(none_as_null=True), "findings", null=True),
    *_columns(sa.Text, "audio_sha256", null=True, index=True),
    *_columns(sa.Text, "audio_path", "answer", null=True),
    sa.Index("daco_clips_by_arrival", "machine_id", "id"),
    # Covers the queries that count by time, so that they do not read the rows.
    sa.Index("daco_clips_by_time", "machine_id", "time", "anomalous", "id"),
)

sources = sa.Table(
    "daco_sources",
    metadata,
    _machine(primary_key=True),
    sa.Column("source_key", sa.Text, primary_key=True),
    *_columns(sa.Text, "audio_sha256", "stamp", "reason", null=True),
    # No foreign key: a source stays known after its clip was removed, or every old recording
    # that is still in its folder would be judged again.
    *_columns(_BIG, "clip_id", null=True),
    *_columns(UTCDateTime, "seen_at"),
    sqlite_with_rowid=False,
)

alarms = _table(
    "daco_alarms",
    _machine(null=True),
    *_columns(_BIG, "changed", index=True),
    *_columns(sa.Text, "kind", "rule"),
    *_columns(_BIG, "clip_id", null=True),
    *_columns(sa.JSON, "clip_ids", default=list),
    *_columns(_BIG, "n_clips", default=0),
    *_columns(UTCDateTime, "opened_at", "last_at"),
    *_columns(UTCDateTime, "cleared_at", "acknowledged_at", "shelved_until", null=True),
    *_columns(sa.Text, "cleared_by", "acknowledged_by", "comment", "answer", null=True),
    # What an alarm that is not about clips is about, and the sentence about it.
    *_columns(sa.Text, "cause", default=""),
    *_columns(sa.Text, "detail", null=True),
    sa.Index("daco_alarms_by_machine", "machine_id", "id"),
)
_open = alarms.c.cleared_at.is_(None)
sa.Index("daco_alarms_open", alarms.c.machine_id, sqlite_where=_open, postgresql_where=_open)

outbox = _table(
    "daco_outbox",
    *_columns(sa.Text, "key", unique=True),
    *_columns(sa.Text, "receiver", "kind"),
    *_columns(sa.Integer, "priority"),
    *_columns(sa.JSON, "body"),
    *_columns(UTCDateTime, "created_at", "due_at"),
    *_columns(sa.Integer, "attempts", default=0),
    *_columns(UTCDateTime, "refused_at", null=True),
    *_columns(sa.Text, "last_error", null=True),
    sa.Index("daco_outbox_next", "receiver", "priority", "id"),
)

audit = _table(
    "daco_audit",
    *_columns(UTCDateTime, "at"),
    *_columns(sa.Text, "who", "role", "action"),
    *_columns(sa.Text, "machine", "target", "detail", null=True),
)

trends = sa.Table(
    "daco_trends",
    metadata,
    _machine(primary_key=True),
    sa.Column("period", sa.Text, primary_key=True),
    sa.Column("start", UTCDateTime, primary_key=True),
    *_columns(_BIG, "clips", "judged", "anomalous"),
    *_columns(sa.Double, "oddness_sum"),
    *_columns(sa.Double, "oddness_max", null=True),
    sqlite_with_rowid=False,
)

notes = _table(
    "daco_notes",
    _machine(),
    *_columns(UTCDateTime, "at"),
    *_columns(sa.Text, "text", "by"),
    sa.Index("daco_notes_by_time", "machine_id", "at"),
)

schema = sa.Table(
    "daco_schema",
    metadata,
    # "version", "change" (the number of the last change), "heartbeat" (seconds of the last check).
    sa.Column("name", sa.Text, primary_key=True),
    *_columns(_BIG, "value"),
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
