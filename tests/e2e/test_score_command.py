"""``daco score`` as a plant engineer types it."""

from __future__ import annotations

import csv
import io
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from command_line import refused, run, said
from drill import FAULTY, RATE, hum, scaled

from daco.errors import DataError, InputError, ModelError


def verdicts(*arguments, code=0):
    lines = run("score", *arguments, "--json", code=code).stdout.splitlines()
    return [json.loads(line) for line in lines]


def table(*arguments, code=0):
    return list(csv.DictReader(io.StringIO(run("score", *arguments, "--csv", code=code).stdout)))


def test_the_table_fits_a_terminal_and_tells_the_reasons(drill, tmp_path):
    hum(tmp_path / "good.wav", 200, 99)
    hum(tmp_path / "faulty.wav", **FAULTY)
    soundfile.write(tmp_path / "dead.wav", np.zeros(8000), RATE)
    loud = np.clip(5 * np.sin(np.arange(8000) * 0.02), -1, 1) * 0.9999
    soundfile.write(tmp_path / "loud.wav", loud, RATE)
    hum(tmp_path / "\x1b[31m[bold]x.wav", 200, 1)
    lines = run("score", drill[1], tmp_path).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for words in ("silent: -inf dB", "clipped: ", "ANOMALY", "run daco calibrate"):
        assert words in text
    (good,) = (line for line in lines if " good.wav" in line)
    assert good.split()[0] == "normal"
    assert "\x1b[31m" not in text  # a name steers no terminal
    assert "[bold]x.wav" in text


def test_a_recording_outside_the_ranges_is_not_judged(drill, tmp_path):
    root, model = drill
    wave, _ = soundfile.read(root / "day" / "day00.wav")
    noise = np.random.default_rng(0).normal(0, wave.std(), len(wave))
    for name, changed in {"quiet": 0.05 * wave, "noise": noise, "dead": 0 * wave}.items():
        soundfile.write(tmp_path / f"{name}.wav", changed, RATE)
    found = {each["name"]: each for each in verdicts(model, tmp_path, "--exit-code")}
    states = {"quiet.wav": "off", "noise.wav": "out of range", "dead.wav": "recorder fault"}
    assert {name: each["state"] for name, each in found.items()} == states
    assert not any(each["anomalous"] for each in found.values())
    assert any(each.startswith("range: ") for each in found["noise.wav"]["reasons"])
    assert {row["name"]: row["state"] for row in table(model, tmp_path)} == states
    text = said("score", model, tmp_path)
    assert "0 of 3 recordings anomalous" in text
    assert "recorder fault (1), out of range (1), off (1)." in text


def test_embeddings_are_scored_with_their_levels(drill, tmp_path):
    root, model = drill
    options = ("--readout", "mod+mod60+env+cep")
    shutil.copytree(root / "night", tmp_path / "new")
    scaled(tmp_path / "new" / "quiet.wav", root / "day" / "day00.wav", 0.05)
    run("embed", tmp_path / "new", "--out", tmp_path / "e.parquet", *options)
    *found, quiet = verdicts(model, tmp_path / "e.parquet")
    assert quiet["state"] == "off"
    (direct,) = verdicts(model, root / "night" / found[3]["name"])
    # scored among others, ties of a member may fall the other way
    assert direct["score"] == pytest.approx(found[3]["score"], abs=0.02)


def test_csv_has_a_row_for_every_file(drill, tmp_path):
    root, model = drill
    (tmp_path / "bad, quoted.wav").write_bytes(b"RIFF")
    rows = table(model, root / "night", tmp_path / "bad, quoted.wav", code=4)
    assert len(rows) == 11
    assert rows[0]["basis"].startswith("from the training recordings only")
    assert rows[0]["state"] == ("anomalous" if rows[0]["anomalous"] == "1" else "normal")
    assert float(rows[0]["weight.day"]) + float(rows[0]["weight.night"]) == pytest.approx(1)
    assert rows[-1]["name"].endswith("bad, quoted.wav")
    assert rows[-1]["error"]
    assert rows[-1]["score"] == ""
    assert {row["anomalous"] for row in rows[:-1]} <= {"0", "1"}


def test_a_file_that_cannot_be_read_does_not_stop_the_others(drill, tmp_path):
    root, model = drill
    good = root / "day" / "day00.wav"
    (tmp_path / "cut.wav").write_bytes(good.read_bytes()[:5000])
    hum(tmp_path / "tiny.wav", 200, 0, seconds=0.01)
    reasons = {"cut.wav": "truncated", "tiny.wav": "at least", "gone.wav": "cannot be opened"}
    files = [tmp_path / name for name in reasons]
    lines = run("score", model, *files, good, code=4).stdout.splitlines()
    assert "Left out 3 recordings:" in lines
    for path, reason in zip(files, reasons.values(), strict=True):
        (line,) = (line for line in lines if line.strip().startswith(str(path)))
        assert reason in line
    failed, verdict = verdicts(model, files[0], good, code=4)
    assert "truncated" in failed["error"]
    assert np.isfinite(verdict["score"])


def test_exit_code_three_only_when_asked_and_anomalous(drill, tmp_path):
    root, model = drill
    normal = root / "day" / "day00.wav"
    faulty = hum(tmp_path / "faulty.wav", **FAULTY)
    (tmp_path / "bad.wav").write_bytes(b"x")
    run("score", model, normal, faulty)
    run("score", model, normal, "--exit-code")
    run("score", model, normal, faulty, "--exit-code", code=3)
    run("score", model, tmp_path / "bad.wav", faulty, "--exit-code", code=3)
    run("score", model, tmp_path / "bad.wav", normal, "--exit-code", code=4)


def test_stdin_is_one_recording(drill):
    root, model = drill
    command = [sys.executable, "-m", "daco.cli", "score", str(model), "-", "--json"]
    content = (root / "night" / "night03.wav").read_bytes()
    result = subprocess.run(command, input=content, capture_output=True)
    assert result.returncode == 0, result.stderr
    verdict = json.loads(result.stdout)
    assert verdict["name"] == "-"
    assert verdict["nearest"].endswith("night03.wav")


def test_long_recordings_by_windows(drill, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, model = drill
    clips = [hum(tmp_path / "x" / f"{i}.wav", 200, 50 + i) for i in range(8)]
    clips[5] = hum(tmp_path / "x" / "f.wav", **FAULTY)
    long = tmp_path / "long.wav"
    soundfile.write(long, np.concatenate([soundfile.read(clip)[0] for clip in clips]), RATE)
    (whole,) = verdicts(model, long)
    assert whole["windows"] == 1
    assert whole["reasons"][0].startswith("long: 4 s, the normals have 0.5 s")
    options = ("--window", "0.5", "--hop", "0.25", "--aggregate", "top2")
    (found,) = verdicts(model, long, *options)
    assert (found["windows"], found["worst_window"], found["anomalous"]) == (15, 2.5, True)
    text = said("score", model, long.name, "--window", "0.5")
    assert "worst at 2.5 s" in text
    assert "The limit holds for one window" in text


@pytest.mark.parametrize(
    ("options", "token"),
    [
        (("--csv", "--json"), "one of --csv and --json"),
        (("--hop", "1"), "hop needs a window"),
        (("--rate", "2"), "false_alarm_rate"),
        (("-", "-"), "only once"),
    ],
)
def test_mistakes_stop_at_once(drill, options, token):
    root, model = drill
    error = refused("score", model, root / "day" / "day00.wav", *options)
    assert isinstance(error, InputError)
    assert token in str(error)


def test_what_is_no_model_and_an_empty_folder_are_refused(drill, tmp_path):
    clip = drill[0] / "day" / "day00.wav"
    assert isinstance(refused("score", clip, clip), ModelError)
    assert isinstance(refused("score", drill[1], tmp_path), DataError)
