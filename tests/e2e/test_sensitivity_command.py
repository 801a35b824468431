"""``daco inject`` and ``daco sensitivity`` as people type them."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
import soundfile
from command_line import refused, run, said
from shared_data import shared

from daco.data.table import EmbeddingTable
from daco.detector.model import MachineModel
from daco.errors import AudioError

RATE = 16000
KINDS = ("impacts", "tones", "noise", "rub", "modulation", "resonance")


@pytest.fixture(scope="module")
def motor(tmp_path_factory):
    """Recordings of a motor, and a model of them."""
    root = tmp_path_factory.mktemp("plant")
    for domain, hertz, count in (("old", 90, 24), ("new", 120, 8)):
        (root / "motor" / domain).mkdir(parents=True)
        for number in range(count):
            rng = np.random.default_rng([hertz, number])
            t = np.arange(RATE) / RATE
            wave = 0.1 * np.sin(2 * np.pi * hertz * t + rng.uniform(0, 6))
            wave += rng.normal(0, 0.03, len(t)) * (1 + 0.1 * rng.normal())
            soundfile.write(root / "motor" / domain / f"{number:03}.wav", wave, RATE)
    run("fit", root / "motor", "--out", root / "motor.daco", "--false-alarm-rate", 0.12)
    return root


def test_inject_writes_the_agreed_table(motor, tmp_path):
    out = tmp_path / "faults.parquet"
    plan = ("--per-domain", 3, "--level", -12, "--level", -3, "--fault", "rub")
    command = ("inject", motor / "motor", "--out", out, *plan)
    text = said(*command)
    assert "6 recordings, each clean and with 2 faults" in text
    assert "rub at -12, -3 dB" in text
    table = EmbeddingTable.read(out)
    assert table.columns["fault"].tolist() == ["", "rub", "rub"] * 6
    assert table.columns["level_db"].tolist() == [None, "-12", "-3"] * 6
    before = out.read_bytes()
    run(*command)
    assert out.read_bytes() == before
    # Rows with a fault are normals to no command.
    error = refused("fit", out, "--out", tmp_path / "model.daco")
    assert "no normal training clip" in str(error)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--out", "nowhere/faults.parquet"], "not a folder"),
        (["--out", "faults.csv"], "parquet"),
        (["--out", "faults.parquet", "--fault", "crack"], "impacts"),
        (["--out", "faults.parquet", "--level", "99"], "decibels"),
        (["--out", "faults.parquet", "--channel", "left"], "channel"),
    ],
)
def test_a_mistake_in_the_call_is_said_before_any_work(
    arguments, match, motor, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert match in str(refused("inject", motor / "motor", *arguments))


def test_sensitivity_says_what_is_caught(motor, tmp_path):
    out, rates, picture = (tmp_path / name for name in ("s.json", "s.csv", "s.png"))
    text = said(
        *("sensitivity", motor / "motor.daco", motor / "motor", "--levels=-24,-6,12"),
        *("--out", out, "--csv", rates, "--picture", picture, "--per-domain", 6),
    )
    assert "modulation: caught from" in text
    assert "12 are in the model and were left out of it" in text
    assert "warning: Each rate in new comes from 6 recordings" in text
    document = json.loads(out.read_text())
    assert document["clips"] == {"new": 6, "old": 6}
    assert document["model_sha256"] == MachineModel.load(motor / "motor.daco").sha256
    assert set(document["caught_from_db"]) == {*KINDS, "level", "off", "speed", "white"}
    assert set(document["caught_from_db"]["off"].values()) == {-6}
    assert len(document["rates"]) == 2 + 10 * 2 * 3
    rows = list(csv.DictReader(rates.read_text().splitlines()))
    assert [row["fault"] for row in rows[:2]] == ["", ""]
    assert [float(row["rate"]) for row in rows] == [row["rate"] for row in document["rates"]]
    for row in document["rates"]:
        assert row["low"] <= row["rate"] <= row["high"]
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_recordings_of_another_machine_are_a_warning(motor, tmp_path):
    (tmp_path / "pump").mkdir()
    for number in range(2):
        rng = np.random.default_rng(number)
        soundfile.write(tmp_path / "pump" / f"{number}.wav", rng.normal(0, 0.1, RATE), RATE)
    few = ("--levels=0", "--fault", "rub", "--out", tmp_path / "s.json")
    text = said("sensitivity", motor / "motor.daco", tmp_path / "pump", *few)
    words = "The model is of motor, but the recordings are of pump."
    assert f"warning: {words}" in text
    assert "Recordings: 2 of all. The model's" in text
    document = json.loads((tmp_path / "s.json").read_text())
    assert any(each.startswith(words) for each in document["warnings"])
    assert document["recorded"] == ["pump"]
    # The same recordings in a folder of another name are still the model's.
    shutil.copytree(motor / "motor", tmp_path / "elsewhere")
    copied = (motor / "motor.daco", tmp_path / "elsewhere", *few, "--per-domain", 1)
    text = said("sensitivity", *copied)
    assert "The model is of" not in text
    assert "2 are in the model" in text
    assert "warning: Each rate in new comes from 1 recording" in text


def test_a_louder_alarm_catches_less(motor, tmp_path):
    caught = []
    for rate in (0.5, 0.12):
        run(
            *("sensitivity", motor / "motor.daco", motor / "motor", "--levels=-18,-12,-6"),
            *("--rate", rate, "--out", tmp_path / "s.json", "--fault", "impacts"),
        )
        rows = json.loads((tmp_path / "s.json").read_text())["rates"]
        caught.append(sum(row["caught"] for row in rows))
    assert caught[0] > caught[1]


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        (["--levels=loud"], "-24,-12,0"),
        (["--levels=,"], "decibels"),
        (["--detect", "1.5"], "counts as caught"),
        (["--fault", "crack"], "impacts"),
        (["--picture", "nowhere/s.png"], "not a folder"),
        (["--picture", "s.pdf"], ".svg or .png"),
    ],
)
def test_a_mistake_in_the_question_is_said(arguments, match, motor, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    few = () if "--levels" in arguments[0] else ("--levels=0",)
    command = ("sensitivity", motor / "motor.daco", motor / "motor", "--per-domain", 1)
    assert match in str(refused(*command, *few, *arguments))


def test_a_model_of_own_embeddings_cannot_be_measured(motor, tmp_path):
    X = np.random.default_rng(0).normal(size=(20, 4)) + 2
    MachineModel.fit(X, machine="press").save(tmp_path / "press.daco")
    error = refused("sensitivity", tmp_path / "press.daco", motor / "motor")
    assert "embeddings of your own" in str(error)


def test_a_recording_that_cannot_be_read_is_named(motor, tmp_path):
    shutil.copytree(motor / "motor", tmp_path / "motor")
    for path in (tmp_path / "motor" / "old").iterdir():
        path.write_bytes(b"RIFF nonsense")
    error = refused("sensitivity", motor / "motor.daco", tmp_path / "motor", "--levels=0")
    assert isinstance(error, AudioError)
    assert ".wav" in str(error)


@pytest.mark.parametrize("backbone", ["logmel", "mn04"])
def test_on_the_recordings_of_a_real_fan(backbone, tmp_path):
    fan = shared("real", "audio", "fan")
    weights = ()
    if backbone == "mn04":
        pytest.importorskip("torch")
        weights = ("--weights", shared("real", "mn04_as_mAP_432.pt"))
    model = tmp_path / "fan.daco"
    run(
        *("fit", fan, "--out", model, "--false-alarm-rate", 0.1, "--backbone", backbone),
        *("--readout", {"logmel": "mod", "mn04": "mean"}[backbone], *weights),
    )
    run(
        *("sensitivity", model, fan, "--levels=-80,-6", "--per-domain", 4),
        *("--fault", "modulation", "--fault", "rub", "--out", tmp_path / "s.json", *weights),
    )
    found = json.loads((tmp_path / "s.json").read_text())
    assert found["in_model"] == 8
    flagged = {row["domain"]: row["caught"] for row in found["rates"] if row["fault"] == ""}
    for row in found["rates"]:
        if row["level_db"] == -6:
            assert row["rate"] == 1
        elif row["level_db"] == -80:  # no fault at all
            assert row["caught"] == flagged[row["domain"]]
    assert "rub: caught from -6 dB in source and target." in found["sentences"]
