"""Rule 2 of the design: no selection depends on a test label or a test domain."""

from __future__ import annotations

import inspect

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_machines import synthetic_machine

import daco
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.method import bank, criterion, selection
from daco.method.config import blind_pool

GRID = daco.paper_grid()
FORBIDDEN = ("label", "truth", "eval", "anomal", "y_true")


def test_label_free_functions_have_no_argument_for_a_label():
    label_free = [
        bank.NormalBank.balance,
        bank.NormalBank.balance_splits,
        bank.NormalBank.exact_balance,
        bank.NormalBank.uniformity,
        criterion.ks_of_domains,
        criterion.ks_denominators,
        criterion.held_out_halves,
        criterion.h0_floor,
        selection.select_by_criterion,
        selection.per_machine_blind,
        selection.guarded_selection,
        selection.viable,
        selection.viable_within,
    ]
    for function in label_free:
        for parameter in inspect.signature(function).parameters:
            assert not any(word in parameter for word in FORBIDDEN), function


class Recorder(dict):
    """A table that remembers which columns were read."""

    def __init__(self, columns):
        super().__init__(columns)
        self.read = set()

    def __getitem__(self, name):
        self.read.add(name)
        return super().__getitem__(name)


def tables(seed, label_seed):
    """Grid and per-machine tables of two machines a side, eval labels permuted by label_seed."""
    per_machine = {key: [] for key in ("machine", "config", "balance_ks", "auc_source")}
    grid = {"config": [config.name for config in GRID]}
    for split in ("dev", "eval"):
        values, balances = [], []
        for number in range(2):
            machine = synthetic_machine("m", [seed, number, split == "eval"], 40, 8, 40, 6)
            normals = daco.NormalBank(machine.X, machine.domains)
            scores = normals.score(machine.X_test, GRID)
            labels, domains = machine.labels, machine.test_domains
            if split == "eval" and label_seed is not None:
                rng = np.random.default_rng(label_seed)
                labels, domains = rng.permutation(labels), rng.permutation(domains)
                labels[:4], domains[:4] = [0, 0, 1, 1], ["source", "target", "source", "target"]
            values.append(grid_metrics(scores, labels, domains).values)
            balances.append(normals.balance(GRID, 3))
            if split == "eval":
                per_machine["machine"] += [f"m{number}"] * len(GRID)
                per_machine["config"] += grid["config"]
                per_machine["balance_ks"] += balances[-1].tolist()
                per_machine["auc_source"] += values[-1][:, 0].tolist()
        grid[f"{split}_omega"] = 100 * harmonic_mean(np.hstack(values), axis=1)
        grid[f"crit_{split}"] = np.mean(balances, axis=0)
    return grid, per_machine


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_permuting_evaluation_labels_and_domains_changes_no_pick(seed, label_seed):
    picks = []
    for labels in (None, label_seed):
        grid, per_machine = tables(seed, labels)
        picks.append(
            [
                selection.guarded_selection(grid),
                selection.select_by_criterion(grid["config"], grid["crit_eval"]),
                selection.per_machine_blind(per_machine, blind_pool()),
                grid["crit_eval"].tolist(),
            ]
        )
    assert picks[0] == picks[1]


def test_selection_reads_no_column_that_holds_evaluation_labels():
    grid, per_machine = tables(0, None)
    grid, per_machine = Recorder(grid), Recorder(per_machine)
    selection.guarded_selection(grid)
    selection.per_machine_blind(per_machine)
    assert grid.read <= {"config", "dev_omega", "crit_dev"}
    assert per_machine.read <= {"machine", "config", "balance_ks"}


def test_search_ignores_y():
    machine = synthetic_machine("m", 3, 40, 8, 40, 6)
    search = daco.LabelFreeSearch(n_splits=3, false_alarm_rate=0.2)
    picks = [
        search.fit(machine.X, y, domains=machine.domains).results_
        for y in (None, np.arange(48) % 2, np.ones(48))
    ]
    assert picks[0].equals(picks[1])
    assert picks[0].equals(picks[2])
