"""daco start: from recordings of healthy machines to a running page that raises an alarm."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from datetime import timedelta

import httpx
import numpy as np
import pytest
from command_line import refused, said
from service_process import faulty, humming, wait_until, wav

from daco.detector.model import MachineModel
from daco.monitoring.config import PlantConfig


def record(folder, count, seed=0):
    folder.mkdir(parents=True)
    for number in range(count):
        (folder / f"{number:03}.wav").write_bytes(wav(humming(seed + number)))


def start(recordings, out):
    return said("start", recordings, "--out", out, "--no-serve")


@pytest.fixture
def recordings(tmp_path):
    """Two machines in one condition; one of the recordings is silent."""
    record(tmp_path / "healthy/fan", 80)
    record(tmp_path / "healthy/Press 2", 12, seed=100)
    (tmp_path / "healthy/fan/silent.wav").write_bytes(wav(np.zeros(16000)))
    return tmp_path / "healthy"


def test_folders_become_machines_models_and_a_configuration(tmp_path, recordings):
    text = start(recordings, tmp_path / "plant")
    for fact in ("2 machines", "fan: 80 ", "25 recordings kept aside", "1 silent", "a week"):
        assert fact in text
    for jargon in ("domain", "blend", "sha256", "p-value", "view"):
        assert jargon not in text
    config = PlantConfig.load(tmp_path / "plant")
    assert list(config.machine) == ["Press-2", "fan"]
    press = config.machine["Press-2"]
    assert press.title == "Press 2"
    assert press.healthy == recordings / "Press 2"
    assert press.folder.is_dir()
    assert MachineModel.load(press.model).machine == "Press 2"
    fan = MachineModel.load(config.machine["fan"].model)
    assert len(fan) == 55
    assert {each["kind"] for each in fan.basis.values()} == {"new"}
    assert config.notify.cooldown == timedelta(minutes=30)
    file = tmp_path / "plant/daco.toml"
    text = file.read_text()
    examples = re.sub(r"\n# (\w+ = )", r"\n\1", text)  # what can be uncommented is right
    assert examples.count("\n#") < text.count("\n#")
    file.write_text(examples)
    assert PlantConfig.load(tmp_path / "plant").machine["fan"].expect_every

    assert "daco serve" in str(refused("start", recordings, "--out", tmp_path / "plant"))
    assert file.read_text() == examples
    assert "no such folder" in str(refused("start", tmp_path / "nothing", "--out", tmp_path / "b"))


def test_folders_below_a_machine_are_its_operating_conditions(tmp_path):
    """Also where recordings have the names of a DCASE data set, or another machine has none."""
    for condition in ("source", "target"):
        record(tmp_path / f"healthy/fan/{condition}", 10, seed=50 * ord(condition[0]))
        for file in (tmp_path / f"healthy/fan/{condition}").iterdir():
            name = f"section_00_{condition}_train_normal_0{file.stem}.wav"
            file.rename(file.with_name(name))
    fan = "fan: 20 healthy recordings in 2 operating conditions (source 10, target 10)."
    assert fan in start(tmp_path / "healthy", tmp_path / "plant")
    for file in (tmp_path / "healthy/fan").glob("*/*.wav"):
        file.rename(file.with_name(file.name[-8:]))
    record(tmp_path / "healthy/pump", 10, seed=900)
    text = start(tmp_path / "healthy", tmp_path / "other")
    assert fan in text
    assert "pump: 10 healthy recordings." in text


def test_the_page_runs_after_start_and_an_odd_machine_raises_an_alarm(tmp_path):
    record(tmp_path / "healthy/fan", 12)
    environment = os.environ | {"DACO_SERVICE__ADDRESS": "127.0.0.1:0", "COLUMNS": "80"}
    command = [sys.executable, "-m", "daco.cli", "start", tmp_path / "healthy"]
    command += ["--out", tmp_path / "plant"]
    log = tmp_path / "log"
    with log.open("wb") as file:
        options = {"stdout": file, "stderr": file, "start_new_session": True}
        process = subprocess.Popen(command, env=environment, **options)

    def is_up():
        assert process.poll() is None, log.read_text()
        return "startup complete" in log.read_text()

    try:
        wait_until(is_up)
        url = re.search(r"http://127\.0\.0\.1:\d+/", log.read_text())[0]
        for number in range(3):
            (tmp_path / f"plant/inbox/fan/new_{number}.wav").write_bytes(faulty(number))

        def alarmed():
            machines = httpx.get(f"{url}v1/machines").json()["machines"]
            return [each["id"] for each in machines if each["open_alarms"]]

        wait_until(alarmed)
        assert alarmed() == ["fan"]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
