"""The bank computes what the literal paper does, on banks that a person would not think of.

Ties are decided by the last bit of a distance, and a product of the same factors in another order
may round differently: both sides start from the distances that the bank computes. Mean ranks tie as
well, so both sides use the same normal quantiles.
"""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtri
from tolerances import of_distances

import daco
from daco.method import paper
from daco.method.config import parse_grid
from daco.method.distances import NOISE_ULPS, cosine_distances, unit_rows

PAPER = daco.paper_grid()
ORACLE = parse_grid(["conf-oracle-m0-k1", "conf-oracle-m30-k2", "ratio-oracle-ldnK1"])
MEANS = parse_grid(["ldn-mean-K1", "ldn-mean-K4"])
SLOPES = parse_grid(["varmin-K1", "varmin-K4", "conf-soft-m1-varmin-K4", "zscore-hard-varmin-K4"])
SLOPES += parse_grid(["conf-soft-m0-ldn-mean-K4", "conf-hard-m30-ldn-diff-K1"])
BLENDS = parse_grid(["blend", "conf-soft-m0-blend", "conf-hard-m30-blend", "zscore-soft-blend"])
AS_IF_NEW = parse_grid(["raw-k4", "ldn-ratio-K1", "conf-soft-m0-k1", "conf-soft-m10-ldnK1"])
AS_IF_NEW += [*SLOPES[1:4], *BLENDS[:2]]
EVERY = [*PAPER, *MEANS, *SLOPES, *BLENDS]
BASE_SCORES = paper.base_scores
SHAPES = [(17,), (30, 4), (20, 2), (4, 30), (12, 12, 3), (2, 3, 40), (35, 5), (9, 1)]


@pytest.fixture(autouse=True, scope="module")
def _normal_quantiles():
    quantiles = SimpleNamespace(inv_cdf=ndtri)
    with mock.patch.object(paper, "NormalDist", return_value=quantiles):
        yield


class Case(NamedTuple):
    """Clips of a bank in each view, grouped by domain, their domains, and other clips."""

    views: list
    codes: np.ndarray
    clips: list

    def bank(self):
        return daco.NormalBank(named(self.views), self.codes)

    def distances(self):
        """(V, N, N) within the bank, and (V, n, N) of the clips to it."""
        units = [(unit_rows(X), unit_rows(Y)) for X, Y in zip(self.views, self.clips, strict=True)]
        within = [cosine_distances(X, X) for X, _ in units]
        return np.array(within), np.array([cosine_distances(X, Y).T for X, Y in units])

    def fitting(self, grid, n_clips):
        needed = {"blend": 3}
        return [c for c in grid if needed.get(c.scorer, c.k + 1) <= n_clips]


def named(views):
    return {f"view {number}": X for number, X in enumerate(views)}


@st.composite
def cases(draw, ties=True):
    """Banks with ties, copies and silence in either precision; or float64 in general position."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from(SHAPES))
    n, n_clips = sum(shape), draw(st.integers(1, 9))
    dtype = draw(st.sampled_from([np.float32, np.float64])) if ties else np.float64
    views = []
    for _ in range(draw(st.integers(1, 3))):
        dim = draw(st.sampled_from([1, 2, 3, 8, 33, 2000] if ties else [3, 8, 33]))
        X = rng.standard_normal((n + n_clips, dim)) + draw(st.sampled_from([0, 6]))
        views.append(_with_ties(draw, rng, X, n, dtype) if ties else X)
    codes = np.repeat(np.arange(len(shape)), shape)
    return Case([X[:n].astype(dtype) for X in views], codes, [X[n:].astype(dtype) for X in views])


def _with_ties(draw, rng, X, n, dtype):
    kind = draw(st.sampled_from(["generic", "lattice", "equal"]))
    if kind == "lattice":  # many exact ties and opposite directions
        X = np.round(X)
    elif kind == "equal":  # all normals alike
        X[:n] = X[0]
    if draw(st.booleans()):
        X[:, : X.shape[1] // 2] = 1.0  # constant columns
    if draw(st.booleans()):
        X[rng.integers(0, n, 4)] = X[rng.integers(0, len(X), 4)]  # copies
    if draw(st.booleans()):
        X[rng.integers(0, len(X), 2)] = 0  # digital silence
    far = 30 if dtype == np.float32 else 280
    return X * 10.0 ** draw(st.sampled_from([0, 0, -far, far]))


def different(grid, got, expected, tolerance=1e-9):
    """Names of the configurations (rows) whose values differ, relative to the largest."""
    got, expected = np.asarray(got), np.asarray(expected)
    assert np.isfinite(got).all()
    scale = np.maximum(np.abs(expected).max(axis=1), 1e-300)
    wrong = ~(np.abs(got - expected).max(axis=1) <= tolerance * scale)
    return [config.name for config, each in zip(grid, wrong, strict=True) if each]


@settings(max_examples=20)
@given(cases())
def test_distances(case):
    found = case.distances()
    for X, Y, within, others in zip(case.views, case.clips, *found, strict=True):
        unit, clips = paper.unit_rows(X), paper.unit_rows(Y)
        eps = np.finfo(X.dtype).eps
        assert_allclose(unit_rows(X), unit, rtol=4 * eps, atol=4 * eps)
        tolerance = of_distances(X.shape[1], X.dtype) + NOISE_ULPS * eps
        assert_allclose(within, paper.cosine_distances(unit, unit), rtol=0, atol=tolerance)
        assert_allclose(others, paper.cosine_distances(clips, unit), rtol=0, atol=tolerance)


def score_with_ties(config, d_bank, d, codes, true_codes=None):
    """As `paper.score`, from distances in either precision; calibrations are in float64."""
    both = paper.base_scores(config.scorer, config.k, d_bank, d)
    loo, scores = (x.astype(np.float64) for x in both)
    if config.calibration is None:
        return scores
    d = d.astype(np.float64)
    weights = paper.domain_weights(config.assignment, d, codes, np.median(loo), true_codes)
    kind, m = config.calibration, config.m
    return paper.calibrated_scores(kind, m, loo, scores, codes, weights, signed=False)


@settings(max_examples=25)
@given(cases(), st.integers(0, 2**16))
def test_scores_of_clips_and_of_left_out_normals_with_ties(case, seed):
    grid, codes, bank = [*PAPER, *ORACLE, *MEANS], case.codes, case.bank()
    grid = case.fitting(grid, len(codes))
    d_bank, d = (views[0] for views in case.distances())
    true = np.random.default_rng(seed).choice(codes, len(d))
    got = bank.score(named(case.clips), grid, domains=true)
    expected = [score_with_ties(config, d_bank, d, codes, true) for config in grid]
    assert not different(grid, got.T, expected)
    d = paper.without_self(d_bank)
    expected = [score_with_ties(config, d_bank, d, codes, codes) for config in grid]
    assert not different(grid, bank.leave_one_out(grid).T, expected)


@settings(max_examples=25)
@given(cases(ties=False))
def test_scores_of_clips_and_of_left_out_normals(case):
    grid, bank = case.fitting(EVERY, len(case.codes)), case.bank()
    d_bank, d = case.distances()
    left_out = np.array([paper.without_self(each) for each in d_bank])
    for got, rows in (
        (bank.score(named(case.clips), grid), d),
        (bank.leave_one_out(grid), left_out),
    ):
        expected = [paper.score(config, d_bank, rows, case.codes) for config in grid]
        assert not different(grid, got.T, expected)


@settings(max_examples=25)
@given(cases(), st.integers(1, 3), st.integers(0, 99))
def test_criterion_of_every_split_with_ties(case, n_splits, seed):
    """Of base scores: rounding can break a tie of two calibrated scores."""
    grid = [config for config in (*PAPER, *MEANS) if config.calibration is None]
    assert_same_criterion(case, grid, n_splits, seed)


@settings(max_examples=25)
@given(cases(ties=False), st.integers(1, 3), st.integers(0, 99))
def test_criterion_of_every_split(case, n_splits, seed):
    assert_same_criterion(case, EVERY, n_splits, seed)


def assert_same_criterion(case, grid, n_splits, seed):
    sizes = np.bincount(case.codes)
    assume(len(sizes) > 1 and min(sizes) > 1)
    grid = case.fitting(grid, (sizes - sizes // 2).sum())
    got = case.bank().exact_balance(grid, n_splits, seed).splits
    d_bank, _ = case.distances()
    expected = [paper.criterion(config, d_bank, case.codes, n_splits, seed) for config in grid]
    assert not different(grid, got, expected, 1e-12)


def left_out_scores(codes, scorer, k, d_bank, d):
    """As `paper.base_scores` of the bank's own clips, each left out of the densities as well.

    A normal whose domain has no further neighbour keeps the mean distance of those that remain.
    """
    loo, scores = BASE_SCORES(scorer, k, d_bank, d)
    if scorer == "knn":
        return loo, scores
    d_loo = paper.without_self(d_bank) / 2
    whole = paper.sum_of_nearest(d_loo, k)
    slope = paper.varmin_slope(2 * d_loo, whole / k)
    is_small = np.isin(np.bincount(codes)[codes], [k, k + 1])
    for clip in range(len(d)):
        density = paper.sum_of_nearest(np.delete(d_loo, clip, axis=1), k)
        remain = is_small & (density > whole) & (k > 1)
        density[remain] = k / max(k - 1, 1) * (whole - d_loo[clip])[remain]
        density = np.maximum(density, 1e-12)
        factor = {"ldn-mean": 1 / k, "varmin": slope / k}.get(scorer, 1)
        normals, distance = np.arange(len(d)) != clip, d[clip] / 2
        score = distance / density if scorer == "ldn-ratio" else distance - factor * density
        scores[clip] = score[normals].min()
    return loo, scores


def hidden_clips(d, codes, clip, siblings, sessions):
    """The session of a clip, or its nearest clips of the same domain."""
    if sessions[clip]:
        return [o for o in range(len(d)) if sessions[o] == sessions[clip]]
    mates = [o for o in np.flatnonzero(codes == codes[clip]) if o != clip]
    mates.sort(key=lambda other: d[clip, other])
    return mates[: min(siblings, (len(mates) + 1) // 3)]


@settings(max_examples=20)
@given(cases(ties=False), st.sampled_from([0, 1, 4, 30]), st.integers(0, 99))
def test_normals_as_if_they_were_new(case, siblings, seed):
    """Sessions have three clips; those of a third of them are not known."""
    codes, n = case.codes, len(case.codes)
    assume(n != 17)  # without one clip, the others have no 16 neighbours
    takes = np.random.default_rng(seed).permutation(n) // 3
    sessions = [f"take {take}" if take % 3 else "" for take in takes]
    d_bank, _ = case.distances()
    d = np.array([paper.without_self(each) for each in d_bank])
    for view in d:
        hidden = [hidden_clips(view, codes, clip, siblings, sessions) for clip in range(n)]
        for clip, others in enumerate(hidden):
            view[clip, others] = np.inf
    for config in case.fitting(AS_IF_NEW, n):
        got = case.bank().examine_normals(config, siblings, sessions)
        with mock.patch.object(paper, "base_scores", partial(left_out_scores, codes)):
            expected = paper.score(config, d_bank, d, codes)
        assert not different([config], [got.scores], [expected])
        assert_array_equal(got.nearest, d[0].argmin(axis=1))
        assert_array_equal(got.hidden, (np.isinf(d).sum(axis=2) - 1).max(axis=0))


@settings(max_examples=8)
@given(cases(ties=False))
def test_blocks_change_nothing(case):
    """Distances of five clips at a time, lists that are too short, one split at a time.

    Left out are the ranks of normals: in a product of another shape, the distances of two clips
    from each other may differ in the last bit, and an LDN ratio of 1 is then a tie no more.
    """
    kept, sizes = case.bank(), np.bincount(case.codes)
    grid = [c for c in EVERY if c.scorer != "blend" or c.calibration is None]
    grid = case.fitting(grid, (sizes - sizes // 2).sum())
    rows = 5 * kept._banks[0].unit.itemsize * len(kept)
    blocks = {"distances._BLOCK_BYTES": rows, "distances._ROWS_AT_ONCE": 7, "scores._ROWS": 5,
              "distances._list_length": lambda k, n: min(n - 1, k), "bank._QUERY_BYTES": rows,
              "bank.MEMORY_BUDGET": 0, "criterion._SPLIT_BYTES": 0,
              "criterion._MIN_SPLITS": 1}  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for name, value in blocks.items():
            patch.setattr(f"daco.method.{name}", value)
        bank = case.bank()
        scores = bank.score(named(case.clips), grid)
        examined = bank.examine_normals("conf-soft-m0-varmin-K4")
        weights = bank.domain_weights(named(case.clips))
        splits = bank.exact_balance(grid, 3).splits if len(sizes) > 1 < min(sizes) else None
    assert not different(grid, scores.T, kept.score(named(case.clips), grid).T)
    assert_allclose(examined.scores, kept.examine_normals("conf-soft-m0-varmin-K4").scores)
    assert_allclose(weights, kept.domain_weights(named(case.clips)), rtol=1e-9)
    if splits is not None:
        assert_array_equal(splits, kept.exact_balance(grid, 3).splits)


@settings(max_examples=20)
@given(cases(), st.integers(0, 2**16), st.integers(-8, 8))
def test_the_scale_of_a_clip_does_not_matter(case, seed, power):
    grid = case.fitting(EVERY, len(case.codes))
    rng = np.random.default_rng(seed)
    scaled = [X * 2.0 ** rng.integers(-9, 9, (len(X), 1)).astype(X.dtype) for X in case.views]
    clips = [Y * Y.dtype.type(2.0**power) for Y in case.clips]
    other = case._replace(views=scaled, clips=clips)
    got = other.bank().score(named(clips), grid)
    assert_array_equal(got, case.bank().score(named(case.clips), grid))


@settings(max_examples=20)
@given(cases(ties=False), st.integers(0, 2**16), st.permutations(["old", "new", "spare"]))
def test_neither_the_order_of_clips_nor_names_of_domains_matter(case, seed, names):
    grid, clips = case.fitting(EVERY, len(case.codes)), named(case.clips)
    order = np.random.default_rng(seed).permutation(len(case.codes))
    domains = [names[code] for code in case.codes[order]]
    bank = daco.NormalBank(named([X[order] for X in case.views]), domains)
    assert not different(grid, bank.score(clips, grid).T, case.bank().score(clips, grid).T)
    got, expected = bank.examine_normals("blend"), case.bank().examine_normals("blend")
    assert_allclose(got.scores, expected.scores[order], rtol=1e-6)
    assert_array_equal(order[got.nearest], expected.nearest[order])
