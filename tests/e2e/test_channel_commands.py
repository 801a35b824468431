"""Two-microphone recordings through the commands, as a user types them."""

from __future__ import annotations

import json

import pytest
import soundfile
from command_line import run, said
from sklearn.metrics import roc_auc_score
from two_microphones import both, write

from daco.detector.model import MachineModel

HALL = {"seconds": 2.0, "hall": 0.1}


@pytest.fixture(scope="module")
def press(tmp_path_factory):
    """24 normals of a press in a loud hall, WAV and FLAC; beside them normal and faulty tests."""
    root = tmp_path_factory.mktemp("press")
    for index in range(24):
        domain, suffix = ("day", "wav") if index < 16 else ("night", "flac")
        write(root / "press" / domain / f"{index:02}.{suffix}", both(index, **HALL))
    for index in range(12):
        write(root / "test" / f"normal_{index}.wav", both(100 + index, **HALL))
        write(root / "test" / f"faulty_{index}.flac", both(200 + index, whine=0.004, **HALL))
    return root


def scores(model, press):
    """Which of the test recordings are faulty, and the scores of all."""
    result = run("score", model, press / "test", "--json")
    verdicts = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(verdicts) == 24
    faulty = ["faulty" in verdict["name"] for verdict in verdicts]
    return faulty, [verdict["score"] for verdict in verdicts]


def test_a_model_hears_with_the_policy_of_its_normals(press, tmp_path):
    """In the hall's noise the near microphone alone misses what two of them hear."""
    found = {}
    for policy in ("near", "lsq", "residual-proj"):
        model = tmp_path / f"{policy}.daco"
        options = ("--channel", policy, "--readout", "mean", "--config", "raw-k1")
        run("fit", press / "press", "--out", model, *options)
        found[policy] = roc_auc_score(*scores(model, press))
        # A normal of the bank is its own nearest, bit for bit or nearly so.
        normal = press / "press" / "day" / "03.wav"
        verdict = json.loads(run("score", model, normal, "--json").stdout)
        assert verdict["nearest"].endswith("03.wav")
        assert verdict["nearest_distance"] < 1e-5
    assert found["lsq"] > 0.9
    assert found["lsq"] > found["near"] + 0.1
    loaded = MachineModel.load(tmp_path / "lsq.daco")
    assert loaded.frontend.channel == "lsq"
    assert "channel lsq" in said("inspect", tmp_path / "lsq.daco", "--verbose")
    mono = tmp_path / "mono.wav"
    soundfile.write(mono, both(1, **HALL)[0], 16000)
    assert "there is no channel 1" in said("score", tmp_path / "lsq.daco", mono, code=4)


def test_new_normals_and_tables_go_the_same_way(press, tmp_path):
    model = tmp_path / "m.daco"
    run("fit", press / "press", "--out", model, "--channel", "residual-c0.5", "--config", "raw-k1")
    new = tmp_path / "new"
    for index in range(3):
        write(new / f"{index}.wav", both(300 + index, **HALL))
    run("update", model, new, "--domain", "day", "--keep-suspicious")
    assert len(MachineModel.load(model)) == 27
    run("embed", new, "--out", tmp_path / "e.parquet", "--channel", "residual-c0.5")
    lines = run("score", model, tmp_path / "e.parquet", "--json").stdout.splitlines()
    assert max(json.loads(line)["nearest_distance"] for line in lines) < 1e-5
