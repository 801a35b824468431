"""Result tables by machine and configuration."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from daco.errors import InputError
from daco.experiments.grid_table import (
    composed_score,
    oracle,
    pivot_machines,
    random_expectation,
)

MACHINES = {
    "machine": ["fan", "fan", "pump", "pump", "saw", "saw"],
    "config": ["raw-k1", "raw-k2"] * 3,
    "split": ["dev"] * 2 + ["eval"] * 4,
    "auc_source": [70.0, 71.0, 80.0, 60.0, 66.0, 67.0],
    "auc_target": [50.0, 51.0, 40.0, 70.0, 55.0, 54.0],
    "pauc": [52.0, 53.0, 51.0, 50.0, 57.0, np.nan],
}


def test_pivot_keeps_the_order_asked_for():
    for table in (MACHINES, pd.DataFrame(MACHINES)):
        machines, configs, values = pivot_machines(
            table, ["pauc"], configs=["raw-k2", "raw-k1"], split="eval"
        )
        assert (machines, configs) == (["pump", "saw"], ["raw-k2", "raw-k1"])
        np.testing.assert_array_equal(values[:, :, 0], [[50.0, 51.0], [np.nan, 57.0]])


def test_a_composed_score_is_the_harmonic_mean_over_each_machine_s_own_configuration():
    values = [71.0, 51.0, 53.0, 60.0, 70.0, 50.0, 66.0, 55.0, 57.0]
    score = composed_score(MACHINES, {"fan": "raw-k2", "pump": "raw-k2", "saw": "raw-k1"})
    assert score == pytest.approx(len(values) / sum(1 / v for v in values), abs=1e-12)


def test_the_best_in_hindsight_and_the_expectation_of_a_random_pick():
    assert oracle(["raw-k4", "raw-k1", "raw-k2"], [1.0, 2.0, 2.0]) == "raw-k1"
    assert random_expectation([55.0, 57.0, 59.0]).sd == 2.0
    assert np.isnan(random_expectation([55.0]).sd)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: pivot_machines(t, ["pauc"], configs=["raw-k3"]), "no 'raw-k3'. Did you mean"),
        (lambda t: pivot_machines(t, ["pauc"], split="test"), "'split' has no 'test'"),
        (lambda t: pivot_machines(t, ["omega"]), "no column 'omega'"),
        (lambda t: pivot_machines({k: [] for k in t}, ["pauc"]), "table is empty"),
        (lambda t: pivot_machines({**t, "machine": ["fan"] * 6}, ["pauc"]), "'raw-k1' twice"),
        (
            lambda t: pivot_machines({k: v[:-1] for k, v in t.items()}, ["pauc"]),
            "Machine 'saw' has no row for 'raw-k2'",
        ),
        (lambda t: composed_score(t, {"saw": "raw-k4"}), "no row for 'raw-k4'"),
        (lambda t: composed_score(t, {}), "nothing to average"),
    ],
)
def test_what_is_wrong_is_said(call, message):
    with pytest.raises(InputError, match=message):
        call(MACHINES)
