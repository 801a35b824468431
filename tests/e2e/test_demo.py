"""``daco demo`` on a smaller factory than a user gets, and ``daco synth``, which records one."""

from __future__ import annotations

import json

import pytest
from command_line import refused, run, said

from daco.experiments.demo import MACHINES, run_demo

SMALL = ("--source", 2, "--target", 1, "--test", 4, "--seconds", 0.5, "--workers", 1)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    stages = []
    result = run_demo(
        folder,
        **{"n_source": 60, "n_target": 8, "n_test": 40, "seconds": 2.0},
        workers=1,
        progress=lambda stage, done, total: stages.append((stage, done, total)),
    )
    return folder, result, stages


def test_every_stage_is_reported_to_its_end(demo):
    _, _, stages = demo
    names = list(dict.fromkeys(stage for stage, _, _ in stages))
    embedding = ["embedding dev", "embedding eval"]
    assert names == ["recording", *embedding, "scoring", "examining", "deciding", "drawing"]
    assert {("recording", 648, 648), ("examining", 6, 6)} <= set(stages)


def test_evaluation_labels_come_from_the_truth_tables(demo):
    folder, result, _ = demo
    assert list((folder / "recordings" / "ground_truth").iterdir())
    assert result.missing == []
    assert set(result.grid.columns) >= {"dev_omega", "eval_omega"}
    splits = result.per_machine.groupby("split")["machine"].unique()
    assert sorted(splits["dev"]) == sorted(MACHINES[:3])
    assert sorted(splits["eval"]) == sorted(MACHINES[3:])
    assert len(result.grid) == 51


def test_the_report_its_pictures_and_the_cost_of_embedding_are_there(demo):
    folder, result, _ = demo
    assert (folder / "study" / "report.html").is_file()
    assert json.loads((folder / "study" / "report.json").read_text())
    for picture in ("transfer", "frontier"):
        for suffix in ("svg", "png"):
            assert (folder / "study" / "figures" / f"{picture}.{suffix}").is_file()
    cost = result.cost.set_index("quantity")
    assert (cost.loc["embedding", "value"] > 0).all()
    assert (cost.loc["parameters", "value"] == 0).all()


def test_a_folder_in_use_is_not_overwritten(demo, tmp_path):
    assert "not empty" in str(refused("demo", "--out", demo[0]))
    run("synth", tmp_path, "--machine", "fan", *SMALL)
    assert "remove it" in str(refused("synth", tmp_path, "--machine", "fan", *SMALL))


def test_synth_writes_a_data_set_and_says_what(tmp_path):
    text = said("synth", tmp_path / "factory", "--machine", "fan", "--machine", "valve", *SMALL)
    assert text.startswith("14 clips of 0.5 s from 2 machines (fan, valve)")
    assert len(list((tmp_path / "factory" / "dev_data" / "raw").rglob("*.wav"))) == 14
    machines = ("--machine", "pump", "--machine", "belt")
    run("synth", tmp_path, *machines, "--split", "both", "--year", 2026, *SMALL)
    assert (tmp_path / "dev_data" / "raw" / "pump" / "attributes_00.csv").is_file()
    assert (tmp_path / "eval_data" / "raw" / "belt" / "test" / "section_00_0003.wav").is_file()
