"""Recordings that arrive as files: which are complete, in which order, of many machines."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from service_process import wait_until

from daco.monitoring.sources.folder import (
    Arrivals,
    FolderSource,
    FolderWatch,
    stamp_of,
)
from daco.monitoring.store import Outcome, StoreError
from daco.monitoring.store.records import Source
from daco.monitoring.times import time_in_path

SECOND = 10**9


def file(size=100, mtime=50, ctime=None):
    changed = mtime if ctime is None else ctime
    return SimpleNamespace(
        st_size=size, st_mtime_ns=int(mtime * SECOND), st_ctime_ns=int(changed * SECOND)
    )


class Handled:
    """Stands in for the engine: remembers what was given, as it was at that moment."""

    def __init__(self, answer=lambda recording: Outcome(known=True)):
        self.answer, self.given, self.stamps = answer, [], {}
        self._lock = threading.Lock()

    def __call__(self, recording, last_try):
        with self._lock:
            self.given.append((recording.machine, recording.name, recording.data.read_bytes()))
            self.stamps[recording.source_key] = recording.stamp
        return self.answer(recording)

    def sources(self, machine, keys):
        known = [key for key in keys if key in self.stamps]
        return [Source(key, self.stamps[key], None, 1, None) for key in known]


def watch(folder, handled, machine="press", settle=0.0, problem=lambda text: None):
    return FolderWatch(machine, folder, settle, handled, handled, problem)


def test_a_file_that_was_renamed_long_after_it_was_written_is_taken_at_once():
    arrivals = Arrivals(settle=2)
    assert arrivals.ready({"a.wav": file(mtime=50, ctime=52)}, 0) == ["a.wav"]
    assert arrivals.ready({"b.wav": file(mtime=50, ctime=51.9)}, 0) == []


def test_what_was_seen_is_not_taken_again_until_anything_about_it_changes():
    arrivals = Arrivals(settle=0, recall=lambda paths: {"a": stamp_of(file())})
    assert arrivals.ready({"a": file()}, 0) == []
    # The last is another file of the same size from a recorder without a clock.
    for changed in (file(mtime=51), file(size=101), file(ctime=60)):
        assert arrivals.ready({"a": changed}, 1) == ["a"]
    assert arrivals.ready({"a": file()}, 2) == []


def test_files_are_taken_in_the_order_in_which_they_were_written():
    files = {"b": file(mtime=2), "c": file(mtime=1), "a": file(mtime=2)}
    assert Arrivals(settle=0).ready(files, 0) == ["c", "a", "b"]


def test_only_files_that_are_there_are_remembered_and_others_are_recalled():
    asked, stored = [], {}

    def recall(paths):
        asked.extend(paths)
        return {path: stored[path] for path in paths if path in stored}

    arrivals = Arrivals(settle=0, recall=recall)
    for first in range(0, 1000, 50):
        files = {f"{number}.wav": file() for number in range(first, first + 100)}
        for path in arrivals.ready(files, first):
            arrivals.record(path, stamp_of(file()))
            stored[path] = stamp_of(file())
        assert arrivals.ready(files, first + 1) == []
        assert set(arrivals.processed) == set(files)
    assert len(stored) == len(asked) == 1050  # each was asked for once
    assert arrivals.ready({}, 6000) == []  # a drive that is away
    assert arrivals.ready({"7.wav": file(), "new.wav": file()}, 6001) == ["new.wav"]


def test_recordings_at_any_depth_are_taken_and_nothing_else(tmp_path):
    recordings = {"a.wav", "x/b.FLAC", "x/y/c.ogg", "Gehäuse 圧.wav", "dir.wav/d.wav"}
    others = {".a.wav.tmp", ".hidden.wav", "a.wav.part", "notes.txt", "x/._b.wav", "e.M4A"}
    for name in recordings | others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    (tmp_path / "gone.wav").symlink_to(tmp_path / "nowhere.wav")
    with open(os.fsencode(tmp_path) + b"/caf\xe9.wav", "wb"):
        pass
    handled, problems = Handled(), []
    folder = watch(tmp_path, handled, problem=problems.append)
    folder.look()
    folder.look()
    assert sorted(name for _, name, _ in handled.given) == sorted(recordings)
    assert "e.M4A" in problems[-1]
    tmp_path.rename(tmp_path.with_name("away"))
    folder.look()
    assert "removed or unmounted" in problems[-1]
    tmp_path.with_name("away").rename(tmp_path)
    folder.look()
    assert len(handled.given) == len(recordings)  # nothing is judged again


def test_a_file_that_cannot_be_used_is_tried_once_more_and_a_failing_store_changes_nothing(
    tmp_path,
):
    (tmp_path / "a.wav").write_bytes(b"half")
    outcomes = [StoreError("away."), Outcome(refused="too short"), Outcome(refused="too short")]

    def answer(recording):
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    folder = watch(tmp_path, Handled(answer))
    assert not folder.look()
    assert folder.failure == "away."
    folder.look()
    assert folder.failure is None
    folder.look()
    assert outcomes == []
    folder.look()  # until it changes, it is not tried again
    assert folder.arrivals.waiting == {}


def test_a_hundred_machines_are_watched_by_a_few_threads_and_half_written_files_wait(tmp_path):
    handled = Handled()
    folders = []
    for number in range(100):
        (tmp_path / f"m{number}").mkdir()
        folders.append(watch(tmp_path / f"m{number}", handled, f"m{number}", settle=0.3))
    source = FolderSource(folders, threads=3, poll=0.2)
    before = threading.active_count()
    source.start()
    try:
        for number in range(100):
            (tmp_path / f"m{number}" / "a.wav").write_bytes(b"whole")
        with (tmp_path / "m7" / "slow.wav").open("wb", buffering=0) as slow:
            for _ in range(8):
                slow.write(b"part")
                time.sleep(0.1)
        assert threading.active_count() - before <= 6
        wait_until(lambda: len(handled.given) >= 101)
    finally:
        source.stop()
    assert len(handled.given) == 101
    assert ("m7", "slow.wav", b"part" * 8) in handled.given


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("2026-03-01_12-30-05.wav", (2026, 3, 1, 12, 30, 5)),
        ("fan 2026.03.01 12h30.flac", (2026, 3, 1, 12, 30)),
        ("20251231/235959_mic1.wav", (2025, 12, 31, 23, 59, 59)),
        ("2026-03-01/old_2026-03-02T04:05:06.7.wav", (2026, 3, 2, 4, 5, 6)),
        ("2026-02-31_12-00-00.wav", None),
        ("section_00_source_0012.wav", None),
        ("202603011230051.wav", None),
    ],
)
def test_the_time_of_a_recording_is_read_from_its_path(path, expected):
    found = time_in_path(path)
    local = None if expected is None else datetime(*expected).astimezone()
    assert found == local
    assert time_in_path("a_20260301T123005Z.wav") == datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
