"""Normals as if they were new: which others are hidden from each, and what that does to scores."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import daco
from daco.errors import InputError, NotEnoughClipsError


def recordings(count, size, noise=0.1, dim=16, seed=0):
    """`count` recordings of `size` clips each."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(count, dim)) + 1, size, axis=0)
    return X + noise * rng.normal(size=X.shape)


def hidden(X, siblings="auto", sessions=(), domains=None):
    return daco.NormalBank(X, domains).examine_normals("raw-k1", siblings, sessions).hidden


@pytest.mark.parametrize("dim", [4, 16, 64])
def test_of_independent_clips_few_have_likely_siblings(dim):
    """By chance, three in ten clips have one; the margin is for vectors of few dimensions."""
    found = hidden(np.random.default_rng(dim).normal(size=(400, dim)) + 1)
    assert np.mean(found > 0) < 0.4
    assert found.mean() < 1


@pytest.mark.parametrize("size", [2, 3, 5, 10])
def test_clips_of_one_recording_are_siblings(size):
    found = hidden(recordings(240 // size, size))
    assert np.median(found) == size - 1
    assert np.mean(found < size - 1) < 0.05


def test_siblings_are_looked_for_in_each_view():
    """The most that are hidden in any view are counted."""
    independent = np.random.default_rng(1).normal(size=(200, 8))
    views = {"a": independent, "b": recordings(40, 5)}
    assert np.median(hidden(views)) == 4
    assert np.median(hidden(independent)) == 0


def test_no_more_than_a_tenth_of_a_domain_is_taken_for_siblings():
    X = np.vstack([recordings(20, 5), recordings(4, 2)])
    found = hidden(X, domains=["a"] * 100 + ["b"] * 8)
    assert found[:100].max() <= 10
    assert set(found[100:]) == {0}


def test_a_number_hides_as_many_but_leaves_two_thirds_of_a_domain():
    X, domains = recordings(20, 3), ["a"] * 48 + ["b"] * 12
    assert set(hidden(X, 3, domains=domains)) == {3}
    assert set(hidden(X, 10, domains=domains)[48:]) == {4}
    assert set(hidden(X, 0, domains=domains)) == {0}


def test_a_known_session_is_hidden_in_place_of_siblings():
    X = recordings(20, 3)
    takes = [f"take {row // 3}" for row in range(60)]
    assert set(hidden(X, 9, takes)) == {2}
    half = hidden(X, 9, ["", *takes[1:30], *[""] * 30])
    assert_array_equal(half[:4], [9, 1, 1, 2])
    assert set(half[30:]) == {9}


def test_scores_rise_with_the_number_of_hidden_clips():
    bank = daco.NormalBank(recordings(20, 3), ["a"] * 45 + ["b"] * 15)
    found = [bank.examine_normals("raw-k1", count) for count in (0, 1, 2, 5, 9)]
    rise = np.diff([each.scores for each in found], axis=0)
    assert (rise >= 0).all()
    assert (rise.max(axis=1) > 0).all()
    assert_allclose(found[0].scores, bank.leave_one_out("raw-k1")[:, 0])
    assert_allclose([each.distance for each in found], [each.scores for each in found])


def test_what_cannot_be_hidden_is_refused():
    bank = daco.NormalBank(recordings(10, 3))
    for wrong in (-1, 1.5, "all", None):
        with pytest.raises(InputError, match="'siblings'"):
            bank.examine_normals("raw-k1", wrong)
    with pytest.raises(NotEnoughClipsError, match="'raw-k4' needs a bank of 5"):
        daco.NormalBank(recordings(2, 2)).examine_normals("raw-k4")
