"""Several processes at one store, kills, power cuts, full disks, clocks that jump, backups."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
import stores
from postgres import new_database
from service_process import wait_until
from sqlalchemy import create_engine, text
from stores import KIM, START, add, new_clip, opened, rows

from daco.errors import InputError
from daco.monitoring.store import Store, StoreError, retention
from daco.monitoring.store import database as databases
from daco.monitoring.store.database import open_database
from daco.monitoring.store.retention import backup, protected_audio, prune, restore

HELPERS = str(Path(stores.__file__).parent)
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([HELPERS, *sys.path])}
DAY = timedelta(days=1)


def start(program, *arguments):
    """A Python process that has the helpers of these tests."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT
    )


# --- several processes ---------------------------------------------------------------------------

WRITER = """
import random, sys
from stores import new_clip, opened
numbers = random.Random(int(sys.argv[2])).sample(range(30), 30)
added = 0
with opened(sys.argv[1]) as store:
    while numbers:
        three, numbers = numbers[:3], numbers[3:]
        batch = [new_clip(True, f"m{i % 2}", source_key=str(i)) for i in three]
        added += sum(not each.known for each in store.add_many(batch))
print(added)
"""


def test_processes_that_store_the_same_recordings_store_each_once_and_a_reader_misses_none(url):
    """They also open the database at once, while it is still empty."""
    writers = [start(WRITER, url, seed) for seed in range(2)]
    seen, number = [], 0
    with opened(url) as store:
        while any(writer.poll() is None for writer in writers) or number < store.changes().last:
            some = store.changes(number)
            seen += [clip.id for clip in some.clips]
            number = some.last
            time.sleep(0.01)
        finished = [writer.communicate(timeout=60) for writer in writers]
        assert [writer.returncode for writer in writers] == [0, 0], finished
        assert sum(int(out) for out, _ in finished) == 30
        assert sorted(seen) == sorted(row["id"] for row in rows(url, "daco_clips"))
        assert [(each.clips, each.anomalous) for each in store.machines_summary()] == [(15, 15)] * 2
        for machine in ("m0", "m1"):  # whose clips never were normal: one alarm
            (alarm,) = store.alarms(machine)
            ids = [clip.id for clip in store.clips(machine)][::-1]
            assert (alarm.clip_ids, alarm.n_clips) == (tuple(ids[:2]), 15)
        assert store.outbox.pending() == {"mail": 32, "hook": 32}
        changed = [clip.changed for clip in store.changes(0).clips]
        assert changed == sorted(changed)


def test_takers_never_hold_the_same_message(url):
    with opened(url, receivers=("mail",)) as store:
        store.add_many([new_clip(source_key=str(number)) for number in range(40)])
        taken = []

        def take():
            while delivery := store.outbox.take("mail", 60):
                taken.append(delivery.key)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: take(), range(2)))
        assert len(taken) == len(set(taken)) == 40


# --- power cuts and full disks -------------------------------------------------------------------


def test_what_was_answered_is_on_the_disk(tmp_path):
    """A copy of the files, as a disk has them after a power cut, has every answered clip.

    The copy is made while the writer goes on. That the operating system was asked to write, the
    setting says: a copy also has what only its cache has.
    """
    url = f"sqlite:///{tmp_path}/daco.db"
    with opened(url) as store:
        with store.database.reading() as connection:
            synchronous = connection.exec_driver_sql("PRAGMA synchronous").scalar_one()
            assert synchronous == 2
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar_one() == "wal"
        answered = [add(store, source_key=str(row)).clip.id for row in range(60)]
        copy = tmp_path / "copy"
        copy.mkdir()
        for suffix in ("", "-wal"):  # the index of the WAL is made again
            shutil.copyfile(f"{tmp_path}/daco.db{suffix}", f"{copy}/daco.db{suffix}")
    with opened(f"sqlite:///{copy}/daco.db") as store:
        assert [clip.id for clip in store.clips("press")][::-1] == answered


LIMITED = """
import resource, sys
from stores import add, opened
from daco.monitoring.store import StoreError
store = opened(sys.argv[1])
for row in range(20):
    add(store, source_key=str(row))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
stored = 20
try:
    while stored < 100_000:
        add(store, source_key=str(stored))
        stored += 1
except StoreError as error:
    print(stored, error)
try:
    store.check()
except StoreError as error:
    print("check fails")
"""


@pytest.mark.parametrize(("size", "is_full"), [(4096, True), (1_500_000, False)])
def test_a_disk_that_takes_no_more_keeps_what_was_answered_and_the_check_notices(
    tmp_path, size, is_full
):
    """The size of files is limited, which fails as a full disk does: in the middle of a write."""
    url = f"sqlite:///{tmp_path}/daco.db"
    with start(LIMITED, url, size) as writer:
        out, errors = writer.communicate(timeout=60)
    assert writer.returncode == 0, errors
    stored = int(out.split()[0])
    assert (stored == 20) == ("check fails" in out) == is_full
    with opened(url) as store:
        assert store.machines_summary()[0].clips == stored
        store.check()


# --- retention -----------------------------------------------------------------------------------


def test_old_clips_go_and_evidence_of_unfinished_alarms_stays(url, monkeypatch):
    monkeypatch.setattr(retention, "_STEP", 4)
    with opened(url) as store:
        for row in range(10):
            add(store, at=START, source_key=str(row), stamp="1:1:1")
        for machine in ("press", "fan"):
            for row in range(2):
                add(store, True, machine=machine, at=START, audio_sha256=f"{machine}{row}")
        for _ in range(3):  # the alarm of the fan is over, and somebody has seen it
            add(store, machine="fan", at=START)
        (fan,) = store.alarms("fan")
        store.people.acknowledge(fan.id, KIM)
        add(store, at=START + 40 * DAY)
        assert protected_audio(store.database) == {"press0", "press1"}
        removal = prune(store.database, lambda machine: 30 * DAY, now=START + 40 * DAY)
        assert (removal.clips, removal.alarms, removal.problems) == (15, 1, ())
        assert [clip.anomalous for clip in store.clips("press")] == [False, True, True]
        assert [alarm.machine for alarm in store.alarms()] == ["press"]
        file = {"source_key": "3", "stamp": "1:1:1"}
        assert add(store, at=START, **file).known  # the file is still known, and not judged again
        assert store.outbox.pending() == {"mail": 1, "hook": 1}  # the clip of today


def test_keys_of_uploads_are_forgotten_with_their_clips_and_files_stay_known(url, monkeypatch):
    monkeypatch.setattr(retention, "_STEP", 2)
    with opened(url, receivers=()) as store:
        for row in range(6):
            add(store, at=START + 10 * row * DAY, source_key=f"upload:{row}", audio_sha256="aa")
        add(store, at=START, source_key="in/a.wav", audio_sha256="aa", stamp="1:1:1")
        prune(store.database, lambda machine: 30 * DAY, now=START + 51 * DAY)
        keys = [f"upload:{row}" for row in range(6)]
        known = {source.source_key for source in store.sources("press", [*keys, "in/a.wav"])}
        assert known == {"upload:3", "upload:4", "upload:5", "in/a.wav"}


def test_a_clock_that_jumped_removes_nothing(tmp_path):
    with opened(f"sqlite:///{tmp_path}/daco.db", receivers=()) as store:
        store.add_many([new_clip(machine="fan", at=START + row * DAY) for row in range(5)])
        store.add_many([new_clip(at=START + row * DAY / 200) for row in range(1100)])
        for now in (START + 4000 * DAY, START - 4000 * DAY):
            removal = prune(store.database, lambda machine: 30 * DAY, now=now)
            assert removal.clips == 0
            assert any("the clock may be wrong" in each for each in removal.problems) == (
                now > START
            )
        removal = prune(store.database, lambda machine: 2 * DAY, now=START + 8 * DAY)
        assert "1,100 recordings of press would be removed at once" in removal.problems[0]
        assert removal.clips == 5  # of the fan: the plant runs, and these are few
        add(store, at=START + 400 * DAY)  # received while the clock was wrong
        (problem,) = prune(store.database, lambda machine: 5 * DAY, now=START + 6 * DAY).problems
        assert "from the future" in problem
        removal = prune(store.database, lambda machine: DAY, now=START + 500 * DAY, force=True)
        assert (removal.clips, removal.problems) == (1101, ())


def test_a_backup_of_a_database_in_use_can_be_restored(tmp_path):
    copy = tmp_path / "backup.db"
    with opened(f"sqlite:///{tmp_path}/daco.db") as store:
        for _ in range(3):
            add(store)
        backup(store.database, copy)
        add(store)
        with pytest.raises(InputError, match="exists"):
            backup(store.database, copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    (tmp_path / "daco.db").write_bytes(b"damaged" * 1000)
    restore(copy, f"sqlite:///{tmp_path}/daco.db")
    with opened(f"sqlite:///{tmp_path}/daco.db") as store:
        assert store.machines_summary()[0].clips == 3
        with pytest.raises(StoreError, match="could not be written"):
            backup(store.database, tmp_path / "nowhere" / "backup.db")
    with pytest.raises(StoreError, match="not a backup"):
        restore(tmp_path / "missing", f"sqlite:///{tmp_path}/daco.db")
    (tmp_path / "other").write_bytes(b"RIFF" * 1000)
    with pytest.raises(StoreError, match="not a backup"):
        restore(tmp_path / "other", f"sqlite:///{tmp_path}/daco.db")


# --- places --------------------------------------------------------------------------------------


def test_the_file_is_private_and_is_not_made_where_none_should_be(tmp_path):
    file = tmp_path / "daco.db"
    with pytest.raises(StoreError, match="There is no database"):
        Store.open(f"sqlite:///{file}", create=False)
    assert not file.exists()
    with opened(f"sqlite:///{file}") as store:
        add(store)
        modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.glob("daco.db*")}
        assert modes == {0o600}


def test_a_check_writes_and_waits_only_a_moment_for_another_writer(url):
    with opened(url) as store:
        store.check()
        beats = {row["name"]: row["value"] for row in rows(url, "daco_schema")}
        assert abs(beats["heartbeat"] - time.time()) < 60
        other = open_database(url)
        with other.writing() as connection:
            connection.execute(text("UPDATE daco_schema SET value = 1 WHERE name = 'heartbeat'"))
            if url.startswith("sqlite"):
                begun = time.monotonic()
                with pytest.raises(StoreError, match="locked"):
                    store.check()
                assert time.monotonic() - begun < 20 * databases.CHECK_PATIENCE
        other.engine.dispose()
        store.check()


def test_another_version_and_a_table_of_somebody_else_are_left_alone(url):
    with opened(url) as store:
        add(store)
        with store.database.writing() as connection:
            connection.execute(text("UPDATE daco_schema SET value = 99 WHERE name = 'version'"))
    with pytest.raises(StoreError, match=r"version 99; this daco uses version 3\. Choose another"):
        Store.open(url)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM daco_clips")).scalar_one() == 1
    engine.dispose()


@pytest.mark.parametrize(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:////nowhere/daco.db",
        "sqlite:///daco.db?cache=shared",
        "mysql://me@host/db",
        "no secret://p@ss",
    ],
)
def test_other_places_are_refused_without_their_passwords(url):
    with pytest.raises(InputError) as caught:
        Store.open(url)
    assert "p@ss" not in str(caught.value)


def test_a_file_that_is_no_database_is_left_alone(tmp_path):
    path = tmp_path / "daco.db"
    path.write_bytes(b"RIFF" * 1000)
    with pytest.raises(StoreError, match="not a database"):
        Store.open(f"sqlite:///{path}")
    assert path.read_bytes() == b"RIFF" * 1000
    with pytest.raises(StoreError, match="cannot be used") as caught:
        Store.open(f"postgresql://kim:hunter2@/daco?host={tmp_path}")
    assert "hunter2" not in str(caught.value)
    with sqlite3.connect(tmp_path / "empty.db"), pytest.raises(StoreError, match="nothing in this"):
        Store.open(f"sqlite:///{tmp_path}/empty.db", create=False)


def test_a_lost_connection_is_replaced():
    """As after an update of PostgreSQL: connections that were open are dead."""
    with opened(new_database()) as store:
        add(store, source_key="a")
        with store.database.reading() as connection:
            backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        os.kill(backend, signal.SIGTERM)
        wait_until(lambda: not Path(f"/proc/{backend}").exists(), 30)
        assert not add(store, source_key="b").known
        assert add(store, source_key="a").known
