"""Statistics of a study on grids of any shape: undefined values are None, and notes say why."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from random_studies import NAMES, random_tables

from daco.errors import DacoError
from daco.experiments.analysis import frontier_table
from daco.experiments.statistics import transfer_statistics


def tables(*sizes, **options):
    """A random study whose machines have separability."""
    grid, per_machine = random_tables(*sizes, **options)
    separability = per_machine.groupby("machine").ngroup() / 10
    return grid, per_machine.assign(uniform_ks=np.nan, separability=separability)


def plainly(stats):
    """What a strict JSON reader gets."""
    return json.loads(json.dumps(stats, allow_nan=False))


def test_a_complete_study_has_every_value():
    stats = plainly(transfer_statistics(*tables(), n_draws=50))
    assert stats["notes"] == []
    assert stats["families"]["conf-soft"] == 15
    for signal in ("dev_score", "criterion"):
        found = stats["signals"][signal]
        assert None not in (found["family_block"]["low"], found["leave_one_family_out"]["high"])
        assert all(part["rho"] is not None for part in found["partial"].values())
    assert stats["gain_and_separability"]["n_machines"] == 6


def test_the_same_seed_gives_the_same_numbers_and_another_other_intervals():
    grid, per_machine = tables()
    first, again = (transfer_statistics(grid, per_machine, n_draws=50) for _ in range(2))
    other = transfer_statistics(grid, per_machine, n_draws=50, seed=1)
    assert first == again
    ends = [s["signals"]["criterion"]["family_block"]["low"] for s in (first, other)]
    assert ends[0] != ends[1]


def test_without_evaluation_labels_what_needs_none_is_there():
    grid, per_machine = tables(labels=("dev",))
    stats = plainly(transfer_statistics(grid, per_machine, n_draws=50))
    assert stats["signals"] == {"dev_score": None, "criterion": None}
    assert stats["criterion_and_dev_score"]["rho"] is not None
    assert stats["strength"]["dev_score"]["rho"] is not None
    assert stats["strength"]["eval_score"]["rho"] is None
    assert stats["ranges"]["eval_score"] is None
    assert stats["gain_and_separability"]["n_machines"] == 3
    assert any("evaluation score is not known" in note for note in stats["notes"])


def test_a_column_of_nothing_is_as_good_as_none():
    grid, per_machine = tables()
    expected = transfer_statistics(grid.drop(columns="dev_omega"), per_machine, n_draws=20)
    assert transfer_statistics(grid.assign(dev_omega=np.nan), per_machine, n_draws=20) == expected
    assert expected["signals"]["dev_score"] is None
    assert expected["signals"]["criterion"] is not None


@pytest.mark.parametrize(
    "configs",
    [
        ["raw-k1"],
        ["raw-k1", "conf-soft-m0-k1"],
        ["raw-k1", "raw-k2", "raw-k4"],
        ["raw-k1", "ratio-soft-k1", "zscore-soft-k1", "ldn-diff-K1"],
        ["conf-soft-m0-k1", "conf-soft-m10-k1", "conf-soft-m300-k1", "conf-soft-m7-k3"],
    ],
    ids=len,
)
@pytest.mark.parametrize("n_machines", [1, 2])
def test_no_grid_is_too_small(configs, n_machines):
    grid, per_machine = tables(configs, n_machines, n_machines)
    stats = plainly(transfer_statistics(grid, per_machine, n_draws=20))
    assert stats["n_configs"] == len(configs)
    assert stats["notes"], "something of this is undefined"


def test_three_machines_in_perfect_order_are_no_evidence():
    grid, per_machine = tables(["raw-k1", "conf-soft-m0-k1", "ratio-soft-k1"], 2, 1)
    order = per_machine.groupby("machine").ngroup()
    gain = np.where(per_machine["config"] == "raw-k1", 0, order)
    stats = transfer_statistics(grid, per_machine.assign(auc_target=60 + gain), n_draws=20)
    # two of the six orderings of three machines correlate as much
    assert stats["gain_and_separability"] == {"rho": 1.0, "p_naive": 2 / 6, "n_machines": 3}


def test_undefined_values_are_none_and_a_note_says_why():
    def criterion_of(grid, per_machine):
        stats = plainly(transfer_statistics(grid, per_machine, n_draws=20))
        return stats["signals"]["criterion"], " ".join(stats["notes"])

    found, notes = criterion_of(*tables(["raw-k1", "raw-k2", "raw-k4"]))
    assert found["rho"] is not None
    assert found["family_block"] is found["family_means"] is None
    assert "All configurations are of family raw: families cannot be resampled." in notes
    grid, per_machine = tables(NAMES[:9])
    found, notes = criterion_of(grid.assign(eval_omega=55.0), per_machine)
    assert found["rho"] is found["family_block"] is found["p_naive"] is None
    assert "one side is constant" in notes
    found, notes = criterion_of(*tables(n_dev=1))
    assert found["machine_bootstrap"] is None
    assert "Machines cannot be resampled" in notes
    grid, per_machine = tables()
    grid.loc[[0, 5], "crit_dev"] = np.nan
    found, notes = criterion_of(grid, per_machine)
    assert found["n"] == 49
    assert "Left out: 2 configurations without criterion or score." in notes


def test_coverage_without_raw_scores_has_no_ratio():
    grid, per_machine = tables()
    coverage = pd.DataFrame(
        {
            "machine": "fan",
            "nominal_fpr": 0.1,
            "domain": ["source", "target"],
            "system": "conf-soft-m0-k1",
            "empirical_fpr": [0.1, 0.3],
        }
    )
    (row,) = transfer_statistics(grid, per_machine, coverage=coverage, n_draws=5)["coverage"]
    assert (round(row["imbalance"], 9), round(row["mean_fpr"], 9)) == (0.2, 0.2)
    assert row["ratio_to_raw"] is None
    empty = transfer_statistics(grid, per_machine, coverage=coverage[:0], n_draws=5)
    assert empty["coverage"] == []


def test_a_table_without_splits_is_refused_by_name():
    grid, per_machine = tables()
    with pytest.raises(DacoError, match="no column 'split'"):
        transfer_statistics(grid, per_machine.drop(columns="split"))


# The frontier


def test_the_frontier_takes_the_strengths_that_the_grid_has():
    configs = ["conf-soft-m0-k1", "conf-soft-m2.5-k1", "conf-soft-m0-k2", "conf-soft-m0-ldnK1"]
    frontier = frontier_table(tables(configs, labels=("dev",))[1])
    assert frontier["variant"].tolist() == ["daco-m2.5", "daco-m0"]
    assert frontier["split"].unique().tolist() == ["dev"]
    assert frontier["m"].tolist() == [2.5, 0]


def test_the_frontier_of_an_unlabelled_study_is_empty():
    frontier = frontier_table(tables(labels=())[1])
    assert frontier.empty
    assert "signed_gap" in frontier
