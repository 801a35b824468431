"""A study of several views: the blend has all of them, other configurations the first."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import daco

study = partial(daco.study, grid=["raw-k1", "conf-soft-m0-k1"], n_splits=5, workers=1)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    parts = {"mod": rng.normal(size=(160, 6)) + 2, "cep": rng.normal(size=(160, 4)) + 2}
    label = ([0] * 50 + [0, 1] * 15) * 2
    parts["cep"][np.array(label) == 1] += [4, -4, 0, 0]
    return daco.EmbeddingTable.from_arrays(
        parts,
        machine=["fan"] * 80 + ["pump"] * 80,
        split=(["train"] * 50 + ["test"] * 30) * 2,
        domain=(["source"] * 40 + ["target"] * 10 + ["source", "source", "target", "target"] * 7
                + ["source", "target"]) * 2,
        label=label,
    )  # fmt: skip


def test_the_blend_has_all_views_and_others_the_first(table):
    both, first = (study(table, readout=readout) for readout in ("mod+cep", "mod"))
    names = ["raw-k1", "conf-soft-m0-k1"]
    np.testing.assert_allclose(both.clips[names], first.clips[names], rtol=1e-6)
    for machine in table.machines:
        train, test = (table.select(machine=machine, split=s) for s in ("train", "test"))
        bank = daco.NormalBank(train.views, train.column("domain"))
        rows = both.test_clips[both.test_clips["machine"] == machine]
        # Rounding may move a score by half a rank, which is a quarter of a standard deviation here.
        difference = rows["blend"] - bank.score(test.views, "blend")[:, 0]
        assert abs(difference).max() < 0.25
        assert abs(difference).median() < 1e-6
    scores = both.rules().set_index("rule")["dev_score"]
    assert scores["blend"] > scores["fixed"] + 10


def test_tables_of_other_lengths_are_refused(table):
    columns = {**table.columns, "machine": table.columns["machine"] + "2"}
    other = daco.EmbeddingTable(columns, {"mod": table.matrix("mod")[:, :5].copy()}, {})
    with pytest.raises(daco.DacoError, match="6 in the dev table and 5 in the eval table"):
        study(table, other, readout="mod")
