"""A watcher on real recordings, a real model and a real database; only its clock is ours."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from stores import rows
from watched import record, save_model

from daco.detector.verdict import ScoreOptions
from daco.monitoring.store import Store, database
from daco.monitoring.watch import ModelInUse, NewVerdict, Remark, Watcher


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "press.daco")


class Watched:
    """A folder being watched, and a clock that goes forward when told to."""

    def __init__(self, model, root, settle=2.0):
        self.path = root / "press.daco"
        if not self.path.exists():
            shutil.copyfile(model, self.path)
        self.inbox = root / "inbox"
        self.inbox.mkdir(exist_ok=True)
        self.url = f"sqlite:///{root}/daco.db"
        self.settle, self.now = settle, 0.0
        self.store = Store.open(self.url)
        self.restart()

    def restart(self):
        self.in_use = ModelInUse(self.path, ScoreOptions())
        self.watcher = Watcher(
            self.in_use, self.inbox, self.store, settle=self.settle, clock=lambda: self.now
        )

    def look(self, after=0.0, **options):
        self.now += after
        return list(self.watcher.poll(**options))

    def settled(self, **options):
        """What comes of two looks between which nothing is written."""
        return self.look(**options) + self.look(self.settle, **options)

    @property
    def stored(self):
        return [clip.name for clip in self.store.clips("press", 1000)][::-1]


@pytest.fixture
def watched(model_path, tmp_path):
    inside = Watched(model_path, tmp_path)
    yield inside
    inside.store.close()


def test_every_recording_is_judged_once_and_stays_known(watched):
    for index in range(4):
        record(watched.inbox / f"{index}.wav", index, fault=index == 2)
        os.utime(watched.inbox / f"{index}.wav", ns=(0, 10**18 + index))
    record(watched.inbox / "deep" / "er" / "Gehäuse 圧力 🛠.flac", 7, format="FLAC")
    events = watched.settled()
    assert all(isinstance(event, NewVerdict) for event in events)
    assert [event.verdict.alarm for event in events] == [False, False, True, False, False]
    assert watched.stored == [*(f"{i}.wav" for i in range(4)), "deep/er/Gehäuse 圧力 🛠.flac"]
    assert watched.look(60) == []
    watched.restart()
    assert watched.settled() == []
    clip = watched.store.clips("press", 1)[0]
    assert clip.audio_path == str(watched.inbox.resolve() / "deep/er/Gehäuse 圧力 🛠.flac")
    assert Path(clip.audio_path).is_file()
    assert clip.nearest.startswith("normal_")
    assert clip.model_sha256 == watched.in_use.model.sha256


def test_a_file_that_grows_waits_and_is_heard_as_a_whole(watched, tmp_path):
    whole = record(tmp_path / "whole.wav", 0).read_bytes()
    target = watched.inbox / "a.wav"
    for part in range(1, 11):  # a slow copy: the header promises more than there is
        target.write_bytes(whole[: len(whole) * part // 10])
        assert watched.look(1) == []
    assert watched.look(1) == []
    (event,) = watched.look(1)
    assert event.verdict.seconds == 0.5
    assert watched.stored == ["a.wav"]


def test_a_copy_that_pauses_is_neither_judged_nor_complained_about(watched, tmp_path):
    whole = record(tmp_path / "whole.wav", 0).read_bytes()
    target = watched.inbox / "a.wav"
    for part in (10, 2):
        target.write_bytes(whole[: len(whole) // part])
        assert watched.settled() == []
        assert watched.look(10) == []
    target.write_bytes(whole)
    assert [type(event) for event in watched.settled()] == [NewVerdict]


def test_a_recording_that_is_moved_in_is_judged_at_once(watched, tmp_path):
    ready = record(tmp_path / "ready.wav", 0)
    old = ready.stat().st_mtime_ns - 5 * 10**9
    os.utime(ready, ns=(old, old))
    ready.rename(watched.inbox / "a.wav")
    assert [type(event) for event in watched.look()] == [NewVerdict]


def test_an_overwritten_file_is_a_new_recording_and_a_touched_one_is_not(watched):
    target = record(watched.inbox / "a.wav", 0)
    assert len(watched.settled()) == 1
    os.utime(target, ns=(5, 5))
    assert watched.settled() == []
    record(target, 1)
    assert [event.verdict.name for event in watched.settled()] == ["a.wav"]
    record(target, 0)  # what was there before, recorded over again
    assert len(watched.settled()) == 1
    shutil.copyfile(target, watched.inbox / "copy.wav")  # elsewhere: another recording
    assert len(watched.settled()) == 1
    assert watched.stored == ["a.wav", "a.wav", "a.wav", "copy.wav"]


def test_known_files_are_not_read_again(watched, monkeypatch):
    for index in range(3):
        record(watched.inbox / f"{index}.wav", index)
    watched.settled()
    os.utime(watched.inbox / "1.wav", ns=(5, 5))
    watched.settled()
    read = []
    monkeypatch.setattr(
        "daco.monitoring.watch.sha256_of_file", lambda path: read.append(path) or "0"
    )
    watched.restart()
    watched.settled()
    assert read == []


def test_what_is_no_recording_is_told_once_and_tried_again_when_it_changes(watched, tmp_path):
    whole = record(tmp_path / "whole.wav", 0).read_bytes()
    (watched.inbox / "cut.wav").write_bytes(whole[:1000])
    (watched.inbox / "empty.wav").write_bytes(b"")
    (watched.inbox / "text.flac").write_text("not sound")
    record(watched.inbox / "good.wav", 1)
    assert [type(event) for event in watched.settled()] == [NewVerdict]
    assert watched.look(17) == []
    reasons = {event.name: event.reason for event in watched.look(1)}
    assert set(reasons) == {"cut.wav", "empty.wav", "text.flac"}
    assert reasons["cut.wav"].startswith("truncated: it has")
    assert str(tmp_path) not in reasons["empty.wav"]
    assert watched.look(1000) == []
    watched.restart()
    assert watched.settled() == []
    assert watched.look(1000) == []
    (watched.inbox / "cut.wav").write_bytes(whole)
    assert [event.verdict.name for event in watched.settled()] == ["cut.wav"]


def test_deleted_files_are_of_no_concern(watched):
    doomed = record(watched.inbox / "a.wav", 0)
    assert watched.look() == []
    doomed.unlink()
    assert watched.look(5) == []
    record(doomed, 0)
    assert len(watched.settled()) == 1
    doomed.unlink()
    assert watched.look(5) == []
    shutil.rmtree(watched.inbox)  # the drive is gone
    assert [type(event) for event in watched.look(5)] == [Remark]
    assert watched.look(5) == []
    record(doomed, 0)  # and back, with what had been there
    assert watched.settled() == []
    assert watched.stored == ["a.wav"]


def test_a_file_that_changes_while_it_is_read_is_not_stored(watched, monkeypatch):
    target = record(watched.inbox / "a.wav", 0)
    judge = watched.in_use.judge

    def judge_and_overwrite(path, name):
        verdict = judge(path, name)
        record(target, 1)
        monkeypatch.undo()
        return verdict

    watched.look()
    monkeypatch.setattr(watched.in_use, "judge", judge_and_overwrite)
    assert watched.look(2) == []
    (event,) = watched.settled()
    assert event.verdict == judge(target, "a.wav")


def test_neither_a_wrong_clock_nor_one_that_is_set_back_matters(watched):
    for index, when in enumerate([0, 10**18, 4 * 10**18, 1, 9 * 10**18]):
        target = record(watched.inbox / f"{index}.wav", index)
        os.utime(target, ns=(when, when))
    assert len(watched.settled()) == 5
    for index in range(5):
        record(watched.inbox / f"{index}.wav", 10 + index)
        os.utime(watched.inbox / f"{index}.wav", ns=(0, 0))
    assert len(watched.settled()) == 5
    assert watched.settled() == []


def test_two_watchers_of_one_folder_judge_each_recording_once(model_path, watched, tmp_path):
    other = Watched(model_path, tmp_path)
    for index in range(6):
        record(watched.inbox / f"{index}.wav", index)
    watched.look()
    other.look()
    first = watched.watcher
    watched.now = other.now = 2
    looks = [first.poll(), other.watcher.poll()]
    events = [event for pair in zip(*looks, strict=False) for event in pair]
    events += [event for each in looks for event in each]
    assert len(events) == 6
    assert sorted(watched.stored) == [f"{index}.wav" for index in range(6)]
    other.store.close()


def test_folders_of_one_machine_do_not_mix_up_their_files(model_path, watched, tmp_path):
    record(watched.inbox / "1.wav", 1)
    second = tmp_path / "second"
    record(second / "1.wav", 2)
    for _ in range(2):  # also after a restart
        for folder in (watched.inbox, second):
            watcher = Watcher(watched.in_use, folder, watched.store, settle=0)
            list(watcher.poll())
    assert watched.stored == ["1.wav", "1.wav"]


def test_a_changed_model_is_used_and_a_broken_one_is_not(watched):
    before = watched.in_use.model.sha256
    record(watched.inbox / "a.wav", 0)
    watched.look()
    save_model(watched.path, count=30)
    remark, event = watched.look(2)
    assert "30 normals" in remark.text
    assert event.verdict.model_sha256 == watched.in_use.model.sha256 != before
    good = watched.path.read_bytes()
    watched.path.write_bytes(good[: len(good) // 2])
    (remark,) = watched.look(1)
    assert "cannot be used" in remark.text
    record(watched.inbox / "b.wav", 1)
    (event,) = watched.settled()  # judged by the old one, and the remark is not repeated
    assert len(watched.in_use.model) == 30
    watched.path.unlink()
    assert watched.look(1) == []
    watched.path.write_bytes(good)
    assert watched.look(1) == []  # the same as before
    save_model(watched.path, count=28)
    assert "28 normals" in watched.look(1)[0].text


def test_a_database_that_is_away_holds_recordings_up_and_loses_none(watched, tmp_path, monkeypatch):
    monkeypatch.setattr(database, "PATIENCE", 0.05)
    watched.store.close()
    watched.store = Store.open(watched.url)
    watched.restart()
    for index in range(3):
        record(watched.inbox / f"{index}.wav", index)
    watched.look()
    other = sqlite3.connect(tmp_path / "daco.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    (remark,) = watched.look(2)
    assert "Another program" in remark.text
    assert watched.look(1) == []  # reported once
    other.execute("COMMIT")
    other.close()
    remark, *events = watched.look(1)
    assert "back" in remark.text
    assert len(events) == 3
    assert sorted(watched.stored) == ["0.wav", "1.wav", "2.wav"]


def fill(folder, count, start=0):
    """Files that are no recordings: nothing is faster to deal with."""
    for number in range(start, start + count):
        (folder / f"tiny{number:05}.wav").write_bytes(b"%d" % number)


def known(watched):
    return {row["source_key"].rpartition("/")[2] for row in rows(watched.url, "daco_sources")}


def test_memory_and_store_hold_what_is_in_the_folder_however_much_has_passed(watched):
    stays = record(watched.inbox / "stays.wav", 1)
    total = 0
    for round in range(12):
        fill(watched.inbox, 250, 250 * round)
        record(watched.inbox / f"clip{round}.wav", round)
        events = watched.settled(second_try=False)
        total += len(events)
        present = {path.name for path in watched.inbox.iterdir()}
        assert set(watched.watcher._arrivals.processed) == present
        assert watched.watcher.waiting == []
        for path in watched.inbox.glob("tiny*"):
            path.unlink()
        (watched.inbox / f"clip{round}.wav").unlink()
    assert total == 12 * 251 + 1
    assert len(known(watched)) == total
    record(watched.inbox / "last.wav", 99)
    watched.settled()
    watched.watcher.forget_gone()
    assert watched.look() == []
    # Those whose clips are kept stay known; so does what lies there.
    assert known(watched) == {"stays.wav", "last.wav", *(f"clip{n}.wav" for n in range(12))}
    watched.store.prune(keep_days=0)
    watched.watcher.forget_gone()
    assert watched.look() == []
    assert known(watched) == {"stays.wav", "last.wav"}
    watched.restart()
    assert watched.settled() == []  # clips that were removed are not judged again
    assert watched.stored == []
    os.utime(stays, ns=(5, 5))
    assert watched.settled() == []
    record(watched.inbox / "clip3.wav", 3)
    assert [event.verdict.name for event in watched.settled()] == ["clip3.wav"]


def test_files_of_a_drive_that_is_away_are_not_forgotten(watched, tmp_path):
    for name in ("a.wav", "mic1/b.wav", "mic2/c.wav", "2026/01/d.wav", "2026/02/e.wav"):
        record(watched.inbox / name, 1)
    watched.settled()
    watched.store.prune(keep_days=0)
    away = tmp_path / "away"

    def look_and_forget():
        watched.watcher.forget_gone()
        assert [event for event in watched.look() if not isinstance(event, Remark)] == []
        return known(watched)

    everything = known(watched)
    watched.inbox.rename(away)
    assert look_and_forget() == everything
    watched.inbox.mkdir()  # where the drive is to be found again
    assert look_and_forget() == everything
    watched.inbox.rmdir()
    away.rename(watched.inbox)
    assert look_and_forget() == everything
    (watched.inbox / "mic2").rename(away)
    (watched.inbox / "mic2").mkdir()
    assert look_and_forget() == everything
    (watched.inbox / "mic2").rmdir()
    away.rename(watched.inbox / "mic2")
    assert look_and_forget() == everything
    (watched.inbox / "mic1" / "b.wav").unlink()
    (watched.inbox / "mic1" / "b.wav").symlink_to(tmp_path / "nowhere.wav")
    assert look_and_forget() == everything
    assert watched.stored == []
    shutil.rmtree(watched.inbox / "2026" / "01")
    (watched.inbox / "a.wav").unlink()
    record(watched.inbox / "new.wav", 2)
    watched.settled()
    assert look_and_forget() == everything - {"a.wav", "d.wav"} | {"new.wav"}


def test_a_path_too_long_for_the_database_is_told(watched):
    target = watched.inbox
    while len(str(target)) < 540:
        target /= "x" * 100
    record(target / "a.wav", 0)
    (event,) = watched.settled(second_try=False)
    assert "longer than 512" in event.reason
    assert watched.look(1) == []


def test_a_look_can_be_left_at_any_recording(watched):
    for index in range(5):
        record(watched.inbox / f"{index}.wav", index)
    watched.look()
    watched.now += 2
    looking = watched.watcher.poll()
    next(looking)
    looking.close()
    assert len(watched.stored) == 1
    assert len(watched.look(stop=lambda: len(watched.stored) == 3)) == 2
    assert len(watched.look()) == 2
    assert len(watched.stored) == 5
