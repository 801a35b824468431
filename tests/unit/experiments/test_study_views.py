"""A study of several views, and the vote among its rules."""

from __future__ import annotations

import numpy as np
import pytest

import daco
from daco.data.table import EmbeddingTable
from daco.evaluation.metrics import grid_metrics, harmonic_mean

GRID = ["raw-k1", "conf-soft-m0-k1"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    parts = {"mod": rng.normal(size=(160, 6)) + 2, "cep": rng.normal(size=(160, 4)) + 2}
    label = ([0] * 50 + [0, 1] * 15) * 2
    parts["cep"][np.array(label) == 1] += [4, -4, 0, 0]
    return EmbeddingTable.from_arrays(
        parts,
        machine=["fan"] * 80 + ["pump"] * 80,
        split=(["train"] * 50 + ["test"] * 30) * 2,
        domain=(["source"] * 40 + ["target"] * 10 + ["source", "source", "target", "target"] * 7
                + ["source", "target"]) * 2,
        label=label,
    )  # fmt: skip


@pytest.fixture(scope="module")
def result(table):
    return daco.study(table, grid=GRID, readout="mod+cep", n_splits=5, workers=1)


def rule(result, name):
    (row,) = [row for row in result.selection["rows"] if row["rule"] == name]
    return row


def test_the_vote_is_a_rule_over_all_views(table, result):
    metrics = []
    for machine in table.machines:
        train, test = (table.select(machine=machine, split=s) for s in ("train", "test"))
        bank = daco.NormalBank(train.views, train.column("domain"))
        scores = bank.score(test.views, "vote")
        metrics.append(grid_metrics(scores, test.column("label"), test.column("domain")).values)
    row = rule(result, "vote")
    # a half rank at a tie may fall the other way
    assert row["dev_omega"] == pytest.approx(100 * harmonic_mean(np.ravel(metrics)), abs=0.5)
    assert (row["config"], row["labels"], row["eval_omega"]) == ("vote", "none", None)
    assert row["dev_omega"] > rule(result, "fixed")["dev_omega"] + 10


def test_configurations_see_the_first_view(table, result):
    first = daco.study(table, grid=GRID, readout="mod", n_splits=5, workers=1)
    np.testing.assert_allclose(first.grid["dev_omega"], result.grid["dev_omega"], atol=0.5)
    assert rule(first, "vote")["dev_omega"] < rule(result, "vote")["dev_omega"]


def test_labels_change_the_score_of_a_vote_and_nothing_that_is_scored(table, result):
    swapped = daco.study(
        EmbeddingTable(
            {**table.columns, "label": np.array([
                1 - label if split == "test" else label
                for label, split in zip(table.columns["label"], table.columns["split"],
                                        strict=True)])},
            table.matrices,
        ),
        grid=["vote", *GRID], readout="mod+cep", n_splits=5, workers=1,
    )  # fmt: skip
    kept = daco.study(table, grid=["vote", *GRID], readout="mod+cep", n_splits=5, workers=1)
    for one, other in zip(swapped.machine_scores(), kept.machine_scores(), strict=True):
        np.testing.assert_array_equal(one.of("vote"), other.of("vote"))


def test_a_vote_in_the_grid_is_compared_like_any_other(table):
    result = daco.study(
        table.select(machine="fan"),
        table.select(machine="pump"),
        grid=["vote", *GRID],
        readout="mod+cep",
        n_splits=5,
        workers=1,
    )
    against = {delta["against"] for delta in result.selection["deltas"]}
    assert {"dev pick", "fixed default", "oracle"} <= against
    assert rule(result, "vote")["crit_dev"] is not None
