"""Messages of a store, its schema, and the databases it opens or refuses."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import pytest
from postgres import new_database
from schema_one import create_schema_one
from sqlalchemy import text
from stores import START, add, rows

from daco.errors import InputError
from daco.monitoring.store import EVENTS, Store, StoreError
from daco.monitoring.store import database as databases
from daco.monitoring.store.database import open_database
from daco.monitoring.store.schema import MIGRATIONS, migrate


def test_messages_are_written_with_what_they_are_about(url):
    with Store.open(url, events=EVENTS) as store:
        for alarm in [True] * 3 + [False] * 5:
            add(store, alarm)
        store.reject("press", "/d/b.wav", name="b.wav", stamp="1", reason="truncated", at=START)
        messages = [json.loads(row["body"]) for row in rows(url, "daco_outbox")]
        kinds = [each["type"] for each in messages]
        assert kinds.count("clip.scored") == 8
        assert [kind for kind in kinds if kind != "clip.scored"] == [
            "alarm.opened",
            "alarm.recovered",
            "recording.unreadable",
        ]
        opened = next(each for each in messages if each["type"] == "alarm.opened")
        assert opened["timestamp"] == "2026-03-01T12:00:00Z"
        assert opened["data"]["alarm"]["clip_ids"] == [1, 2, 3]
        assert opened["data"]["clip"]["id"] == 3
        assert messages[-1]["data"] == {"machine": "press", "name": "b.wav", "reason": "truncated"}
    with Store.open(url) as silent:
        add(silent)
        assert len(rows(url, "daco_outbox")) == 11
    with pytest.raises(InputError, match=r"clip\.scored"):
        Store.open(url, events=["clips"])


def test_a_message_is_one_takers_until_it_is_delivered_or_its_time_is_over(url):
    with Store.open(url, events=["clip.scored"]) as store:
        for _ in range(2):
            add(store)
        add(store, machine="fan")
        box = store.outbox.of("press")
        assert (box.pending(), store.outbox.pending()) == (2, 3)
        first = box.take(60, now=START)
        second = box.take(60, now=START)
        assert box.take(60, now=START) is None
        assert (first.attempt, second.attempt) == (1, 1)
        assert first.key != second.key
        box.mark_delivered(first, now=START)
        box.put_back(second, "503", wait=5, now=START)
        assert box.take(60, now=START + timedelta(seconds=4)) is None
        again = box.take(60, now=START + timedelta(seconds=5))
        assert (again.key, again.body, again.attempt) == (second.key, second.body, 2)
        # Whoever took it is never heard of again: it is due once more.
        assert box.take(60, now=START + timedelta(seconds=64)) is None
        third = box.take(60, now=START + timedelta(seconds=65))
        assert (third.key, third.attempt) == (second.key, 3)
        # A clock that is set back by a day does not hold it back for a day.
        assert box.take(60, now=START - timedelta(days=1)).key == second.key
        assert box.pending() == 1
        assert store.prune(keep_days=1, now=START + timedelta(days=2)).clips == 3
        assert store.outbox.pending() == 0


# --- a database that goes away and comes back ----------------------------------------------------


def test_a_file_that_is_moved_away_is_noticed_and_no_other_is_made(tmp_path):
    file, away = tmp_path / "daco.db", tmp_path / "away.db"
    with Store.open(f"sqlite:///{file}") as store:
        add(store)
        file.rename(away)
        with pytest.raises(StoreError, match="was removed"):
            store.check()
        with pytest.raises(StoreError, match="was removed"):
            add(store)  # not into the moved file, where nobody would find it
        with pytest.raises(StoreError):
            store.machines_summary()
        assert not file.exists()
        away.rename(file)
        store.check()
        add(store)
        assert store.machines_summary()[0].clips == 2


def test_a_file_that_is_replaced_is_the_one_that_is_used(tmp_path):
    file, other = tmp_path / "daco.db", tmp_path / "other.db"
    for name, count in (("other", 3), ("daco", 1)):
        with Store.open(f"sqlite:///{tmp_path}/{name}.db") as store:
            for _ in range(count):
                add(store)
    with Store.open(f"sqlite:///{file}") as store:
        assert store.machines_summary()[0].clips == 1
        other.rename(file)
        store.check()
        add(store)
        assert store.machines_summary()[0].clips == 4
        file.unlink()
        sqlite3.connect(file).close()  # an empty database: there are no tables
        with pytest.raises(StoreError, match="no such table"):
            store.check()


def test_a_check_waits_a_moment_for_a_writer_and_not_longer(tmp_path):
    file = tmp_path / "daco.db"
    with Store.open(f"sqlite:///{file}") as store:
        add(store)
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        with pytest.raises(StoreError, match="locked"):
            store.check()
        assert time.monotonic() - begun < 20 * databases.CHECK_PATIENCE
        other.execute("ROLLBACK")
        other.close()
        store.check()


def test_opening_again_finds_everything(url):
    with Store.open(url) as store:
        added = add(store, source_key="a")
    with Store.open(url) as store:
        assert store.clip(added.clip_id)
        assert add(store, source_key="a") is None


def test_a_place_that_may_not_be_written_to_is_named(tmp_path):
    with Store.open(f"sqlite:///{tmp_path}/daco.db") as store:
        store.database.engine.dispose()
        (tmp_path / "daco.db").unlink()
        (tmp_path / "daco.db").mkdir()
        with pytest.raises(StoreError, match="Choose a place"):
            add(store)


# --- schema and places ---------------------------------------------------------------------------


def test_a_schema_is_brought_forward_and_a_newer_one_is_refused_by_name(url):
    with Store.open(url) as store:
        add(store, source_key="a")

    def add_column(connection):
        connection.execute(text("ALTER TABLE daco_machines ADD COLUMN place TEXT"))

    def fail(connection):
        add_column(connection)
        raise RuntimeError

    database = open_database(url)
    with pytest.raises(RuntimeError):
        migrate(database, (*MIGRATIONS, fail))
    assert "place" not in rows(url, "daco_machines")[0]
    migrate(database, (*MIGRATIONS, add_column))
    migrate(database, (*MIGRATIONS, add_column))  # nothing left to do
    database.engine.dispose()
    assert rows(url, "daco_machines")[0]["place"] is None
    assert [row["version"] for row in rows(url, "daco_schema")] == [1, 2, 3]
    with pytest.raises(StoreError, match=r"schema 3, written by daco .* up to 2: update daco"):
        Store.open(url)


def test_a_database_of_schema_1_keeps_its_clips_and_takes_new_ones(url):
    create_schema_one(url)
    with Store.open(url) as store:
        anomalous, normal = store.clips("press")
        assert (normal.answer, anomalous.answer) == (None, None)
        assert [row["state"] for row in rows(url, "daco_clips")] == ["normal", "anomalous"]
        (alarm,) = store.alarms("press")
        assert (alarm.kind, alarm.answer, alarm.clip_ids) == ("anomalous", None, (2,))
        assert add(store, alarm=True).clip_id == 3
    Store.open(url).close()
    assert [row["version"] for row in rows(url, "daco_schema")] == [1, 2]


def test_a_table_of_somebody_else_is_not_written_to(url):
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(text("CREATE TABLE daco_clips (id INTEGER)"))
    database.engine.dispose()
    with pytest.raises(StoreError, match="already exists"):
        Store.open(url)
    assert rows(url, "daco_clips") == []


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "must be a file"),
        ("sqlite:///:memory:", "must be a file"),
        ("sqlite:////nowhere/daco.db", "not a folder"),
        ("sqlite:///daco.db?synchronous=OFF", "NORMAL or synchronous=FULL"),
        ("sqlite:///daco.db?cache=shared", "only option"),
        ("mysql://me@host/db", "postgresql"),
        ("daco.db", "URL"),
        ("no secret://p@ss", "URL"),
    ],
)
def test_other_places_are_refused(url, message):
    with pytest.raises(InputError, match=message) as caught:
        Store.open(url)
    assert "p@ss" not in str(caught.value)


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    path = tmp_path / "daco.db"
    path.write_bytes(b"RIFF" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(f"sqlite:///{path}")
    assert path.read_bytes() == b"RIFF" * 1000


def test_a_server_that_is_not_there_is_named_without_the_password(tmp_path):
    with pytest.raises(StoreError, match="cannot be used") as caught:
        Store.open(f"postgresql://kim:hunter2@/daco?host={tmp_path}")
    assert "hunter2" not in str(caught.value)


def test_sqlite_runs_in_wal_with_one_writer(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path}/daco.db"
    with Store.open(url) as store, store.database.reading() as connection:
        pragma = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragma == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }
    with Store.open(url + "?synchronous=full") as store, store.database.reading() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 2
    monkeypatch.setattr(databases, "PATIENCE", 0.1)
    other = sqlite3.connect(tmp_path / "daco.db", isolation_level=None)
    with Store.open(url) as store:
        add(store)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="Another program has been writing"):
            add(store)
        assert len(store.clips("press")) == 1  # readers are not kept waiting
        other.execute("COMMIT")
        add(store)
    other.close()


def test_a_lost_connection_is_replaced():
    """As after an update of PostgreSQL: connections that were open are dead."""
    with Store.open(new_database()) as store:
        add(store, source_key="a")
        with store.database.reading() as connection:
            backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        os.kill(backend, signal.SIGTERM)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{backend}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert add(store, source_key="b")
        assert add(store, source_key="a") is None


@pytest.mark.parametrize(
    ("module", "use", "command"),
    [
        ("sqlalchemy", "import daco.monitoring.store", "daco-asd[serve]"),
        (
            "psycopg",
            "from daco.monitoring.store import Store; Store.open('postgresql://host/db')",
            "psycopg[binary]",
        ),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_installs_it(module, use, command):
    program = (
        f"import sys; sys.modules[{module!r}] = None\n"
        "from daco.errors import MissingExtraError\n"
        f"try:\n    {use}\nexcept MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert f'pip install "{command}"' in done.stdout, done.stderr
