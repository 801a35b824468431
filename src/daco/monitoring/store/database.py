"""The database behind a URL: an SQLite file in WAL mode, or PostgreSQL.

SQLite runs with ``synchronous=FULL``: what was committed survives a power cut. Its file is private
to the user.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import (
    Connection,
    Engine,
    Table,
    bindparam,
    create_engine,
    event,
    exc,
    select,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import ConnectionPoolEntry

from daco.errors import InputError, MissingExtraError
from daco.monitoring.store.records import StoreError
from daco.monitoring.store.schema import create_tables, is_created, machines, schema

PATIENCE, CHECK_PATIENCE = 30.0, 1.0
"""Seconds that a writer, and `Database.check`, wait for another writer."""

_OUR_MISTAKES = (exc.IntegrityError, exc.ProgrammingError, exc.DataError)
_HINTS = {
    "was removed": "Put it back, or start again with a new one.",
    "not a database": "The file is something else: choose another name.",
    "readonly|permission denied|unable to open": "Choose a place you may write to.",
    "full|no space": "The disk is full: free some space.",
    "locked|lock timeout": f"Another program has been writing for more than {PATIENCE:.0f} s.",
    "": "Check the URL and that the server runs.",
}
_HEARTBEAT = update(schema).where(schema.c.name == "heartbeat")
_CHANGE = update(schema).where(schema.c.name == "change").values(value=schema.c.value + 1)
_CHANGE = _CHANGE.returning(schema.c.value)
_MACHINE = select(machines).where(machines.c.name == bindparam("machine"))

Item = TypeVar("Item")


@dataclass(frozen=True)
class Change:
    """A transaction that changes clips, alarms or machines, and its number."""

    connection: Connection
    number: int

    def machine(self, name: str) -> Any:
        """The row of a machine, created if necessary."""
        row = self.connection.execute(_MACHINE, {"machine": name}).first()
        if row is None:
            new = insert_into(self.connection.dialect.name, machines)
            self.connection.execute(new.on_conflict_do_nothing(), {"name": name})
            row = self.connection.execute(_MACHINE, {"machine": name}).one()
        return row

    def update(self, table: Table, row: int, **values: Any) -> None:
        """Write columns of a row, and that it has changed."""
        own = update(table).where(table.c.id == row)
        self.connection.execute(own.values(changed=self.number, **values))


@dataclass(frozen=True)
class Database:
    """An engine, its URL without the password, and the lock of writers in this process."""

    engine: Engine
    label: str
    path: Path | None  #: the file of SQLite
    write_lock: AbstractContextManager[Any]

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection to read from."""
        with self.translate_errors(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction: everything written in the block is committed, or nothing."""
        with self.write_lock, self.translate_errors(), self._transaction(PATIENCE) as connection:
            yield connection

    @contextmanager
    def changing(self) -> Iterator[Change]:
        """A transaction that changes clips, alarms or machines.

        The row that holds its number is locked until it ends: processes change the same database
        one after the other, and changes become visible in the order of their numbers.
        """
        with self.writing() as connection:
            yield Change(connection, int(connection.execute(_CHANGE).scalar_one()))

    def check(self) -> None:
        """Raise a StoreError unless the database can be written now; it writes the time."""
        with self.translate_errors(opening=True), self._transaction(CHECK_PATIENCE) as connection:
            connection.execute(_HEARTBEAT.values(value=int(time.time())))

    @contextmanager
    def _transaction(self, patience: float) -> Iterator[Connection]:
        with self.engine.connect() as connection:
            connection = connection.execution_options(daco_writes=True, daco_patience=patience)
            with connection.begin():
                yield connection

    @contextmanager
    def translate_errors(self, *, opening: bool = False) -> Iterator[None]:
        """Turn errors of the database into a StoreError that names it, without its password."""
        try:
            yield
        except exc.TimeoutError:
            raise StoreError(f"{self.label}: all connections are busy. Try again.") from None
        except exc.DBAPIError as error:
            if isinstance(error, _OUR_MISTAKES) and not opening:
                raise
            reason = (str(error.orig).strip() or type(error.orig).__name__).splitlines()[0]
            hint = next(_HINTS[each] for each in _HINTS if re.search(each, str(error.orig), re.I))
            raise StoreError(
                f"{self.label}: the database cannot be used ({reason}). {hint}"
            ) from None


def open_database(url: str, *, create: bool = True) -> Database:
    """Connect to the database of a URL and create its tables; without `create` they must exist."""
    database = _connect(parse_url(url), create)
    try:
        with database.translate_errors(opening=True):
            with database.reading() as connection:
                created = is_created(connection, database.label)
            if not created and not create:
                raise StoreError(f"{database.label}: there is nothing in this database yet.")
            if not created:
                with database.writing() as connection:
                    create_tables(connection, database.label)
    except BaseException:
        database.engine.dispose()
        raise
    return database


def parse_url(url: str) -> URL:
    """Parse the URL of a database; an `InputError` does not repeat it, for its password."""
    try:
        return make_url(url)
    except exc.ArgumentError:
        raise InputError(
            "A database is given as a URL, such as sqlite:///daco.db or "
            "postgresql://USER@HOST/NAME."
        ) from None


def _connect(url: URL, create: bool) -> Database:
    label, backend = url.render_as_string(hide_password=True), url.get_backend_name()
    options: dict[str, Any] = {"json_serializer": partial(json.dumps, allow_nan=False)}
    if backend == "sqlite":
        path = _sqlite_file(url, create)
        engine = create_engine(url.set(database=str(path)), **options)
        _configure_sqlite(engine)
        _notice_removed_file(engine, str(path))
        return Database(engine, label, path, threading.Lock())
    if backend != "postgresql":
        raise InputError(
            f"A database is sqlite:///FILE or postgresql://USER@HOST/NAME. Got {backend!r}."
        )
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    given = url.query.get("options", "")
    given = given if isinstance(given, str) else " ".join(given)
    settings = f"-c lock_timeout={PATIENCE:.0f}s -c timezone=UTC {given}".strip()
    options["connect_args"] = {"connect_timeout": 10, "options": settings}
    try:  # pre_ping: the server may have been restarted
        engine = create_engine(url, pool_pre_ping=True, **options)
    except (exc.NoSuchModuleError, ModuleNotFoundError):
        raise MissingExtraError(
            f'{url.drivername} needs a driver: pip install "psycopg[binary]", and begin the '
            "URL with postgresql+psycopg://."
        ) from None
    return Database(engine, label, None, nullcontext())


def _sqlite_file(url: URL, create: bool) -> Path:
    """The file of the database, created as a private one."""
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise InputError("The database must be a file: sqlite:///FILE, sqlite:////ABSOLUTE/FILE.")
    if url.query:
        raise InputError(f"A sqlite URL has no options. Got {dict(url.query)!r}.")
    path = Path(url.database).absolute()
    if not path.parent.is_dir():
        raise InputError(f"{path.parent} is not a folder. Create it, or choose another database.")
    if not create and not path.is_file():
        raise StoreError(f"There is no database {path}. Check its name.")
    with suppress(OSError):  # connecting reports the reason
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
        os.chmod(path, 0o600)
    return path


def _configure_sqlite(engine: Engine) -> None:
    """Settings of every SQLite connection; a writing transaction takes its lock at its start."""

    @event.listens_for(engine, "connect")
    def on_connect(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None  # BEGIN is sent below, not by the driver
        connection.execute("PRAGMA foreign_keys = ON")
        _switch_to_wal(connection)
        connection.execute("PRAGMA synchronous = FULL")

    @event.listens_for(engine, "begin")
    def on_begin(connection: Connection) -> None:
        # A transaction that starts as a reader and then writes fails when another has written
        # in between; one that starts as a writer waits for its turn.
        options = connection.get_execution_options()
        patience = options.get("daco_patience", PATIENCE)
        connection.exec_driver_sql(f"PRAGMA busy_timeout = {patience * 1000:.0f}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if "daco_writes" in options else "BEGIN")


def _switch_to_wal(connection: sqlite3.Connection) -> None:
    """Switch to WAL, where the file system can; several processes may try at once."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:  # the busy timeout does not cover the switch
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _notice_removed_file(engine: Engine, path: str) -> None:
    """Refuse to go on when the file is removed or replaced while it is in use.

    SQLite would go on writing to the removed file, whose content is lost with the last
    connection, or create an empty one in its place.
    """
    was_there = False

    @event.listens_for(engine, "do_connect")
    def before_connect(*_: Any) -> None:
        if was_there and not os.path.exists(path):
            raise sqlite3.OperationalError("the file was removed")

    @event.listens_for(engine, "connect")
    def on_connect(_: Any, record: ConnectionPoolEntry) -> None:
        nonlocal was_there
        record.info["file"], record.info["is_new"], was_there = _file_number(path), True, True

    @event.listens_for(engine, "checkout")
    def on_checkout(_: Any, record: ConnectionPoolEntry, __: Any) -> None:
        is_new = record.info.pop("is_new", False)
        if not is_new and record.info["file"] != _file_number(path):
            raise exc.DisconnectionError  # SQLAlchemy connects again, or fails


def _file_number(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def insert_into(dialect: str, table: Table) -> Any:
    """An INSERT that can say what to do about a row that is there."""
    return (sqlite if dialect == "sqlite" else postgresql).insert(table)


def chunks(items: Sequence[Item]) -> Iterator[Sequence[Item]]:
    """Parts of a sequence that fit into one IN list."""
    for start in range(0, len(items), 500):
        yield items[start : start + 500]
