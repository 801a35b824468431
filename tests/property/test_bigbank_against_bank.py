"""A bank that searches its neighbours agrees with NormalBank on banks nobody would think of."""

from __future__ import annotations

from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
import textbook
from hypothesis import given, settings
from hypothesis import strategies as st

import daco
from daco.method.bigbank import HNSW, IVF
from daco.method.distances import PairwiseDistances, unit_rows
from daco.method.neighbours import NearestSoFar

UNSERVED = ("pca", "memmix", "genrep-mix")
GRID = [
    config
    for config in dict.fromkeys(daco.frontier_grid()[::3] + daco.paper_grid()[::5])
    if all(part.scorer not in UNSERVED for part in config.base.parts())
]


@st.composite
def banks(draw):
    """Clips of ragged domains in any order, and new clips."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    sizes = draw(st.sampled_from([(60,), (50, 4), (4, 50), (30, 30, 3), (2, 3, 70), (90, 60)]))
    dim, n, n_test = draw(st.sampled_from([2, 3, 8, 33])), sum(sizes), draw(st.integers(1, 9))
    X = rng.standard_normal((n + n_test, dim))
    kind = draw(st.sampled_from(["generic", "lattice", "offset"]))
    if kind == "lattice":  # many exact ties and opposite directions
        X = np.round(X)
    elif kind == "offset":  # all cosines near 1, as in real embeddings
        X = X + 6
    if draw(st.booleans()):
        X[rng.integers(0, n, 4)] = X[rng.integers(0, n + n_test, 4)]  # duplicates
    if draw(st.booleans()):
        X[rng.integers(0, n + n_test, 2)] = 0  # zero rows: digital silence
    codes = np.repeat(np.arange(len(sizes)), sizes)
    X = X.astype(dtype)
    return X[:n], rng.permutation(codes) if draw(st.booleans()) else codes, X[n:]


def fitting(n_clips, grid=GRID):
    return [c for c in grid if max(p.neighbours for p in c.base.parts()) + 1 <= n_clips]


def same(got, expected, tolerance=1e-9):
    scale = np.maximum(np.abs(expected).max(axis=0), 1e-300)
    assert (np.abs(got - expected).max(axis=0) <= tolerance * scale).all()


@settings(max_examples=15, deadline=None)
@given(given_bank=banks(), budget=st.sampled_from([0, 2**28]), seed=st.integers(0, 99))
def test_flat_is_the_bank_itself(given_bank, budget, seed):
    X, codes, tests = given_bank
    plain = daco.NormalBank(X, codes, memory_budget=budget)
    flat = daco.NormalBank(X, codes, memory_budget=budget, index="flat")
    # Of many equal doubles any one is kept, another one on another processor; VarMin asks which.
    tied = X.dtype == np.float64 and bool((np.round(X) == X).all(axis=1).any())
    # Where distances are not kept, rows of short lists are multiplied again, and round otherwise.
    apart = ("varmin",) * tied + ("dldn",) * (budget == 0)
    served = [c for c in GRID if not any(p.scorer.startswith(apart) for p in c.base.parts())]
    grid = fitting(len(X), served)
    same(flat.score(tests, grid), plain.score(tests, grid))
    same(flat.leave_one_out(grid), plain.leave_one_out(grid))
    same(flat.domain_weights(tests), plain.domain_weights(tests))
    assert flat.separability() == plain.separability()
    sizes = np.bincount(codes)
    if len(sizes) > 1:
        grid = fitting(int((sizes - sizes // 2).sum()), served)
        got, expected = (bank.exact_balance(grid, 3, seed) for bank in (plain, flat))
        assert (got.counts == expected.counts).all()


@settings(max_examples=10, deadline=None)
@given(given_bank=banks())
def test_flat_scores_are_the_textbook_ones(given_bank):
    X, codes, tests = given_bank
    grid = [c for c in daco.paper_grid() if c.neighbours < len(X)]
    unit = unit_rows(X)
    d_bank, d_query = textbook.distances(unit, unit), textbook.distances(unit_rows(tests), unit)
    got = daco.NormalBank(X, codes, index="flat").score(tests, grid)
    for column, config in zip(got.T, grid, strict=True):
        expected = textbook.score(config, d_bank, d_query, codes)
        if config.assignment != "hard" and X.dtype == np.float64:  # a tie hangs on the last bit
            np.testing.assert_allclose(column, expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.sampled_from([(300,), (250, 40), (150, 140)]))
def test_an_index_that_finds_everything_changes_nothing(seed, sizes):
    pytest.importorskip("faiss")
    rng = np.random.default_rng(seed)
    X, tests = rng.normal(size=(sum(sizes), 12)) + 1, rng.normal(size=(7, 12)) + 1
    codes = np.repeat(np.arange(len(sizes)), sizes)
    plain = daco.NormalBank(X, codes)
    for index in (
        IVF(lists=4, probes=4, exact_below=0),
        HNSW(effort=400, candidates=300, exact_below=0),
    ):
        bank = daco.NormalBank(X, codes, index=index)
        same(bank.score(tests, GRID), plain.score(tests, GRID), 1e-8)
        same(bank.leave_one_out(GRID), plain.leave_one_out(GRID), 1e-8)
        if len(sizes) > 1:
            got, expected = (each.exact_balance(GRID, 2) for each in (bank, plain))
            assert (got.counts == expected.counts).all()


@settings(max_examples=8, deadline=None)
@given(given_bank=banks(), seed=st.integers(0, 99))
def test_tiles_on_a_device_change_nothing(given_bank, seed):
    pytest.importorskip("torch")
    from daco.method.bigbank import ondevice

    X, codes, tests = given_bank
    rng = np.random.default_rng(seed)  # ties would hang on the last bit of a product, and
    # distances of nearly parallel clips on the last few: four more features part them.
    X, tests = (np.hstack([rows, rng.normal(size=(len(rows), 4))]) for rows in (X, tests))
    plain, grid = daco.NormalBank(X, codes), fitting(len(X) // 2)
    with mock.patch.multiple(ondevice, _ROWS=16, _COLUMNS=32, _CHUNK=2):
        bank = daco.NormalBank(X, codes, index="flat", device="cpu:0")
        same(bank.score(tests, grid), plain.score(tests, grid), 1e-7)
        # Mutual neighbours tie, and a quantile map jumps at a tie of its own clips: there the last
        # bit of the two products decides. New clips have no such ties.
        smooth = [config for config in grid if config.calibration != "conf"]
        same(bank.leave_one_out(smooth), plain.leave_one_out(smooth), 1e-7)
        assert (bank.nearest(tests)[0] == plain.nearest(tests)[0]).all()
        if codes.max() and np.bincount(codes).min() > 1:
            got, expected = (each.exact_balance(grid, 2, seed) for each in (bank, plain))
            assert (got.counts == expected.counts).all()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float32, np.float64]),
    length=st.integers(1, 40),
    steps=st.integers(1, 6),
)
def test_the_nearest_so_far_are_those_of_a_stable_sort(seed, dtype, length, steps):
    rng = np.random.default_rng(seed)
    n, columns = int(rng.integers(1, 20)), int(rng.integers(1, 300))
    distance = np.abs(np.round(rng.normal(size=(n, columns)), 2)).astype(dtype)  # many ties
    distance[:, rng.integers(0, columns)] = np.inf
    found = NearestSoFar(n, length, dtype)
    edges = np.sort([0, *rng.integers(0, columns + 1, steps), columns])
    for start, stop in pairwise(edges):
        found.see(slice(0, n), np.ascontiguousarray(distance[:, start:stop]), int(start))
    kept = min(length, columns)
    order = np.argsort(distance, axis=1, kind="stable")[:, :kept]
    expected = np.take_along_axis(distance, order, axis=1)
    assert (found.distance[:, :kept] == expected).all()
    real, index = expected < np.inf, found.index[:, :kept]
    assert (np.take_along_axis(distance, index, axis=1)[real] == expected[real]).all()
    if dtype == np.float32:  # of equal doubles at the end of a list any one is kept
        assert (index[real] == order[real]).all()
    assert np.isinf(found.distance[:, kept:]).all()


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_unit_rows_in_another_order_are_the_rows_of_that_order(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(50, 5)) * 10.0 ** rng.choice([0, -200, 200], size=(50, 1))
    X[3] = 0
    order = rng.permutation(50)
    with mock.patch("daco.method.distances._ROWS_AT_ONCE", 7):
        got = unit_rows(X, order)
    assert (got == unit_rows(X[order])).all()
    assert len(PairwiseDistances(got)) == 50
