"""Studies of machines with one domain, and with machines that cannot be used."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from study_tables import changed
from synthetic_machines import small_table

import daco
from daco.errors import DataError
from daco.evaluation.metrics import harmonic_mean, machine_metrics

GRID = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "ldn-ratio-K1", "ratio-soft-k1"]
study = partial(daco.study, grid=GRID, n_splits=3, workers=1)


def with_rows(table, kept):
    columns = {name: values[kept] for name, values in table.columns.items()}
    matrices = {name: matrix[kept] for name, matrix in table.matrices.items()}
    return daco.EmbeddingTable(columns, matrices, table.metadata)


def one_domain(*names, domain="source"):
    """Machines of one domain, as those of 2020 are."""
    table = small_table(*names)
    kept = (table.columns["split"] == "test") | (table.columns["domain"] == "source")
    return changed(with_rows(table, kept), domain=(slice(None), domain))


def with_few(table, machine, keep):
    """The table with `keep` target normals of a machine."""
    columns = table.columns
    mine = (columns["machine"] == machine) & (columns["split"] == "train")
    rows = np.flatnonzero(mine & (columns["domain"] == "target"))[keep:]
    return with_rows(table, np.delete(np.arange(len(table)), rows))


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one domain") / "run"
    return study(one_domain("fan", "pump"), one_domain("valve", "saw"), out=folder, baselines=True)


def test_one_domain_has_scores_metrics_and_decisions_but_no_criterion(run):
    assert not run.criteria["measure"].isin(["balance", "resample", "paper"]).any()
    metrics = run.metrics()
    assert {"auc", "pauc"} <= set(metrics)
    for _, row in metrics[metrics["configuration"] == "ldn-ratio-K1"].iterrows():
        clips = run.test_clips[run.test_clips["machine"] == row["machine"]]
        scores, truth = clips["ldn-ratio-K1"], (clips["label"], clips["domain"])
        for name, value in machine_metrics(scores, *truth, ["auc", "pauc"]).items():
            assert row[name] == pytest.approx(100 * value, rel=1e-12)
    values = metrics.query("set == 'eval' and configuration == 'raw-k1'")[["auc", "pauc"]]
    grid = run.grid().set_index("configuration")
    assert grid["eval_score"]["raw-k1"] == pytest.approx(harmonic_mean(values))
    assert "criterion_dev" not in grid
    assert run.test_clips["p:blend"].between(0, 1).all()
    assert run.clips["conf-oracle-m30-k1"].isna().all()
    assert run.metrics(["sel-maha", "gmm2"])["auc"].notna().all()


def test_one_domain_takes_the_fixed_default_and_says_so(run, tmp_path, monkeypatch):
    monkeypatch.setattr("daco.experiments.report.svg_bytes", lambda *args, **options: b"")
    assert run.run["choice"]["config"] == "conf-soft-m0-k1"
    assert "no candidate has a criterion" in run.run["choice"]["reason"]
    assert any("one domain: there is no balance" in note for note in run.run["notes"])
    assert run.run["domains"] == {"source": "source", "target": None}
    assert daco.StudyResult.read(run.folder).report(tmp_path).is_file()


def test_domains_need_no_name_where_a_machine_has_one(run):
    names = ("fan", "pump"), ("valve", "saw")
    for domain in (None, "machine"):
        tables = [one_domain(*each, domain=None) for each in names]
        if domain:
            tables = [changed(each, domain=(slice(None), each.columns[domain])) for each in tables]
        clips = study(*tables, baselines=True).clips
        pd.testing.assert_frame_equal(clips, run.clips)


@pytest.mark.parametrize(("keep", "words"), [(0, "0 training clips"), (1, "1 training clip of")])
def test_a_machine_without_a_second_domain_is_left_out_with_a_line(tmp_path, keep, words):
    result = study(with_few(small_table("fan", "pump"), "pump", keep), out=tmp_path / "run")
    [note] = [note for note in result.run["notes"] if "left out" in note]
    assert note.startswith(f"dev machine pump is left out: it has {words}")
    pd.testing.assert_frame_equal(result.clips, study(small_table("fan")).clips)
    assert note in daco.StudyResult.read(tmp_path / "run").run["notes"]


def test_a_machine_of_one_domain_is_left_out_whatever_its_domain_is_called():
    both, alone = small_table("fan", "pump"), one_domain("valve", domain="all")
    result = study(both, alone)
    assert any(note.startswith("eval machine valve is left out") for note in result.run["notes"])
    assert result.sets == ["dev"]


def test_a_study_without_a_machine_is_an_error():
    with pytest.raises(DataError, match=r"No machine is left.*\n.*fan is left out"):
        study(with_few(small_table("fan"), "fan", 1))
