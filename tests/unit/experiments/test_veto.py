"""The label-free veto of a study: what it rests on, whom it believes, what it says."""

from __future__ import annotations

import json
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
from daco.experiments.decision import decide
from daco.experiments.inputs import machines_of, name_domains
from daco.experiments.veto import StudyVeto, pseudo_arrays, pseudo_scores_of, study_veto
from daco.method.criterion import Floor
from daco.method.pseudo_anomalies import INJECTED, injected, moved_normals
from daco.method.viability import PseudoScores, Viability, pseudo_scores, viability_veto

study = partial(daco.study, n_splits=10)

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", "ratio-soft-k1", "ldn-diff-K16"]
CRITERION = [0.62, 0.49, 0.47, 0.52, 0.40]
DEV = [56.0, 57.0, 58.0, 55.0, 61.0]
HEARS = [True, True, True, True, False]


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
    return PseudoScores(
        tuple(GRID), basis, ("source", "target"), auc, auc, (), np.empty((5, 0)), (), plain, {}, 9
    )


def assert_equal(first, second):
    for name, value in vars(first).items():
        np.testing.assert_array_equal(value, getattr(second, name), err_msg=name)


def test_a_machines_file_holds_what_the_veto_gives():
    (machine,) = machines_of(full := table("fan"), "dev", name_domains([full]))
    arrays = pseudo_arrays(machine.X, machine.domains, GRID, seed=3)
    made = moved_normals(machine.X, machine.domains, seed=3)
    expected = pseudo_scores(machine.X, machine.domains, made, GRID)
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


def test_the_veto_can_be_read_back():
    found, _ = study_veto([("dev", "fan")], [scores()])
    again = StudyVeto.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again.viability.excluded == found.viability.excluded
    assert again.machines == found.machines
    assert not again.viability.abstains
    deaf, _ = study_veto([("dev", "fan")], [scores(low=0.52)])
    nothing = Viability(
        **{**vars(deaf.viability), "limit": float("nan"), "reasons": {}, "kept": np.ones(5, bool)}
    )
    silent = StudyVeto(nothing, {}, deaf.machines)
    assert StudyVeto.from_dict(silent.to_dict()).viability.abstains


# Which veto a choice obeys


def viability_of(kept):
    reasons = {name: "" for name, keep in zip(GRID, kept, strict=True) if not keep}
    return Viability(tuple(GRID), np.array(kept), np.full(5, 0.8), 0.8, 0.8, 0.7, INJECTED, reasons)


@pytest.mark.parametrize(
    ("guard", "dev", "kept", "config", "rule"),
    [
        ("dev", DEV, HEARS, "ldn-diff-K16", "guarded criterion"),
        ("faults", DEV, HEARS, "ldn-ratio-K1", "criterion, label-free veto"),
        ("both", DEV, HEARS, "ldn-ratio-K1", "criterion, both vetoes"),
        ("dev", None, HEARS, "ldn-ratio-K1", "criterion in the pool"),
        ("faults", None, HEARS, "ldn-ratio-K1", "criterion, label-free veto"),
        ("both", None, HEARS, "ldn-ratio-K1", "criterion, label-free veto"),
        ("faults", DEV, None, "ldn-ratio-K1", "criterion in the pool"),
        ("both", DEV, None, "ldn-diff-K16", "guarded criterion"),
    ],
)
def test_the_veto_that_is_asked_for_decides(guard, dev, kept, config, rule):
    viability = None if kept is None else viability_of(kept)
    found = decide(GRID, CRITERION, dev, guard=guard, viability=viability, floor=Floor(0.3, 0.01))
    assert (found.config, found.rule) == (config, rule)


def test_an_unknown_veto():
    with pytest.raises(InputError, match="dev, faults, both"):
        decide(GRID, CRITERION, DEV, guard="none")
    with pytest.raises(InputError, match="dev, faults, both"):
        study("never-read.parquet", veto="label")


def chosen(dev=DEV, **options):
    grid = pd.DataFrame({"config": GRID, "dev_omega": dev, "crit_dev": CRITERION})
    nothing = pd.DataFrame(columns=["split", "machine", "config", "balance_ks"])
    floor = {"mean": 0.3, "sd_of_mean_reused_clips": 0.01}
    return study_choice(grid, nothing, floor=floor, **options)


def test_a_choice_that_the_other_veto_cuts_is_warned_of():
    veto, _ = study_veto([("dev", "fan")], [scores()])
    found = chosen(veto=veto)
    assert found["chosen"]["config"] == "ldn-diff-K16"
    assert "excluded by the label-free veto" in found["warnings"][0]
    assert found["label_free_veto"]["picks"] == "ldn-ratio-K1"
    veto, _ = study_veto([("dev", "fan")], [scores(low=0.8)])
    dev = [*DEV[:4], 50.0]
    found = chosen(veto=veto, guard="faults", dev=dev)
    assert found["chosen"]["config"] == "ldn-diff-K16"
    assert "excluded by the dev-score veto" in found["warnings"][0]
    assert chosen(veto=veto, guard="both", dev=dev)["warnings"] == []


def test_an_abstaining_veto_guards_nothing_and_says_so():
    deaf = scores(low=0.5)
    deaf = PseudoScores(**{**vars(deaf), "auc": deaf.auc * 0 + 0.51, "pauc": deaf.pauc * 0 + 0.51})
    veto, _ = study_veto([("dev", "fan")], [deaf])
    assert veto.viability.abstains
    found = chosen(veto=veto, guard="faults")
    assert found["chosen"]["config"] == "ldn-ratio-K1"  # of the pool
    assert "does not apply" in found["chosen"]["reason"]
    assert found["label_free_veto"]["chosen_passes"] is None
    assert "abstains" in found["warnings"][0]
    assert not any("label-free" in row["rule"] for row in found["rows"])


def test_without_a_veto_nothing_of_it_is_said():
    found = chosen()
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
        (FAN, lambda f: faults_of(table("fan", dim=9)), InputError, r"9 values \(bands: 1\)"),
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
    """Not even where what it leaves has no criterion."""
    names, nan = ["ldn-mean-K4", "varmin-K4", "ldn-diff-K16"], float("nan")
    kept, score = np.array([False, True, True]), np.full(3, 0.8)
    veto = Viability(
        tuple(names), kept, score, 0.8, 0.8, 0.7, INJECTED, {names[0]: "below the limit"}
    )
    for dev in ([10, 50, 90], [90, 50, 10]):
        found = decide(names, [0.5, nan, nan], dev, guard="faults", viability=veto)
        assert found.config == "varmin-K4"


# Bands


def banded(*names, bands=2, seed=0):
    full = table(*names, seed=seed)
    return daco.EmbeddingTable(
        full.columns, full.matrices, {"bands": json.dumps({"embedding": bands})}
    )


def test_bands_of_the_readout_reach_scores_veto_and_grid():
    dev, evaluation = banded("fan"), banded("saw", seed=1)
    result = study(dev, evaluation, grid="frontier", workers=1)
    grid = daco.frontier_grid(2)
    assert result.grid["config"].tolist() == [config.name for config in grid]
    (machine,) = machines_of(dev, "dev", name_domains([dev]))
    bank = daco.NormalBank(machine.X, machine.domains, bands=2)
    scores = next(m for m in result.machine_scores() if m.split == "dev")
    np.testing.assert_array_equal(scores.scores[:, :-1], bank.score(machine.X_test, grid))
    flat = daco.NormalBank(machine.X, machine.domains).score(machine.X_test, ["beam"])[:, 0]
    assert not np.allclose(scores.of("beam"), flat)
    made = moved_normals(machine.X, machine.domains)
    expected = pseudo_scores(machine.X, machine.domains, made, grid, bands=2)
    found = result.viability.query("split == 'dev'")["pseudo_score"]
    np.testing.assert_allclose(found, 100 * expected.score)


def test_the_same_vectors_in_other_bands_are_another_machine():
    machines = [
        machines_of(full, "dev", name_domains([full]))[0]
        for full in (table("fan"), banded("fan"), banded("fan", bands=4))
    ]
    assert len({machine.fingerprint for machine in machines}) == 3


def test_tables_of_different_bands_are_refused():
    with pytest.raises(InputError, match="2 in the dev table and 4 in the eval table"):
        study(banded("fan"), banded("saw", bands=4), grid=GRID, workers=1)


# Several runs


def test_a_comparison_keeps_each_runs_veto_and_vote(run):
    found = compare_runs({"mine": run})
    (vote,) = (row for row in run.selection["rows"] if row["rule"] == "vote")
    scores = found.rules.set_index("rule")["eval_omega"]
    assert scores["vote of all"] == vote["eval_omega"] > 50
    assert "criterion, label-free veto" in found.selection["rule"].tolist()
    picks = found.rules.set_index("rule")["config"]
    rows = {row["rule"]: row["config"] for row in run.selection["rows"]}
    assert picks["criterion, both vetoes"] == rows["criterion, both vetoes"]
    other = study(table("fan", "pump"), table("valve"), grid=GRID, workers=1, veto="both")
    notes = compare_runs({"mine": run, "other": other}).notes
    assert "The runs chose under different vetoes: mine dev, other both." in notes
