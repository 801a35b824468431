"""The tables: machines, clips, alarms, processed sources and messages to deliver; migrations.

Ids grow in the order of arrival within a machine, and pages are cut by ids: a clock that is set
back reorders nothing. Every table name starts with ``daco_``, so that a PostgreSQL database can
be shared with other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
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
    func,
    insert,
    inspect,
    select,
)

from daco.errors import InputError
from daco.monitoring.store.database import Database, StoreError
from daco.version import __version__

metadata = MetaData()


class UTCDateTime(TypeDecorator[datetime]):
    """A time with its zone: aware in Python, stored in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC; SQLite does not store zones."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise InputError(f"A time without its zone cannot be stored. Got {value!r}.")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return an aware time in UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def _big() -> Any:
    # SQLite autoincrements INTEGER PRIMARY KEY only; both hold 64 bits.
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
    # Running counts: counting a million rows would be too slow for a page.
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
    # Covers the queries that count by time, so that they do not read the rows.
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
    # No foreign key: a source stays known after its clip was pruned, or every old recording
    # that is still in its folder would be judged again.
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

Migration = Callable[[Connection], None]

_LOCK = 0x6461636F  # "daco": the PostgreSQL advisory lock of a migration

versions = Table(
    "daco_schema",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("daco_version", Text, nullable=False),
    Column("applied_at", UTCDateTime, nullable=False),
)


def _create_tables(connection: Connection) -> None:
    # checkfirst=False: a table of that name that daco did not create must not be written to.
    metadata.create_all(connection, checkfirst=False)


MIGRATIONS: tuple[Migration, ...] = (_create_tables,)
"""The n-th brings a database from schema n to n + 1; schema 0 is an empty database."""


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring a database to this version's schema in one transaction.

    Raises
    ------
    StoreError
        The database has a newer schema; it is left unchanged.
    """
    with database.translated(opening=True):
        with database.reading() as connection:
            version = _version(connection, database.label, len(migrations))
        if version == len(migrations):
            return
        with database.writing() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_LOCK)))
            version = _version(connection, database.label, len(migrations))
            for number in range(version, len(migrations)):
                if number == 0:
                    versions.create(connection, checkfirst=False)
                migrations[number](connection)
                connection.execute(
                    insert(versions).values(
                        version=number + 1, daco_version=__version__, applied_at=datetime.now(UTC)
                    )
                )


def _version(connection: Connection, label: str, newest: int) -> int:
    if not inspect(connection).has_table(versions.name):
        return 0
    row = connection.execute(select(versions).order_by(versions.c.version.desc())).first()
    version, by = (row.version, row.daco_version) if row else (0, "")
    if version > newest:
        raise StoreError(
            f"{label}: the database has schema {version}, written by daco {by}. This is daco "
            f"{__version__}, which knows schemas up to {newest}: update daco, or choose another "
            "database."
        )
    return int(version)
