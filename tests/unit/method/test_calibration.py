"""Quantile maps, other calibrations, and the weights of domains."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

import daco
from daco.method import paper
from daco.method.calibration import quantile_maps
from daco.method.domains import hard_weights, oracle_weights, soft_weights

finite = st.floats(-1e6, 1e6, allow_subnormal=False)
samples = arrays(np.float64, st.integers(1, 30), elements=finite)


@given(samples, samples, st.booleans())
def test_a_quantile_map_is_the_papers_and_keeps_the_order(loo, scores, signed):
    scores = np.sort(scores)
    mapped = quantile_maps(np.sort(loo)[None], scores[None], signed)[0]
    assert_allclose(mapped, paper.quantile_map(loo, scores, signed), atol=1e-12)
    assert (np.diff(mapped) >= -1e-15).all()
    assert (mapped >= 0).all()
    assert (mapped <= 1).all()


def test_one_domain_and_infinite_strength_give_the_pooled_map():
    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(40, 5)), rng.normal(size=(9, 5))
    pooled = daco.NormalBank(X).score(X_test, ["conf-soft-m0-k1", "conf-hard-m300-k1"])
    bank = daco.NormalBank(X, ["a"] * 20 + ["b"] * 20)
    limit = bank.score(X_test, "conf-soft-m100000000000-k1")[:, 0]
    assert_allclose(pooled[:, 0], limit, atol=1e-8)
    assert_allclose(pooled[:, 0], pooled[:, 1], atol=1e-15)


def test_weights():
    distance = np.array([[0.2, 0.5, 0.3], [0.4, 0.1, 0.3]])
    soft = soft_weights(distance, 0.1)
    assert_allclose(soft.sum(axis=0), 1)
    assert soft[0, 0] == pytest.approx(1 / (1 + np.exp(-2)))
    assert (hard_weights(distance) == [[1, 0, 1], [0, 1, 0]]).all()
    assert (oracle_weights([1, 1, 0], 2) == [[0, 0, 1], [1, 1, 0]]).all()
    angles = np.deg2rad([0, 20, 35, 15, 70])  # the second and the fourth are nearest to each other
    X = np.column_stack([np.cos(angles), np.sin(angles)])
    assert daco.NormalBank(X, list("aaabb")).separability() == pytest.approx((1 / 3 + 0) / 2)


def test_a_temperature_of_zero_is_a_hard_choice():
    """Copies have no typical distance; weights are exact there as well."""
    soft = soft_weights([[0.3, 0.2], [0.4, 0.2]], 0.0)
    assert_allclose(soft, [[1, 0.5], [0, 0.5]])
