"""``daco watch`` as a user runs it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading

import pytest
from command_line import refused, run
from plants import faulty, normal, put
from receiver import receiving
from service_process import RATE, model, wait_until
from stores import rows


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """A model, and a folder in which recordings arrive."""
    model().save(tmp_path / "press.daco")
    (tmp_path / "inbox").mkdir()
    monkeypatch.setenv("DACO_MACHINE__PRESS__SETTLE", "0.1 s")
    return tmp_path


def once(plant, *options, code=0):
    return run("watch", plant / "press.daco", plant / "inbox", "--once", *options, code=code)


def names(plant):
    return [row["name"] for row in rows(f"sqlite:///{plant}/daco.db", "daco_clips")]


def test_once_judges_what_is_there_and_says_it_in_80_columns(plant):
    for index in range(6):
        name = f"{'long_folder_name/' * (index == 0)}recording_{index}_of_the_press.wav"
        put(plant / "inbox" / name, normal(index) if index < 3 else faulty(index))
    (plant / "inbox" / "broken.wav").write_bytes(b"RIFF")
    result = once(plant, "--exit-code", code=3)
    lines = result.stdout.splitlines()
    assert sum(bool(re.match(r"\d\d:\d\d:\d\d normal ", line)) for line in lines) == 3
    clip = next(line for line in lines if "recording_4" in line)
    assert re.match(r"\d\d:\d\d:\d\d ANOMALY +[\d.]+  recording_4_of_the_press.wav", clip)
    assert any("ALARM 1, press: anomalous (rule: 3 of 5)" in line for line in lines)
    assert any("unusable broken.wav: not readable as audio" in line for line in lines)
    assert "6 recordings, 3 anomalous, 1 alarm; 1 file could not be used." in result.stderr
    assert max(map(len, lines)) <= 80
    assert len(names(plant)) == 6  # beside the model, wherever the command was run
    assert once(plant, "--exit-code").stdout == ""


def test_a_file_that_is_still_written_is_left_for_the_next_run(plant, monkeypatch):
    monkeypatch.setenv("DACO_MACHINE__PRESS__SETTLE", "1 s")
    put(plant / "inbox" / "a.wav", normal(0))
    ended = threading.Event()
    with (plant / "inbox" / "slow.wav").open("wb", buffering=0) as slow:

        def write():
            while not ended.wait(0.01):
                slow.write(b"x")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            result = once(plant)
        finally:
            ended.set()
            writer.join()
    assert names(plant) == ["a.wav"]
    assert "left for the next run: slow.wav." in result.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_recordings_of_a_plant_are_judged_as_they_arrive_until_a_signal(plant, number):
    with receiving() as receiver:
        text = '[machine.press]\nmodel = "press.daco"\nfolder = "inbox"\nalarm = "2 of 3"\n'
        text += '[machine.fan]\nmodel = "press.daco"\nfolder = "fans"\ntitle = "Fan, hall 3"\n'
        (plant / "daco.toml").write_text(f'{text}[notify]\nwebhook = "{receiver.url}"\n')
        command = [sys.executable, "-m", "daco.cli", "watch", str(plant)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(command, text=True, **pipes)
        try:
            put(plant / "fans" / "b.wav", normal())
            for index in range(3):
                put(plant / "inbox" / f"{index}.wav", faulty(index))
            wait_until(lambda: receiver.accepted and "b.wav" in names(plant))
        finally:
            process.send_signal(number)
            printed, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "ALARM 1, press" in printed
    assert "fan: b.wav" in printed
    assert "Fan, hall 3: 40 healthy recordings, alarm rule 3 of 5." in told
    assert b'"alarm.opened"' in receiver.accepted[0][1]


def test_sound_on_standard_input_is_judged_to_its_end(plant):
    pcm = b"".join(data[44:] for data in (*map(normal, range(3)), *map(faulty, range(5))))
    command = [sys.executable, "-m", "daco.cli", "watch", plant / "press.daco", f"pcm:{RATE}"]
    result = subprocess.run(
        [*command, "--exit-code"], input=pcm, capture_output=True, timeout=100, check=False
    )
    assert result.returncode == 3, result.stderr.decode()
    lines = result.stdout.decode().splitlines()
    assert sum(".wav" in line for line in lines) == 8
    assert any("ALARM" in line for line in lines)


def test_mistakes_are_told_in_a_sentence(plant):
    toml = plant / "daco.toml"
    toml.write_text('[machine.press]\nmodel = "press.daco"\nfoldr = "inbox"\n')
    calls = {
        "MODEL FOLDER": (plant / "press.daco",),
        "nowhere": (plant / "press.daco", plant / "nowhere"),
        "live sound": (plant / "press.daco", "pcm:16000"),
        "'3 of 5'": (plant / "press.daco", plant / "inbox", "--alarm", "5/3/1"),
        "folder": (toml,),
        "daco.toml": (toml, "--alarm", "off"),
        "cannot be read": (plant / "gone.daco", plant / "inbox"),
    }
    for message, arguments in calls.items():
        assert message in str(refused("watch", "--once", *arguments)), arguments
