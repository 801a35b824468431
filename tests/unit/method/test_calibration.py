"""Quantile maps, domain weights and KS distances on their own."""

from __future__ import annotations

import numpy as np
import pytest
import textbook
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import ks_2samp, kstest

import daco
from daco.errors import InputError
from daco.method.calibration import QuantileMap
from daco.method.criterion import (
    CHOICE_SPLITS,
    PAPER_SPLITS,
    Balance,
    h0_floor,
    held_out_halves,
    ks_distance,
    uniformity_ks,
)
from daco.method.domains import hard_weights, oracle_weights, separability, soft_weights
from daco.method.scorers import genrep_scores

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
scores = arrays(np.float64, st.integers(1, 30), elements=finite)


@given(scores, scores)
def test_quantile_map_is_the_textbook_one(calibration, values):
    got = QuantileMap.fit(calibration)(values)
    np.testing.assert_allclose(got, textbook.quantile_map(calibration, values), atol=1e-12)


@given(scores, scores)
def test_quantile_map_keeps_order_and_stays_below_one(calibration, values):
    mapped = QuantileMap.fit(calibration)(np.sort(values))
    assert (np.diff(mapped) >= -1e-15).all()
    assert (mapped >= 0).all()
    assert (mapped <= 1).all()


@given(scores)
def test_quantile_map_puts_sorted_scores_at_their_plotting_positions(calibration):
    x = np.sort(np.unique(calibration))
    positions = np.arange(1, len(x) + 1) / (len(x) + 1)
    np.testing.assert_allclose(QuantileMap.fit(x)(x), positions, atol=1e-12)


@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=20, unique=True), st.floats(0.001, 0.999)
)
def test_inverse_leads_back(calibration, level):
    to_quantile = QuantileMap.fit(calibration)
    assert to_quantile(to_quantile.inverse(level)) == pytest.approx(level, abs=1e-6)


def test_quantile_map_refuses_what_is_no_distribution():
    with pytest.raises(InputError, match="at least one finite score"):
        QuantileMap.fit([])
    with pytest.raises(InputError, match="1 not finite"):
        QuantileMap.fit([1, np.nan])
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        QuantileMap.fit([1.0]).inverse(1.0)
    with pytest.raises(InputError, match="NaN has no quantile"):
        QuantileMap.fit([1.0])([0.0, np.nan])
    assert QuantileMap.fit([1.0, 2.0])([np.inf, -np.inf]).tolist() == [1.0, 0.0]
    with pytest.raises(InputError, match="NaN"):
        ks_distance([np.nan, 1], [1, 2])


@pytest.mark.filterwarnings("ignore::RuntimeWarning:scipy")  # its p-values, not its statistic
@given(scores, scores)
def test_ks_is_scipys(a, b):
    assert ks_distance(a, b) == pytest.approx(ks_2samp(a, b).statistic, abs=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:scipy")
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=60),
    st.lists(st.integers(0, 3), min_size=25, max_size=60),
)
def test_ks_with_ties_in_large_samples_is_scipys(a, b):
    assert ks_distance(a, b) == pytest.approx(ks_2samp(a, b).statistic, abs=1e-12)


@given(arrays(np.float64, st.integers(1, 40), elements=st.floats(0, 1)))
def test_uniformity_is_scipys(values):
    assert uniformity_ks(values) == pytest.approx(kstest(values, "uniform").statistic, abs=1e-12)


@pytest.mark.statistical
def test_h0_floor_is_the_published_one():
    floor = h0_floor(495, 5, n_splits=10, n_simulations=8000)
    # Converged: mean 0.3594, sd 0.0348 (standard errors of 8,000 runs: 0.0004, 0.0003).
    assert floor.mean == pytest.approx(0.3594, abs=0.0016)
    assert floor.sd == pytest.approx(0.0348, abs=0.0012)
    # Published 0.357, sd 0.032, and 0.0123 for a mean of 7 machines, from an unstated number of
    # runs; these are within two standard errors of 200 runs (0.0025, 0.0017, 0.0007).
    assert floor.mean == pytest.approx(0.357, abs=2 * 0.0025)
    assert floor.sd == pytest.approx(0.032, abs=2 * 0.0017)
    assert floor.sd / np.sqrt(7) == pytest.approx(0.0123, abs=2 * 0.0007)


@pytest.mark.statistical
@pytest.mark.parametrize("n_splits", [PAPER_SPLITS, CHOICE_SPLITS])
def test_the_spread_of_banks_without_shift_lies_between_the_two_floors(n_splits):
    """One bank per simulation, both domains alike: what the criterion does under H0."""
    rng = np.random.default_rng(0)
    domains = ["a"] * 20 + ["b"] * 10
    values = [
        daco.NormalBank(rng.normal(size=(30, 20)), domains).balance("raw-k1", n_splits)[0]
        for _ in range(1500)
    ]
    fresh = h0_floor(10, 5, n_splits, n_simulations=3000)
    reused = h0_floor(10, 5, n_splits, n_simulations=3000, reuse_clips=True)
    # The target half sees other neighbours than the source half: 5 % beside the noise.
    assert np.mean(values) == pytest.approx(fresh.mean, rel=0.05)
    assert reused.mean == pytest.approx(fresh.mean, rel=0.02)
    assert fresh.sd < np.std(values) < reused.sd


def test_halves_hold_out_half_of_each_domain_rounded_down():
    held = held_out_halves([9, 4, 2], n_splits=50, seed=0)
    assert (held[:, :9].sum(axis=1) == 4).all()
    assert (held[:, 9:13].sum(axis=1) == 2).all()
    assert (held[:, 13:].sum(axis=1) == 1).all()
    generator = np.random.default_rng(0)
    assert (held_out_halves([9, 4, 2], 50, generator) == held).all()


def test_halves_hold_out_whole_sessions():
    """Of 3 equal sessions one is divided, because the half has 1.5; clips without one are free."""
    sessions = np.array(["a", "b", "c", "d"] * 3 + ["x", "y", "z"] * 2 + [""] * 4 + list("abcd"))
    held = held_out_halves([12, 6, 4, 4], 100, 0, sessions.tolist())
    assert (held.sum(axis=1) == 6 + 3 + 2 + 2).all()
    for first, last, divided in ((0, 12, 0), (12, 18, 1)):
        part, names = held[:, first:last], sessions[first:last]
        shares = np.stack([part[:, names == name].mean(axis=1) for name in set(names)])
        assert (((shares > 0) & (shares < 1)).sum(axis=0) == divided).all()
    assert len(np.unique(held[:, 18:22], axis=0)) == 6  # every pair of single clips
    assert (held[:, :4] == held[:, 22:]).all()  # of sessions of two domains, both parts


def test_exact_ties_of_the_criterion_are_integers():
    counts = np.array([[[1, 5], [2, 0]], [[0, 5], [3, 0]], [[0, 5], [3, 0]]])
    balance = Balance(counts, np.array([6, 15]))
    assert balance.exact() == [3 * 5 + 5 * 2] * 3
    assert balance.best() == 0
    assert len(set(balance.values.tolist())) == 1


def test_weights():
    distance = np.array([[0.2, 0.5, 0.3], [0.4, 0.1, 0.3]])
    soft = soft_weights(distance, 0.1)
    np.testing.assert_allclose(soft.sum(axis=0), 1)
    assert soft[0, 0] == pytest.approx(1 / (1 + np.exp(-2)))
    assert (hard_weights(distance) == [[1, 0, 1], [0, 1, 0]]).all()
    assert (oracle_weights([1, 1, 0], 2) == [[0, 0, 1], [1, 1, 0]]).all()
    assert separability(distance, [0, 1, 1]) == 0.75
    with pytest.raises(InputError, match="one domain code per clip"):
        separability(distance, [0, 1])


def test_a_temperature_of_zero_is_a_hard_choice():
    soft = soft_weights([[0.0, 0.2], [0.1, 0.2]], 0.0)
    np.testing.assert_allclose(soft, [[1, 0.5], [0, 0.5]])


def test_genrep_scores_of_members_are_centred_and_divided_by_the_spread_of_the_target():
    """A clip as far from its domain as its members are on average scores 0."""
    rng = np.random.default_rng(5)
    own = rng.random((1, 2, 40))
    starts, members = np.array([0, 34, 40]), np.ones((1, 40), bool)
    typical = np.array([[[own[0, 0, :34].mean(), 9.0], [9.0, own[0, 1, 34:].mean()]]])
    np.testing.assert_allclose(genrep_scores(own, members, starts, typical), 0, atol=1e-12)
    first, second = genrep_scores(own, members, starts, np.array([[[0.3, 0.5], [9.0, 9.0]]]))[0]
    assert second - first == pytest.approx(0.2 / own[0, 1, 34:].std())


def test_genrep_of_a_target_with_one_member_is_finite():
    own = np.array([[[0.1, 0.2, 0.3, 0.5], [0.5, 0.5, 0.5, np.inf]]])
    clips = np.array([[[0.4], [0.2]]])
    scores = genrep_scores(own, np.ones((1, 4), bool), np.array([0, 3, 4]), clips)
    assert scores[0, 0] == pytest.approx(0, abs=1e-12)
    alone = genrep_scores(
        np.full((1, 2, 2), np.inf), np.ones((1, 2), bool), np.array([0, 1, 2]), clips
    )
    assert alone[0, 0] == 0.2  # nothing to standardise by
