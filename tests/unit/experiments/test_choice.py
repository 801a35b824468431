"""Choices from the tables of a study: the grid, the rules, the label-free veto, the stability."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from random_studies import GRID, MOVED, random_study

from daco.errors import InputError
from daco.evaluation.metrics import harmonic_mean
from daco.experiments.choice import label_free_veto, per_machine_choice, pick, resampled_criteria
from daco.method.selection import Rule
from daco.method.viability import INJECTED

CRITERIA = [criterion for criterion, _, _ in GRID.values()]
DEFAULT, DEGENERATE = "conf-soft-m0-k1", "ldn-diff-K16"


@pytest.fixture(scope="module")
def study():
    return random_study()


def grid(**columns):
    known = {"criterion_dev": CRITERIA, "dev_score": [56.0, 57, 58, 55, 61]} | columns
    known = {name: column for name, column in known.items() if column is not None}
    return pd.DataFrame({"configuration": list(GRID)} | known)


# The grid


def test_the_grid_has_official_scores_and_mean_criteria(study):
    table = study.grid().set_index("configuration")
    metrics = study.metrics(["raw-k1"]).query("set == 'dev'")
    expected = harmonic_mean(metrics[["auc_source", "auc_target", "pauc"]])
    assert table.loc["raw-k1", "dev_score"] == pytest.approx(expected)
    balance = study.criteria.query("measure == 'balance' and configuration == 'raw-k1'")
    for each in ("dev", "eval"):
        mean = balance[balance["set"] == each]["value"].mean()
        assert table.loc["raw-k1", f"criterion_{each}"] == pytest.approx(mean)
    first = balance.query("set == 'dev' and split < 10")["value"].mean()
    assert table.loc["raw-k1", "criterion_paper"] == pytest.approx(first)
    assert table["viable"].to_dict() == {name: name != DEGENERATE for name in GRID}
    assert table.loc["raw-k1", "pseudo_score"] == pytest.approx(80)


def test_the_papers_own_splits_replace_the_first_ten(study):
    first = study.criteria.query("measure == 'balance' and split < 10 and machine == 'dev0'")
    own = first.assign(measure="paper", value=0.7)
    changed = replace(study, criteria=pd.concat([study.criteria, own], ignore_index=True))
    before, after = (each.grid()["criterion_paper"].to_numpy() for each in (study, changed))
    means = first.groupby("configuration", sort=False)["value"].mean().to_numpy()
    np.testing.assert_allclose(after - before, (0.7 - means) / 3, atol=1e-11)  # of three machines


# Choosing


@pytest.mark.parametrize("rule", Rule)
def test_each_rule_chooses_from_what_it_reads(study, rule):
    choice = study.choose(rule.value)
    expected = DEGENERATE if rule == "criterion" else "ldn-ratio-K1"
    assert (choice.config, choice.rule) == (expected, rule)
    if rule == "criterion":
        assert f"{DEGENERATE} is excluded by the label-free veto" in choice.warnings[0]
    if rule == "guarded":
        assert choice.stability == "30 of 30 resamples pick it"
        assert "pseudo score 52.0, below the limit" in choice.vetoed[DEGENERATE]
        assert "dev-score veto (" in choice.vetoed[DEGENERATE]


def test_the_paper_reads_its_own_splits_and_no_label_free_veto():
    table = grid(viable=[True, True, True, True, False], criterion_paper=[0.1, 0.2, 0.3, 0.4, 0.5])
    assert pick(table, "paper").config == "raw-k1"
    assert pick(table.drop(columns="criterion_paper"), "paper").config == DEGENERATE
    assert pick(table).config == "ldn-ratio-K1"


def test_without_any_veto_only_the_pool_of_nine_takes_part():
    choice = pick(grid(dev_score=None))
    assert choice.config == "ldn-ratio-K1"
    assert set(choice.criterion) == set(GRID) - {DEGENERATE}


def test_without_a_criterion_the_default_or_the_best_dev_score_is_used():
    table = grid(criterion_dev=None)
    assert pick(table).config == DEFAULT
    others = table[table["configuration"] != DEFAULT].reset_index(drop=True)
    assert pick(others).config == DEGENERATE
    nothing = pick(others.drop(columns="dev_score"))
    assert (nothing.config, nothing.reason) == ("raw-k1", "the first of the grid: nothing is known")
    with pytest.raises(InputError, match="criterion"):
        pick(table, "criterion")


# The label-free veto


def machines_of(study, **bases):
    """The machines, with other pseudo-anomalies on some; None for too few clips."""
    changed = []
    for each in study.run["machines"]:
        basis = bases.get(each["machine"], MOVED)
        changed.append(each | {"pseudo": basis and each["pseudo"] | {"basis": basis}})
    return changed


def test_machines_with_injected_faults_count_alone(study):
    criteria = study.criteria.copy()
    pseudo = criteria["measure"].str.startswith("pseudo")
    raw = (criteria["machine"] == "eval1") & (criteria["configuration"] == "raw-k1")
    criteria.loc[pseudo & raw, "value"] = 0.5
    veto, note = label_free_veto(criteria, GRID, machines_of(study, eval1=INJECTED))
    assert all(INJECTED in reason for reason in veto.reasons.values())
    assert tuple(veto.reasons) == ("raw-k1", DEGENERATE)
    assert note.startswith("The label-free veto uses 1 machine of 6: faults")
    everyone, _ = label_free_veto(criteria, GRID, machines_of(study))
    assert tuple(everyone.reasons) == (DEGENERATE,)


def test_machines_and_configurations_without_pseudo_scores_do_not_count(study):
    none = {each["machine"]: None for each in study.run["machines"]}
    assert label_free_veto(study.criteria, GRID, machines_of(study, **none)) == (
        None,
        "No machine has enough normals for the label-free veto.",
    )
    veto, _ = label_free_veto(study.criteria, GRID, machines_of(study, **none | {"dev1": MOVED}))
    assert tuple(veto.reasons) == (DEGENERATE,)
    rows = study.criteria
    judged = ~rows["measure"].str.startswith("pseudo") | (rows["configuration"] != DEGENERATE)
    assert not label_free_veto(rows[judged], GRID, study.run["machines"])[0].reasons


# Rules side by side


def test_rules_say_what_they_read_and_what_they_score(study):
    table = study.rules().set_index("rule")
    assert list(table.index) == [*Rule, "fixed", "blend", "per-machine", "random", "oracle"]
    assert table.loc["label-free", "reads"] == "nothing"
    assert table.loc["dev", "reads"] == "development labels"
    assert table.loc["oracle", "reads"] == "evaluation labels"
    scores = study.grid().set_index("configuration")
    for rule in ("guarded", "fixed", "oracle"):
        row = table.loc[rule]
        assert row["eval_score"] == pytest.approx(scores.loc[row["configuration"], "eval_score"])
        assert row["eval_low"] < row["eval_score"] < row["eval_high"]
    assert table.loc["random", "eval_score"] == pytest.approx(scores["eval_score"].mean())
    assert table.loc["oracle", "eval_score"] == scores["eval_score"].max()
    assert table.loc["guarded", "agreement"] == 1
    merged = random_study(dev=2, eval=3, sections=3).rules().set_index("rule").loc["fixed"]
    assert (merged["n_dev_machines"], merged["n_machines"]) == (2, 3)


def test_without_evaluation_labels_there_is_no_oracle_and_no_evaluation_score():
    table = random_study(labelled=("dev",)).rules().set_index("rule")
    assert "oracle" not in table.index
    assert table["eval_score"].isna().all()
    assert table.loc["fixed", "n_machines"] == 3
    unlabelled = random_study(labelled=()).rules().set_index("rule")
    assert not {"paper", "dev"} & set(unlabelled.index)
    assert unlabelled.loc["guarded", "reads"] == "nothing"


def test_each_machine_takes_its_own_smallest_criterion_and_ties_follow_the_pool():
    keys = {"set": "eval", "section": "00"}
    names = ["raw-k1", "raw-k2"] * 2
    table = pd.DataFrame({"machine": ["fan"] * 2 + ["saw"] * 2, "configuration": names} | keys)
    criteria = table.assign(criterion=[0.6, 0.5, 0.4, 0.4])
    machines = pd.concat([table, table.iloc[:1].assign(machine="one domain")])
    chosen = per_machine_choice(machines, criteria, ["raw-k2", "raw-k1"])
    assert chosen["configuration"].tolist() == ["raw-k2"] * 3
    first = per_machine_choice(machines, criteria, ["raw-k1", "raw-k2"])
    assert first["configuration"].tolist() == ["raw-k2", "raw-k1", "raw-k1"]


# Stability


def test_stability_counts_the_resamples_of_what_no_veto_excludes(study):
    table = study.stability().set_index("configuration")
    assert DEGENERATE not in table.index
    assert table["picked"].sum() == table["n_resamples"].iloc[0] == 30
    assert table.index[0] == study.run["choice"]["config"] == "ldn-ratio-K1"
    assert table.loc["ldn-ratio-K1", ["chosen", "within_noise"]].all()
    assert not table.loc["raw-k1", "within_noise"]
    means = resampled_criteria(study.criteria, GRID)
    assert means.shape == (5, 30)
    np.testing.assert_allclose(means.mean(axis=1), CRITERIA, atol=0.002)
    assert random_study(rule="paper").stability().empty
