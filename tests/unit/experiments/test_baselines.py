"""Score files of other systems in E1 of a study."""

import numpy as np
import pandas as pd
import pytest
from synthetic_machines import synthetic_machine, synthetic_table

from daco import EmbeddingTable, study
from daco.errors import DataError, InputError
from daco.evaluation.metrics import machine_metrics
from daco.evaluation.scorefiles import score_file_name, write_scores
from daco.experiments.baselines import OWN, baseline_inputs, baseline_rows
from daco.experiments.inputs import machines_of, name_domains


def embedded(year=None, machines=("fan",)):
    table = synthetic_table([synthetic_machine(name, 0, 10, 4, 8, 4) for name in machines])
    years = np.full(len(table), year, dtype=object)
    return EmbeddingTable({**table.columns, "year": years}, table.matrices, table.metadata)


def write_system(folder, table, year=None):
    """Score files of the test clips: 0, 1, 2, ... for each machine."""
    for machine in table.machines:
        names = table.select(machine=machine, split="test").column("path")
        path = write_scores(folder, machine, "00", names, np.arange(len(names)))
        if year is not None:
            path.rename(folder / f"anomaly_score_DCASE{year}T2{machine}_section_00_test.csv")
    return folder


def rows_of(folders, table, year=None):
    machines = machines_of(table, "dev", name_domains([table]))
    return baseline_rows(folders, machines, {"dev": year})


@pytest.mark.parametrize(
    ("clips_year", "scores_year", "fits"),
    [(2025, 2025, True), (2025, None, True), (None, 2025, True), (2025, 2024, False)],
)
def test_a_machine_of_another_year_is_another_machine(clips_year, scores_year, fits, tmp_path):
    table = embedded(clips_year)
    folder = write_system(tmp_path / "mine", table, scores_year)
    if not fits:
        with pytest.raises(DataError, match="no score file of a machine of this study"):
            rows_of([folder], table, clips_year)
        return
    [row] = rows_of([folder], table, clips_year)
    [machine] = machines_of(table, "dev", name_domains([table]))
    expected = machine_metrics(np.arange(8), machine.labels, machine.test_domains)
    assert row["backend"] == "mine"
    assert row["auc_target"] == pytest.approx(100 * expected["auc_target"])


def test_a_study_shows_each_folder_as_a_system_and_changes_nothing_else(tmp_path):
    table = embedded()
    for name in ("ae-mse", "ae-maha"):
        write_system(tmp_path / "systems" / name, table)
    options = {"grid": ["raw-k1", "raw-k2"], "workers": 1, "n_splits": 2}
    plain = study(table, **options)
    both = study(table, baselines=tmp_path / "systems", **options)
    one = study(table, baselines=[tmp_path / "systems" / "ae-mse"], **options)
    assert list(dict.fromkeys(both.baselines["backend"])) == [*OWN, "ae-maha", "ae-mse"]
    assert set(one.baselines["backend"]) == {*OWN, "ae-mse"}
    own = both.baselines[both.baselines["backend"].isin(OWN)].reset_index(drop=True)
    pd.testing.assert_frame_equal(own, plain.baselines)
    assert both.selection == plain.selection
    assert "baselines" not in plain.provenance
    assert [each["system"] for each in both.provenance["baselines"]] == ["ae-maha", "ae-mse"]


def test_one_system_may_have_a_folder_for_each_role(tmp_path):
    tables = {"dev": embedded(), "eval": embedded(machines=("pump",))}
    names = name_domains(tables.values())
    machines = [m for role, table in tables.items() for m in machines_of(table, role, names)]
    folders = [write_system(tmp_path / role / "ae", table) for role, table in tables.items()]
    rows = baseline_rows(folders, machines, {})
    assert [(r["split"], r["machine"], r["backend"]) for r in rows] == [
        ("dev", "fan", "ae"),
        ("eval", "pump", "ae"),
    ]
    assert len(baseline_rows(folders[:1], machines, {})) == 1  # one role alone is enough
    assert [each["files"] for each in baseline_inputs(folders)] == [2]


def test_scores_that_do_not_fit_the_study_are_refused(tmp_path):
    table = embedded(machines=("fan", "pump"))
    folder = write_system(tmp_path / "mine", table)
    with pytest.raises(InputError, match="several score files of fan"):
        rows_of([folder, folder], table)
    with pytest.raises(InputError, match="'knn1' is a scorer of the study"):
        rows_of([write_system(tmp_path / "knn1", table)], table)
    with pytest.raises(DataError, match="is not a folder"):
        rows_of([folder / score_file_name("fan")], table)
    file = folder / score_file_name("fan")
    file.write_text("\n".join(file.read_text().splitlines()[1:]))
    with pytest.raises(
        InputError, match="dev machine fan: the file has no row or several for 1 clip"
    ):
        rows_of([folder], table)
    file.unlink()
    with pytest.raises(DataError, match=r"no score file of 1 dev machine out of 2 \(fan\)"):
        rows_of([folder], table)
