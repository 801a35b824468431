"""The engine against stored textbook results: a clone without shared data tests this much."""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import ROOT

import daco
from daco.kernels import use_kernels


@pytest.mark.parametrize("kernels", ["numba", "numpy"])
@pytest.mark.parametrize("name", ["paper_like", "three_domains", "many_targets"])
def test_scores_and_splits(name, kernels):
    golden = np.load(ROOT / "tests" / "golden" / "own_method.npz")
    configs = [str(config) for config in golden["configs"]]
    with use_kernels(kernels):
        bank = daco.NormalBank(golden[f"{name}.X"], golden[f"{name}.domains"])
        scores = bank.score(golden[f"{name}.X_test"], configs)
        splits = bank.balance_splits(configs, n_splits=4, seed=3)
    expected = golden[f"{name}.scores"]
    # float64 distances of other processors differ by some ulp; scores are up to 1e2 in size.
    np.testing.assert_allclose(scores, expected, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(splits, golden[f"{name}.splits"], atol=1e-12)
