"""Normals as if they were new: which others are hidden from each, and what that does to scores."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

import daco
from daco.errors import InputError, NotEnoughClipsError
from daco.method.siblings import _growth, hide_siblings


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


def distances_of(X):
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    return np.where(np.eye(len(X), dtype=bool), np.inf, 1 - unit @ unit.T)


def literal_growth(ordered):
    """How much faster distances grow later than at the first neighbours, mean over three steps."""
    n = ordered.shape[1]
    reach = int(min(n**0.5, n / 10))
    if reach < 4:
        return 1.0
    steps = [np.log(ordered[:, k] / ordered[:, k - 1]).mean() for k in range(1, reach + 4)]
    growth = [k * step for k, step in enumerate(steps, start=1)]
    smooth = [np.mean(growth[k : k + 3]) for k in range(reach + 1)]
    return max(smooth[1:reach]) / smooth[0]


def literal_hidden(d):
    """Nearer than chance explains, and up to 1 % where distances grow; a tenth at most."""
    n, ordered = d.shape[1], np.sort(d, axis=1)
    least = round(0.01 * n * np.clip((literal_growth(ordered) - 1.5) / 0.25, 0, 1))
    low, middle = (n - 1) // 10, (n - 1) // 2
    z = [NormalDist().inv_cdf(each / n) for each in (low + 1, middle + 1, 0.3)]
    result = []
    for row, others in zip(d, np.argsort(d, axis=1), strict=True):
        a, b = np.cbrt(np.sort(row)[[low, middle]])
        limit = max(b + (a - b) * (z[2] - z[1]) / (z[0] - z[1]), 0) ** 3
        near = [row[other] < limit or rank < least for rank, other in enumerate(others[: n // 10])]
        result.append(set(others[: n // 10][near].tolist()))
    return result


@pytest.mark.parametrize(
    "X",
    [
        recordings(300, 1),
        recordings(60, 5, noise=0.5),
        recordings(30, 10, noise=1.1),
        recordings(20, 10, noise=1.4),
        recordings(40, 10, noise=1.0, dim=4),
        recordings(100, 10, noise=1.2, dim=64),
        recordings(4, 10),
        recordings(39, 1),
        recordings(67, 3, noise=0.9),
        recordings(3, 3),
    ],
    ids=lambda X: f"{len(X)}x{X.shape[1]}",
)
def test_what_is_hidden_is_what_the_rule_says(X):
    d = distances_of(X)
    expected = literal_hidden(d)
    before = np.isinf(d)
    counts = hide_siblings(d, np.arange(len(d)), np.array([0, len(d)]))
    found = [set(np.flatnonzero(row).tolist()) for row in np.isinf(d) & ~before]
    assert found == expected
    assert counts.tolist() == [len(each) for each in expected]


@pytest.mark.parametrize("size", [39, 40, 44, 54, 72, 99, 110, 1200])
def test_growth_is_as_defined_for_some_clips_of_a_domain(size):
    within = distances_of(recordings(size // 3, 3, noise=0.8))[::2]
    assert _growth(within) == pytest.approx(literal_growth(np.sort(within, axis=1)))


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
