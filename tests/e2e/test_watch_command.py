"""``daco watch`` as a user runs it: real processes, real recordings, killed at any moment."""

from __future__ import annotations

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile
from broken_server import unused_port
from postgres import new_database
from receiver import receiving
from service_process import wait_until
from stores import rows
from typer.testing import CliRunner
from watched import RATE, record, save_model, sound

from daco.commands.app import app
from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.embedding.frontend import Listener
from daco.errors import DacoError
from daco.monitoring.arrivals import list_recordings
from daco.monitoring.store import Store

PROGRAM = [sys.executable, "-m", "daco.cli", "watch"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return save_model(tmp_path_factory.mktemp("model") / "press.daco")


@pytest.fixture
def plant(made, tmp_path):
    """A model, and a folder in which recordings arrive."""
    shutil.copyfile(made, tmp_path / "press.daco")
    (tmp_path / "inbox").mkdir()
    return tmp_path


def database(plant):
    return f"sqlite:///{plant}/daco.db"


def run(plant, *options):
    arguments = ["watch", plant / "press.daco", plant / "inbox", *options]
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


@contextmanager
def running(plant, *options, end=signal.SIGTERM, env=None):
    """The command in a process of its own, ended as a service manager ends it, or a person."""
    arguments = [plant / "press.daco", plant / "inbox", "--settle", "0.2", "--poll", "0.05"]
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments), *map(str, options)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80", **(env or {})},
    )
    try:
        yield process
    finally:
        process.send_signal(end)
        process.out, process.err = process.communicate(timeout=60)
    assert process.returncode == 0, process.err


def arrive(plant, name, seed, fault=False):
    """Move a finished recording into the inbox."""
    record(plant / "outbox" / name, seed, fault).replace(plant / "inbox" / name)


def names(url):
    return [row["name"] for row in rows(url, "daco_clips")]


def test_clips_that_cannot_be_judged_open_alarms_of_their_own_kind(plant):
    model = MachineModel.load(plant / "press.daco")
    listener = Listener(model.frontend)
    waves = [sound(10_000 + i) for i in range(24)]
    levels = np.concatenate([listener.embed_waveform(each, RATE).levels for each in waves])
    replace(model, ranges=learn_ranges(levels, [RATE])).save(plant / "press.daco")
    for number, gain in enumerate([1, 0.01, 0.01, 0, 0.01]):
        soundfile.write(plant / "inbox" / f"{number}.wav", gain * waves[number], RATE)
        os.utime(plant / "inbox" / f"{number}.wav", (number, number))
    result = run(plant, "--once", "--db", database(plant))
    assert result.exit_code == 0, result.output
    text = result.output
    assert text.count(" off  ") == 3
    assert " recorder fault " in text
    assert "off: level -5" in text
    assert "ALARM 1 of press: 3 of the last 5 clips are off" in text
    assert "5 clips, 0 anomalous, 3 off, 1 recorder fault, 1 alarm" in " ".join(text.split())
    with Store.open(database(plant)) as store:
        assert [(alarm.kind, alarm.clip_ids) for alarm in store.alarms()] == [("off", (2, 3, 5))]
        states = [clip.state for clip in store.clips("press")][::-1]
        assert states == ["normal", "off", "off", "recorder fault", "off"]


def test_once_judges_what_is_there_and_says_it_in_80_columns(plant):
    for index in range(6):
        name = f"{'long_folder_name/' * (index == 0)}recording_{index}_of_the_press.wav"
        record(plant / "inbox" / name, index, fault=index >= 3)
    (plant / "inbox" / "broken.wav").write_bytes(b"RIFF")
    result = run(plant, "--once", "--settle", "0.1", "--exit-code")
    assert result.exit_code == 3, result.output
    lines = result.stdout.splitlines()
    assert sum(bool(re.match(r"\d\d:\d\d:\d\d normal ", line)) for line in lines) == 3
    clip = next(line for line in lines if "recording_4" in line)
    pattern = r"\d\d:\d\d:\d\d ANOMALY +[\d.]+ +> [\d.]+ +recording_4_of_the_press.wav  ~ normal_"
    assert re.match(pattern, clip)
    assert any("ALARM 1 of press: 3 of the last 5 clips are anomalous" in line for line in lines)
    assert any("unusable broken.wav: not readable as audio" in line for line in lines)
    assert "6 clips, 3 anomalous, 1 alarm; 1 file could not be used." in result.stderr
    assert len(names(database(plant))) == 6  # beside the model, wherever the command was run
    again = run(plant, "--once", "--settle", "0", "--exit-code")
    assert (again.exit_code, again.stdout) == (0, "")
    assert "0 clips" in again.stderr


def test_a_terminal_gets_lines_of_its_width_with_colours(plant):
    import pty

    record(
        plant / "inbox" / ("deep/" * 10) / "a_recording_with_quite_a_long_name.wav", 0, fault=True
    )
    record(plant / "inbox" / "圧力圧力圧力圧力圧力圧力圧力圧力圧力圧力圧力圧力圧力圧力.wav", 1)
    record(plant / "inbox" / "evil\x1b[2J[red].wav", 2)
    ours, theirs = pty.openpty()
    arguments = [*PROGRAM, plant / "press.daco", plant / "inbox", "--once", "--settle", "0"]
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "LANG": "C.UTF-8"}
    done = subprocess.run(
        arguments, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment, check=False
    )
    os.close(theirs)
    assert done.returncode == 0, done.stderr
    printed = b""
    with suppress(OSError):  # the end of a terminal is an error to read
        while part := os.read(ours, 1 << 16):
            printed += part
    os.close(ours)
    shown = printed.decode()
    assert "\x1b[1;31mANOMALY" in shown
    assert "\x1b[2J" not in shown  # a file's name does not steer the terminal
    assert "[red]" in shown
    from rich.cells import cell_len

    lines = [re.sub(r"\x1b\[[\d;]*m", "", line) for line in shown.splitlines()]
    assert len([line for line in lines if re.match(r"\d\d:\d\d:\d\d ", line)]) == 3
    assert max(map(cell_len, lines)) <= 80
    assert any("long_name.wav" in line for line in lines)


def test_long_recordings_are_cut_into_windows(plant):
    wave = np.concatenate([sound(0), sound(1), sound(2, fault=True), sound(3)])
    soundfile.write(plant / "inbox" / "long.wav", wave, RATE)
    result = run(plant, "--once", "--settle", "0", "--window", "0.5")
    assert "ANOMALY" in result.stdout
    with Store.open(database(plant)) as store:
        (clip,) = store.clips("press")
    assert (clip.windows, clip.worst_window) == (4, 1.0)


def test_mistakes_are_told_in_a_sentence(plant):
    for options, message in (
        (("--alarm", "5/3"), "alarm rule"),
        (("--webhook", "ftp://host"), "http://"),
        (("--db", "mysql://host/db"), "postgresql"),
        (("--window", "-1"), "window"),
        (("--aggregate", "median"), "aggregate"),
    ):
        result = run(plant, "--once", *options)
        assert isinstance(result.exception, DacoError), result.output
        assert message in str(result.exception)
    (plant / "inbox").rmdir()
    assert "not a folder" in str(run(plant, "--once").exception)
    (plant / "press.daco").unlink()
    assert isinstance(run(plant, "--once").exception, DacoError)
    assert not (plant / "daco.db").exists() or names(database(plant)) == []


def test_a_file_that_is_still_written_is_left_for_the_next_run(plant, monkeypatch):
    target = record(plant / "inbox" / "a.wav", 0)
    whole = target.read_bytes()

    def list_after_it_grew(folder):
        with target.open("ab") as file:
            file.write(b"x")
        return list_recordings(folder)

    with monkeypatch.context() as patch:
        patch.setattr("daco.monitoring.watch.list_recordings", list_after_it_grew)
        result = run(plant, "--once", "--settle", "0.1")
    assert result.exit_code == 0
    assert "Still being written, and left for the next run: a.wav." in result.stderr
    assert result.stdout == ""
    target.write_bytes(whole)
    assert "normal" in run(plant, "--once", "--settle", "0.1").stdout


def test_recordings_are_judged_as_they_arrive_until_the_command_is_told_to_end(plant):
    url = database(plant)
    Store.open(url).close()
    with running(plant, end=signal.SIGINT) as process:
        arrive(plant, "first.wav", 0)
        arrive(plant, "second.wav", 1)
        wait_until(lambda: len(names(url)) == 2)
        arrive(plant, "first.wav", 2)
        wait_until(lambda: len(names(url)) == 3)
        save_model(plant / "press.daco", count=30)
        arrive(plant, "after.wav", 3)
        wait_until(lambda: len(names(url)) == 4)
    assert "30 normals" in process.err
    assert "4 clips" in process.err
    assert Counter(names(url)) == {"first.wav": 2, "second.wav": 1, "after.wav": 1}
    assert "unusable" not in process.out


# The command runs once beforehand, so that everything is imported. What is killed are children of
# that process, which are as good as new processes and start in a moment.
WARM = """
import os, random, signal, sys, tempfile, time
import typer.main
from daco.commands.app import app
from daco.detector.model import MachineModel
from daco.detector.ranges import learn_ranges
from daco.embedding.frontend import Listener

command = typer.main.get_command(app)

def watch(*arguments):
    command.main(["watch", *arguments], standalone_mode=False)

with tempfile.TemporaryDirectory() as folder:
    warm = os.path.join(os.path.dirname(sys.argv[1]), "warm")
    url = f"sqlite:///{folder}/daco.db"
    webhook = "http://127.0.0.1:9/"
    watch(sys.argv[1], warm, "--db", url, "--webhook", webhook, "--once", "--settle=0")
"""

# A child is killed at once, or after some of its lines: that is, in the middle of the next clip.
# Every child finds four new recordings, and prints a line for each of them.
KILLED = (
    WARM
    + """
model, inbox, stage, kills, *options = sys.argv[1:]
dice = random.Random(0)
waiting = sorted(os.listdir(stage))
for number in range(int(kills)):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(theirs, 1)
        try:
            watch(model, inbox, "--settle", "0", "--poll", "0.01", *options)
        finally:
            os._exit(1)
    os.close(theirs)
    for name in waiting[number * 4 : number * 4 + 4]:
        os.rename(os.path.join(stage, name), os.path.join(inbox, name))
    lines = dice.choice([0, 1, 2, 4])
    while lines > 0 and (printed := os.read(ours, 4096)):
        lines -= printed.count(b"\\n")
    time.sleep(dice.uniform(0, 0.01))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(ours)
    assert os.WIFSIGNALED(status), "it ended by itself"
"""
)

AS_SOMEBODY = (
    WARM
    + """
os.setgid(int(sys.argv[2]))
os.setuid(int(sys.argv[2]))
watch(sys.argv[1], *sys.argv[3:])
"""
)


@pytest.mark.parametrize(("backend", "kills"), [("sqlite", 24), ("postgresql", 8)])
def test_after_any_number_of_kills_every_recording_is_there_exactly_once(plant, backend, kills):
    url = database(plant) if backend == "sqlite" else new_database()
    stage = plant / "stage"
    for index in range(100):
        record(stage / f"{index:03d}.wav", index, fault=index % 3 == 0)
    for index in range(100, 140):  # there from the start
        record(plant / "inbox" / f"{index:03d}.wav", index)
    (plant / "inbox" / "broken.wav").write_bytes(b"RIFF")
    options = ["--db", url, "--alarm", "off", "--webhook", f"http://127.0.0.1:{unused_port()}/"]
    record(plant / "warm" / "0.wav", 0)
    arguments = [plant / "press.daco", plant / "inbox", stage, kills, *options]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert killed.returncode == 0, killed.stderr
    assert 0 < len(names(url)) < 140  # they came while there was something to do
    for left in stage.iterdir():
        left.rename(plant / "inbox" / left.name)
    result = run(plant, *options, "--once", "--settle", "0")
    assert result.exit_code == 0, result.output
    assert Counter(names(url)) == {f"{index:03d}.wav": 1 for index in range(140)}
    # What was written in the same transactions is there exactly once as well.
    clips = rows(url, "daco_clips")
    anomalous = {clip["id"] for clip in clips if clip["anomalous"]}
    assert sorted(row["clip_id"] for row in rows(url, "daco_alarms")) == sorted(anomalous)
    kinds = Counter(row["kind"] for row in rows(url, "daco_outbox"))
    assert kinds["clip.scored"] == 140
    assert kinds["alarm.opened"] == len(anomalous)
    assert kinds["recording.unreadable"] == 1


def test_a_webhook_that_fails_and_recovers_is_told_of_everything_once_it_can(plant):
    url = database(plant)
    Store.open(url).close()
    with receiving() as receiver:
        receiver.answer = lambda number: 500 if number < 2 else 200
        secret = {"DACO_WEBHOOK_SECRET": "hunter2"}
        with running(plant, "--webhook", receiver.url, "--alarm", "2/3", env=secret) as process:
            for index in range(6):
                arrive(plant, f"{index}.wav", index, fault=index in (2, 3))
            wait_until(lambda: len(names(url)) == 6)  # scoring does not wait for the webhook
            with Store.open(url) as store:
                wait_until(lambda: store.outbox.pending() == 0)
    said = {h["webhook-id"]: json.loads(body) for h, body in receiver.accepted}
    kinds = Counter(each["type"] for each in said.values())
    assert kinds["clip.scored"] == 6
    assert kinds["alarm.opened"] == 1
    clips = sorted(
        each["data"]["clip"]["name"] for each in said.values() if each["type"] == "clip.scored"
    )
    assert clips == [f"{index}.wav" for index in range(6)]
    refused = {headers["webhook-id"] for headers, _ in receiver.requests[:2]}
    assert refused <= set(said)  # the same key, again
    assert all("webhook-signature" in headers for headers, _ in receiver.requests)
    assert "does not accept messages (answered 500)" in process.err.replace("\n", " ")
    assert "hunter2" not in process.err + process.out


def test_a_webhook_may_be_told_of_alarms_only(plant):
    for index in range(5):
        record(plant / "inbox" / f"{index}.wav", index, fault=index < 2)
    with receiving() as receiver:
        options = ("--once", "--settle", "0", "--alarm", "off", "--tell", "alarms")
        result = run(plant, *options, "--webhook", receiver.url)
    assert result.exit_code == 0, result.output
    kinds = [json.loads(body)["type"] for _, body in receiver.accepted]
    assert sorted(set(kinds)) == ["alarm.opened", "alarm.recovered"]


def test_a_dead_webhook_holds_nothing_up(plant):
    for index in range(5):
        record(plant / "inbox" / f"{index}.wav", index)
    url = f"http://127.0.0.1:{unused_port()}/"
    result = run(plant, "--once", "--settle", "0", "--webhook", url)
    assert result.exit_code == 0
    assert len(names(database(plant))) == 5
    assert "Not delivered yet: 5 messages. The next run sends them." in result.stderr


def test_old_clips_are_forgotten_but_not_judged_again(plant):
    record(plant / "inbox" / "a.wav", 0)
    run(plant, "--once", "--settle", "0")
    assert run(plant, "--once", "--settle", "0", "--keep-days", "0").stdout == ""
    assert names(database(plant)) == []
    assert run(plant, "--once", "--settle", "0").stdout == ""


def test_a_recording_that_may_not_be_read_is_told_and_judged_when_it_may(made):
    """As a user without rights, since root may read everything."""
    root = Path(tempfile.mkdtemp(prefix="daco-watch-", dir="/tmp"))  # tmp_path is private
    try:
        shutil.copyfile(made, root / "press.daco")
        record(root / "warm" / "0.wav", 0)
        closed = record(root / "inbox" / "closed.wav", 0)
        closed.chmod(0)
        (root / "inbox" / "shut").mkdir(mode=0)
        record(root / "inbox" / "open.wav", 1)
        user = pwd.getpwnam("nobody").pw_uid if os.getuid() == 0 else os.getuid()
        if user != os.getuid():
            for path in (root, *root.rglob("*")):
                os.chown(path, user, user)
        arguments = [
            root / "press.daco",
            user,
            root / "inbox",
            "--settle",
            "0.02",
            "--poll",
            "0.01",
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", AS_SOMEBODY, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        said = [process.stdout.readline() for _ in range(3)]  # the first is of warming up
        closed.chmod(0o644)
        said.append(process.stdout.readline())
        process.terminate()
        _, told = process.communicate(timeout=60)
        assert process.returncode == 0, told
        assert "open.wav" in said[1]
        assert "unusable closed.wav: cannot be " in said[2]
        assert "(Permission denied)" in said[2]
        assert re.search(r"normal .* closed\.wav", said[3])
        assert "1 folder could not be opened: shut/." in told
        assert sorted(names(f"sqlite:///{root}/daco.db")) == ["closed.wav", "open.wav"]
    finally:
        shutil.rmtree(root)
