"""Which configuration a study chooses, by which rule, and what it says about it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from daco.errors import DacoError
from daco.evaluation.metrics import QUANTITIES, grid_metrics
from daco.experiments.choose import study_choice
from daco.experiments.differences import compare_scores
from daco.experiments.rules import grid_choice
from daco.experiments.study_tables import MachineScores

DEFAULT = "conf-soft-m0-k1"
CONFIGS = ["raw-k1", DEFAULT, "ratio-soft-k1", "ldn-diff-K16"]
DEV = [58.7, 56.3, 57.0, 50.4]
CRITERION = [0.62, 0.49, 0.52, 0.45]


# The rule


def table(configs=CONFIGS, criterion=CRITERION, dev=DEV, **more):
    known = {"crit_dev": criterion, "dev_omega": dev, **more}
    return {"config": configs, **{name: each for name, each in known.items() if each is not None}}


def test_dev_scores_veto_and_the_criterion_picks():
    found = grid_choice(table())
    assert found.config == DEFAULT
    assert found.vetoed == {"ldn-diff-K16": "dev-score veto"}


def test_both_vetoes_count_unless_one_is_named():
    known = table(viable=[True, False, True, True])
    picks = {veto: grid_choice(known, veto).config for veto in ("both", "dev", "faults")}
    assert picks == {"both": "ratio-soft-k1", "dev": DEFAULT, "faults": "ldn-diff-K16"}


def test_the_paper_s_choice_has_its_own_criterion():
    known = table(crit_paper=[0.50, 0.55, 0.60, 0.45])
    assert grid_choice(known, "paper").config == "raw-k1"
    assert grid_choice(table(), "paper").config == DEFAULT  # of a grid of 10 splits


def test_the_pick_is_what_most_resamples_agree_on():
    rng = np.random.default_rng(0)
    resampled = np.array([0.62, 0.60, 0.50, 0.40])[:, None] + rng.normal(0, 0.001, (4, 50))
    found = grid_choice(table(), "both", resampled)
    assert (found.config, found.agreement, found.n_resamples) == ("ratio-soft-k1", 1.0, 50)


NAN = [np.nan] * 2


@pytest.mark.parametrize(
    ("configs", "criterion", "dev", "config"),
    [
        # without any veto: the pool of configurations that are known to detect something
        (CONFIGS, [0.62, 0.49, 0.45, 0.4], None, "ratio-soft-k1"),
        (["raw-k2", "ldn-diff-K16"], [0.62, 0.45], None, "ldn-diff-K16"),
        # without a criterion: the default, dev scores, or whatever there is
        (["raw-k1", DEFAULT], NAN, [58.0, 57.0], DEFAULT),
        (["raw-k1", "raw-k2"], NAN, [57.0, 58.0], "raw-k2"),
        (["raw-k1", "raw-k2"], NAN, None, "raw-k1"),
        (["raw-k2"], [0.4], [55.0], "raw-k2"),
        # a tie that was summed in another order
        (["raw-k1", "raw-k2", "raw-k4"], [0.3, 0.1 + 0.2 - 1e-16, 0.5], [3.0, 2.0, 1.0], "raw-k1"),
    ],
)
def test_the_choice_follows_from_what_is_known(configs, criterion, dev, config):
    assert grid_choice(table(configs, criterion, dev)).config == config


def test_a_veto_that_leaves_nothing_is_named():
    with pytest.raises(DacoError, match="dev-score veto leaves 0"):
        grid_choice(table(dev=[50.0] * 4))
    with pytest.raises(DacoError, match=r"one of paper, dev, faults, both\. Got 'nothing'"):
        grid_choice(table(), "nothing")


# The document


def study(labels=("dev", "eval"), n_clips=40, seed=0, domains=("source", "target")):
    """Scores of two dev and three evaluation machines, and the tables that follow from them."""
    rng = np.random.default_rng(seed)
    scores, rows = [], []
    for split, count in (("dev", 2), ("eval", 3)):
        for number in range(count):
            label = np.tile([0, 1], n_clips // 2)
            domain = np.repeat(domains, n_clips // 2)
            values = rng.normal(size=(n_clips, len(CONFIGS))) + label[:, None]
            known = split in labels
            title = f"{split}{number}"
            scores.append(
                MachineScores(
                    split=split,
                    machine=title,
                    section="00",
                    title=title,
                    configs=tuple(CONFIGS),
                    names=np.array([f"{i}.wav" for i in range(n_clips)]),
                    labels=label if known else np.full(n_clips, -1),
                    domains=domain if known else np.full(n_clips, ""),
                    scores=values,
                    weights=np.full((n_clips, len(domains)), 1 / len(domains)),
                    own_domains=np.repeat(domains, [99, 11]),
                    own=rng.normal(size=(110, len(CONFIGS))),
                )
            )
            metrics = np.full((len(CONFIGS), 3), np.nan)
            if known:
                metrics = 100 * grid_metrics(values, label, domain).values
            for config, metric, balance in zip(CONFIGS, metrics, CRITERION, strict=True):
                rows.append((split, title, config, *metric, balance + rng.uniform(0, 0.01)))
    columns = ["split", "machine", "config", *QUANTITIES, "balance_ks"]
    per_machine = pd.DataFrame(rows, columns=columns)
    grid = {"config": CONFIGS}
    for split in labels:
        part = per_machine[per_machine["split"] == split]
        metrics = part.groupby("config", sort=False)[list(QUANTITIES)]
        grid[f"{split}_omega"] = metrics.apply(lambda m: m.size / (1 / m).to_numpy().sum()).tolist()
    for split in ("dev", "eval"):
        part = per_machine[per_machine["split"] == split]
        grid[f"crit_{split}"] = part.groupby("config", sort=False)["balance_ks"].mean().tolist()
    return pd.DataFrame(grid), per_machine, scores


def plainly(document):
    return json.loads(json.dumps(document, allow_nan=False))


def test_a_labelled_study():
    grid, per_machine, scores = study()
    found = study_choice(grid, per_machine, scores=scores)
    assert study_choice(grid, per_machine, scores=scores) == found  # the same seed
    found = plainly(found)
    chosen = found["chosen"]
    row = grid.set_index("config").loc[chosen["config"]]
    assert chosen["eval_omega"] == row["eval_omega"]
    assert chosen["interval"]["low"] < chosen["eval_omega"] < chosen["interval"]["high"]
    methods = {(d["against"], d["method"]) for d in found["deltas"]}
    assert methods == {
        (against, method)
        for against in ("dev pick", "fixed default", "oracle")
        for method in ("machine jackknife", "paired clip bootstrap")
    }
    by_rule = {row["rule"]: row for row in found["rows"]}
    for delta in found["deltas"]:
        # both methods estimate the difference of the official scores itself
        pick = {"dev pick": "dev score", "fixed default": "fixed"}.get(delta["against"], "oracle")
        expected = chosen["eval_omega"] - by_rule[pick]["eval_omega"]
        assert delta["delta"] == pytest.approx(expected, abs=1e-9)
        assert delta["low"] <= delta["delta"] <= delta["high"]
    assert (found["floor"]["n_source"], found["floor"]["n_target"]) == (99, 11)


def test_rows_say_what_labels_each_rule_read():
    grid, per_machine, _ = study()
    found = study_choice(grid, per_machine)["rows"]
    assert {row["rule"]: row["labels"] for row in found} == {
        "random": "none",
        "fixed": "none",
        "dev score": "development",
        "criterion": "none",
        "criterion on evaluation normals": "none",
        "paper's choice": "development (veto only)",
        "criterion, dev-score veto": "development (veto only)",
        "per-machine blind": "none",
        "oracle": "evaluation",
    }
    by_config = grid.set_index("config")
    for row in found:
        if row["config"] is not None:
            own = by_config.loc[row["config"]]
            for name in ("dev_omega", "eval_omega", "crit_dev", "crit_eval"):
                assert row[name] == pytest.approx(own[name], abs=1e-9)


def test_without_evaluation_labels_there_is_a_choice_and_no_score():
    grid, per_machine, scores = study(labels=("dev",))
    found = plainly(study_choice(grid, per_machine, scores=scores))
    assert found["chosen"]["rule"] == "criterion, both vetoes"
    assert found["chosen"]["eval_omega"] is found["chosen"]["interval"] is None
    assert found["deltas"] == []
    assert {row["rule"] for row in found["rows"]} == {
        *("fixed", "dev score", "criterion", "criterion on evaluation normals"),
        *("paper's choice", "criterion, dev-score veto", "per-machine blind"),
    }
    assert found["per_machine_blind"]["choices"].keys() == {"eval0", "eval1", "eval2"}


def test_without_any_labels():
    grid, per_machine, scores = study(labels=())
    found = plainly(study_choice(grid, per_machine, scores=scores))
    assert found["chosen"]["config"] == DEFAULT
    assert found["veto"] is None
    assert all(row["dev_omega"] is row["eval_omega"] is None for row in found["rows"])
    assert "dev score" not in {row["rule"] for row in found["rows"]}


def test_without_evaluation_machines():
    grid, per_machine, scores = study(labels=("dev",))
    per_machine = per_machine[per_machine["split"] == "dev"]
    scores = [machine for machine in scores if machine.split == "dev"]
    found = plainly(study_choice(grid.drop(columns="crit_eval"), per_machine, scores=scores))
    assert found["per_machine_blind"]["split"] == "dev"
    assert found["per_machine_blind"]["choices"].keys() == {"dev0", "dev1"}
    assert found["deltas"] == []


def test_machines_with_one_domain_have_no_criterion_and_get_the_default():
    grid, per_machine, scores = study()
    alone = per_machine["machine"] == "eval1"
    per_machine.loc[alone, "balance_ks"] = np.nan
    found = plainly(study_choice(grid, per_machine))
    assert found["per_machine_blind"]["choices"]["eval1"] == DEFAULT
    per_machine["balance_ks"] = np.nan
    grid = grid.assign(crit_dev=np.nan, crit_eval=np.nan)
    found = plainly(study_choice(grid, per_machine, scores=scores))
    assert found["chosen"]["config"] == DEFAULT
    assert {row["rule"] for row in found["rows"]} == {*("random", "fixed", "dev score", "oracle")}


def test_a_grid_of_which_nothing_is_known():
    _, per_machine, _ = study(labels=())
    per_machine = per_machine[per_machine["config"].isin(["raw-k1", "ratio-soft-k1"])]
    grid = pd.DataFrame({"config": ["raw-k1", "ratio-soft-k1"]})
    found = plainly(study_choice(grid, per_machine.assign(balance_ks=np.nan)))
    assert found["chosen"]["config"] == "raw-k1"
    assert found["rows"] == []


def test_one_labelled_machine_has_no_jackknife_but_clips():
    grid, per_machine, scores = study()
    gone = ["eval1", "eval2"]
    per_machine = per_machine[~per_machine["machine"].isin(gone)]
    scores = [machine for machine in scores if machine.title not in gone]
    found = plainly(study_choice(grid, per_machine, scores=scores))
    assert found["chosen"]["interval"] is None
    assert {delta["method"] for delta in found["deltas"]} == {"paired clip bootstrap"}


def test_machines_without_anomalies_are_no_clips_to_draw():
    grid, per_machine, scores = study()
    odd = scores[-1]
    object.__setattr__(odd, "labels", np.zeros_like(odd.labels))
    deltas = study_choice(grid, per_machine, scores=[odd])["deltas"]
    assert {delta["method"] for delta in deltas} == {"machine jackknife"}


def test_resamples_say_how_stable_the_choice_is():
    grid, per_machine, _ = study()
    grid["dev_omega"], grid["crit_dev"] = DEV, [0.495, 0.49, 0.60, 0.49]
    rng = np.random.default_rng(0)
    resampled = grid["crit_dev"].to_numpy()[:, None] + rng.normal(0, 0.01, (4, 99))
    resampled[:, 3] = np.nan  # a resample without clips of one domain
    found = plainly(study_choice(grid, per_machine, resampled=resampled))
    assert found["chosen"]["config"] == DEFAULT
    assert found["within_noise"] == ["raw-k1"]  # ldn-diff-K16 is equal, and vetoed
    stable = found["resamples"]
    assert stable["picks"].keys() == {DEFAULT, "raw-k1"}
    assert stable["n"] == sum(stable["picks"].values()) == 98
    assert stable["agreement"] == stable["picks"][DEFAULT] / 98
    unknown = study_choice(grid, per_machine)
    assert unknown["within_noise"] == []
    assert unknown["resamples"] is None


def test_a_table_without_configurations_is_refused():
    with pytest.raises(DacoError, match="no column 'config'"):
        study_choice(pd.DataFrame({"dev_omega": [1.0]}), study()[1])


def test_compare_scores_of_a_configuration_with_itself():
    delta = compare_scores(study()[1], DEFAULT, DEFAULT)
    assert (delta["delta"], delta["low"], delta["high"]) == (0, 0, 0)
