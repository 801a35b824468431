"""Studies of machines with one domain, of other years, and with machines that cannot be used."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from synthetic_machines import small_table

import daco
from daco.errors import DataError, InputError
from daco.evaluation.metrics import harmonic_mean, machine_metrics
from daco.experiments.compare import compare_runs
from daco.experiments.prereg import freeze
from daco.experiments.submission import write_submission

GRID = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "ldn-ratio-K1", "ratio-soft-k1"]
study = partial(daco.study, grid=GRID, n_splits=3, workers=1)


def with_columns(table, **columns):
    """The table with other columns; a function changes the present values."""
    made = {
        name: np.array(
            [value(each) for each in table.columns[name]]
            if callable(value)
            else np.broadcast_to(value, len(table)),
            dtype=object,
        )
        for name, value in columns.items()
    }
    return daco.EmbeddingTable({**table.columns, **made}, table.matrices, table.metadata)


def without_clips(table, machine, domain, keep):
    """The table with `keep` training clips of a machine's domain."""
    columns = table.columns
    mine = (columns["machine"] == machine) & (columns["split"] == "train")
    rows = np.flatnonzero(mine & (columns["domain"] == domain))[keep:]
    kept = np.delete(np.arange(len(table)), rows)
    matrices = {name: matrix[kept] for name, matrix in table.matrices.items()}
    return daco.EmbeddingTable(
        {name: values[kept] for name, values in columns.items()}, matrices, table.metadata
    )


def one_domain(*names, **columns):
    """Machines of one domain, as those of 2020 are."""
    table = small_table(*names)
    kept = np.flatnonzero(
        (table.columns["split"] == "test") | (table.columns["domain"] == "source")
    )
    matrices = {name: matrix[kept] for name, matrix in table.matrices.items()}
    table = daco.EmbeddingTable(
        {name: values[kept] for name, values in table.columns.items()}, matrices, table.metadata
    )
    return with_columns(table, **{"domain": "source", **columns})


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one domain") / "run"
    return study(one_domain("fan", "pump"), one_domain("valve", "saw"), out=folder)


def test_one_domain_gives_scores_and_metrics_without_balance(run):
    assert run.grid.columns.tolist() == ["config", "dev_omega", "eval_omega"]
    assert run.per_machine.columns.tolist()[:5] == ["split", "machine", "config", "auc", "pauc"]
    assert run.per_machine["balance_ks"].isna().all()
    for machine in run.machine_scores():
        truth = machine.labels, machine.domains
        expected = machine_metrics(machine.of("ldn-ratio-K1"), *truth, ["auc", "pauc"])
        row = run.per_machine.query("machine == @machine.title and config == 'ldn-ratio-K1'")
        for name, value in expected.items():
            assert row[name].item() == pytest.approx(100 * value, rel=1e-12)
    values = run.per_machine.query("split == 'eval' and config == 'raw-k1'")[["auc", "pauc"]]
    row = run.grid.set_index("config").loc["raw-k1"]
    assert row["eval_omega"] == pytest.approx(harmonic_mean(values))


def test_one_domain_has_no_choice_by_a_criterion_and_says_so(run):
    chosen = run.selection["chosen"]
    assert (chosen["config"], chosen["rule"]) == ("conf-soft-m0-k1", "fixed default")
    assert "no criterion" in chosen["reason"]
    rules = {row["rule"] for row in run.selection["rows"]}
    assert rules == {"random", "fixed", "dev score", "blend", "oracle"}
    assert run.selection["floor"] is None
    [line] = [line for line in run.missing if "one domain: there is no balance" in line]
    assert "harmonic mean of AUC and pAUC; daco evaluate takes the arithmetic mean" in line
    assert run.stats["signals"]["criterion"] is None
    assert run.stats["signals"]["dev_score"] is not None


def test_one_domain_has_baselines_vetoes_and_intervals(run):
    assert set(run.baselines["backend"]) >= {"knn1", "sel-maha", "gmm2", "blend"}
    assert np.isfinite(run.baselines[["auc", "pauc"]]).all().all()
    assert run.selection["label_free_veto"]["machines"]
    methods = {delta["method"] for delta in run.selection["deltas"]}
    assert methods == {"machine jackknife", "paired clip bootstrap"}
    for empty in (run.coverage, run.frontier, run.diagnostics):
        assert empty.empty


def test_one_domain_goes_through_files_report_comparison_submission_and_freezing(run, tmp_path):
    again = daco.StudyResult.read(run.folder)
    assert again.selection["chosen"] == run.selection["chosen"]
    page = again.report(tmp_path / "report").read_text(encoding="utf-8")
    assert "one domain: there is no balance criterion" in page
    assert "target" not in (tmp_path / "report" / "tables" / "per_machine.md").read_text()
    comparison = compare_runs({"one": again, "two": again})
    assert comparison.rules.query("rule == 'fixed default'")["eval_omega"].notna().all()
    written = write_submission(again, "Kato_Hitachi_task2_1", tmp_path / "sent.zip")
    assert list(written.systems["Kato_Hitachi_task2_1"].values()) == [40, 40]
    assert freeze(run.folder)["frozen"]["config"] == "conf-soft-m0-k1"


def test_domains_need_no_name_where_a_machine_has_one(run):
    nameless = (one_domain(*names, domain=None) for names in (("fan", "pump"), ("valve", "saw")))
    by_machine = (
        with_columns(table, domain=table.columns["machine"])
        for table in (one_domain("fan", "pump"), one_domain("valve", "saw"))
    )
    for tables in (nameless, by_machine):
        np.testing.assert_array_equal(study(*tables).grid.iloc[:, 1:], run.grid.iloc[:, 1:])


@pytest.mark.parametrize(("keep", "words"), [(0, "0 training clips"), (1, "1 training clip of")])
def test_a_machine_without_a_second_domain_is_left_out_with_a_line(tmp_path, keep, words):
    both = without_clips(small_table("fan", "pump"), "pump", "target", keep)
    result = study(both, out=tmp_path / "run")
    [line] = [line for line in result.missing if "left out" in line]
    assert line.startswith(f"dev machine pump is left out: it has {words}")
    expected = study(small_table("fan"))
    np.testing.assert_array_equal(result.grid["crit_dev"], expected.grid["crit_dev"])
    assert line in daco.StudyResult.read(tmp_path / "run").missing
    page = result.report().read_text(encoding="utf-8")
    assert "dev machine pump is left out" in page


def test_a_machine_of_one_domain_is_left_out_whatever_its_domain_is_called():
    both, alone = small_table("fan", "pump"), one_domain("valve", domain="all")
    result = study(both, alone)
    assert any(line.startswith("eval machine valve is left out") for line in result.missing)
    np.testing.assert_array_equal(result.grid["crit_dev"], study(both).grid["crit_dev"])


def test_anomalies_among_training_clips_and_a_study_without_a_machine_stay_errors():
    table = small_table("fan", "pump")
    table.columns["label"][3] = 1
    with pytest.raises(InputError, match="labelled as anomaly"):
        study(table)
    one = without_clips(small_table("fan"), "fan", "target", 1)
    with pytest.raises(DataError, match=r"No machine is left.*\n.*fan is left out"):
        study(one)


def test_evaluation_machines_are_studied_where_no_development_machine_is_left(tmp_path):
    dev = without_clips(small_table("fan"), "fan", "target", 0)
    result = study(dev, small_table("valve", "saw"), out=tmp_path / "run")
    assert result.grid.columns.tolist() == ["config", "eval_omega", "crit_eval", "viable"]
    assert result.selection["chosen"]["config"] == "conf-soft-m0-k1"
    assert result.report().is_file()


def test_a_machine_that_fails_later_is_in_no_table(tmp_path, monkeypatch):
    from daco.experiments import machine, run

    def examine(data, *rest):
        if data.title == "pump":
            raise DataError("its covariance cannot be inverted.")
        return machine.examine_machine(data, *rest)

    monkeypatch.setattr(run, "examine_machine", examine)
    result = study(small_table("fan", "pump"), out=tmp_path / "run")
    assert set(result.per_machine["machine"]) == {"fan"}
    assert "dev machine pump is left out: its covariance cannot be inverted." in result.missing
    again = daco.StudyResult.read(tmp_path / "run")
    assert [each.title for each in again.machine_scores()] == ["fan"]


def test_machines_of_2020_are_ids_with_one_domain():
    table = one_domain("fan", "pump", year=2020)
    ids = with_columns(
        with_columns(table, section=np.where(table.columns["machine"] == "fan", "00", "02")),
        machine="fan",
    )
    result = study(ids)
    assert result.per_machine["machine"].unique().tolist() == ["fan_00", "fan_02"]
    assert {"auc", "pauc"} <= set(result.per_machine)


def test_machines_of_2021_have_four_quantities(tmp_path):
    dev, evaluation = (
        with_columns(small_table(*names), year=2021)
        for names in (("fan", "pump"), ("valve", "saw"))
    )
    result = study(dev, evaluation, out=tmp_path / "run")
    names = ["auc_source", "auc_target", "pauc_source", "pauc_target"]
    assert result.per_machine.columns.tolist()[3:7] == names
    for machine in result.machine_scores():
        row = result.per_machine.query("machine == @machine.title and config == 'raw-k1'").iloc[0]
        for domain in ("source", "target"):  # each domain's clips by themselves
            mine = machine.domains == domain
            truth = machine.labels[mine], machine.domains[mine]
            alone = machine_metrics(machine.of("raw-k1")[mine], *truth)
            assert row[f"auc_{domain}"] == pytest.approx(100 * alone[f"auc_{domain}"])
            assert row[f"pauc_{domain}"] == pytest.approx(100 * alone["pauc"])
    values = result.per_machine.query("split == 'eval' and config == 'raw-k1'")[names]
    scores = result.grid.set_index("config")["eval_omega"]
    assert scores["raw-k1"] == pytest.approx(harmonic_mean(values))
    assert {delta["method"] for delta in result.selection["deltas"]} == {"machine jackknife"}
    assert "pAUC target" in result.report().read_text(encoding="utf-8")
    assert not compare_runs({"2021": result}).deltas.empty


def test_2021_needs_anomalies_of_each_domain():
    table = with_columns(small_table("fan", "pump"), year=2021)
    columns = table.columns
    lost = (columns["machine"] == "pump") & (columns["domain"] == "target")
    columns["label"][lost & (columns["label"] == 1)] = 0
    result = study(table)
    known = result.per_machine.groupby("machine")["auc_source"].count()
    assert known.to_dict() == {"fan": len(GRID), "pump": 0}


def test_machines_of_2022_have_three_sections_with_the_usual_quantities():
    parts = small_table("a", "b", "c")
    sections = with_columns(parts, section=lambda _: "00", year=2022)
    for number, name in enumerate("abc"):
        sections.columns["section"][parts.columns["machine"] == name] = f"{number:02d}"
    result = study(with_columns(sections, machine="fan"))
    assert result.per_machine["machine"].unique().tolist() == ["fan_00", "fan_01", "fan_02"]
    expected = study(parts)
    np.testing.assert_array_equal(result.grid.iloc[:, 1:], expected.grid.iloc[:, 1:])
