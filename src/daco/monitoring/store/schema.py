"""The tables: machines, clips, alarms, answers of people, adaptations, processed sources, messages.

Ids grow in the order of arrival within a machine, and pages are cut by ids: a clock that is set
back reorders nothing. Table names start with ``daco_``: a PostgreSQL database can be shared.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from daco.errors import InputError
from daco.monitoring.store.database import Database, StoreError
from daco.version import __version__

metadata = sa.MetaData()


class _UTCDateTime(sa.TypeDecorator[datetime]):
    """A time with its zone: aware in Python, stored in UTC; SQLite does not store zones."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        if value is not None and value.tzinfo is None:
            raise InputError(f"A time without its zone cannot be stored. Got {value!r}.")
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: sa.Dialect) -> datetime | None:
        return value and (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))


# SQLite autoincrements INTEGER PRIMARY KEY only; both hold 64 bits.
_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _id() -> sa.Column[int]:
    return sa.Column("id", _BIG, sa.Identity(), primary_key=True)


def _machine() -> sa.Column[int]:
    return sa.Column("machine_id", _BIG, sa.ForeignKey("daco_machines.id"), nullable=False)


def _partial_index(name: str, where: sa.ColumnElement[bool], *columns: sa.Column[Any]) -> None:
    sa.Index(name, *columns, sqlite_where=where, postgresql_where=where)


machines = sa.Table(
    "daco_machines",
    metadata,
    _id(),
    sa.Column("name", sa.Text, nullable=False, unique=True),
    # Running counts: counting a million rows would be too slow for a page.
    sa.Column("clips", _BIG, nullable=False, default=0),
    sa.Column("anomalous", _BIG, nullable=False, default=0),
    sa.Column("last_clip_id", _BIG),
    # Alarms count the clips after this one: the last opening, recovery or acknowledgement, of
    # a database of schema 1; since then by kind of alarm.
    sa.Column("counted_after", _BIG, nullable=False, default=0),
    sa.Column("counted_by_kind", sa.JSON, nullable=False, server_default="{}"),
    sqlite_autoincrement=True,
)

clips = sa.Table(
    "daco_clips",
    metadata,
    _id(),
    _machine(),
    sa.Column("received_at", _UTCDateTime, nullable=False),
    sa.Column("recorded_at", _UTCDateTime),
    sa.Column("anomalous", sa.Boolean, nullable=False),
    sa.Column("score", sa.Double, nullable=False),
    sa.Column("threshold", sa.Double, nullable=False),
    sa.Column("p_value", sa.Double, nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("domain_weights", sa.JSON, nullable=False),
    sa.Column("nearest", sa.Text),
    sa.Column("nearest_distance", sa.Double),
    sa.Column("reasons", sa.JSON, nullable=False),
    sa.Column("seconds", sa.Double),
    sa.Column("windows", sa.Integer),
    sa.Column("worst_window", sa.Double),
    sa.Column("model_sha256", sa.Text),
    sa.Column("audio_sha256", sa.Text),
    sa.Column("audio_path", sa.Text),
    sa.Column("more", sa.JSON(none_as_null=True)),
    sa.Column("state", sa.Text, nullable=False, server_default="normal"),
    sa.Column("basis", sa.Text, nullable=False, server_default=""),
    sa.Column("views", sa.JSON, nullable=False, server_default="{}"),
    sa.Column("extrapolated", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.Column("supported_rate", sa.Double, nullable=False, server_default="0"),
    sa.Column("answer", sa.Text),
    sa.Index("daco_clips_by_arrival", "machine_id", "id"),
    # Covers the queries that count by time, so that they do not read the rows.
    sa.Index("daco_clips_by_time", "machine_id", "received_at", "anomalous", "id"),
    sqlite_autoincrement=True,
)

sources = sa.Table(
    "daco_sources",
    metadata,
    sa.Column("machine_id", sa.ForeignKey("daco_machines.id"), primary_key=True),
    sa.Column("source_key", sa.Text, primary_key=True),
    sa.Column("audio_sha256", sa.Text),
    sa.Column("stamp", sa.Text),
    # No foreign key: a source stays known after its clip was pruned, or every old recording
    # that is still in its folder would be judged again.
    sa.Column("clip_id", _BIG),
    sa.Column("reason", sa.Text),
    sqlite_with_rowid=False,
)

alarms = sa.Table(
    "daco_alarms",
    metadata,
    _id(),
    _machine(),
    sa.Column("rule", sa.Text, nullable=False),
    sa.Column("clip_id", _BIG, sa.ForeignKey("daco_clips.id"), nullable=False, index=True),
    sa.Column("opened_at", _UTCDateTime, nullable=False),
    sa.Column("closed_at", _UTCDateTime),
    sa.Column("closed_by", sa.Text),
    sa.Column("acknowledged_at", _UTCDateTime),
    sa.Column("acknowledged_by", sa.Text),
    sa.Column("comment", sa.Text),
    sa.Column("kind", sa.Text, nullable=False, server_default="anomalous"),
    sa.Column("answer", sa.Text),
    sa.Index("daco_alarms_by_machine", "machine_id", "id"),
    sqlite_autoincrement=True,
)
_partial_index("daco_alarms_open", alarms.c.closed_at.is_(None), alarms.c.machine_id, alarms.c.id)

alarm_clips = sa.Table(
    "daco_alarm_clips",
    metadata,
    sa.Column("alarm_id", sa.ForeignKey("daco_alarms.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("clip_id", sa.ForeignKey("daco_clips.id"), primary_key=True, index=True),
    sqlite_with_rowid=False,
)

answers = sa.Table(
    "daco_answers",
    metadata,
    _id(),
    _machine(),
    # No foreign keys: what people said stays when clips and alarms are pruned.
    sa.Column("clip_id", _BIG, nullable=False),
    sa.Column("alarm_id", _BIG),
    sa.Column("answer", sa.Text, nullable=False),
    sa.Column("answered_by", sa.Text, nullable=False),
    sa.Column("comment", sa.Text, nullable=False),
    sa.Column("answered_at", _UTCDateTime, nullable=False),
    sa.Index("daco_answers_by_machine", "machine_id", "clip_id", "id"),
    sqlite_autoincrement=True,
)

adaptations = sa.Table(
    "daco_adaptations",
    metadata,
    sa.Column("machine_id", sa.ForeignKey("daco_machines.id"), primary_key=True),
    sa.Column("model_sha256", sa.Text, nullable=False),
    sa.Column("state", sa.JSON, nullable=False),
    sqlite_with_rowid=False,
)

outbox = sa.Table(
    "daco_outbox",
    metadata,
    _id(),
    _machine(),
    sa.Column("key", sa.Text, nullable=False, unique=True),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("body", sa.Text, nullable=False),
    sa.Column("created_at", _UTCDateTime, nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False, default=0),
    sa.Column("due_at", _UTCDateTime, nullable=False),
    sa.Column("delivered_at", _UTCDateTime),
    sa.Column("last_error", sa.Text),
    sqlite_autoincrement=True,
)
_partial_index("daco_outbox_pending", outbox.c.delivered_at.is_(None), outbox.c.id)

versions = sa.Table(
    "daco_schema",
    sa.MetaData(),
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("daco_version", sa.Text, nullable=False),
    sa.Column("applied_at", _UTCDateTime, nullable=False),
)

Migration = Callable[[sa.Connection], None]

_LOCK = 0x6461636F  # "daco": the PostgreSQL advisory lock of a migration


def _create_tables(connection: sa.Connection) -> None:
    # checkfirst=False: a table of that name that daco did not create must not be written to.
    versions.create(connection, checkfirst=False)
    metadata.create_all(connection, checkfirst=False)


def _add_answers(connection: sa.Connection) -> None:
    """States of clips, kinds of alarms, answers and adaptations; an empty database has them."""
    present = sa.inspect(connection)
    for table in (machines, clips, alarms):
        known = {column["name"] for column in present.get_columns(table.name)}
        for column in table.c:
            if column.name not in known:
                words = sa.schema.CreateColumn(column).compile(dialect=connection.dialect)
                connection.execute(sa.text(f"ALTER TABLE {table.name} ADD COLUMN {words}"))
    metadata.create_all(connection, [answers, adaptations])
    connection.execute(sa.update(clips).where(clips.c.anomalous).values(state="anomalous"))


MIGRATIONS: tuple[Migration, ...] = (_create_tables, _add_answers)
"""The n-th brings a database to schema n; the first makes an empty one as it is today."""


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a database to this version's schema in one transaction.

    A newer schema raises a StoreError, and the database is left unchanged.
    """
    with database.translate_errors(opening=True):
        with database.reading() as connection:
            version = _version(connection, database.label, len(migrations))
        if version == len(migrations):
            return
        with database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
            version = _version(connection, database.label, len(migrations))
            for number, step in enumerate(migrations[version:], version + 1):
                step(connection)
                row = {"version": number, "daco_version": __version__}
                connection.execute(sa.insert(versions), {**row, "applied_at": datetime.now(UTC)})


def _version(connection: sa.Connection, label: str, newest: int) -> int:
    if not sa.inspect(connection).has_table(versions.name):
        return 0
    row = connection.execute(sa.select(versions).order_by(versions.c.version.desc()).limit(1)).one()
    if row.version > newest:
        raise StoreError(
            f"{label}: the database has schema {row.version}, written by daco {row.daco_version}. "
            f"This is daco {__version__}, which knows schemas up to {newest}: update daco, or "
            "choose another database."
        )
    return int(row.version)
