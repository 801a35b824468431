"""Normals as if they were new: which others are hidden from each, and what that does to scores."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_what_cannot_be_hidden_is_refused():
    bank = daco.NormalBank(recordings(10, 3))
    for wrong in (-1, 1.5, "all", None):
        with pytest.raises(InputError, match="'siblings'"):
            bank.examine_normals("raw-k1", wrong)
    with pytest.raises(NotEnoughClipsError, match="'raw-k4' needs a bank of 5"):
        daco.NormalBank(recordings(2, 2)).examine_normals("raw-k4")
