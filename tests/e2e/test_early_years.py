"""DCASE 2020, 2021 and 2022 from the recordings to the score of that year, as a user types it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import soundfile
from command_line import run
from early_years import make_list_of_2020, make_set, make_truth_of_2021, make_truth_of_2022

from daco import StudyResult

TRUTHS = {
    2020: lambda root: make_list_of_2020(root / "dcase2020_task2_evaluator/eval_data_list.csv"),
    2021: lambda root: make_truth_of_2021(root / "dcase2021_task2_evaluator"),
    2022: lambda root: make_truth_of_2022(root / "dcase2022_evaluator"),
}


def noise(path):
    rng = np.random.default_rng(sum("/".join(path.parts[-4:]).encode()))
    soundfile.write(path, 0.1 * rng.normal(size=8000), 16000)


@pytest.mark.parametrize("year", TRUTHS)
def test_from_recordings_over_a_study_to_the_score_of_the_year(tmp_path, year):
    truth = TRUTHS[year](tmp_path)
    for part in ("dev", "eval"):
        folder = tmp_path / f"dcase{year}t2" / f"{part}_data"
        make_set(folder, year, part, noise, machines=["fan", "valve"])
        run("embed", folder, "--backbone", "logmel", "--out", tmp_path / f"{part}.parquet")
    assert "Nothing looks odd." in run("clips", folder, "--truth", truth).stdout
    tables = ("--dev", tmp_path / "dev.parquet", "--eval", tmp_path / "eval.parquet")
    options = ("--grid", "9", "--splits", "5", "--workers", "1", "--no-report")
    run("study", *tables, "--truth", truth, *options, "--out", tmp_path / "run")

    study = StudyResult.read(tmp_path / "run")
    chosen = study.run["choice"]["config"]
    expected = study.grid().set_index("configuration").loc[chosen, "eval_score"]
    arguments = ("evaluate", tmp_path / "run", "--truth", truth, "--partial", "--year", year)
    result = json.loads(run(*arguments, "--json").stdout)
    assert result["year"] == year
    assert result["systems"][0]["official_score"] == pytest.approx(expected, abs=1e-6)
    metrics = study.metrics([chosen]).set_index(["set", "machine", "section"])
    for row in result["machines"]:
        known = metrics.loc["eval", row["machine"], row["section"]]
        for name in result["official"]:
            assert row[name] == pytest.approx(known[name], abs=1e-6)
    text = run(*arguments).stdout
    assert f"Partial score of 6 sections, NOT COMPARABLE: {expected:.2f}" in text
    assert ("arithmetic mean of AUC and pAUC" in text) is (year == 2020)
