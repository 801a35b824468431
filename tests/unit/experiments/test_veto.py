"""The label-free veto of a study: what it rests on, whom it believes, what it says."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
from synthetic_machines import small_table

import daco
from daco.errors import DataError, InputError
from daco.experiments.choose import study_choice
from daco.experiments.compare import compare_runs
from daco.experiments.inputs import machines_of, name_domains
from daco.experiments.rules import grid_choice
from daco.experiments.veto import pseudo_arrays, pseudo_scores_of, study_veto
from daco.method.viability import (
    INJECTED,
    PseudoScores,
    bank_pseudo_scores,
    pseudo_scores,
    viability_veto,
)
from daco.synthetic.fault_tables import injected

study = partial(daco.study, n_splits=10)

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", "ratio-soft-k1", "ldn-diff-K16"]
CRITERION = [0.62, 0.49, 0.47, 0.52, 0.40]
DEV = [56.0, 57.0, 58.0, 55.0, 61.0]
VIABLE = [True, True, True, True, False]


table = partial(small_table, dim=16)
FAN = table("fan")


def faults_of(full, per_domain=4, seed=0, **metadata):
    """A table as ``daco inject`` writes it: each clean clip, then the same clip disturbed."""
    rng = np.random.default_rng(seed)
    train = full.select(split="train")
    rows = []
    for machine in full.machines:
        for domain in ("source", "target"):
            mine = (train.columns["machine"] == machine) & (train.columns["domain"] == domain)
            rows += np.flatnonzero(mine)[:per_domain].tolist()
    X, paths = train.matrix(), train.columns["path"]
    vectors, kinds, origin = [], [], []
    for row in rows:
        for kind, size in (("", 0.0), ("rub", 1.5), ("tone", 2.0)):
            vectors.append(X[row] + size * rng.normal(size=X.shape[1]))
            kinds.append(kind)
            origin.append(row)
    return daco.EmbeddingTable.from_arrays(
        np.array(vectors),
        machine=train.columns["machine"][origin].tolist(),
        domain=train.columns["domain"][origin].tolist(),
        section=train.columns["section"][origin].tolist(),
        path=paths[origin].tolist(),
        split="supplemental",
        label=[int(kind != "") for kind in kinds],
        fault=kinds,
        level_db=[None if kind == "" else "0" for kind in kinds],
        metadata=metadata,
    )


def only(full, *machines):
    keep = np.isin(full.columns["machine"].astype(str), machines)
    columns = {name: values[keep] for name, values in full.columns.items()}
    return daco.EmbeddingTable(columns, {"embedding": full.matrix()[keep]}, full.metadata)


def scores(basis="embedding-space pseudo-anomalies", low=0.52):
    auc = np.array([[0.8, 0.8]] * 4 + [[low, low]])
    plain = np.full(4, 0.8)
    return PseudoScores(tuple(GRID), basis, ("source", "target"), auc, auc, (), plain)


def assert_equal(first, second):
    for name, value in vars(first).items():
        np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)


def test_a_machines_file_holds_what_the_veto_gives():
    (machine,) = machines_of(full := table("fan"), "dev", name_domains([full]))
    bank = daco.NormalBank(machine.X, machine.domains)
    arrays = pseudo_arrays(bank, machine, GRID, seed=3)
    expected = bank_pseudo_scores(bank, GRID, seed=3)
    assert_equal(pseudo_scores_of(arrays, GRID), expected)


def test_development_and_evaluation_machines_count_alike():
    found, notes = study_veto([("dev", "fan"), ("eval", "saw")], [scores(), scores(low=0.6)])
    assert found.machines == (("dev", "fan"), ("eval", "saw"))
    assert_equal(found.viability, viability_veto([scores(), scores(low=0.6)]))
    assert {role: veto.excluded for role, veto in found.by_role.items()} == {
        "dev": ("ldn-diff-K16",),
        "eval": ("ldn-diff-K16",),
    }
    assert notes == []


def test_injected_faults_count_before_moved_clips():
    """Both kinds cannot be averaged; sounds say more than vectors that were moved."""
    found, notes = study_veto(
        [("dev", "fan"), ("eval", "saw")], [scores(), scores(basis=INJECTED, low=0.7)]
    )
    assert found.viability.basis == INJECTED
    assert found.machines == (("eval", "saw"),)
    assert set(found.by_role) == {"dev", "eval"}
    assert notes == [
        "The label-free veto uses the evaluation machines alone: faults were not injected "
        "into all development machines."
    ]


def test_machines_with_too_few_clips_are_named_and_none_is_no_veto():
    found, notes = study_veto([("dev", "fan"), ("dev", "saw")], [scores(), None])
    assert found.machines == (("dev", "fan"),)
    assert "saw" in notes[0]
    assert study_veto([("dev", "saw")], [None])[0] is None


def test_a_run_of_three_clips_each_has_no_veto(tmp_path):
    small = table("fan", n_source=3, n_target=3)
    result = study(small, grid=GRID[:4], veto="both", workers=1, out=tmp_path / "run")
    assert result.selection["label_free_veto"] is None
    assert result.viability.empty
    assert any("label-free veto" in sentence for sentence in result.missing)
    assert "no machine has enough normals" in result.selection["warnings"][-1]
    assert "was not computed" in result.report().read_text()
    assert daco.StudyResult.read(tmp_path / "run").viability.empty


# Which veto a choice obeys


@pytest.mark.parametrize(
    ("veto", "dev", "viable", "config"),
    [
        ("dev", DEV, VIABLE, "ldn-diff-K16"),
        ("faults", DEV, VIABLE, "ldn-ratio-K1"),
        ("both", DEV, VIABLE, "ldn-ratio-K1"),
        ("dev", None, VIABLE, "ldn-ratio-K1"),  # of the pool
        ("faults", None, VIABLE, "ldn-ratio-K1"),
        ("both", None, VIABLE, "ldn-ratio-K1"),
        ("faults", DEV, None, "ldn-ratio-K1"),  # of the pool
        ("both", DEV, None, "ldn-diff-K16"),
    ],
)
def test_the_veto_that_is_asked_for_decides(veto, dev, viable, config):
    grid = {"config": GRID, "crit_dev": CRITERION}
    grid |= {} if dev is None else {"dev_omega": dev}
    grid |= {} if viable is None else {"viable": viable}
    assert grid_choice(grid, veto).config == config


def test_an_unknown_veto():
    with pytest.raises(InputError, match="dev, faults, both"):
        study("never-read.parquet", veto="label")


def chosen(label_free, veto, dev=DEV):
    grid = pd.DataFrame({"config": GRID, "dev_omega": dev, "crit_dev": CRITERION})
    if label_free is not None and not label_free.viability.abstains:
        grid["viable"] = ~grid["config"].isin(label_free.viability.excluded)
    nothing = pd.DataFrame(columns=["split", "machine", "config", "balance_ks"])
    return study_choice(grid, nothing, label_free=label_free, veto=veto)


def test_a_choice_that_the_other_veto_excludes_is_warned_of():
    label_free, _ = study_veto([("dev", "fan")], [scores()])
    found = chosen(label_free, "dev")
    assert found["chosen"]["config"] == "ldn-diff-K16"
    assert "excluded by the label-free veto" in found["warnings"][0]
    assert found["label_free_veto"]["picks"] == "ldn-ratio-K1"
    label_free, _ = study_veto([("dev", "fan")], [scores(low=0.8)])
    dev = [*DEV[:4], 50.0]
    found = chosen(label_free, "faults", dev)
    assert found["chosen"]["config"] == "ldn-diff-K16"
    assert "excluded by the dev-score veto" in found["warnings"][0]
    assert chosen(label_free, "both", dev)["warnings"] == []


def test_an_abstaining_veto_guards_nothing_and_says_so():
    deaf = scores(low=0.5)
    deaf = PseudoScores(**{**vars(deaf), "auc": deaf.auc * 0 + 0.51, "pauc": deaf.pauc * 0 + 0.51})
    label_free, _ = study_veto([("dev", "fan")], [deaf])
    assert label_free.viability.abstains
    found = chosen(label_free, "faults")
    assert found["chosen"]["config"] == "ldn-ratio-K1"  # of the pool
    assert found["label_free_veto"]["chosen_passes"] is None
    assert "abstains" in found["warnings"][-1]
    assert not any("label-free" in row["rule"] for row in found["rows"])


def test_without_a_veto_nothing_of_it_is_said():
    found = chosen(None, "dev")
    assert found["label_free_veto"] is None
    assert found["warnings"] == []
    assert found["guard"] == "dev"


# Faults that were injected


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study") / "run"
    dev, evaluation = table("fan", "pump"), table("valve")
    return study(dev, evaluation, grid=GRID, out=folder, workers=1)


def test_viability_is_a_table_of_every_machine_and_configuration(run):
    assert len(run.viability) == 3 * len(GRID)
    assert set(run.viability["basis"]) == {"embedding-space pseudo-anomalies"}
    values = run.viability[["auc_source", "auc_target", "pauc_source", "pauc_target"]]
    np.testing.assert_allclose(run.viability["pseudo_score"], 4 / (1 / values).sum(axis=1))
    again = daco.StudyResult.read(run.folder)
    pd.testing.assert_frame_equal(again.viability, run.viability, rtol=1e-9)


def test_faults_replace_moved_clips_and_only_the_examination_is_done_again(run, tmp_path):
    dev, evaluation = table("fan", "pump"), table("valve")
    folder = tmp_path / "again"
    shutil.copytree(run.folder, folder)
    calls = []
    result = study(
        dev,
        evaluation,
        grid=GRID,
        out=folder,
        workers=1,
        faults=[faults_of(dev), faults_of(evaluation)],
        progress=lambda *call: calls.append(call),
    )
    assert calls[0] == ("scoring", 3, 3)
    assert calls[1] == ("examining", 0, 3)
    assert set(result.viability["basis"]) == {INJECTED}
    assert result.selection["label_free_veto"]["basis"] == INJECTED
    assert len(result.provenance["faults"]) == 2
    (machine, _) = machines_of(dev, "dev", name_domains([dev]))
    made = injected(only(faults_of(dev), "fan"), machine.normals, machine.domains)
    assert (made.rows >= 0).all()
    expected = pseudo_scores(machine.X, machine.domains, made, GRID)
    found = result.viability.query("machine == 'fan'")["pseudo_score"]
    np.testing.assert_allclose(found, 100 * expected.score)
    again = study(dev, evaluation, grid=GRID, out=folder, workers=1, faults=faults_of(dev, seed=9))
    assert not np.allclose(
        again.viability.query("machine == 'fan'")["pseudo_score"].to_numpy(), found.to_numpy()
    )


def test_a_role_without_faults_for_all_its_machines_has_moved_clips_for_all():
    dev, evaluation = table("fan", "pump"), table("valve")
    faults = [only(faults_of(dev), "fan"), faults_of(evaluation)]
    result = study(dev, evaluation, grid=GRID, workers=1, faults=faults)
    bases = result.viability.groupby("split")["basis"].unique()
    assert bases["dev"].tolist() == ["embedding-space pseudo-anomalies"]
    assert bases["eval"].tolist() == [INJECTED]
    assert any("1 development machine without injected faults (pump)" in m for m in result.missing)
    assert any("evaluation machines alone" in m for m in result.missing)


def named(full, readout="embedding", **metadata):
    return daco.EmbeddingTable(full.columns, {readout: full.matrix()}, metadata)


@pytest.mark.parametrize(
    ("dev", "faults", "kind", "words"),
    [
        (FAN, lambda f: only(f, "nobody"), DataError, "not one fault"),
        (FAN, lambda f: [f, f], InputError, "another table has its faults"),
        (FAN, lambda f: f.select(fault="rub"), DataError, "clean rows"),
        (FAN, lambda f: FAN, DataError, "no column 'fault'"),
        (
            FAN,
            lambda f: faults_of(table("fan", dim=9)),
            InputError,
            "9 values, and 16",
        ),
        (
            named(FAN, backbone="mn04"),
            lambda f: faults_of(FAN, backbone="logmel"),
            InputError,
            "backbone logmel",
        ),
        (
            named(FAN, "band", backbone="mn04"),
            lambda f: named(f, "rdp-g4", backbone="mn04"),
            InputError,
            "no readout 'band'",
        ),
    ],
)
def test_faults_that_do_not_fit(dev, faults, kind, words):
    with pytest.raises(kind, match=words):
        study(dev, grid=GRID, workers=1, faults=faults(faults_of(FAN)))


def test_faults_are_read_in_the_readout_of_the_study_wherever_it_stands():
    dev = table("fan")
    faults = faults_of(dev)
    two = {"mean": faults.matrix()[:, :4], "embedding": faults.matrix()}
    several = daco.EmbeddingTable(faults.columns, two, faults.metadata)
    expected = study(dev, grid=GRID, workers=1, faults=faults).viability
    found = study(dev, grid=GRID, workers=1, faults=several).viability
    pd.testing.assert_frame_equal(found, expected)


def test_labels_have_no_way_into_a_choice_by_the_label_free_veto():
    """Not even where there is no criterion."""
    names = ["ldn-mean-K4", "varmin-K4", "ldn-diff-K16"]
    for dev in ([10, 50, 90], [90, 50, 10]):
        grid = {"config": names, "crit_dev": [float("nan")] * 3, "dev_omega": dev}
        assert grid_choice(grid, "faults").config == "ldn-mean-K4"


# Several runs


def test_a_comparison_keeps_each_runs_veto_and_blend(run):
    found = compare_runs({"mine": run})
    (blend,) = (row for row in run.selection["rows"] if row["rule"] == "blend")
    scores = found.rules.set_index("rule")["eval_omega"]
    assert scores["blend"] == blend["eval_omega"] > 50
    assert "criterion, label-free veto" in found.selection["rule"].tolist()
    picks = found.rules.set_index("rule")["config"]
    rows = {row["rule"]: row["config"] for row in run.selection["rows"]}
    assert picks["criterion, both vetoes"] == rows["criterion, both vetoes"]
    other = study(table("fan", "pump"), table("valve"), grid=GRID, workers=1, veto="paper")
    notes = compare_runs({"mine": run, "other": other}).notes
    assert "The runs chose under different vetoes: mine both, other paper." in notes
