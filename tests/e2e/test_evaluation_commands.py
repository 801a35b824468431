"""``daco evaluate`` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import run, said
from dcase_trees import anonymous, make_truth
from shared_data import shared

from daco.commands.evaluate import evaluate
from daco.errors import DataError
from daco.evaluation.scorefiles import write_decisions, write_scores

NAMES = anonymous(16)
LABELS = np.arange(16) % 2  # as in make_truth: odd clips are anomalies
MACHINES = ("RoboticArm", "Scanner")
TRUTH = ("--truth", "dcase2024_task2_evaluator")


@pytest.fixture
def teams(tmp_path, monkeypatch):
    """Three systems of two machines, the first with decisions; and the truth beside them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for machine in MACHINES:
        make_truth(tmp_path / TRUTH[1], machine, NAMES)
        for team, gain in (("alpha", 3), ("beta", 1), ("gamma", 0)):
            scores = rng.normal(size=16) + gain * LABELS
            write_scores(tmp_path / f"teams/{team}", machine, "00", NAMES, scores)
            if team == "alpha":
                decisions = scores > np.median(scores)
                write_decisions(tmp_path / f"teams/{team}", machine, "00", NAMES, decisions)
    return tmp_path / "teams"


def test_released_development_scores():
    """The authors' files: 58.73 for raw k-NN on the development machines of 2025."""
    folder = shared("published", "daco-experiments", "release", "scores", "raw-k1", "dev")
    text = said("evaluate", folder)
    assert "fan 61.20 41.20 48.79" in text
    assert "Official score: 58.73 95 % interval over 7 machines: 52.18 to 65.27" in text


def test_one_system_has_its_machines_decisions_and_the_caution(teams):
    text = said("evaluate", teams / "alpha", *TRUTH)
    assert text.count("RoboticArm ") == 2  # scores and decisions
    assert "F1" in text
    assert "95 % interval over 2 machines: " in text
    assert "- 2 machines are too few to tell a difference from chance." in text


def test_several_systems_are_ranked(teams):
    document = json.loads(run("evaluate", teams, *TRUTH, "--json").stdout)
    scores = {each["system"]: each["official_score"] for each in document["systems"]}
    assert list(scores) == sorted(scores, key=scores.get, reverse=True)
    text = said("evaluate", teams, *TRUTH)
    assert f" 1 alpha {scores['alpha']:.2f} " in text
    for each in document["differences"]:
        ends = f"{each['delta']:.2f} {each['low']:.2f} {each['high']:.2f} {each['p_value']:.3f}"
        assert f"{each['second']} {ends}" in text
    assert len(document["differences"]) == 2


def test_a_broken_system_is_named_and_the_others_are_ranked(teams, capfd):
    broken = teams / "gamma/anomaly_score_Scanner_section_00_test.csv"
    broken.write_text(broken.read_text().replace("section_00_00", "section_01_00"))
    with pytest.raises(DataError, match="1 system could not be evaluated"):
        evaluate(teams, truth=Path(TRUTH[1]))
    printed, errors = capfd.readouterr()
    assert "2  beta" in printed
    assert f"{broken.name}: 16 rows with an unknown name" in errors
