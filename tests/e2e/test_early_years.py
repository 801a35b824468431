"""DCASE 2020, 2021 and 2022 from the recordings to the score of that year, as a user types it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import soundfile
from command_line import run
from early_years import make_list_of_2020, make_set, make_truth_of_2021, make_truth_of_2022

from daco.evaluation.metrics import harmonic_mean

TRUTHS = {
    2020: lambda root: make_list_of_2020(root / "dcase2020_task2_evaluator/eval_data_list.csv"),
    2021: lambda root: make_truth_of_2021(root / "dcase2021_task2_evaluator"),
    2022: lambda root: make_truth_of_2022(root / "dcase2022_evaluator"),
}
ROWS = {
    2020: ["fan train all 01 03 05 9 - - 0.5 16k 1", "test all 01 03 05 12 12 - 0.5 16k 1"],
    2021: ["fan train source 03-05 9 - - 0.5 16k 1", "test source 03-05 12 12 - 0.5 16k 1"],
    2022: ["fan train source 03-05 9 - - 0.5 16k 1", "test source 03-05 12 12 - 0.5 16k 1"],
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
    lines = run("clips", folder, "--truth", truth).stdout.splitlines()
    assert set(ROWS[year]) <= {" ".join(line.split()) for line in lines}
    assert lines[-1] == "Nothing looks odd."
    options = (
        "--grid",
        "9",
        "--splits",
        "5",
        "--workers",
        "1",
        "--no-report",
        "--scores",
        "raw-k1",
    )
    tables = ("--dev", tmp_path / "dev.parquet", "--eval", tmp_path / "eval.parquet")
    run("study", *tables, "--truth", truth, *options, "--out", tmp_path / "run")
    scores = tmp_path / "run/scores/raw-k1"
    names = {path.name.replace("_03", "_01") for path in scores.glob("anomaly_score_fan_*_0[13]*")}
    assert (
        sorted(names)
        == {
            2020: ["anomaly_score_fan_id_01.csv"],
            2021: [f"anomaly_score_fan_section_01_{d}_test.csv" for d in ("source", "target")],
            2022: ["anomaly_score_fan_section_01_test.csv"],
        }[year]
    )
    printed = run("evaluate", scores, "--truth", truth, "--partial", "--json").stdout
    result = json.loads(printed)
    assert result["year"] == year
    table = pd.read_csv(tmp_path / "run/per_machine.csv").query(
        "split == 'eval' and config == 'raw-k1'"
    )
    quantities = [name for name in table if name.startswith(("auc", "pauc"))]
    for each in result["machines"]:
        row = table[table["machine"] == f"{each['machine']}_{each['section']}"].iloc[0]
        assert [each[name] for name in quantities] == pytest.approx(list(row[quantities]), abs=1e-6)
    values = table[quantities].to_numpy()
    expected = values.mean() if year == 2020 else harmonic_mean(values)
    assert result["official_score"] == pytest.approx(expected, abs=1e-6)
    text = run("evaluate", scores, "--truth", truth, "--partial").stdout
    assert f"Partial score of 6 sections, NOT COMPARABLE: {expected:.2f}" in text
    assert ("arithmetic mean of AUC and pAUC" in text) is (year == 2020)
    assert ("use its clips only" in text) is (year == 2021)
    assert max(map(len, text.splitlines())) <= 80
