"""The engine: one way for every recording, and what it does when things go wrong around it."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
import soundfile
from plants import faulty, normal, put, ranges, running, upload, wait_until, write_plant
from receiver import receiving
from service_process import FRONTEND, RATE, humming, pids_of_group, wav
from stores import KIM, rows

from daco.monitoring import watchdog as watchdogs
from daco.monitoring.engine import NoModelError
from daco.monitoring.recordings import Recordings
from daco.monitoring.store import MissingRowError, Store, StoreError

FOLDER = {"folder": "inbox/press", "settle": "0.1 s"}


def silence():
    """The machine is off: nothing but the noise of the microphone."""
    return wav(humming(0) * 0.01)


def test_folders_and_uploads_go_one_way(tmp_path):
    file = write_plant(tmp_path, {"press": FOLDER | {"alarm": "2 of 3"}, "fan": {}})
    put(tmp_path / "inbox/press/2026-03-01_12-00-00.wav", faulty())
    (tmp_path / "inbox/press/bad.wav").write_bytes(b"RIFF")
    with running(file, start=False) as plant:
        outcomes = []
        plant.on_outcome.append(lambda _, outcome: outcomes.append(outcome))
        plant.once()
        assert sum(each.refused is not None for each in outcomes) == 1
        (first,) = plant.store.clips("press")
        assert first.recorded_at == datetime(2026, 3, 1, 12).astimezone()
        assert plant.audio(first).read_bytes() == faulty()
        assert upload(plant, faulty(1)).opened  # with the one of the folder
        with pytest.raises(MissingRowError):
            upload(plant, normal(), "pump")
        upload(plant, faulty(3), "fan")
        status = {each.id: each for each in plant.status()}
        assert (status["press"].state, status["fan"].state) == ("fault", "anomalous")


def test_a_recording_without_a_time_in_its_name_has_that_of_its_tags_or_of_its_file(tmp_path):
    tagged = io.BytesIO()
    with soundfile.SoundFile(tagged, "w", RATE, 1, format="FLAC") as file:
        file.date = "2026-03-01T12:30:05Z"
        file.write(humming(0))
    put(tmp_path / "inbox/press/tagged.flac", tagged.getvalue())
    put(tmp_path / "inbox/press/untagged.wav", normal(1), age=3600)
    put(tmp_path / "inbox/press/20260302_080000.flac", tagged.getvalue())
    with running(write_plant(tmp_path, {"press": FOLDER}), start=False) as plant:
        plant.once()
        times = {clip.name: clip.recorded_at for clip in plant.store.clips("press")}
        assert times["tagged.flac"] == datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC)
        assert times["20260302_080000.flac"] == datetime(2026, 3, 2, 8).astimezone()
        age = datetime.now(UTC) - times["untagged.wav"]
        assert timedelta(minutes=59) < age < timedelta(minutes=61)
        assert upload(plant, tagged.getvalue()).clip.time == times["tagged.flac"]
        assert upload(plant, normal(2)).clip.recorded_at is None


def test_an_anomalous_recording_is_compared_with_healthy_ones(tmp_path):
    longer = replace(FRONTEND, seconds=3.0)
    file = write_plant(tmp_path, {"press": {"healthy": "healthy"}}, {"frontend": longer})
    for row in range(20):
        put(tmp_path / f"healthy/{row}.wav", wav(humming(row, 3.0)))
    (tmp_path / "healthy/bad.wav").write_bytes(b"RIFF")
    time_s = np.arange(3 * RATE) / RATE
    squeal = wav(humming(50, 3.0) + 0.1 * np.sin(2 * np.pi * 3000 * time_s))
    with running(file, start=False) as plant:
        assert upload(plant, squeal).clip.findings is None
        plant.explainer.learn()
        first, *_ = upload(plant, squeal).clip.findings
        assert first["kind"] == "tone"
        assert first["low_hz"] <= 3000 <= first["high_hz"]
        assert "3 kHz" in first["text"]
        assert upload(plant, wav(humming(5, 3.0))).clip.findings is None


def test_nothing_is_lost_or_doubled_by_kills(tmp_path):
    """kill -9 of the whole process amid its work; the same command continues."""
    file = write_plant(tmp_path, {"press": FOLDER}, service={"keep_audio": "all"})
    for row in range(24):
        put(tmp_path / f"inbox/press/{row:02}.wav", faulty(row) if row % 2 else normal(row))
    command = [sys.executable, "-m", "daco.cli", "watch", str(file)]
    url = f"sqlite:///{tmp_path}/daco.db"
    Store.open(url).close()
    for kill in range(2):
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        wait_until(lambda least=5 * kill: len(rows(url, "daco_clips")) > least)
        process.kill()
        process.wait()
        wait_until(lambda group=process.pid: not pids_of_group(group), 30)  # workers end with it
    with running(file, start=False) as plant:
        assert plant.once().failures == []
        names = sorted(clip.name for clip in plant.store.clips("press"))
        assert names == [f"{row:02}.wav" for row in range(24)]
        (alarm,) = [each for each in plant.store.alarms("press") if each.kind == "fault"]
        anomalous = [clip.id for clip in plant.store.clips("press") if clip.anomalous][::-1]
        assert alarm.n_clips == len(anomalous)
        assert alarm.clip_ids == tuple(anomalous[:3])


def test_a_machine_that_may_be_off_opens_no_alarm_and_one_that_may_not_does(tmp_path):
    now = datetime.now()
    night = f"{(now.hour + 2) % 24}:00-{(now.hour + 3) % 24}:00"
    tables = {
        "night": {"off": "normal", "alarm": "2 of 3"},
        "hours": {"off": "alarm", "alarm": "2 of 3", "hours": night},
        "always": {"off": "alarm", "alarm": "2 of 3"},
    }
    with running(write_plant(tmp_path, tables, {"ranges": ranges()}), start=False) as plant:
        for machine in tables:
            for _ in range(3):
                assert upload(plant, silence(), machine).clip.state == "off"
        assert [(each.machine, each.kind) for each in plant.store.alarms()] == [("always", "off")]


class Clock:
    """Seconds that go forward when the test says so."""

    seconds = 1000.0

    def __call__(self):
        return self.seconds


def watched(plant, clock):
    """The plant's watchdog with a clock of our own."""
    plant.watchdog = watchdogs.Watchdog(plant, clock)
    return plant.watchdog


def kinds(plant):
    """Machine, kind and state of all alarms."""
    return [(each.machine, each.kind, each.state) for each in plant.store.alarms()]


def test_missing_recordings_are_an_alarm_that_a_recording_clears(tmp_path):
    tables = {"press": {"expect_every": "10 min"}, "web": {}}
    with running(write_plant(tmp_path, tables), start=False) as plant:
        clock = Clock()
        dog = watched(plant, clock)
        upload(plant, normal())
        dog.tick()
        clock.seconds += 1190
        dog.tick()
        assert kinds(plant) == []
        clock.seconds += 20
        dog.tick()
        assert kinds(plant) == [("press", "no recordings", "active")]
        assert "expected every 10 min" in plant.store.alarms()[0].detail
        assert plant.status()[0].state == "no recordings"
        upload(plant, normal())
        dog.tick()
        assert kinds(plant) == [("press", "no recordings", "cleared")]
        future = datetime.now(UTC) + timedelta(days=30)  # hides no silence
        upload(plant, normal(1), received_at=future, recorded_at=future)
        dog.tick()
        clock.seconds += 1300
        dog.tick()
        assert kinds(plant)[0] == ("press", "no recordings", "active")


def test_a_models_folder_that_vanishes_keeps_its_models_and_says_so_once(tmp_path, caplog):
    file = write_plant(tmp_path, {"press": {}, "fan": {}})
    with running(file, start=False) as plant:
        dog = watched(plant, Clock())
        upload(plant, normal())
        plant.models.get("fan")
        (tmp_path / "models").rename(tmp_path / "away")
        for _ in range(3):
            for entry in plant.models._entries.values():
                entry.looked_at = -1000.0
            dog.tick()
        assert upload(plant, faulty()).clip.anomalous
        assert kinds(plant) == [("fan", "daco", "active"), ("press", "daco", "active")]
        assert len([each for each in caplog.messages if "No such file" in each]) == 2
    with running(file, start=False) as plant:  # after a restart there is no model: try again later
        with pytest.raises(NoModelError):
            upload(plant, normal())
        (tmp_path / "away").rename(tmp_path / "models")
        wait_until(lambda: plant.models.get("press") is not None)
        dog = watched(plant, Clock())
        dog.tick()
        assert {state for _, _, state in kinds(plant)} == {"cleared"}


def test_people_are_told_that_the_database_fails_without_the_database(tmp_path, monkeypatch):
    with running(write_plant(tmp_path, {"press": {}}), start=False) as plant:
        clock, told = Clock(), []
        dog = watched(plant, clock)
        monkeypatch.setattr(plant.notifier, "tell_now", told.append)
        (tmp_path / "daco.db").rename(tmp_path / "away.db")
        for _ in range(20):
            dog.tick()
            clock.seconds += 10
        (sentence,) = told
        assert "No recording can be stored" in sentence
        assert "was removed" in plant.watchdog.problems(None)[0]
        (tmp_path / "away.db").rename(tmp_path / "daco.db")
        dog.tick()
        assert plant.watchdog.problems(None) == []


def test_a_look_that_fails_at_one_machine_is_an_alarm_and_the_others_are_looked_at(
    tmp_path, monkeypatch
):
    machines = {"fan": {}, "press": {"expect_every": "10 min"}}
    with running(write_plant(tmp_path, machines), start=False) as plant:
        clock = iter(range(0, 10**9, 3600))
        dog = plant.watchdog = watchdogs.Watchdog(plant, lambda: float(next(clock)))
        look = dog._look_at

        def failing(machine, heard):
            if machine.id == "fan":
                raise KeyError("basis")
            look(machine, heard)

        monkeypatch.setattr(dog, "_look_at", failing)
        dog.tick()
        dog.tick()
        assert ("press", "no recordings", "active") in kinds(plant)
        assert "fan: KeyError" in dog.problems(None)[0]
        monkeypatch.setattr(dog, "_look_at", look)
        dog.tick()
        assert dog.problems(None) == []


def test_a_receiver_that_refuses_is_one_alarm_until_it_takes_a_message_also_over_restarts(tmp_path):
    states = []
    with receiving() as server:
        machines = {"press": FOLDER | {"alarm": "every", "recover": 1}}
        file = write_plant(tmp_path, machines, notify={"webhook": server.url})
        sounds = [faulty(1), None, normal(2), faulty(3)]
        for row, (sound, answer) in enumerate(zip(sounds, [404, 404, 404, 204], strict=True)):
            server.answer = lambda _, answer=answer: answer
            if sound is not None:
                put(tmp_path / f"inbox/press/{row}.wav", sound, age=60)
            with running(file, start=False) as plant:
                plant.once()
                states.append([alarm.state for alarm in plant.store.alarms() if not alarm.machine])
    assert states == [["active"], ["active"], ["active"], ["cleared"]]


# --- kept recordings, and disks that are full ----------------------------------------------------


def test_evidence_of_unfinished_alarms_is_not_evicted(tmp_path):
    small = {"audio_size": "200 kB"}
    with running(write_plant(tmp_path, {"press": {}, "fan": {}}, service=small)) as plant:
        evidence = [upload(plant, faulty(row), "fan").clip for row in range(3)]
        assert plant.store.alarms("fan")[0].is_open
        others = [upload(plant, faulty(100 + row)).clip for row in range(2)]
        plant.store.people.set_out_of_service("press", True, KIM)
        others += [upload(plant, faulty(200 + row)).clip for row in range(8)]
        assert all(plant.audio(clip) for clip in evidence)
        assert [plant.audio(clip) is not None for clip in others].count(True) == 3
        assert plant.recordings.bytes <= 200_000


def test_a_recording_that_does_not_fit_evicts_no_other(tmp_path):
    protected = set()
    recordings = Recordings(tmp_path, 1000, lambda: protected, reserve=0)
    recordings.keep("aa" * 32, b"a" * 400)
    with pytest.raises(Exception, match="audio_size"):
        recordings.keep("bb" * 32, b"b" * 1001)
    recordings.keep("cc" * 32, b"c" * 600)
    protected |= {"aa" * 32, "cc" * 32}
    with pytest.raises(Exception, match="Acknowledge"):
        recordings.keep("dd" * 32, b"d" * 10)
    assert recordings.bytes == 1000
    recordings.find("cc" * 32).unlink()  # by somebody else
    assert recordings.find("cc" * 32) is None


def test_recordings_leave_space_for_the_database_and_half_files_are_removed(tmp_path):
    (tmp_path / "ab").mkdir()
    old = tmp_path / "ab" / ".abc.wav.tmp"
    old.write_bytes(b"half")
    os.utime(old, (0, 0))
    recordings = Recordings(tmp_path, 10**9, reserve=1 << 60)
    assert not old.exists()
    with pytest.raises(Exception, match="disk is full"):
        recordings.keep("ab" * 32, normal())
    assert not recordings.has_space()


def test_on_a_full_disk_recordings_go_and_alarms_go_on_and_say_so(tmp_path, monkeypatch):
    """The store fails as on a full disk until recordings have been evicted."""
    with running(write_plant(tmp_path, {"press": {"alarm": "2 of 3"}})) as plant:
        upload(plant, faulty(1))
        upload(plant, faulty(2))
        plant.store.people.clear(1, KIM)
        assert plant.recordings.bytes
        add = plant.store.writer.add

        def full(clip):
            if plant.recordings.bytes:
                raise StoreError("database or disk is full. The disk is full: free some space.")
            return add(clip)

        monkeypatch.setattr(plant.store.writer, "add", full)
        monkeypatch.setattr(plant.recordings, "_reserve", 1 << 60)
        assert upload(plant, faulty(3)).clip.anomalous
        assert upload(plant, faulty(4)).opened
        plant.watchdog.tick()
        causes = {cause.partition(" on ")[0] for _, _, cause in plant.store.open_causes()}
        assert causes == {"disk", "audio"}
        monkeypatch.setattr(plant.recordings, "_reserve", 0)
        upload(plant, faulty(5))
        plant.watchdog.tick()
        assert plant.store.open_causes() == []


def test_once_on_a_disk_that_refuses_says_so_and_judges_the_rest_later(tmp_path, monkeypatch):
    file = write_plant(tmp_path, {"press": FOLDER})
    for row in range(5):
        put(tmp_path / f"inbox/press/{row}.wav", normal(row))
    with running(file, start=False) as plant:
        done = []
        add = plant.store.writer.add

        def limited(clip):
            if len(done) == 2:
                raise StoreError("the disk is full")
            done.append(clip)
            return add(clip)

        monkeypatch.setattr(plant.store.writer, "add", limited)
        summary = plant.once()
        assert (summary.waiting, summary.failures) == ([], ["press: the disk is full"])
    with running(file, start=False) as plant:
        plant.once()
        assert len(plant.store.clips("press")) == 5


def test_old_recordings_are_removed_with_their_clips(tmp_path, monkeypatch):
    machines, table = {"press": {"keep": "1 day"}}, {"keep_audio": "all"}
    with running(write_plant(tmp_path, machines, service=table)) as plant:
        old = upload(plant, normal(), received_at=datetime.now(UTC) - timedelta(days=3)).clip
        new = upload(plant, normal(1)).clip
        os.utime(plant.audio(old), (0, 0))
        plant.watchdog._prune()
        assert plant.audio(old) is None
        assert plant.audio(new) is not None
        assert [clip.id for clip in plant.store.clips("press")] == [new.id]
