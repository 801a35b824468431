"""The demo, from sounds to a report, on a smaller factory than a user gets."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from daco.experiments.demo import MACHINES, Size, run_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    stages = []
    result = run_demo(
        folder,
        size=Size(n_source=60, n_target=8, n_test=40, seconds=2.0),
        workers=1,
        progress=lambda stage, done, total: stages.append((stage, done, total)),
    )
    return folder, result, stages


def test_every_stage_is_reported_to_its_end(demo):
    _, _, stages = demo
    names = list(dict.fromkeys(stage for stage, _, _ in stages))
    assert names == [
        "recording",
        "embedding dev",
        "embedding eval",
        "scoring",
        "examining",
        "drawing",
    ]
    assert ("recording", 648, 648) in stages
    assert ("examining", 6, 6) in stages


def test_evaluation_labels_come_from_the_truth_tables(demo):
    folder, result, _ = demo
    assert list((folder / "recordings" / "ground_truth").iterdir())
    assert result.missing == []
    assert set(result.grid.columns) >= {"dev_omega", "eval_omega"}
    splits = result.per_machine.groupby("split")["machine"].unique()
    assert sorted(splits["dev"]) == sorted(MACHINES[:3])
    assert sorted(splits["eval"]) == sorted(MACHINES[3:])
    assert len(result.grid) == 51


def test_the_report_and_its_pictures_are_there(demo):
    folder, _, _ = demo
    assert (folder / "study" / "report.html").is_file()
    summary = json.loads((folder / "study" / "report.json").read_text())
    assert summary
    for picture in ("transfer", "frontier"):
        for suffix in ("svg", "png"):
            assert (folder / "study" / "figures" / f"{picture}.{suffix}").is_file()


def test_the_cost_of_embedding_is_in_the_cost_table(demo):
    _, result, _ = demo
    cost = result.cost.set_index("quantity")
    assert (cost.loc["embedding", "value"] > 0).all()
    assert (cost.loc["parameters", "value"] == 0).all()


def test_a_folder_in_use_is_not_overwritten(demo):
    folder, _, _ = demo
    result = subprocess.run(
        [sys.executable, "-m", "daco.cli", "demo", "--out", str(folder)],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "80"},
    )
    assert result.returncode == 2
    assert "not empty" in result.stderr
    assert "Traceback" not in result.stderr
