"""Selection rules: what they pick, what they may read, and what they refuse."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from daco.errors import InputError
from daco.method import selection
from daco.method.config import blind_pool
from daco.method.grid_table import composed_score, pivot_machines
from daco.method.selection import (
    guarded_selection,
    oracle,
    per_machine_blind,
    random_expectation,
    select_by_criterion,
    select_by_dev_score,
    viable,
    viable_within,
)

GRID = {
    "config": ["raw-k1", "conf-soft-m0-k1", "conf-hard-m0-k1", "ldn-diff-K16"],
    "dev_omega": [58.0, 56.0, 57.0, 50.0],
    "eval_omega": [55.0, 59.0, 58.0, 49.0],
    "crit_dev": [0.62, 0.50, 0.49, 0.40],
    "crit_eval": [0.65, 0.51, 0.52, 0.45],
}
MACHINES = {
    "machine": ["fan", "fan", "pump", "pump", "saw", "saw"],
    "config": ["raw-k1", "raw-k2"] * 3,
    "auc_source": [70.0, 71.0, 80.0, 60.0, 66.0, 67.0],
    "auc_target": [50.0, 51.0, 40.0, 70.0, 55.0, 54.0],
    "pauc": [52.0, 53.0, 51.0, 50.0, 57.0, 56.0],
    "balance_ks": [0.6, 0.5, 0.7, 0.3, 0.4, 0.4],
}
POOL = ["raw-k1", "raw-k2"]


def without(table, *columns):
    return {name: values for name, values in table.items() if name not in columns}


# Vetoes


def test_the_decile_veto_is_strict_and_interpolates_linearly():
    assert viable(np.arange(51.0)).sum() == 45  # the value on the floor, 5.0, falls too
    assert viable(np.arange(45.0)).sum() == 40  # the floor is 4.4
    assert viable([1.0, 2.0, 3.0], quantile=0.5).tolist() == [False, False, True]


def test_the_threshold_veto_keeps_what_is_exactly_delta_below_the_best():
    assert viable_within([58.0, 55.0, 54.9], delta=3).tolist() == [True, True, False]
    assert viable_within([58.0, 55.0], delta=0).tolist() == [True, False]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: viable([1.0, 2.0], quantile=10), "'quantile' of the veto"),
        (lambda: viable_within([1.0, 2.0], delta=-1), "'delta' of the veto"),
        (lambda: viable([]), "'dev_omega' is empty"),
        (lambda: viable([1.0, np.nan]), "'dev_omega' is nan at row 1"),
        (lambda: viable_within([np.inf, 1.0], 2), "'dev_omega' is inf at row 0"),
    ],
)
def test_vetoes_say_what_is_wrong(call, message):
    with pytest.raises(InputError, match=message):
        call()


# Rules on one grid


def test_each_rule_reads_its_own_column():
    assert select_by_dev_score(GRID["config"], GRID["dev_omega"]) == "raw-k1"
    assert select_by_criterion(GRID["config"], GRID["crit_dev"]) == "ldn-diff-K16"
    assert guarded_selection(GRID) == "conf-hard-m0-k1"
    assert oracle(GRID["config"], GRID["eval_omega"]) == "conf-soft-m0-k1"


def test_the_threshold_form_of_the_veto_and_a_mask_take_the_vetos_place():
    assert guarded_selection(GRID, veto=lambda dev: viable_within(dev, 0.5)) == "raw-k1"
    assert guarded_selection(GRID, veto=[True, True, False, False]) == "conf-soft-m0-k1"
    # a mask reads no dev scores at all
    assert guarded_selection(without(GRID, "dev_omega"), veto=[True] * 4) == "ldn-diff-K16"


def test_a_dataframe_and_configurations_as_objects_are_as_good():
    assert guarded_selection(pd.DataFrame(GRID)) == guarded_selection(GRID)
    pool = blind_pool()
    assert select_by_criterion(pool, np.arange(9.0)[::-1]) == pool[-1].name


def test_ties_go_to_the_first_of_the_grid():
    names = ["raw-k4", "raw-k1", "raw-k2"]
    assert select_by_dev_score(names, [57.0, 58.0, 58.0]) == "raw-k1"
    assert select_by_criterion(names, [0.5, 0.4, 0.4]) == "raw-k1"
    assert oracle(names, [1.0, 2.0, 2.0]) == "raw-k1"
    tied = {"config": names, "dev_omega": [1.0, 2.0, 3.0], "crit_dev": [0.1, 0.4, 0.4]}
    assert guarded_selection(tied) == "raw-k1"


def test_a_nan_criterion_is_never_chosen():
    assert select_by_criterion(["raw-k1", "raw-k2"], [np.nan, 0.9]) == "raw-k2"
    table = {**GRID, "crit_dev": [0.6, np.nan, np.nan, 0.4]}
    assert guarded_selection(table) == "raw-k1"


def test_random_expectation_divides_by_n_minus_one():
    assert random_expectation([55.0, 57.0, 59.0]) == selection.RandomExpectation(57.0, 2.0)
    assert np.isnan(random_expectation([55.0]).sd)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": ["raw-k1", "raw-k2", "raw-k1", "raw-k4"]}, "'raw-k1' twice"),
        ({"config": [], "dev_omega": [], "crit_dev": []}, "The grid is empty"),
        ({"config": "raw-k1"}, "Got the single name 'raw-k1'"),
        ({"config": ["raw-k1", None, "raw-k2", "raw-k4"]}, "must be a name. Got None at row 1"),
        ({"dev_omega": [58.0, np.nan, 57.0, 50.0]}, "'dev_omega' is nan at row 1"),
        ({"dev_omega": [58.0, 57.0]}, "one value for each of the 4 rows"),
        ({"crit_dev": ["low", "high", "low", "low"]}, "'crit_dev' must be numbers"),
        ({"crit_dev": [np.nan, np.nan, np.nan, 0.1]}, "cannot choose a viable configuration"),
        ({"dev_omega": [58.0] * 4}, "excludes all 4"),
    ],
)
def test_guarded_selection_says_what_is_wrong_with_the_table(change, message):
    with pytest.raises(InputError, match=message):
        guarded_selection({**GRID, **change})


@pytest.mark.parametrize("column", ["config", "dev_omega", "crit_dev"])
def test_a_missing_column_is_named_with_those_that_are_there(column):
    with pytest.raises(InputError, match=f"no column '{column}'. It has: .*eval_omega"):
        guarded_selection(without(GRID, column))


def test_a_veto_that_is_not_one_bool_per_configuration_is_refused():
    with pytest.raises(InputError, match=r"one bool for each of the 4.*float64 of shape \(4,\)"):
        guarded_selection(GRID, veto=lambda dev: dev)
    with pytest.raises(InputError, match=r"bool of shape \(2,\)"):
        guarded_selection(GRID, veto=[True, False])


# Per machine


def test_each_machine_takes_its_own_smallest_criterion_and_ties_follow_the_pool():
    chosen = per_machine_blind(MACHINES, POOL)
    assert chosen == {"fan": "raw-k2", "pump": "raw-k2", "saw": "raw-k1"}
    assert per_machine_blind(MACHINES, POOL[::-1])["saw"] == "raw-k2"


def test_choosing_needs_no_metrics_and_composing_needs_nothing_else():
    blind = without(MACHINES, "auc_source", "auc_target", "pauc")
    choices = per_machine_blind(blind, POOL)
    score = composed_score(without(MACHINES, "balance_ks"), choices)
    values = [71.0, 51.0, 53.0, 60.0, 70.0, 50.0, 66.0, 55.0, 57.0]
    assert score == pytest.approx(len(values) / sum(1 / v for v in values), abs=1e-12)


def test_pivot_keeps_the_order_asked_for():
    table = {**MACHINES, "split": ["dev"] * 2 + ["eval"] * 4}
    machines, configs, values = pivot_machines(table, ["pauc"], configs=POOL[::-1], split="eval")
    assert (machines, configs) == (["pump", "saw"], ["raw-k2", "raw-k1"])
    assert values[:, :, 0].tolist() == [[50.0, 51.0], [56.0, 57.0]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: per_machine_blind(t, ["raw-k1", "raw-k3"]), "no 'raw-k3'. Did you mean"),
        (lambda t: per_machine_blind(t, []), "The grid is empty"),
        (
            lambda t: pivot_machines({**t, "split": ["dev"] * 6}, ["pauc"], split="test"),
            "'split' has no 'test'",
        ),
        (lambda t: per_machine_blind(without(t, "balance_ks"), POOL), "no column 'balance_ks'"),
        (lambda t: per_machine_blind({k: [] for k in t}, POOL), "per-machine table is empty"),
        (
            lambda t: per_machine_blind({**t, "machine": ["fan"] * 6}, POOL),
            "Machine 'fan' has 'raw-k1' twice",
        ),
        (
            lambda t: per_machine_blind({k: v[:-1] for k, v in t.items()}, POOL),
            "Machine 'saw' has no row for 'raw-k2'",
        ),
        (
            lambda t: per_machine_blind({**t, "balance_ks": [0.1] * 4 + [np.nan] * 2}, POOL),
            "machine 'saw'",
        ),
        (lambda t: composed_score(t, {}), "no choices"),
        (lambda t: composed_score(t, {"sawmill": "raw-k1"}), "Did you mean 'saw'"),
        (lambda t: composed_score(t, {"saw": "raw-k4"}), "no row for 'raw-k4'"),
    ],
)
def test_per_machine_functions_say_what_is_wrong(call, message):
    with pytest.raises(InputError, match=message):
        call(MACHINES)
