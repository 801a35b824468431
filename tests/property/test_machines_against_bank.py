"""Machines on a device agree with NormalBank, on banks a person would not think of."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from same_products import same_products

import daco
from daco.method.bases import parse_base
from daco.method.config import ScoreConfig
from daco.method.machines import evaluate_machines

torch = pytest.importorskip("torch")

SIGNED = [ScoreConfig(parse_base("ldn-diff-K1"), "conf", "soft", 10)]
SIGNED += [ScoreConfig(parse_base("ldn-diff-K1"), "zscore", "hard")]
GRID = [*daco.paper_grid(), *SIGNED]
BANDED = [*GRID, *daco.frontier_grid(bands=4)[51::3]]


@st.composite
def fleets(draw):
    """Machines of one shape, their domains in any order, test clips, and whether clips may tie."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    sizes = draw(st.sampled_from([(30, 4), (20, 2), (4, 30), (12, 12, 3), (2, 3, 40), (60, 60)]))
    dim = draw(st.sampled_from([1, 2, 3, 8, 33]))
    count, n, n_test = draw(st.integers(1, 3)), sum(sizes), draw(st.integers(1, 6))
    X = rng.standard_normal((count, n + n_test, dim))
    kind = draw(st.sampled_from(["generic", "lattice", "offset"]))
    if kind == "lattice":  # many exact ties and opposite directions
        X = np.round(X)
    elif kind == "offset":  # all cosines near 1, as in real embeddings
        X = X + 6
    copies, silence = draw(st.booleans()), draw(st.booleans())
    if copies:
        X[:, rng.integers(0, n, 4)] = X[:, rng.integers(0, n + n_test, 4)]
    if silence:
        X[:, rng.integers(0, n + n_test, 2)] = 0  # zero rows: digital silence
    X = (X * 10.0 ** draw(st.sampled_from([0, 0, -30, 30]))).astype(dtype)
    codes = np.repeat(np.arange(len(sizes)), sizes)
    domains = [rng.permutation(codes) if draw(st.booleans()) else codes for _ in range(count)]
    return X[:, :n], domains, X[:, n:], dim == 1 or kind == "lattice" or copies or silence


def fitting(n_clips):
    return [config for config in GRID if config.base.neighbours + 1 <= n_clips]


def close(got, expected):
    scale = np.maximum(np.abs(expected).max(axis=0), 1e-300)
    assert (np.abs(got - expected).max(axis=0) <= 1e-9 * scale).all()


@settings(max_examples=20, deadline=None)
@given(given_fleet=fleets(), n_splits=st.integers(1, 4), seed=st.integers(0, 99))
def test_everything_follows_from_the_same_products(given_fleet, n_splits, seed):
    X, domains, tests, tied = given_fleet
    sizes = np.bincount(domains[0])
    grid = fitting(int((sizes - sizes // 2).sum()))
    with same_products():
        found = evaluate_machines(X, domains, tests, grid, n_splits, seed, device="cpu")
    for m, each in enumerate(found):
        bank = daco.NormalBank(X[m], domains[m])
        close(each.scores, bank.score(tests[m], grid))
        close(each.own, bank.leave_one_out(grid))
        expected = bank.exact_balance(grid, n_splits, seed)
        # Where clips tie, a calibrated score's last bit decides: exponentials and sums have theirs.
        sure = [not tied or config.calibration is None for config in grid]
        assert (each.balance.counts == expected.counts)[sure].all()
        assert (each.balance.denominators == expected.denominators).all()
        np.testing.assert_allclose(each.uniformity, bank.uniformity(grid, n_splits, seed), 1e-9)
        assert each.separability == pytest.approx(bank.separability(), abs=1e-12)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), dim=st.sampled_from([5, 32, 500]))
def test_own_products_change_no_integer_of_a_well_conditioned_machine(seed, dim):
    rng = np.random.default_rng(seed)
    X, tests = rng.normal(size=(2, 50, dim)) + 1, rng.normal(size=(2, 7, dim)) + 1
    domains = ["a"] * 40 + ["b"] * 10
    found = evaluate_machines(X, [domains] * 2, tests, GRID, device="cpu")
    for m, each in enumerate(found):
        bank = daco.NormalBank(X[m], domains)
        close(each.scores, bank.score(tests[m], GRID))
        assert (each.balance.counts == bank.exact_balance(GRID).counts).all()


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_configuration_of_bands_is_that_of_the_bank(seed):
    rng = np.random.default_rng(seed)
    X, tests = rng.normal(size=(2, 60, 24)) + 1, rng.normal(size=(2, 7, 24)) + 1
    domains = ["a"] * 45 + ["b"] * 15
    found = evaluate_machines(X, [domains] * 2, tests, BANDED, 2, bands=4, device="cpu")
    for m, each in enumerate(found):
        bank = daco.NormalBank(X[m], domains, bands=4)
        close(each.scores, bank.score(tests[m], BANDED))
        close(each.own, bank.leave_one_out(BANDED))
        assert (each.balance.counts == bank.exact_balance(BANDED, 2).counts).all()
