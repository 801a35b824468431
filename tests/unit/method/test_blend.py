"""The blend: normal scores of its members, of all views and of external scorers."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import IsolationForest

import daco
from daco.errors import NotEnoughClipsError
from daco.method.blend import blend_members, normal_scores, view_blend
from daco.method.calibration import Support

DOMAINS = ["old"] * 50 + ["new"] * 12
IFOREST = {"iforest": IsolationForest(n_estimators=10)}


@pytest.fixture
def machine():
    """Two views of normals and of other clips."""
    rng = np.random.default_rng(7)
    views = {"mod": rng.normal(size=(62, 6)) + 1, "cep": rng.normal(size=(62, 8)) + 1}
    return views, {"mod": rng.normal(size=(25, 6)), "cep": 30 * rng.normal(size=(25, 8))}


@given(st.integers(0, 2**16), st.integers(2, 40))
def test_within_the_range_of_the_normals_only_ranks_count(seed, n):
    rng = np.random.default_rng(seed)
    loo = np.sort(rng.normal(size=(1, n)))
    scores = np.minimum(rng.normal(size=(1, 30)), loo[0, -1])
    assert_array_equal(normal_scores(np.exp(loo), np.exp(scores)), normal_scores(loo, scores))
    assert normal_scores(loo, loo).mean() == pytest.approx(0, abs=1e-12)
    assert normal_scores(loo, np.median(loo)[None, None]) == pytest.approx(0, abs=1e-12)


def test_a_normal_score_is_the_quantile_of_the_mid_rank_with_a_tail():
    """Ranks 0, 1/2, 1, 3/2, 5/2 and 3 of three normals; the last is one scale above them."""
    found = normal_scores(np.array([[0.1, 0.2, 0.3]]), np.array([[0, 0.1, 0.15, 0.2, 0.3, 0.4]]))
    quantiles = [NormalDist().inv_cdf((rank + 0.5) / 4) for rank in (0, 0.5, 1, 1.5, 2.5, 3)]
    assert_allclose(found[0], np.add(quantiles, [0, 0, 0, 0, 0, 9 / 10]), atol=1e-12)


def test_beyond_the_normals_scores_rise_up_to_a_limit():
    loo, beyond = np.linspace(0, 1, 40)[None], np.array([[1.0, 1.1, 2.0, 5.0, 1e9]])
    found = normal_scores(loo, beyond)[0]
    assert (np.diff(found) > 0).all()
    assert found[-1] < 12


def test_a_member_whose_normals_are_all_equal_does_not_count():
    spread, equal = np.linspace(0, 1, 9)[None], np.ones((1, 9))
    scores, starts = [np.array([[0.7]]), np.array([[2.0]])], np.array([0, 9])
    supports = [Support(spread, starts), Support(equal, starts)]
    assert view_blend(scores, supports) == normal_scores(spread, scores[0])
    assert view_blend(scores[1:], supports[1:]) == 9  # unless there is no other
    supports[0] = Support(np.array([[0.0] * 8 + [1]]), starts)  # one that is larger is a scale
    assert view_blend(scores, supports) == normal_scores(supports[0].pooled, scores[0])
    assert_array_equal(normal_scores(equal, np.array([[0.5, 1.0, 1.5]])), [[0, 0, 9]])


def test_a_blend_is_the_mean_over_views(machine):
    X, Y = machine
    by_view = [daco.NormalBank(X[v], DOMAINS).score(Y[v], "blend")[:, 0] for v in X]
    bank = daco.NormalBank(X, DOMAINS)
    examined = bank.examine(Y, "blend")
    assert_allclose(examined.by_view.T, by_view)
    assert_allclose(examined.scores, np.mean(by_view, axis=0))
    assert bank.examine(Y, "raw-k1").by_view is None


def test_small_banks_blend_the_members_that_they_support():
    assert [len(blend_members(n)) for n in (3, 5, 16, 17)] == [1, 3, 3, 4]
    X = np.random.default_rng(0).normal(size=(3, 4))
    assert np.isfinite(daco.NormalBank(X).score(X + 1, ["blend", "conf-soft-m0-blend"])).all()
    with pytest.raises(NotEnoughClipsError, match="'blend' needs a bank of 3"):
        daco.NormalBank(X[:2]).score(X, "blend")


def test_external_scorers_are_views_only_of_the_blends_that_name_them(machine):
    X, Y = machine
    plain, bank = daco.NormalBank(X, DOMAINS), daco.NormalBank(X, DOMAINS, scorers=IFOREST)
    for name in ("blend", "conf-soft-m0-blend"):
        assert_array_equal(bank.score(Y, name), plain.score(Y, name))
        assert_array_equal(bank.leave_one_out(name), plain.leave_one_out(name))
        assert_array_equal(bank.balance(name, 3), plain.balance(name, 3))
    joint = bank.examine(Y, "blend+iforest")
    assert_allclose(joint.by_view[:, :2], plain.examine(Y, "blend").by_view)
    loo, alone = bank.leave_one_out("ext-iforest"), bank.score(Y, "ext-iforest")
    assert_allclose(joint.by_view[:, 2], normal_scores(np.sort(loo.T), alone.T)[0])
    assert_allclose(joint.scores, joint.by_view.mean(axis=1))
    assert (joint.scores != plain.score(Y, "blend")[:, 0]).all()
