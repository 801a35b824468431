"""``daco watch`` as a user runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from receiver import receiving
from service_process import wait_until
from stores import rows
from typer.testing import CliRunner
from watched import record, save_model

from daco.commands.app import app
from daco.errors import DacoError

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


def run(plant, *options):
    arguments = ["watch", plant / "press.daco", plant / "inbox", "--once", *options]
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})


def names(plant):
    return [row["name"] for row in rows(f"sqlite:///{plant}/daco.db", "daco_clips")]


@contextmanager
def running(*arguments, end=signal.SIGTERM):
    """The command in a process of its own, ended as a service manager ends it, or a person."""
    process = subprocess.Popen(
        [*PROGRAM, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    try:
        yield process
    finally:
        process.send_signal(end)
        process.out, process.err = process.communicate(timeout=60)
    assert process.returncode == 0, process.err


def test_once_judges_what_is_there_and_says_it_in_80_columns(plant):
    for index in range(6):
        name = f"{'long_folder_name/' * (index == 0)}recording_{index}_of_the_press.wav"
        record(plant / "inbox" / name, index, fault=index >= 3)
    (plant / "inbox" / "broken.wav").write_bytes(b"RIFF")
    result = run(plant, "--settle", "0.1", "--exit-code")
    assert result.exit_code == 3, result.output
    lines = result.stdout.splitlines()
    assert sum(bool(re.match(r"\d\d:\d\d:\d\d normal ", line)) for line in lines) == 3
    clip = next(line for line in lines if "recording_4" in line)
    assert re.match(r"\d\d:\d\d:\d\d ANOMALY +[\d.]+  recording_4_of_the_press.wav", clip)
    assert any("ALARM 1, press: 3 of the last 5 recordings are anomalous" in line for line in lines)
    assert any("unusable broken.wav: not readable as audio" in line for line in lines)
    assert "6 recordings, 3 anomalous, 1 alarm; 1 file could not be used." in result.stderr
    assert max(map(len, lines)) <= 80
    assert len(names(plant)) == 6  # beside the model, wherever the command was run
    again = run(plant, "--exit-code")
    assert (again.exit_code, again.stdout) == (0, "")


def test_a_file_that_is_still_written_is_left_for_the_next_run(plant):
    record(plant / "inbox" / "a.wav", 0)
    with (plant / "inbox" / "slow.wav").open("wb") as slow:
        program = "import sys, time\nwhile True: sys.stdout.buffer.write(b'x'); sys.stdout.flush()"
        writer = subprocess.Popen([sys.executable, "-c", program], stdout=slow)
        try:
            result = run(plant, "--settle", "1")
        finally:
            writer.kill()
            writer.wait()
    assert names(plant) == ["a.wav"]
    assert "Still being written, and left for the next run: slow.wav." in result.stderr


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_recordings_are_judged_as_they_arrive_until_the_command_is_told_to_end(plant, end):
    options = ("--settle", "0.2", "--alarm", "2 of 3")
    with receiving() as receiver:
        hook = ("--webhook", receiver.url)
        with running(plant / "press.daco", plant / "inbox", *options, *hook, end=end) as process:
            for index in range(3):
                record(plant / "outbox" / f"{index}.wav", index, fault=True).replace(
                    plant / "inbox" / f"{index}.wav"
                )
            wait_until(lambda: receiver.accepted)
    assert process.out.count("ANOMALY") >= 2
    assert "ALARM 1, press" in process.out
    assert json.loads(receiver.accepted[0][1])["type"] == "alarm.opened"


def test_a_plant_of_several_machines_is_watched_by_its_daco_toml(plant):
    text = '[machine.press]\nmodel = "press.daco"\nfolder = "inbox"\n'
    text += '[machine.fan]\nmodel = "press.daco"\nfolder = "fans"\ntitle = "Fan, hall 3"\n'
    (plant / "daco.toml").write_text(text)
    record(plant / "inbox" / "a.wav", 0)
    record(plant / "fans" / "b.wav", 1)
    result = CliRunner().invoke(app, ["watch", str(plant), "--once"])
    assert result.exit_code == 0, result.output
    assert "press: a.wav" in result.stdout
    assert "fan: b.wav" in result.stdout
    assert "Fan, hall 3: 24 healthy recordings, alarm rule 3 of 5." in result.stderr


def test_mistakes_are_told_in_a_sentence(plant):
    toml = plant / "daco.toml"
    toml.write_text('[machine.press]\nmodel = "press.daco"\nfoldr = "inbox"\n')
    calls = {
        "Give the folder of the recordings": (plant / "press.daco",),
        "is not a folder": (plant / "press.daco", plant / "nowhere"),
        "live sound has no end": (plant / "press.daco", "pcm:16000"),
        "'3 of 5'": (plant / "press.daco", plant / "inbox", "--alarm", "5/3/1"),
        "folder": (toml,),
        "Write it into daco.toml": (toml, "--settle", "1"),
        "cannot be read": (plant / "gone.daco", plant / "inbox"),
    }
    for message, arguments in calls.items():
        result = CliRunner().invoke(app, ["watch", "--once", *map(str, arguments)])
        assert isinstance(result.exception, DacoError), (arguments, result.output)
        assert message in str(result.exception)
