"""Which configuration a study chooses, by which rule, and what it says about it."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from daco.errors import DacoError
from daco.evaluation.metrics import QUANTITIES, grid_metrics
from daco.experiments.choose import RULES, compare_scores, study_choice
from daco.experiments.decision import decide
from daco.experiments.study_tables import MachineScores
from daco.method.criterion import Floor
from daco.method.floor import bank_floor, study_floor

DEFAULT = "conf-soft-m0-k1"
CONFIGS = ["raw-k1", DEFAULT, "ratio-soft-k1", "ldn-diff-K16"]
DEV = [58.7, 56.3, 57.0, 50.4]
CRITERION = [0.62, 0.49, 0.52, 0.45]


# The rule


def test_dev_scores_veto_and_the_criterion_picks():
    found = decide(CONFIGS, CRITERION, DEV)
    assert (found.config, found.rule) == (DEFAULT, "guarded criterion")
    assert found.vetoed == ("ldn-diff-K16",)
    assert found.floor == pytest.approx(np.quantile(DEV, 0.1))
    assert "0.4900, of the 3 configurations" in found.reason


NAN = [np.nan] * 2


@pytest.mark.parametrize(
    ("configs", "criterion", "dev", "config", "rule"),
    [
        # without dev labels: the label-free choice in the pool of viable configurations
        (CONFIGS, CRITERION, None, DEFAULT, "criterion in the pool"),
        (CONFIGS, [0.62, 0.49, 0.45, 0.4], None, "ratio-soft-k1", "criterion in the pool"),
        (CONFIGS, [0.62, 0.49, 0.48, 0.4], None, DEFAULT, "criterion in the pool"),  # noise
        (["raw-k2", "ldn-diff-K16"], [0.62, 0.45], None, "ldn-diff-K16", "criterion"),
        # equal dev scores: the strict veto leaves none
        (CONFIGS, CRITERION, [50.0] * 4, DEFAULT, "criterion in the pool"),
        # without a criterion: the default, dev scores, or whatever there is
        (["raw-k1", DEFAULT], NAN, [58.0, 57.0], DEFAULT, "fixed default"),
        (["raw-k1", "raw-k2"], NAN, [57.0, 58.0], "raw-k2", "dev score"),
        (["raw-k1", "raw-k2"], NAN, None, "raw-k1", "first of the grid"),
        (["raw-k2"], [0.4], [55.0], "raw-k2", "only configuration"),
        # a tie that was summed in another order
        (["raw-k1", "raw-k2", "raw-k4"], [0.3, 0.1 + 0.2 - 1e-16, 0.5], [3.0, 2.0, 1.0],
         "raw-k1", "guarded criterion"),
    ],
)  # fmt: skip
def test_the_rule_follows_from_what_is_known(configs, criterion, dev, config, rule):
    found = decide(configs, criterion, dev, floor=Floor(0.36, 0.02))
    assert (found.config, found.rule) == (config, rule)


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
    assert found["floor"]["n_machines"] == 2


def test_rows_say_what_labels_each_rule_read():
    grid, per_machine, _ = study()
    found = study_choice(grid, per_machine)["rows"]
    assert {row["rule"]: row["labels"] for row in found} == {
        "random": "none",
        "fixed": "none",
        "dev score": "development",
        "criterion": "none",
        "criterion on evaluation normals": "none",
        "guarded criterion": "development (veto only)",
        "per-machine blind": "none",
        "oracle": "evaluation",
    }
    by_config = grid.set_index("config")
    for row in found:
        if row["config"] is not None:
            own = by_config.loc[row["config"]]
            for name in ("dev_omega", "eval_omega", "crit_dev", "crit_eval"):
                assert row[name] == pytest.approx(own[name], abs=1e-9)


def test_a_rule_that_is_added_to_the_list_has_a_row(monkeypatch):
    monkeypatch.setitem(RULES, "the third", ("none", lambda evidence: evidence.names[2]))
    grid, per_machine, _ = study()
    rows = {row["rule"]: row for row in study_choice(grid, per_machine)["rows"]}
    assert list(rows)[-3:] == ["the third", "per-machine blind", "oracle"]
    assert (rows["the third"]["config"], rows["the third"]["labels"]) == (CONFIGS[2], "none")
    assert rows["the third"]["eval_omega"] == grid["eval_omega"][2]


def test_without_evaluation_labels_there_is_a_choice_and_no_score():
    grid, per_machine, scores = study(labels=("dev",))
    found = plainly(study_choice(grid, per_machine, scores=scores))
    assert found["chosen"]["rule"] == "guarded criterion"
    assert found["chosen"]["eval_omega"] is found["chosen"]["interval"] is None
    assert found["deltas"] == []
    assert {row["rule"] for row in found["rows"]} == {
        *("fixed", "dev score", "criterion", "criterion on evaluation normals"),
        *("guarded criterion", "per-machine blind"),
    }
    assert found["per_machine_blind"]["choices"].keys() == {"eval0", "eval1", "eval2"}


def test_without_any_labels():
    grid, per_machine, scores = study(labels=())
    found = plainly(study_choice(grid, per_machine, scores=scores))
    assert (found["chosen"]["config"], found["chosen"]["rule"]) == (
        DEFAULT,
        "criterion in the pool",
    )
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
    assert found["chosen"]["rule"] == "fixed default"
    assert {row["rule"] for row in found["rows"]} == {*("random", "fixed", "dev score", "oracle")}


def test_a_grid_of_which_nothing_is_known():
    _, per_machine, _ = study(labels=())
    per_machine = per_machine[per_machine["config"].isin(["raw-k1", "ratio-soft-k1"])]
    grid = pd.DataFrame({"config": ["raw-k1", "ratio-soft-k1"]})
    found = plainly(study_choice(grid, per_machine.assign(balance_ks=np.nan)))
    assert found["chosen"]["rule"] == "first of the grid"
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


def test_within_noise_are_viable_configurations_near_the_pick():
    grid, per_machine, _ = study()
    grid["dev_omega"], grid["crit_dev"] = DEV, [0.495, 0.49, 0.60, 0.49]
    found = study_choice(grid, per_machine, floor=study_floor([[990, 10]] * 2))
    assert found["chosen"]["config"] == DEFAULT
    assert found["within_noise"] == ["raw-k1"]  # ldn-diff-K16 is equal, and vetoed
    assert study_choice(grid, per_machine)["within_noise"] == []  # sizes unknown, so is the noise


def test_a_table_without_configurations_is_refused():
    with pytest.raises(DacoError, match="no column 'config'"):
        study_choice(pd.DataFrame({"dev_omega": [1.0]}), study()[1])


def test_compare_scores_of_a_configuration_with_itself():
    delta = compare_scores(study()[1], DEFAULT, DEFAULT)
    assert (delta["delta"], delta["low"], delta["high"]) == (0, 0, 0)


# The floor


def test_there_is_no_floor_where_there_is_no_criterion():
    assert bank_floor([100]) is bank_floor([100, 1]) is None
    assert study_floor([]) is study_floor([[100], [100, 1]]) is None


def test_domains_and_machines_are_averaged():
    assert bank_floor([40, 10]) == bank_floor([10, 40])
    pairs = [bank_floor([60, 40]), bank_floor([60, 20]), bank_floor([40, 20])]
    assert bank_floor([20, 60, 40]).mean == pytest.approx(np.mean([pair.mean for pair in pairs]))
    one, four = study_floor([[60, 10]]), study_floor([[60, 10]] * 4)
    assert four["sd_of_mean"] == pytest.approx(one["sd_of_mean"] / 2)
    assert one["sd_reused_clips"] > one["sd"]
    mixed = study_floor([[60, 10], [60, 10], [80, 40], [9]])
    assert (mixed["n_machines"], mixed["n_source"], mixed["n_target"]) == (3, 60, 10)
    assert study_floor([[80, 40]])["mean"] < mixed["mean"] < one["mean"]
