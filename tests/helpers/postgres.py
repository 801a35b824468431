"""A PostgreSQL server of our own, started when the first test asks for a database.

It lives in a temporary folder, listens on a socket there and nowhere else, and runs as an
unprivileged user, since PostgreSQL refuses root. It ends with the process that runs the tests.
Where PostgreSQL is not installed, the tests that need it are skipped.
"""

from __future__ import annotations

import atexit
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

_NOT_DURABLE = "-c fsync=off -c full_page_writes=off -c max_connections=60"


@dataclass
class Server:
    """A running server; every database is empty and lives as long as the server."""

    folder: Path
    user: str
    stop: Callable[[], None]
    start: Callable[[], None]
    _numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str) -> str:
        socket = quote(str(self.folder), safe="")
        return f"postgresql+psycopg://{self.user}@/{database}?host={socket}"

    def new_database(self) -> str:
        """The URL of a new, empty database."""
        import psycopg

        name = f"daco_{next(self._numbers)}"
        with psycopg.connect(
            host=str(self.folder), user=self.user, dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def new_database() -> str:
    """The URL of a new, empty database on the server that all tests of a process share."""
    return _running().new_database()


@cache
def _running() -> Server:
    until_the_end = ExitStack()
    atexit.register(until_the_end.close)
    return until_the_end.enter_context(postgres_server())


def _programs() -> Path | None:
    """Where initdb and pg_ctl are: Debian keeps them out of the PATH, by version."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if found:
        return found[-1].parent
    program = shutil.which("initdb")
    return Path(program).parent if program else None


@contextmanager
def postgres_server(options: str = _NOT_DURABLE) -> Iterator[Server]:
    """A server until the block ends; `options` are those of the postgres program."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    user = pwd.getpwuid(os.getuid()).pw_name
    if os.getuid() == 0:
        user = next(
            (name for name in ("postgres", "nobody") if _exists(name)), None
        ) or pytest.skip("PostgreSQL refuses root and there is no user 'postgres' or 'nobody'")
    # Not below tmp_path: its folders are private, and the path of a socket is at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="daco-pg-", dir="/tmp"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, user)

        def run(program: str, *arguments: str) -> None:
            with (folder / "out").open("ab") as out:  # a pipe would stay open in the server
                done = subprocess.run(
                    [programs / program, "-D", folder / "data", *arguments],
                    cwd=folder,
                    user=user if os.getuid() == 0 else None,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    check=False,
                    timeout=60,
                )
            assert done.returncode == 0, (folder / "out").read_text()

        run("initdb", "-U", user, "--auth=trust", "--encoding=UTF8", "--no-sync")
        listen = f"-c listen_addresses='' -c unix_socket_directories='{folder}' {options}"
        start = partial(run, "pg_ctl", "start", "-w", "-l", str(folder / "log"), "-o", listen)
        stop = partial(run, "pg_ctl", "stop", "-w", "-m", "immediate")
        start()
        try:
            yield Server(folder, user, stop, start)
        finally:
            stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _exists(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
