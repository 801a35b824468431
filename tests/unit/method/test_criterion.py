"""The criterion: held-out halves, exact KS distances, and their resamples."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_array_equal
from scipy.stats import ks_2samp

import daco
from daco.errors import InputError, NotEnoughClipsError
from daco.method.criterion import _resample_plan, held_out_halves, ks_counts, resampled_ks
from daco.method.paper import ks_distance

GRID = ["raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", "blend"]
scores = arrays(np.float64, st.integers(1, 30), elements=st.floats(-1e6, 1e6))
few_values = st.lists(st.integers(0, 3), min_size=1, max_size=60)  # also above the counting limit


def bank(sizes, seed=0, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(sum(sizes), 6)) + 1
    X[sizes[0] :, 0] += shift
    return daco.NormalBank(X, np.repeat([f"d{g}" for g in range(len(sizes))], sizes))


@pytest.mark.filterwarnings("ignore::RuntimeWarning:scipy")  # its p-values, not its statistic
@given(scores | few_values, scores | few_values)
def test_ks_is_scipys(a, b):
    count = ks_counts(np.array([a], float), np.array([b], float))[0]
    assert count / (len(a) * len(b)) == pytest.approx(ks_2samp(a, b).statistic, abs=1e-12)


@pytest.mark.filterwarnings("ignore::RuntimeWarning:scipy")
@given(st.integers(0, 2**16), st.sampled_from([(7, 4), (3, 9), (6, 5, 2)]))
def test_ks_of_a_resample_is_that_of_repeated_clips(seed, sizes):
    """The mean over pairs of domains that the resample has clips of."""
    rng = np.random.default_rng(seed)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    values = rng.integers(0, 6, (2, starts[-1])).astype(float)
    copies = rng.integers(0, 2, (8, starts[-1]))
    copies[0], copies[1, starts[1] :] = 0, 0
    found = resampled_ks(values, copies, starts)
    assert np.isnan(found[:, :2]).all()
    for row, resample in np.ndindex(2, 8):
        parts = [np.repeat(values[row, a:b], copies[resample, a:b]) for a, b in pairwise(starts)]
        pairs = [ks_2samp(a, b).statistic for a, b in combinations(parts, 2) if len(a) and len(b)]
        if pairs:
            assert found[row, resample] == pytest.approx(np.mean(pairs), abs=1e-12)
        else:
            assert np.isnan(found[row, resample])


def test_halves_hold_out_half_of_each_domain_rounded_down():
    held = held_out_halves([9, 4, 2], n_splits=50, seed=0)
    counts = np.add.reduceat(held, [0, 9, 13], axis=1, dtype=int)
    assert (counts == [4, 2, 1]).all()
    assert_array_equal(held_out_halves([9, 4, 2], 50, np.random.default_rng(0)), held)


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


def test_splits_are_deterministic_and_nest():
    """So many splits are scored in several parts."""
    many = bank((190, 10)).exact_balance(GRID, 200, seed=3).splits
    assert_array_equal(bank((190, 10)).exact_balance(GRID, 10, seed=3).splits, many[:, :10])
    assert (bank((190, 10)).exact_balance(GRID, 200, seed=4).splits != many).any()
    by_default, seeded = (
        bank((30, 9)).exact_balance(GRID, 5, **each) for each in ({}, {"seed": 0})
    )
    assert_array_equal(by_default.splits, seeded.splits)
    assert bank((4, 4)).exact_balance("raw-k1").splits.shape == (1, 200)
    assert_array_equal(bank((30, 9)).balance(GRID, 5), seeded.values)


def test_a_shift_between_domains_is_seen_and_calibration_removes_it():
    alike = bank((60, 30)).balance(["raw-k1"])[0]
    raw, calibrated = bank((60, 30), shift=3).balance(["raw-k1", "conf-hard-m0-k1"])
    assert raw > alike + 0.1
    assert calibrated < raw - 0.1


def test_a_resample_is_the_mean_over_its_splits_of_repeated_held_out_clips():
    X, codes = np.random.default_rng(2).normal(size=(19, 3)), np.repeat([0, 1], [12, 7])
    copies, splits = _resample_plan([12, 7], n_splits=6, n_resamples=8, seed=0)
    expected = []
    for times, drawn in zip(copies, splits, strict=True):
        distances = []
        for held in held_out_halves([12, 7], 6, 0)[drawn]:
            scores = daco.NormalBank(X[~held], codes[~held]).score(X[held], "raw-k1")[:, 0]
            rows = np.repeat(np.arange(9), times[held])  # 6 and 3 clips are held out
            if len(set(rows < 6)) == 2:
                distances.append(ks_distance(scores[rows[rows < 6]], scores[rows[rows >= 6]]))
        expected.append(np.mean(distances))
    found = daco.NormalBank(X, codes).exact_balance("raw-k1", 6, seed=0, n_resamples=8)
    assert found.resampled[0] == pytest.approx(expected, abs=1e-12)


def test_resamples_leave_the_splits_alone_however_many_are_scored_at_once(monkeypatch):
    whole = bank((30, 9)).exact_balance(GRID, 12, n_resamples=20)
    assert_array_equal(bank((30, 9)).exact_balance(GRID, 12).splits, whole.splits)
    monkeypatch.setattr("daco.method.criterion._MIN_SPLITS", 5)
    monkeypatch.setattr("daco.method.criterion._SPLIT_BYTES", 0)
    parts = bank((30, 9)).exact_balance(GRID, 12, n_resamples=20)
    assert_array_equal(parts.splits, whole.splits)
    assert_array_equal(parts.resampled, whole.resampled)


def test_resamples_vary_more_with_fewer_clips_around_the_criterion():
    """Repeated clips make a KS distance larger, the more so the fewer there are."""
    found = {n: bank((200, n)).exact_balance(GRID, 100, n_resamples=100) for n in (10, 50, 200)}
    spread = [balance.resampled.std(axis=1) for balance in found.values()]
    excess = [balance.resampled.mean(axis=1) - balance.values for balance in found.values()]
    assert (np.diff(spread, axis=0) < 0).all()
    assert (np.diff(excess, axis=0) < 0).all()
    assert (np.abs(excess[-1]) < 0.05).all()
    assert np.isfinite(bank((20, 2)).exact_balance("raw-k1", 50, n_resamples=50).resampled).all()


def test_what_has_no_criterion_is_named():
    with pytest.raises(NotEnoughClipsError, match="only one"):
        bank((20,)).balance("raw-k1")
    with pytest.raises(NotEnoughClipsError, match="'d1' has 1"):
        bank((30, 1)).balance("raw-k1")
    with pytest.raises(NotEnoughClipsError, match=r"'ldn-ratio-K16' needs .* 16 clips .*of 32\)"):
        bank((16, 16)).balance("ldn-ratio-K16")
    assert np.isfinite(bank((5, 4)).balance("raw-k4"))  # 3 and 2 stay: the 4 nearest of one of them
    with pytest.raises(InputError, match=r"'conf-oracle-m0-k1'.*'soft'"):
        bank((20, 10)).balance("conf-oracle-m0-k1")
    for wrong in ({"n_splits": 0}, {"seed": -1}, {"seed": "a"}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}'"):
            bank((20, 10)).balance("raw-k1", **wrong)
