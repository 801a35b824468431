"""Which files count as arrived, over looks at real folders and at a clock of our own."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

from daco.errors import InputError
from daco.monitoring.arrivals import Arrivals, ProcessedFile, list_recordings, stamp_of

SECOND = 10**9


def file(size=100, mtime=50, ctime=None):
    changed = mtime if ctime is None else ctime
    return SimpleNamespace(
        st_size=size, st_mtime_ns=int(mtime * SECOND), st_ctime_ns=int(changed * SECOND)
    )


DONE = ProcessedFile(stamp_of(file()))


def test_a_file_that_was_renamed_long_after_it_was_written_is_taken_at_once():
    arrivals = Arrivals(settle=2)
    assert arrivals.ready({"a.wav": file(mtime=50, ctime=52)}, 0) == ["a.wav"]
    assert arrivals.ready({"b.wav": file(mtime=50, ctime=51.9)}, 0) == []


def test_what_was_seen_is_not_taken_again_until_anything_about_it_changes():
    arrivals = Arrivals(settle=0, recall=lambda paths: {"a": DONE})
    assert arrivals.ready({"a": file()}, 0) == []
    # The last is another file of the same size from a recorder without a clock.
    for changed in (file(mtime=51), file(size=101), file(ctime=60)):
        assert arrivals.ready({"a": changed}, 1) == ["a"]
    assert arrivals.ready({"a": file()}, 2) == []


@pytest.mark.parametrize("settle", [-1, float("nan"), float("inf")])
def test_a_time_to_settle_makes_sense(settle):
    with pytest.raises(InputError, match="settle"):
        Arrivals(settle=settle)


@pytest.mark.parametrize("text", [None, "", "etag-1", "1:2", "1:2:3:4"])
def test_a_stamp_that_is_not_ours_is_no_files(text):
    arrivals = Arrivals(settle=0, recall=lambda paths: {"a": ProcessedFile(text, "ab")})
    assert arrivals.ready({"a": file()}, 0) == ["a"]


def test_recordings_at_any_depth_are_listed_and_nothing_else(tmp_path):
    recordings = {"a.wav", "x/b.FLAC", "x/y/c.ogg", "Gehäuse 圧.wav", "dir.wav/d.wav"}
    others = {".a.wav.tmp", ".hidden.wav", "a.wav.part", "notes.txt", "x/._b.wav", "e.M4A"}
    for name in recordings | others:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"12345")
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    (tmp_path / "gone.wav").symlink_to(tmp_path / "nowhere.wav")
    (tmp_path / "self.wav").symlink_to(tmp_path / "self.wav")
    listing = list_recordings(tmp_path)
    assert set(listing.files) == recordings
    assert listing.files["a.wav"].st_size == 5
    (obstacle,) = listing.obstacles
    assert obstacle.startswith("1 file that daco cannot read: e.M4A. Convert to WAV")


def test_files_are_taken_in_the_order_in_which_they_were_written():
    files = {"b": file(mtime=2), "c": file(mtime=1), "a": file(mtime=2)}
    assert Arrivals(settle=0).ready(files, 0) == ["c", "a", "b"]


def test_obstacles_are_named_and_stop_nothing(tmp_path):
    (tmp_path / "a.wav").write_bytes(b"1")
    name = os.fsencode(tmp_path) + b"/caf\xe9.wav"
    with open(name, "wb"):
        pass
    listing = list_recordings(tmp_path)
    assert set(listing.files) == {"a.wav"}
    assert listing.obstacles == (
        "1 name left out, not UTF-8 or with an empty part, . or ..: caf�.wav.",
    )
    missing = list_recordings(tmp_path / "missing")
    assert missing.files == {}
    assert "could not be opened" in missing.obstacles[0]


def test_only_files_that_are_there_are_remembered_and_others_are_recalled():
    asked = []

    def recall(paths):
        asked.extend(paths)
        return {path: DONE for path in paths if path in stored}

    arrivals, stored = Arrivals(settle=0, recall=recall), set()
    for first in range(0, 5000, 50):
        files = {f"{number}.wav": file() for number in range(first, first + 100)}
        for path in arrivals.ready(files, first):
            arrivals.record(path, DONE)
            stored.add(path)
        assert arrivals.ready(files, first + 1) == []
        assert set(arrivals.processed) == set(files)
        assert arrivals.waiting == []
    assert len(stored) == len(asked) == 5050  # each was asked for once
    assert arrivals.ready({}, 6000) == []  # a drive that is away
    assert arrivals.processed == {}
    assert arrivals.ready({"7.wav": file(), "new.wav": file()}, 6001) == ["new.wav"]
