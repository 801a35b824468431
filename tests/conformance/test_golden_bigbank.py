"""A bank that searches its neighbours, on the golden machines and on real ones."""

from __future__ import annotations

import numpy as np
import pytest
from golden_machines import MACHINES, Machine, scaled_error
from real_tables import real_table

import daco
from daco.method.bigbank import HNSW, IVF


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["f32", "f64"])
@pytest.mark.parametrize("name", [name for name in MACHINES if name.startswith("small")])
def test_flat_gives_the_golden_scores_and_criterion(name, dtype):
    machine = Machine(name, dtype)
    bank = machine.bank(index="flat", memory_budget=0)
    got = bank.score(machine.X_test, machine.names)
    assert scaled_error(got.T, machine["scores"], machine.names).max() < machine.score_tolerance
    machine.assert_same_splits(bank.balance_splits(machine.names, 10))


@pytest.mark.parametrize("machine", ["fan", "bearing"])
def test_approximate_indexes_find_nearly_all_on_real_machines(machine):
    pytest.importorskip("faiss")
    table = real_table(machine)
    train, tests = table.select(split="train"), table.select(split="test").matrix()
    X, domains = train.matrix(), train.column("domain")
    plain = daco.NormalBank(X, domains)
    grid = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1"]
    expected = plain.score(tests, grid)
    for index in (IVF(probes=8, exact_below=0), HNSW(exact_below=0)):
        bank = daco.NormalBank(X, domains, index=index)
        found = bank.recall(grid, tests)
        assert found.found[1] > 0.98
        change = np.abs(bank.score(tests, grid) - expected)
        assert np.quantile(change / expected.std(axis=0), 0.95, axis=0).max() < 0.02
