"""``daco score --explain``: what sounds different, as text and as JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from command_line import refused, run, said

RATE = 16000


@pytest.fixture(scope="module")
def plant(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plant")
    rng = np.random.default_rng(0)
    (folder / "healthy").mkdir()
    waves = rng.normal(0, 0.05, (24, 3 * RATE))
    for number, wave in enumerate(waves):
        soundfile.write(folder / "healthy" / f"{number:02}.wav", wave, RATE)
    whine = 0.05 * np.sin(2 * np.pi * 1700 * np.arange(3 * RATE) / RATE)
    beat = 1 + 0.9 * np.sin(2 * np.pi * 6 * np.arange(3 * RATE) / RATE)
    soundfile.write(folder / "whine.wav", (waves[0] + whine) * beat, RATE)
    run("fit", folder / "healthy", "--out", folder / "fan.daco")
    return folder


def test_findings_are_objects_of_a_verdict(plant):
    model, clip = plant / "fan.daco", plant / "whine.wav"
    verdict = json.loads(run("score", model, clip, "--explain", "--json").stdout)
    kinds = {each["kind"]: each for each in verdict["findings"]}
    assert verdict["state"] != "normal"
    assert kinds["repetition"]["rate_hz"] == pytest.approx(6, rel=0.05)
    assert "swells and fades at about 6 per second" in kinds["repetition"]["text"]
    assert "findings" not in json.loads(run("score", model, clip, "--json").stdout)
    healthy = json.loads(
        run("score", model, plant / "healthy" / "03.wav", "--explain", "--json").stdout
    )
    assert healthy["findings"] == []


def test_the_table_says_them_in_words_by_healthy_recordings_of_any_place(
    plant, tmp_path, monkeypatch
):
    monkeypatch.chdir(plant)
    command, moved = ("score", "fan.daco", "whine.wav", "--explain"), tmp_path / "moved"
    assert "swells and fades at about 6 per second" in said(*command)
    (plant / "healthy").rename(moved)
    try:
        assert "0 of 24 healthy recordings can be read" in str(refused(*command))
        assert "swells" in said(*command, "--healthy", moved)
    finally:
        moved.rename(plant / "healthy")
    assert "no table" in str(refused(*command, "--csv"))
