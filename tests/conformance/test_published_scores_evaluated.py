"""The authors' released score files through `evaluate_scores`: their metrics must come back."""

from __future__ import annotations

import csv
import shutil

import pytest
from shared_data import shared

from daco.evaluation.evaluate import evaluate_scores

QUANTITIES = ("auc_source", "auc_target", "pauc")


def published(*parts):
    return shared("published", "daco-experiments", *parts)


def rows(name):
    with published("results", name).open(newline="") as file:
        return list(csv.DictReader(file))


def released():
    folders = sorted(path.parent for path in published("release", "scores").glob("*/dev"))
    assert len(folders) == 13
    return folders


@pytest.fixture(scope="module")
def evaluations():
    return {folder.name: evaluate_scores(folder / "dev", year=2025) for folder in released()}


def test_every_machine_of_every_configuration(evaluations):
    # Printed with two decimals: half of the last digit is all they say.
    wanted = {
        (row["config"], row["machine"]): [float(row[name]) for name in QUANTITIES]
        for row in rows("e45_beats_per_machine.csv")
        if row["split"] == "dev"
    }
    compared = 0
    for config, evaluation in evaluations.items():
        for row in evaluation.machines.to_dict("records"):
            ours = [row[name] for name in QUANTITIES]
            assert row["clips"] == 200
            assert ours == pytest.approx(wanted[config, row["machine"]], abs=0.005 + 1e-9)
            compared += 3
    assert compared == 13 * 7 * 3


def test_the_official_score_of_every_configuration(evaluations):
    # Printed with four decimals.
    wanted = {row["config"]: float(row["dev_omega"]) for row in rows("e45_beats_grid.csv")}
    for config, evaluation in evaluations.items():
        assert evaluation.official_score == pytest.approx(wanted[config], abs=0.00005 + 1e-9)


def test_ranked_as_systems_they_are_in_the_published_order(tmp_path):
    for folder in released():
        shutil.copytree(folder / "dev", tmp_path / "authors" / folder.name)
    result = evaluate_scores(tmp_path / "authors")
    assert not result.failures
    omega = {row["config"]: float(row["dev_omega"]) for row in rows("e45_beats_grid.csv")}
    ours = result.systems["system"].tolist()
    assert ours == sorted(ours, key=omega.__getitem__, reverse=True)
    assert len(ours) == 13
