"""Rule 2 of the design for a whole study: no evaluation label moves a choice."""

from __future__ import annotations

import inspect

import numpy as np
import pandas as pd
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import daco
from daco.data.table import EmbeddingTable
from daco.evaluation.metrics import QUANTITIES
from daco.experiments import analysis, decision, labelfree, veto
from daco.experiments.assembly import stability_table
from daco.experiments.choose import study_choice
from daco.experiments.labelfree import select_label_free
from daco.method import choice, floor
from daco.method.config import paper_grid

NAMES = [config.name for config in paper_grid()]
FORBIDDEN = ("label", "truth", "eval", "anomal", "score")


def test_what_decides_has_no_argument_for_an_evaluation_label():
    for function in (
        decision.decide,
        choice.choose,
        choice.choose_config,
        veto.pseudo_arrays,
        analysis.pool_within,
        floor.bank_floor,
        floor.study_floor,
        labelfree.select_label_free,
    ):
        for parameter in inspect.signature(function).parameters:
            assert not any(word in parameter for word in FORBIDDEN), (function, parameter)


def study(seed):
    rng = np.random.default_rng(seed)
    rows = [
        (split, f"{split}{machine}", config, *rng.uniform(45, 80, 3), rng.integers(30, 40) / 100)
        for split in ("dev", "eval")
        for machine in range(2)
        for config in NAMES
    ]
    per_machine = pd.DataFrame(
        rows, columns=["split", "machine", "config", *QUANTITIES, "balance_ks"]
    )
    grid = pd.DataFrame(
        {
            "config": NAMES,
            "dev_omega": rng.uniform(50, 60, len(NAMES)),
            "eval_omega": rng.uniform(50, 60, len(NAMES)),
            "crit_dev": rng.integers(30, 60, len(NAMES)) / 100,
            "crit_eval": rng.integers(30, 60, len(NAMES)) / 100,
        }
    )
    return grid, per_machine


def choices(grid, per_machine):
    found = study_choice(grid, per_machine, floor=floor.study_floor([[40, 8]] * 2, n_splits=2))
    picks = {r["rule"]: r["config"] for r in found["rows"] if r["labels"] != "evaluation"}
    picks.pop("random", None)
    chosen = {key: found["chosen"][key] for key in ("config", "rule", "reason", "crit_dev")}
    keys = ("per_machine_blind", "veto", "floor", "within_noise")
    balances = per_machine.assign(seed=0, n_splits=10)
    stability = stability_table(per_machine, balances)[["criterion_pick", "guarded_pick"]]
    return chosen, picks, {key: found[key] for key in keys}, stability.values.tolist()


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.sampled_from(["permute", "remove"]))
def test_evaluation_scores_move_no_choice(seed, other, change):
    grid, per_machine = study(seed)
    expected = choices(grid, per_machine)
    rng = np.random.default_rng(other)
    evaluated = per_machine["split"] == "eval"
    changed = per_machine.copy()
    if change == "permute":
        shuffled = grid.assign(eval_omega=rng.permutation(grid["eval_omega"]))
        rows = rng.permutation(np.flatnonzero(evaluated))
        changed.loc[evaluated, list(QUANTITIES)] = per_machine.loc[rows, list(QUANTITIES)].values
    else:
        shuffled = grid.drop(columns="eval_omega")
        changed.loc[evaluated, list(QUANTITIES)] = np.nan
    assert choices(shuffled, changed) == expected


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_dev_scores_reach_a_choice_only_through_the_veto(seed, other):
    """Dev scores that veto the same configurations make the same guarded choice."""
    grid, per_machine = study(seed)
    expected = choices(grid, per_machine)
    order = np.sort(grid["dev_omega"])
    rank = grid["dev_omega"].rank().to_numpy(int) - 1
    above = np.flatnonzero(rank >= 6)  # the six lowest are vetoed, and stay where they are
    changed = rank.copy()
    changed[above] = np.random.default_rng(other).permutation(rank[above])
    chosen, _, rest, _ = choices(grid.assign(dev_omega=order[changed]), per_machine)
    assert chosen == expected[0]
    assert rest["veto"]["removed"] == expected[2]["veto"]["removed"]
    assert rest["within_noise"] == expected[2]["within_noise"]


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_test_clips_move_no_label_free_choice(seed, other):
    rng, changes = np.random.default_rng(seed), np.random.default_rng(other)
    X = rng.normal(size=(70, 6)).astype(np.float32) + 2
    domains = ["source"] * 30 + ["target"] * 10

    def chosen(test, test_domains, labels):
        table = EmbeddingTable.from_arrays(
            np.concatenate([X[:40], test]),
            machine="fan",
            split=["train"] * 40 + ["test"] * 30,
            domain=domains + list(test_domains),
            label=[0] * 40 + list(labels),
        )
        return select_label_free(table, n_splits=2)

    labels, test_domains = [0, 1] * 15, ["source"] * 15 + ["target"] * 15
    assert chosen(X[40:], test_domains, labels) == chosen(
        changes.normal(size=(30, 6)).astype(np.float32),
        changes.permutation(test_domains).tolist(),
        changes.permutation(labels).tolist(),
    )


CANDIDATES = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", "ratio-soft-k1", "ldn-diff-K16"]


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6), st.booleans())
def test_test_labels_and_test_domains_move_no_label_free_veto(seed, other, remove):
    """Neither on development nor on evaluation machines, and no choice that it guards."""

    def machines(role, changes=None):
        rng = np.random.default_rng([seed, len(role)])
        X = rng.normal(size=(80, 16)).astype(np.float32) + 2
        labels, domains = [0, 1] * 15, ["source"] * 15 + ["target"] * 15
        if changes is not None:
            labels = changes.permutation(labels).tolist()
            domains = changes.permutation(domains).tolist()
            if remove:
                labels = domains = [None] * 30
        return EmbeddingTable.from_arrays(
            X,
            machine=f"{role} machine",
            split=["train"] * 50 + ["test"] * 30,
            domain=["source"] * 40 + ["target"] * 10 + list(domains),
            label=[0] * 50 + list(labels),
        )

    def found(changes=None):
        tables = machines("dev", changes), machines("eval", changes)
        result = daco.study(*tables, grid=CANDIDATES, veto="faults", n_splits=2, workers=1)
        chosen = {key: result.selection["chosen"][key] for key in ("config", "rule", "reason")}
        return result.viability, chosen, result.selection["label_free_veto"]

    table, *choice = found()
    assume(choice[1]["limit"] is not None)  # else there is nothing to move
    again, *other_choice = found(np.random.default_rng(other))
    pd.testing.assert_frame_equal(again, table)
    assert other_choice == choice
