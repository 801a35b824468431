"""``daco demo`` on a smaller factory than a user gets, and ``daco synth``, which records one."""

from __future__ import annotations

import pytest
from command_line import refused, run, said

from daco.commands import demo as command
from daco.experiments.result import StudyResult

SMALL = ("--source", 2, "--target", 1, "--test", 4, "--seconds", 0.5, "--workers", 1)


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder, and what was printed."""
    folder = tmp_path_factory.mktemp("demo")
    size = {"source": 30, "target": 6, "test": 16, "seconds": 1.0, "workers": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "SIZE", size)
        return folder, said("demo", "--out", folder)


def test_it_prints_the_rules_and_names_the_report(demo):
    folder, text = demo
    assert "208 clips of 1 s from 4 machines" in text
    assert " blend " in text
    assert f"report: {folder / 'study' / 'report.html'}" in text
    assert (folder / "study" / "report.html").stat().st_size > 10_000


def test_it_chooses_on_two_machines_and_evaluates_on_two_with_labels_from_truth_tables(demo):
    result = StudyResult.read(demo[0] / "study")
    machines = result.clips.groupby("set")["machine"].unique()
    assert sorted(machines["dev"]) == ["bearing", "fan"]
    assert sorted(machines["eval"]) == ["motor", "valve"]
    assert (result.test_clips.groupby(["machine", "domain", "label"]).size() == 4).all()
    assert len(result.candidates) == 51
    assert result.grid()["eval_score"].notna().all()


def test_a_folder_in_use_is_not_overwritten(demo, tmp_path):
    assert "not empty" in str(refused("demo", "--out", demo[0]))
    run("synth", tmp_path, "--machine", "fan", *SMALL)
    assert "remove it" in str(refused("synth", tmp_path, "--machine", "fan", *SMALL))


def test_synth_writes_a_data_set_and_says_what(tmp_path):
    text = said("synth", tmp_path / "factory", "--machine", "fan", "--machine", "valve", *SMALL)
    assert text.startswith("14 clips of 0.5 s from 2 machines (fan, valve)")
    assert len(list((tmp_path / "factory" / "dev_data" / "raw").rglob("*.wav"))) == 14
    run("synth", tmp_path, "--split", "both", "--year", 2026, *SMALL)
    assert (tmp_path / "dev_data" / "raw" / "fan" / "attributes_00.csv").is_file()
    assert (tmp_path / "eval_data" / "raw" / "motor" / "test" / "section_00_0003.wav").is_file()
