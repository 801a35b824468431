"""The study: what it files, what it refuses, what it does without labels."""

from __future__ import annotations

import hashlib
import json
import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from dcase_trees import write_truth_of
from report_runs import without_labels
from synthetic_machines import small_table as table
from synthetic_machines import synthetic_machine, synthetic_table

import daco
from daco.errors import DataError, InputError
from daco.experiments import machine as machine_room

study = partial(daco.study, n_splits=10)

CRITERIA = ["crit_dev", "crit_eval", "crit_paper"]
GRID = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "ldn-ratio-K1", "ratio-soft-k1"]


def changed(full, **values):
    columns = {name: column.copy() for name, column in full.columns.items()}
    for name, (rows, value) in values.items():
        columns[name][rows] = value
    return daco.EmbeddingTable(columns, full.matrices, full.metadata)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    return study(table("fan", "pump"), table("valve", "saw"), grid=GRID, out=folder, workers=1)


@pytest.fixture
def copy(run, tmp_path):
    """A copy of the run's folder."""
    return shutil.copytree(run.folder, tmp_path / "copy")


def repeat(folder, **options):
    """The run again in a folder, and the calls of its progress."""
    calls = []
    options |= {"grid": GRID, "workers": 1, "progress": lambda *call: calls.append(call)}
    return study(table("fan", "pump"), table("valve", "saw"), out=folder, **options), calls


def test_the_files_are_the_result(run):
    again = daco.StudyResult.read(run.folder)
    for name in ("grid", "per_machine", "baselines", "frontier", "resamples", "coverage"):
        expected, found = getattr(run, name), getattr(again, name)
        # ten significant digits are written
        pd.testing.assert_frame_equal(found, expected, rtol=1e-9, check_dtype=False)
    assert again.selection == json.loads(json.dumps(run.selection))
    assert again.stats == json.loads(json.dumps(run.stats))
    for one, two in zip(run.machine_scores(), again.machine_scores(), strict=True):
        assert (one.split, one.machine) == (two.split, two.machine)
        np.testing.assert_array_equal(one.scores, two.scores)


def test_tables_have_the_published_columns(run):
    header = (run.folder / "grid.csv").read_text().splitlines()[0]
    assert header == "config,dev_omega,eval_omega,crit_dev,crit_eval,crit_paper"
    header = (run.folder / "per_machine.csv").read_text().splitlines()[0]
    assert header.startswith("split,machine,config,auc_source,auc_target,pauc,balance_ks")
    assert len(run.per_machine) == 4 * len(GRID)


def test_the_grid_follows_from_the_machines(run):
    for row in run.grid.itertuples():
        rows = run.per_machine.query("config == @row.config and split == 'eval'")
        values = rows[["auc_source", "auc_target", "pauc"]].to_numpy()
        assert row.eval_omega == pytest.approx(1 / np.mean(1 / values))
        assert row.crit_eval == pytest.approx(rows["balance_ks"].mean())


def test_processes_give_the_same_numbers(run):
    other = study(table("fan", "pump"), table("valve", "saw"), grid=GRID, workers=2)
    pd.testing.assert_frame_equal(other.grid, run.grid)
    pd.testing.assert_frame_equal(other.resamples, run.resamples)
    assert other.selection == run.selection
    assert other.folder is None


def test_hashes_of_every_table_are_recorded(run):
    recorded = run.provenance["artifacts"]
    assert {"grid.csv", "per_machine.csv", "selection.json", "stats.json"} <= set(recorded)
    for name, digest in recorded.items():
        assert hashlib.sha256((run.folder / name).read_bytes()).hexdigest() == digest


def test_a_second_run_computes_nothing_again(run, copy, monkeypatch):
    monkeypatch.setattr(machine_room, "NormalBank", None)  # any scoring would fail
    result, calls = repeat(copy)
    assert calls == [("scoring", 4, 4), ("examining", 4, 4), ("deciding", 4, 4)]
    pd.testing.assert_frame_equal(result.grid, run.grid)
    for name in ("grid.csv", "per_machine.csv", "selection.json", "stats.json"):
        assert (copy / name).read_bytes() == (run.folder / name).read_bytes()


def test_only_what_changed_is_computed_again(run, copy):
    damaged = sorted((copy / "machines").glob("dev_fan*"))[0]
    damaged.write_bytes(damaged.read_bytes()[:100])
    assert repeat(copy)[1][:2] == [("scoring", 3, 4), ("scoring", 4, 4)]
    assert (copy / "grid.csv").read_bytes() == (run.folder / "grid.csv").read_bytes()


def test_another_setting_is_another_result(run, copy):
    other, _ = repeat(copy, seed=5)
    assert not np.allclose(other.grid["crit_dev"], run.grid["crit_dev"])
    np.testing.assert_array_equal(other.grid["dev_omega"], run.grid["dev_omega"])


def test_without_evaluation_labels_all_that_is_label_free_runs(run):
    blind = study(table("fan", "pump"), without_labels(table("valve", "saw")), grid=GRID, workers=1)
    assert blind.grid.columns.tolist() == ["config", "dev_omega", *CRITERIA]
    pd.testing.assert_series_equal(blind.grid["crit_eval"], run.grid["crit_eval"])
    assert blind.selection["chosen"]["config"] == run.selection["chosen"]["config"]
    assert blind.selection["chosen"]["eval_omega"] is None
    assert blind.selection["per_machine_blind"] == run.selection["per_machine_blind"]
    assert any("2 evaluation machines (valve, saw)" in sentence for sentence in blind.missing)
    assert set(blind.coverage["split"]) == {"dev"}


def test_labels_change_scores_but_no_choice(run):
    full = table("valve", "saw")
    test = np.flatnonzero(full.columns["split"] == "test")
    rng = np.random.default_rng(0)
    shuffled = changed(
        full,
        label=(test, full.columns["label"][rng.permutation(test)]),
        domain=(test, full.columns["domain"][rng.permutation(test)]),
    )
    other = study(table("fan", "pump"), shuffled, grid=GRID, workers=1)
    assert not np.allclose(other.grid["eval_omega"], run.grid["eval_omega"])
    assert other.selection["chosen"]["config"] == run.selection["chosen"]["config"]
    assert other.selection["per_machine_blind"] == run.selection["per_machine_blind"]


def test_development_machines_alone():
    alone = study(table("fan"), grid=GRID, workers=1)
    assert alone.grid.columns.tolist() == ["config", "dev_omega", "crit_dev", "crit_paper"]
    assert any("No evaluation machines" in sentence for sentence in alone.missing)


def test_nothing_labelled_at_all():
    blind = study(without_labels(table("fan", "pump")), grid=GRID, workers=1)
    assert blind.grid.columns.tolist() == ["config", "crit_dev", "crit_paper"]
    assert blind.selection["chosen"]["config"] == "conf-soft-m0-k1"
    assert blind.baselines.empty
    assert blind.coverage.empty


def test_only_normals():
    normals = table("fan", n_test=40).select(split="train")
    result = study(normals, grid=GRID, workers=1)
    assert result.machine_scores()[0].scores.shape == (0, len(GRID) + 1)
    assert result.grid["crit_dev"].between(0, 1).all()


def test_truth_of_an_evaluator(tmp_path, run):
    full = table("valve", "saw")
    names = np.array([f"section_00_{row:04d}.wav" for row in range(len(full))], dtype=object)
    paths = np.array([f"{m}/test/{n}" for m, n in zip(full.columns["machine"], names, strict=True)])
    full = daco.EmbeddingTable(
        {**full.columns, "path": paths.astype(object)}, full.matrices, full.metadata
    )
    write_truth_of(full, tmp_path)
    result = study(table("fan", "pump"), without_labels(full), truth=tmp_path, grid=GRID, workers=1)
    pd.testing.assert_series_equal(result.grid["eval_omega"], run.grid["eval_omega"])


def test_domains_of_other_names():
    """The larger domain is the source; results are those of the usual names."""
    full = table("fan", "pump")
    names = {"source": "old line", "target": "new line"}
    renamed = np.array([names[d] for d in full.columns["domain"]], dtype=object)
    other = daco.EmbeddingTable({**full.columns, "domain": renamed}, full.matrices, full.metadata)
    result = study(other, grid=GRID, workers=1)
    assert result.provenance["domains"] == {"source": "old line", "target": "new line"}
    expected = study(full, grid=GRID, workers=1)
    pd.testing.assert_frame_equal(result.grid, expected.grid)


def test_sections_of_one_machine_are_machines_of_their_own(tmp_path):
    full = table("fan", "pump")
    second = full.columns["machine"] == "pump"
    both = changed(full, machine=(second, "fan"), section=(second, "01"))
    result = study(both, grid=GRID, out=tmp_path / "run", workers=1)
    assert result.per_machine["machine"].unique().tolist() == ["fan_00", "fan_01"]
    files = sorted(path.name for path in (tmp_path / "run" / "machines").iterdir())
    assert files == ["dev_fan_section_00.npz", "dev_fan_section_01.npz"]


def test_a_readout_by_name():
    full = table("fan")
    two = {"embedding": full.matrix(), "other": full.matrix()[:, :4]}
    both = daco.EmbeddingTable(full.columns, two, full.metadata)
    result = study(both, grid=GRID, readout="other", workers=1)
    narrow = daco.EmbeddingTable(full.columns, {"embedding": two["other"]}, full.metadata)
    expected = study(narrow, grid=GRID, workers=1)
    pd.testing.assert_frame_equal(result.grid, expected.grid)
    assert result.provenance["readout"] == "other"


def test_machine_names_that_are_no_file_names(tmp_path):
    odd = changed(table("fan"), machine=(slice(None), "a/b: ü"))
    result = study(odd, grid=GRID, out=tmp_path / "run", workers=1)
    again = daco.StudyResult.read(tmp_path / "run")
    assert again.machine_scores()[0].machine == "a/b: ü"
    assert result.per_machine["machine"].unique().tolist() == ["a/b: ü"]


def test_one_bad_machine_does_not_lose_the_others(tmp_path):
    small = synthetic_table(
        [synthetic_machine("fan", 0, 40, 8, 40, 8), synthetic_machine("tiny", 1, 3, 2, 40, 8)]
    )
    result = study(small, grid=[*GRID, "raw-k4"], out=tmp_path / "run", workers=1)
    kept = [path.name for path in (tmp_path / "run" / "machines").iterdir()]
    assert kept == ["dev_fan_section_00.npz"]
    assert [machine.title for machine in result.machine_scores()] == ["fan"]
    assert any(
        line.startswith("dev machine tiny is left out: 'raw-k4' needs") for line in result.missing
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: study(table("fan"), table("fan"), workers=1), "in both"),
        (lambda: study(table("fan"), truth="x", workers=1), "Give 'eval'"),
        (lambda: study(table("fan"), grid=["conf-oracle-m0-k1"], workers=1), "true domain"),
        (lambda: study(table("fan"), workers=0), "at least 1"),
        (lambda: study(table("fan"), false_alarm_rate=0, workers=1), "between 0 and 1"),
        (lambda: study(table("fan"), readout="cls", workers=1), "no readout 'cls'"),
        (lambda: study(np.eye(3)), r"EmbeddingTable\.from_arrays .* Got ndarray"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (
            {"domain": (slice(0, 5), "third")},
            InputError,
            r"two domains.*3: 'source', 'target', 'third'",
        ),
        ({"domain": (0, None)}, InputError, "1 training clip without a domain"),
        ({"label": (3, 1)}, InputError, "dev machine fan: 1 training clip labelled as anomaly"),
        ({"path": (slice(-3, None), "same.wav")}, DataError, r"more than once \(same\.wav\)"),
        (
            {"year": (slice(0, 20), [2024] * 10 + [2025] * 10)},
            InputError,
            "mixes the years 2024, 2025",
        ),
    ],
)
def test_clips_that_are_no_study_are_refused(change, kind, message):
    with pytest.raises(kind, match=message):
        study(changed(table("fan"), **change), workers=1)


def test_a_folder_of_other_things_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        study(table("fan"), grid=GRID, out=tmp_path, workers=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_the_folder_of_another_study_is_left_alone(tmp_path, run, copy):
    with pytest.raises(InputError, match="of another study"):
        study(table("lathe"), grid=GRID, out=copy, workers=1)
    with pytest.raises(DataError, match="cannot be read"):
        study(tmp_path / "mistyped.parquet", grid=GRID, out=copy, workers=1)
    assert len(list((copy / "machines").iterdir())) == 4
    assert (copy / "run.json").read_bytes() == (run.folder / "run.json").read_bytes()


def test_an_unfinished_run_says_so(tmp_path):
    with pytest.raises(DataError, match="not a finished run: it has no grid"):
        daco.StudyResult.read(tmp_path)


def test_the_paper_s_criterion_is_that_of_its_ten_splits(run):
    # 10 splits of seed 0, as the run has, and as it computes beside more splits or another seed.
    np.testing.assert_allclose(run.grid["crit_paper"], run.grid["crit_dev"], rtol=1e-12)
    other = daco.study(table("fan", "pump"), grid=GRID, workers=1, n_splits=12, seed=3)
    np.testing.assert_allclose(other.grid["crit_paper"], run.grid["crit_dev"], rtol=1e-12)
    rows = {row["rule"]: row["config"] for row in run.selection["rows"]}
    guarded = run.grid[run.grid["dev_omega"] > run.grid["dev_omega"].quantile(0.1)]
    assert rows["paper's choice"] == guarded.set_index("config")["crit_paper"].idxmin()


def test_every_study_has_the_scores_of_the_blend(run):
    """The same as those of a bank, and of a study that has the blend in its grid."""
    full = table("fan", "pump")
    named = study(full, grid=[*GRID, "blend"], workers=1)
    assert "blend" not in run.grid["config"].tolist()
    for filed, other in zip(run.machine_scores(), named.machine_scores(), strict=False):
        mine = full.columns["machine"] == filed.machine
        train, test = (mine & (full.columns["split"] == each) for each in ("train", "test"))
        bank = daco.NormalBank(full.matrix()[train], full.columns["domain"][train])
        expected = bank.score(full.matrix()[test], "blend")[:, 0]
        np.testing.assert_allclose(filed.of("blend"), expected, rtol=1e-9, atol=1e-12)
        own = bank.leave_one_out("blend")[:, 0]
        np.testing.assert_allclose(filed.own_of("blend"), own, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.of("blend"), expected, rtol=1e-9, atol=1e-12)
    [row] = [row for row in run.selection["rows"] if row["rule"] == "blend"]
    blend = run.baselines.query("backend == 'blend' and split == 'dev'")
    values = blend[["auc_source", "auc_target", "pauc"]].to_numpy()
    assert row["dev_omega"] == pytest.approx(1 / np.mean(1 / values))
    known = named.grid.set_index("config")["dev_omega"]
    assert known["blend"] == pytest.approx(row["dev_omega"])


@pytest.mark.filterwarnings("ignore::daco.DacoWarning")
def test_decisions_are_those_of_a_detector(run):
    """The p-values of a study are those of the decision rule on the same bank."""
    full = table("fan", "pump")
    scores = run.machine_scores()[0]
    mine = full.columns["machine"] == scores.machine
    train, test = (mine & (full.columns["split"] == each) for each in ("train", "test"))
    for config in dict.fromkeys([run.selection["chosen"]["config"], "blend"]):
        detector = daco.DACo(config).fit(
            full.matrix()[train], domains=full.columns["domain"][train].tolist()
        )
        expected = detector.p_values(full.matrix()[test])
        np.testing.assert_allclose(scores.p_values(config), expected, rtol=1e-9)


def test_other_configurations_are_decided_by_when_asked_for(run):
    other = next(name for name in GRID if name not in run.machine_scores()[0].decided)
    with pytest.raises(InputError, match=f"no decisions of '{other}'.*--scores {other}"):
        run.machine_scores()[0].p_values(other)
    more = study(table("fan"), grid=GRID, decide=[other], workers=1)
    assert more.machine_scores()[0].p_values(other).shape == (40,)
    every = study(table("fan"), grid=GRID, decide=["all"], workers=1)
    assert set(every.machine_scores()[0].decided) == {*GRID, "blend"}
    with pytest.raises(InputError, match="'raw-k2' is not in the grid"):
        study(table("fan"), grid=GRID, decide=["raw-k2"], workers=1)
