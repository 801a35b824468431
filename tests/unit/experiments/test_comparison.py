"""Runs side by side that do not have everything in common."""

from __future__ import annotations

import json

import pandas as pd
import pytest
from published_runs import result
from random_studies import NAMES, random_tables

from daco.errors import DacoError, InputError
from daco.experiments.compare import compare_runs


def run(configs=NAMES[:16], n_machines=3, **options):
    return result(*random_tables(configs, n_machines, n_machines, **options))


def test_runs_keep_their_order_and_names():
    compared = compare_runs({"b": run(seed=1), "a": run(seed=2)})
    assert compared.selection.columns.tolist() == ["rule", "b", "a"]
    few = "3 machines are too few to tell a difference from chance."
    assert compared.notes == (f"b: {few}", f"a: {few}")


def test_five_machines_have_no_note_and_a_perfect_order_no_p_value_of_zero(tmp_path):
    perfect = run(NAMES, n_machines=5)
    perfect.grid["eval_omega"] = 60 - 10 * perfect.grid["crit_dev"]
    compared = compare_runs({"perfect": perfect})
    assert compared.notes == ()
    row = compared.correlations.set_index("signal").loc["criterion"]
    assert 1 / 200_001 <= row["p_permutation"] < 0.001
    compared.write(tmp_path)
    (line,) = (
        line
        for line in (tmp_path / "correlations.md").read_text(encoding="utf-8").splitlines()
        if "criterion" in line
    )
    assert "| +1.00 |" in line
    assert r"| \<0.001 |" in line


def test_a_run_without_evaluation_labels_has_empty_cells():
    compared = compare_runs({"known": run(), "open": run(labels=("dev",))})
    cells = compared.selection.set_index("rule")
    assert (cells["open"] == "–").all()
    assert (cells["known"] != "–").all()
    assert compared.deltas["run"].unique().tolist() == ["known"]
    assert compared.means["n_runs"].unique().tolist() == [1]
    picks = compared.rules[compared.rules["run"] == "open"].set_index("rule")["config"]
    assert picks["paper's choice"] in NAMES
    assert any("open has no evaluation labels" in note for note in compared.notes)


def test_a_run_without_dev_labels_is_judged_by_what_was_chosen_there():
    compared = compare_runs({"blind": run(labels=("eval",))})
    picks = compared.rules.set_index("rule")["config"]
    assert pd.isna(picks["paper's choice"])
    assert compared.deltas["first"].unique().tolist() == ["conf-soft-m0-k1"]
    assert any("blind has no dev labels" in note for note in compared.notes)


def test_different_grids_are_compared_on_their_own():
    compared = compare_runs({"small": run(NAMES[2:6]), "large": run(NAMES[:20])})
    assert compared.notes[0] == (
        "The runs have different grids (small 4, large 20 configurations; 4 in common): each is "
        "compared on its own."
    )
    assert "The grid of small does not have the fixed default, conf-soft-m0-k1." in compared.notes
    cells = compared.selection.set_index("rule")["small"]
    assert cells["raw k-NN"] == cells["fixed default"] == "–"
    assert cells["dev score"] != "–"


def test_one_machine_has_scores_and_no_jackknife():
    compared = compare_runs({"one": run(n_machines=1)})
    assert compared.deltas.empty
    assert compared.selection.set_index("rule")["one"]["oracle"] != "–"


def test_a_grid_too_small_for_correlations_leaves_them_empty(tmp_path):
    compared = compare_runs({"two": run(["raw-k1", "conf-soft-m0-k1"])})
    assert compared.correlations["rho"].isna().all()
    compared.write(tmp_path / "new" / "folder")
    document = json.loads((tmp_path / "new" / "folder" / "compare.json").read_text())
    assert document["correlations"][0]["rho"] is None


def test_an_error_names_the_run():
    broken = run()
    doubled = result(pd.concat([broken.grid, broken.grid]), broken.per_machine)
    with pytest.raises(DacoError, match=r"Run 'bad': .*each once"):
        compare_runs({"good": run(), "bad": doubled})
    unsplit = result(broken.grid, broken.per_machine.drop(columns="split"))
    with pytest.raises(DacoError, match=r"Run 'bad': .*no column 'split'"):
        compare_runs({"bad": unsplit})


@pytest.mark.parametrize(("runs", "message"), [({}, "no run"), ({"rule": None}, "another name")])
def test_what_cannot_be_compared(runs, message):
    with pytest.raises(InputError, match=message):
        compare_runs(runs)


def test_a_file_is_no_folder_to_write_to(tmp_path):
    (tmp_path / "taken").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        compare_runs({"a": run()}).write(tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "mine"
