"""The engine agrees with the textbook on banks a person would not think of."""

from __future__ import annotations

import numpy as np
import textbook
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import of_distances

import daco
from daco.method.distances import cosine_distances, unit_rows
from daco.method.kernels import use_kernels

PAPER = daco.paper_grid()
KERNELS = ("numba", "numpy")


@st.composite
def banks(draw):
    """Embeddings grouped by domain, with domain numbers, and test clips."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    shape = draw(
        st.sampled_from(
            [(17,), (30, 4), (20, 2), (4, 30), (12, 12, 3), (2, 3, 40), (35, 5), (9, 1)]
        )
    )
    dim = draw(st.sampled_from([1, 2, 3, 8, 33, 3000]))
    n, n_test = sum(shape), draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["generic", "lattice", "offset", "equal"]))
    X = rng.standard_normal((n + n_test, dim))
    if kind == "lattice":  # many exact ties and opposite directions
        X = np.round(X)
    elif kind == "offset":  # all cosines near 1, as in real embeddings
        X = X + 6
    elif kind == "equal":  # all normals alike
        X[:n] = X[0]
    if draw(st.booleans()):
        X[:, : dim // 2] = 1.0  # constant columns
    if draw(st.booleans()):
        X[rng.integers(0, n, 4)] = X[rng.integers(0, n + n_test, 4)]  # duplicates
    if draw(st.booleans()):
        X[rng.integers(0, n + n_test, 2)] = 0  # zero rows: digital silence
    far = 30 if dtype == np.float32 else 280
    X = X * 10.0 ** draw(st.sampled_from([0, 0, -far, far]))
    codes = np.repeat(np.arange(len(shape)), shape)
    return X[:n].astype(dtype), codes, X[n:].astype(dtype)


def fitting(configs, n_clips):
    return [c for c in configs if c.base.neighbours + 1 <= n_clips]


def textbook_distances(X, X_test):
    """Distances within the bank and of test clips, of the engine's own products.

    Ties are decided by the last bit of a product, and a product of the same factors in another
    order may round differently: both sides start from the same ones, which are near the
    textbook's.
    """
    unit, tests = unit_rows(X), unit_rows(X_test)
    found = cosine_distances(unit, unit), cosine_distances(unit, tests).T
    for ours, other in zip(found, (unit, tests), strict=True):
        tolerance = of_distances(X.shape[1], X.dtype) + textbook.NOISE * np.finfo(X.dtype).eps
        np.testing.assert_allclose(ours, textbook.distances(other, unit), rtol=0, atol=tolerance)
    return found


@settings(max_examples=60, deadline=None)
@given(given_bank=banks())
def test_unit_rows(given_bank):
    X, _, _ = given_bank
    tolerance = 4 * np.finfo(X.dtype).eps
    np.testing.assert_allclose(unit_rows(X), textbook.unit(X), rtol=tolerance, atol=tolerance)


def close(got, expected):
    scale = np.maximum(np.abs(expected).max(axis=0), 1e-300)
    return np.abs(got - expected).max(axis=0) <= 1e-9 * scale


@settings(max_examples=80, deadline=None)
@given(given_bank=banks())
def test_scores(given_bank):
    X, codes, X_test = given_bank
    grid = fitting(PAPER, len(X))
    d_bank, d_query = textbook_distances(X, X_test)
    expected = np.array([textbook.score(c, d_bank, d_query, codes) for c in grid]).T
    for kernels in KERNELS:
        with use_kernels(kernels):
            got = daco.NormalBank(X, codes).score(X_test, grid)
        wrong = [c.name for c, ok in zip(grid, close(got, expected), strict=True) if not ok]
        assert not wrong, kernels


@settings(max_examples=60, deadline=None)
@given(given_bank=banks(), n_splits=st.integers(1, 3), seed=st.integers(0, 99))
def test_criterion(given_bank, n_splits, seed):
    X, codes, _ = given_bank
    sizes = np.bincount(codes)
    if len(sizes) == 1 or min(sizes) == 1:
        return
    grid = fitting(PAPER, int((sizes - sizes // 2).sum()))
    d_bank, _ = textbook_distances(X, X)
    expected = [textbook.split_ks(c, d_bank, codes, n_splits, seed) for c in grid]
    for kernels in KERNELS:
        with use_kernels(kernels):
            got = daco.NormalBank(X, codes).balance_splits(grid, n_splits, seed)
        differ = np.abs(got - expected).max(axis=1) > 1e-12
        wrong = [c.name for c, differs in zip(grid, differ, strict=True) if differs]
        assert not wrong, kernels


@settings(max_examples=60, deadline=None)
@given(given_bank=banks())
def test_leave_one_out_is_scoring_a_bank_without_the_clip(given_bank):
    """For base scores; a calibrated one also leaves the clip in its own map."""
    X, codes, _ = given_bank
    grid = [
        c for c in fitting(PAPER, len(X) - 1) if c.calibration is None and c.base.scorer == "knn"
    ]
    got = daco.NormalBank(X, codes).leave_one_out(grid)
    d = textbook.left_out(textbook_distances(X, X)[0])
    expected = np.array([textbook.mean_of_nearest(d, c.base.neighbours) for c in grid]).T
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(given_bank=banks(), seed=st.integers(0, 2**16))
def test_kernels_agree(given_bank, seed):
    """To rounding; a KS distance of quantiles may hang on it where clips tie, and is left out."""
    X, codes, X_test = given_bank
    results = []
    for name in KERNELS:
        with use_kernels(name):
            bank = daco.NormalBank(X, codes)
            grid = fitting(PAPER, len(X) // 2 - 1)
            plain = [config for config in grid if config.calibration is None]
            balanced = plain and len(bank.domains) > 1 < min(bank.domain_sizes.values())
            splits = bank.balance_splits(plain, 3, seed) if balanced else 0
            results.append((bank.score(X_test, grid), splits))
    for first, second in zip(*results, strict=True):
        np.testing.assert_allclose(first, second, rtol=1e-9, atol=1e-9)


@settings(max_examples=60, deadline=None)
@given(given_bank=banks(), seed=st.integers(0, 2**16), power=st.integers(-8, 8))
def test_cosine_scores_do_not_depend_on_the_scale_of_any_clip(given_bank, seed, power):
    X, codes, X_test = given_bank
    grid = fitting(PAPER, len(X))
    scale = 2.0 ** np.random.default_rng(seed).integers(-power - 9, 9, (len(X), 1))
    got = daco.NormalBank((X * scale).astype(X.dtype), codes).score(X_test * 2.0**power, grid)
    np.testing.assert_array_equal(got, daco.NormalBank(X, codes).score(X_test, grid))


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), names=st.permutations(["old", "new", "spare"]))
def test_neither_the_order_of_clips_nor_domain_names_matter(seed, names):
    """Up to rounding, on clips in general position (ties are broken by name)."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((60, 12)) + 1
    codes = rng.integers(0, 3, 60)
    codes[:9] = [0, 0, 0, 1, 1, 1, 2, 2, 2]
    X_test = rng.standard_normal((20, 12)) + 1
    expected = daco.NormalBank(X, codes).score(X_test, PAPER)
    order = rng.permutation(60)
    got = daco.NormalBank(X[order], [names[c] for c in codes[order]]).score(X_test, PAPER)
    assert close(got, expected).all()
