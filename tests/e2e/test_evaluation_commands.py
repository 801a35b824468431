"""``daco evaluate`` as a user types it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from command_line import NARROW, app
from command_line import run as command
from dcase_trees import anonymous, make_truth
from shared_data import shared
from typer.testing import CliRunner

from daco.errors import DacoError
from daco.evaluation.scorefiles import write_decisions, write_scores

NAMES = anonymous(16)
LABELS = np.arange(16) % 2  # as in make_truth: odd clips are anomalies
MACHINES = ("RoboticArm", "Scanner")


def run(*arguments, code=0, wide=False):
    """What is printed, in a terminal of 80 columns; a mistake with its message."""
    if code == 2:
        result = CliRunner(env=NARROW).invoke(app, list(map(str, arguments)))
        assert isinstance(result.exception, DacoError)
        return f"{result.output} {result.exception}"
    output = command(*arguments, code=code).output
    assert wide or max(map(len, output.splitlines())) <= 80
    return output


def lines_of(printed):
    return [" ".join(line.split()) for line in printed.splitlines()]


@pytest.fixture
def teams(tmp_path, monkeypatch):
    """Three systems of two machines, the first with decisions; and the truth beside them."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for machine in MACHINES:
        make_truth(tmp_path / "dcase2024_task2_evaluator", machine, NAMES)
        for team, gain in (("alpha", 3), ("beta", 1), ("gamma", 0)):
            scores = rng.normal(size=16) + gain * LABELS
            write_scores(tmp_path / f"teams/{team}", machine, "00", NAMES, scores)
            if team == "alpha":
                decisions = scores > np.median(scores)
                write_decisions(tmp_path / f"teams/{team}", machine, "00", NAMES, decisions)
    return tmp_path / "teams"


def test_released_development_scores(tmp_path, monkeypatch):
    """The authors' files: 58.73 for raw k-NN on the development machines of 2025."""
    monkeypatch.chdir(tmp_path)
    folder = shared("published", "daco-experiments", "release", "scores", "raw-k1", "dev")
    lines = lines_of(run("evaluate", folder, "--out", "metrics.csv"))
    assert "fan 61.20 41.20 48.79" in lines
    assert "Official score: 58.73" in lines
    assert "95 % interval over 7 machines: 52.18 to 65.27" in lines
    assert "Written: metrics.csv" in lines
    table = pd.read_csv(tmp_path / "metrics.csv")
    columns = ["system", "machine", "section", "clips", "auc_source", "auc_target"]
    assert (len(table), list(table.columns[:6])) == (7, columns)
    document = json.loads(run("evaluate", folder, "--json", wide=True))
    assert round(document["systems"][0]["official_score"], 2) == 58.73


def test_one_system_has_its_machines_decisions_and_the_caution(teams):
    lines = lines_of(run("evaluate", teams / "alpha", "--truth", "dcase2024_task2_evaluator"))
    assert sum(line.startswith("RoboticArm ") for line in lines) == 2  # scores and decisions
    assert any(line.startswith("95 % interval over 2 machines: ") for line in lines)
    assert "- 2 machines are too few to tell a difference from chance." in lines


def test_several_systems_are_ranked_and_the_broken_one_is_named(teams):
    arguments = ("evaluate", teams, "--truth", "dcase2024_task2_evaluator")
    document = json.loads(run(*arguments, "--json", wide=True))
    scores = {each["system"]: each["official_score"] for each in document["systems"]}
    assert list(scores) == sorted(scores, key=scores.get, reverse=True)
    lines = lines_of(run(*arguments))
    assert any(line.startswith(f"1 alpha {scores['alpha']:.2f} ") for line in lines)
    for each in document["differences"]:
        assert each["delta"] == pytest.approx(scores[each["first"]] - scores[each["second"]])
        ends = f"{each['delta']:.2f} {each['low']:.2f} {each['high']:.2f} {each['p_value']:.3f}"
        assert f"{each['second']} {ends}" in lines
        assert each["p_value"] in (0.5, 1.0)  # two machines: the smallest is 2 / 4
    assert len(document["differences"]) == 2

    broken = teams / "gamma/anomaly_score_Scanner_section_00_test.csv"
    broken.write_text(broken.read_text().replace("section_00_00", "section_01_00"))
    text = " ".join(run(*arguments, code=2).split())
    assert "anomaly_score_Scanner_section_00_test.csv: 16 rows with an unknown name" in text
    assert "The official evaluator matches rows by their sorted position" in text
    assert "1 system could not be evaluated" in text
    assert " 2 beta " in text


def test_missing_machines_are_an_error_and_with_partial_a_label(teams):
    (teams / "beta/anomaly_score_Scanner_section_00_test.csv").unlink()
    arguments = ("evaluate", teams / "beta", "--truth", "dcase2024_task2_evaluator")
    assert "no score file for 1 machine of 2: Scanner." in run(*arguments, code=2)
    printed = run(*arguments, "--partial")
    assert "Partial score of 1 machine, NOT COMPARABLE: " in printed
    assert "Official score" not in printed
    ranked = run("evaluate", teams, *arguments[2:], "--partial")
    assert "- beta" in ranked
    assert "(partial)" in ranked
