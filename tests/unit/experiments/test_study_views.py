"""A study of several views, and the blend among its rules."""

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


def test_the_blend_is_a_rule_over_all_views(table, result):
    metrics = []
    for machine in table.machines:
        train, test = (table.select(machine=machine, split=s) for s in ("train", "test"))
        bank = daco.NormalBank(train.views, train.column("domain"))
        scores = bank.score(test.views, "blend")
        metrics.append(grid_metrics(scores, test.column("label"), test.column("domain")).values)
    row = rule(result, "blend")
    # a half rank at a tie may fall the other way
    assert row["dev_omega"] == pytest.approx(100 * harmonic_mean(np.ravel(metrics)), abs=0.5)
    assert (row["config"], row["labels"], row["eval_omega"]) == ("blend", "none", None)
    assert row["dev_omega"] > rule(result, "fixed")["dev_omega"] + 10


def test_other_configurations_see_the_first_view(table, result):
    first = daco.study(table, grid=GRID, readout="mod", n_splits=5, workers=1)
    np.testing.assert_allclose(first.grid["dev_omega"], result.grid["dev_omega"], atol=0.5)
    assert rule(first, "blend")["dev_omega"] < rule(result, "blend")["dev_omega"]


def test_a_blend_in_the_grid_is_compared_like_any_other(table):
    result = daco.study(
        table.select(machine="fan"),
        table.select(machine="pump"),
        grid=["blend", *GRID],
        readout="mod+cep",
        n_splits=5,
        workers=1,
    )
    against = {delta["against"] for delta in result.selection["deltas"]}
    assert {"dev pick", "fixed default", "oracle"} <= against
    assert rule(result, "blend")["crit_dev"] is not None


def test_tables_of_other_lengths_are_refused(table):
    other = EmbeddingTable(table.columns, {"mod": table.matrix("mod")[:, :5].copy()}, {})
    renamed = EmbeddingTable(
        {**other.columns, "machine": other.columns["machine"] + "2"}, other.matrices, {}
    )
    with pytest.raises(daco.DacoError, match="6 in the dev table and 5 in the eval table"):
        daco.study(table, renamed, grid=GRID, readout="mod", workers=1)
