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
from daco.method.domains import DecisionWeights, hard_weights, oracle_weights, soft_weights

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


def domain_distances(rows, codes):
    """The nearest and the 10 % quantile of the finite distances of each clip to each domain."""
    nearest = [[row[codes == g].min() for g in range(3)] for row in rows]
    tenth = [
        [np.quantile(row[(codes == g) & np.isfinite(row)], 0.1) for g in range(3)] for row in rows
    ]
    return np.array(nearest), np.array(tenth)


def literal_logits(within, rows, codes):
    """The soft weight times how usual the distances to every domain are among its normals."""
    nearest, tenth = domain_distances(within, codes)
    of_domain = [codes == g for g in range(3)]
    temperature = np.mean([np.median(nearest[mine, g]) for g, mine in enumerate(of_domain)])
    spread = np.array([np.log(tenth[mine]).var(axis=0) for mine in of_domain])
    sizes = np.array([mine.sum() for mine in of_domain])
    common = (sizes[:, None] * spread).sum(axis=0) / sizes.sum()
    nearest_of_clips, tenth_of_clips = domain_distances(rows, codes)
    logits = []
    for g, mine in enumerate(of_domain):  # the common spread counts as much as that of ten clips
        variance = (sizes[g] * spread[g] + 10 * common) / (sizes[g] + 10) + 1e-9
        deviation = np.log(tenth_of_clips) - np.log(tenth[mine]).mean(axis=0)
        density = -0.5 * (deviation**2 / variance + np.log(variance)).sum(axis=1)
        logits.append(density - nearest_of_clips[:, g] / temperature)
    return np.array(logits).T


def test_weights_of_the_decision_are_as_defined():
    """Means of the logits of three views; hidden normals do not count."""
    rng = np.random.default_rng(0)
    sizes = 27, 11, 4
    codes, starts = np.repeat([0, 1, 2], sizes), np.concatenate([[0], np.cumsum(sizes)])
    within = rng.uniform(0.1, 1, (3, 42, 42))
    within[:, range(42), range(42)] = np.inf
    clips = rng.uniform(0.1, 1, (3, 9, 42))
    clips[:, 3, 5:12] = np.inf
    found = DecisionWeights(within, codes, starts).of(clips)
    views = zip(within, clips, strict=True)
    shares = np.exp(np.mean([literal_logits(*view, codes) for view in views], axis=0))
    assert_allclose(found, shares / shares.sum(axis=1, keepdims=True), rtol=1e-9)


def test_weights_of_a_clip_do_not_depend_on_the_clips_beside_it():
    """Also where it is so far away that its densities leave the range of floats."""
    codes, starts = np.repeat([0, 1], [6, 6]), np.array([0, 6, 12])
    within = 1 + np.random.default_rng(1).uniform(0, 1e-3, (12, 12))
    weights = DecisionWeights([within], codes, starts)
    clips = np.stack([within[0], 1e9 * within[1]])
    alone = np.concatenate([weights.of([row[None]]) for row in clips])
    assert_allclose(weights.of([clips]), alone)


def test_where_a_domain_is_hidden_whole_the_nearest_normal_stands_in():
    codes, starts = np.repeat([0, 1], [6, 2]), np.array([0, 6, 8])
    within = np.random.default_rng(1).uniform(0.1, 1, (8, 8))
    weights = DecisionWeights([within], codes, starts)
    hidden, visible = np.array([[0.3, 0.4, 0.5, 0.6, 0.7, 0.8, np.inf, np.inf]] * 2)
    visible[6:] = 0.3
    assert_allclose(weights.of([hidden[None]]), weights.of([visible[None]]))
