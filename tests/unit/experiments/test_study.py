"""The study: its two tables, what it keeps, what it refuses, what it does without labels."""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
from random_studies import write_truth
from sklearn.svm import OneClassSVM
from study_tables import changed, machine_bank, rows_of
from synthetic_machines import small_table as table
from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.errors import DataError, InputError
from daco.evaluation.evaluate import evaluate_scores
from daco.experiments import machine as machine_module

GRID = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "ldn-ratio-K1", "ratio-soft-k1"]
KEY = ["set", "machine", "section", "split", "clip", "domain", "label"]
study = partial(daco.study, grid=GRID, n_splits=10, workers=1)


def without_labels(full):
    test = full.columns["split"] == "test"
    return changed(full, label=(test, None), domain=(test, None))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    return study(table("fan", "pump"), table("valve", "saw"), out=folder)


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run's folder."""
    return shutil.copytree(run.folder, tmp_path / "copy")


@pytest.fixture
def studied(monkeypatch):
    """The machines that were computed, in order."""
    names = []

    def counted(data, settings):
        names.append(data.machine)
        return study_machine(data, settings)

    study_machine = machine_module.study_machine
    monkeypatch.setattr("daco.experiments.study.study_machine", counted)
    return names


def test_the_folder_has_four_files_which_are_the_result(run, copy, monkeypatch):
    monkeypatch.setattr("daco.experiments.report.svg_bytes", lambda *args, **options: b"")
    again = daco.StudyResult.read(copy)
    pd.testing.assert_frame_equal(again.clips, run.clips)
    pd.testing.assert_frame_equal(again.criteria, run.criteria)
    assert again.run == run.run
    assert again.report().name == "report.html"
    names = ["clips.parquet", "criteria.parquet", "report.html", "run.json"]
    assert sorted(path.name for path in copy.iterdir()) == names
    for name, digest in run.run["tables"].items():
        assert hashlib.sha256((copy / name).read_bytes()).hexdigest() == digest
    times = json.loads((copy / "run.json").read_text())["times"]
    parts = sum(value for name, value in times.items() if name != "total")
    assert times["report"] > 0
    assert parts == pytest.approx(times["total"], abs=0.01)


def test_a_row_per_clip_has_the_scores_of_a_bank(run):
    assert run.clips.columns.tolist()[:7] == KEY
    assert run.clips.columns.tolist()[7:13] == [*GRID, "blend"]
    full = table("fan", "pump")
    bank, X_test, _, _ = machine_bank(full, "pump")
    names = [*GRID, "blend"]
    train, test = (rows_of(run, "pump", split) for split in ("train", "test"))
    # A half rank at a tie may fall the other way.
    np.testing.assert_allclose(train[names], bank.leave_one_out(names), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(test[names], bank.score(X_test, names), rtol=1e-9, atol=1e-12)
    assert (run.candidates, run.compared) == (GRID, ["blend"])


def test_criteria_are_those_of_the_bank(run):
    bank, _, _, _ = machine_bank(table("fan", "pump"), "fan")
    balance = bank.exact_balance(GRID, 10, 0, n_resamples=100)
    mine = run.criteria[run.criteria["machine"] == "fan"].set_index(["measure", "configuration"])
    for row, config in enumerate(GRID):
        found = {name: mine.loc[[(name, config)], "value"] for name in set(mine.index.levels[0])}
        np.testing.assert_array_equal(found["balance"], balance.splits[row])
        np.testing.assert_array_equal(found["resample"], balance.resampled[row])
        assert {name for name in found if name.startswith("pseudo")} == {
            f"pseudo_{value}_{domain}"
            for value in ("auc", "pauc")
            for domain in ("source", "target")
        }


@pytest.mark.parametrize(("options", "own"), [({"seed": 3}, True), ({"n_splits": 12}, False)])
def test_the_paper_s_ten_splits_are_always_there(run, options, own):
    other = study(table("fan", "pump"), **options)
    assert (other.criteria["measure"] == "paper").any() == own
    expected = run.grid()["criterion_dev"]
    np.testing.assert_allclose(other.grid()["criterion_paper"], expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::daco.DacoWarning")
def test_p_values_are_those_of_a_detector(run):
    full = table("fan", "pump")
    _, X_test, train, _ = machine_bank(full, "fan")
    X, domains = full.matrix()[train], full.columns["domain"][train]
    assert run.decided == [*GRID, "blend"]
    for config in run.decided:
        expected = daco.DACo(config).fit(X, domains=domains).p_values(X_test)
        found = rows_of(run, "fan", "test")[f"p:{config}"]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert rows_of(run, "fan", "train")["p:blend"].isna().all()


def test_processes_give_the_same_tables(run):
    other = study(table("fan", "pump"), table("valve", "saw"), workers=2)
    pd.testing.assert_frame_equal(other.clips, run.clips)
    pd.testing.assert_frame_equal(other.criteria, run.criteria)
    assert other.run["choice"]["config"] == run.run["choice"]["config"]
    assert other.folder is None


# What was computed before


def test_a_second_run_computes_nothing_and_keeps_the_report(run, copy, studied):
    (copy / "report.html").write_text("the report")
    again = study(table("fan", "pump"), table("valve", "saw"), out=copy)
    assert not studied
    assert (copy / "report.html").exists()
    pd.testing.assert_frame_equal(again.clips, run.clips)
    assert again.run["tables"] == run.run["tables"]


def test_evaluation_machines_that_are_added_are_the_only_ones_computed(tmp_path, run, studied):
    study(table("fan", "pump"), out=tmp_path)
    (tmp_path / "report.html").write_text("of the development machines alone")
    studied.clear()
    both = study(table("fan", "pump"), table("valve", "saw"), out=tmp_path)
    assert studied == ["valve", "saw"]
    assert not (tmp_path / "report.html").exists()
    pd.testing.assert_frame_equal(both.clips, run.clips)
    pd.testing.assert_frame_equal(both.criteria, run.criteria)


def test_an_interrupted_study_goes_on_from_its_parts(run, tmp_path, studied, monkeypatch):
    def stop(stage, done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study(table("fan", "pump"), table("valve", "saw"), out=tmp_path, progress=stop)
    assert not (tmp_path / "run.json").exists()
    parts = sorted((tmp_path / "parts").iterdir())
    assert len(parts) == 6
    parts[0].write_bytes(parts[0].read_bytes()[:100])  # the pair of a machine is damaged
    studied.clear()
    result = study(table("fan", "pump"), table("valve", "saw"), out=tmp_path)
    assert len(studied) == 3
    pd.testing.assert_frame_equal(result.clips, run.clips)
    assert not (tmp_path / "parts").exists()


def test_another_setting_is_another_result(copy, studied):
    study(table("fan", "pump"), table("valve", "saw"), out=copy, seed=5)
    assert studied == ["fan", "pump", "valve", "saw"]
    settings = machine_module.Settings(tuple(GRID))
    others = [{"seed": 5}, {"n_splits": 11}, {"candidates": ("raw-k1",)}, {"baselines": True}]
    others += [{"detectors": {"svm": OneClassSVM(nu=nu)}} for nu in (0.2, 0.4)]
    keys = [machine_module.key_of("fan", replace(settings, **each)) for each in ({}, *others)]
    assert len(set(keys)) == 7
    same = replace(settings, detectors={"svm": OneClassSVM(nu=0.2)})
    assert machine_module.key_of("fan", same) == keys[5]


def test_another_rule_and_rate_need_no_new_rows(run, copy, studied):
    other = study(
        table("fan", "pump"), table("valve", "saw"), out=copy, rule="dev", false_alarm_rate=0.2
    )
    assert not studied
    assert other.run["choice"]["rule"] == "dev"
    assert other.run["choice"]["config"] == run.choose("dev").config
    assert other.run["settings"]["false_alarm_rate"] == 0.2


# What is not known


def test_without_evaluation_labels_all_that_is_label_free_runs(run):
    blind = study(table("fan", "pump"), without_labels(table("valve", "saw")))
    names = ["configuration", "dev_score", "criterion_dev", "criterion_eval", "criterion_paper"]
    assert blind.grid().columns.tolist()[:5] == names
    pd.testing.assert_frame_equal(blind.criteria, run.criteria)
    assert json.loads(json.dumps(blind.run["choice"])) == run.run["choice"]
    assert any("2 evaluation machines (valve, saw)" in note for note in blind.run["notes"])
    assert [each["labelled"] for each in blind.run["machines"]] == [True, True, False, False]


@pytest.mark.parametrize("clips", [without_labels, lambda full: full.select(split="train")])
def test_nothing_labelled_at_all(clips):
    blind = study(clips(table("fan", "pump")))
    assert blind.grid()["criterion_dev"].between(0, 1).all()
    assert {"dev_score", "eval_score", "criterion_eval"}.isdisjoint(blind.grid())
    assert blind.metrics().iloc[:, 4:].isna().all(axis=None)
    notes = " ".join(blind.run["notes"])
    assert "No evaluation machines were given" in notes
    assert "2 development machines (fan, pump) without complete labels" in notes


def test_truth_of_an_evaluator(tmp_path, run):
    full = table("valve", "saw")
    names = [f"{m}/test/section_00_{i:04d}.wav" for i, m in enumerate(full.columns["machine"])]
    full = changed(full, path=(slice(None), names))
    clips = pd.DataFrame({n: full.columns[n] for n in ("machine", "split", "label", "domain")})
    clips = clips.assign(set="eval", clip=[name.split("/")[-1] for name in names])
    write_truth(tmp_path, clips)
    result = study(table("fan", "pump"), without_labels(full), truth=tmp_path)
    pd.testing.assert_series_equal(result.grid()["eval_score"], run.grid()["eval_score"])
    assert [each["role"] for each in result.run["inputs"]] == ["dev", "eval", "truth"]


def test_test_clips_that_are_training_clips_are_told(run):
    full = table("fan", "pump")
    vectors = full.matrix().copy()
    train, test = (np.flatnonzero(full.columns["split"] == each) for each in ("train", "test"))
    vectors[test[:3]] = vectors[train[:3]]
    result = study(daco.EmbeddingTable(full.columns, {"embedding": vectors}, full.metadata))
    [note] = [note for note in result.run["notes"] if "same vector" in note]
    assert note.startswith("dev machine fan: 3 test clips")
    assert not any("same vector" in note for note in run.run["notes"])


def test_one_bad_machine_does_not_lose_the_others(tmp_path):
    small = synthetic_table(
        [synthetic_machine("fan", 0, 40, 8, 40, 8), synthetic_machine("tiny", 1, 3, 2, 40, 8)]
    )
    result = study(small, grid=[*GRID, "raw-k4"], out=tmp_path / "run")
    assert set(result.clips["machine"]) == {"fan"}
    assert [each["machine"] for each in result.run["machines"]] == ["fan"]
    assert any(
        note.startswith("dev machine tiny is left out: 'raw-k4' needs")
        for note in result.run["notes"]
    )


# Names and folders


def test_domains_of_other_names():
    """The larger domain is the source; results are those of the usual names."""
    full = table("fan", "pump")
    names = {"source": "old line", "target": "new line"}
    result = study(changed(full, domain=(slice(None), [names[d] for d in full.columns["domain"]])))
    assert result.run["domains"] == names
    pd.testing.assert_frame_equal(result.clips, study(full).clips)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eval": table("fan")}, "in both"),
        ({"truth": "x"}, "Give 'eval'"),
        ({"grid": ["conf-oracle-m0-k1"]}, "true domain"),
        ({"workers": 0}, "at least 1"),
        ({"n_splits": 0}, "'n_splits' parameter must be an int >= 1"),
        ({"false_alarm_rate": 0}, "between 0 and 1"),
        ({"readout": "cls"}, "no readout 'cls'"),
        ({"rule": "oracle"}, "rule"),
        ({"dev": np.eye(3)}, r"EmbeddingTable\.from_arrays .* Got ndarray"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_scored(options, message, studied):
    with pytest.raises(daco.DacoError, match=message):
        study(**{"dev": table("fan"), **options})
    assert not studied


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"domain": (slice(0, 5), "third")}, InputError, r"two domains.*3: 'source', 'target'"),
        ({"domain": (0, None)}, InputError, "1 training clip without a domain"),
        ({"label": (3, 1)}, InputError, r"1 training clip labelled as anomaly \(machines: fan\)"),
        ({"path": (slice(-3, None), "same.wav")}, DataError, r"more than once \(same\.wav\)"),
        ({"year": (slice(0, 20), [2024] * 10 + [2025] * 10)}, InputError, "years 2024, 2025"),
    ],
)
def test_clips_that_are_no_study_are_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        study(changed(table("fan"), **change))


def test_clips_that_folders_tell_apart_keep_their_folders(tmp_path):
    full = table("fan")
    test = np.flatnonzero(full.columns["split"] == "test")
    folders = np.where(full.columns["label"][test] == 1, "abnormal", "normal")
    numbers = pd.Series(folders).groupby(folders).cumcount()
    paths = [f"{name}/{number}.wav" for name, number in zip(folders, numbers, strict=True)]
    result = study(changed(full, path=(test, paths)), out=tmp_path / "run")
    assert result.test_clips["clip"].tolist() == paths
    score = evaluate_scores(tmp_path / "run").official_score
    chosen = result.grid().set_index("configuration").loc[result.run["choice"]["config"]]
    assert score == pytest.approx(chosen["dev_score"])


def test_folders_of_other_things_are_left_alone(tmp_path, copy):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        study(table("fan"), out=tmp_path / "own")
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    with pytest.raises(InputError, match="of another study, which has dev machine fan"):
        study(table("lathe"), out=copy)
    with pytest.raises(DataError, match="cannot be read"):
        study(tmp_path / "mistyped.parquet", out=copy)
    assert {name: (copy / name).read_bytes() for name in before} == before
    with pytest.raises(DataError, match="not a finished run: it has no clips"):
        daco.StudyResult.read(tmp_path / "own")


def test_a_table_that_changes_during_a_study_is_noticed(tmp_path):
    path = tmp_path / "dev.parquet"
    table("fan", "pump").write(path)
    table("saw").write(tmp_path / "other.parquet")

    def change(stage, done, total):
        if (tmp_path / "other.parquet").exists():
            (tmp_path / "other.parquet").rename(path)

    with pytest.raises(DataError, match=r"dev\.parquet: changed while it was read"):
        study(path, out=tmp_path / "run", progress=change)
    assert not (tmp_path / "run" / "run.json").exists()
