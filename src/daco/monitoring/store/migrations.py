"""From whatever schema a database has to the one this version of daco writes, forward only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from sqlalchemy import (
    Column,
    Connection,
    Integer,
    MetaData,
    Table,
    Text,
    func,
    insert,
    inspect,
    select,
)

from daco.monitoring.store import schema
from daco.monitoring.store.engine import Database, StoreError
from daco.version import __version__

Migration = Callable[[Connection], None]

_LOCK = 0x6461636F  # "daco": of those who migrate one PostgreSQL database, one at a time

versions = Table(
    "daco_schema",
    MetaData(),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("daco_version", Text, nullable=False),
    Column("applied_at", schema.UTCDateTime, nullable=False),
)


def _create_tables(connection: Connection) -> None:
    # Not "if it is not there": a table of that name that is not ours must not be written to.
    schema.metadata.create_all(connection, checkfirst=False)


MIGRATIONS: tuple[Migration, ...] = (_create_tables,)
"""The n-th brings a database from schema n to n + 1; 0 is an empty one."""


def migrate(database: Database, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Apply what is missing, in one transaction, whoever else is trying the same.

    Raises
    ------
    StoreError
        The database has a newer schema: it is refused by name and left alone.
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
