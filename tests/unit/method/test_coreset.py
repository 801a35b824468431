"""A coreset: how well it covers, and what it keeps of every domain."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.errors import InputError
from daco.method.coreset import choose_normals
from daco.method.distances import unit_rows


def radius(unit, chosen):
    """The largest Euclidean distance of a row to its nearest chosen one."""
    return np.linalg.norm(unit[:, None] - unit[None, list(chosen)], axis=2).min(axis=1).max()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(4, 11), st.integers(2, 4), st.sampled_from([2, 8]))
def test_no_choice_of_as_many_clips_has_half_the_radius(seed, n, count, dim):
    unit = unit_rows(np.random.default_rng(seed).normal(size=(n, dim)))
    best = min(radius(unit, chosen) for chosen in combinations(range(n), count))
    assert radius(unit, choose_normals(unit, None, count)) <= 2 * best + 1e-9


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([990, 10], 200, [190, 10]),  # a small domain is not reduced
        ([500, 400], 100, [50, 50]),
        ([500, 10, 300], 101, [46, 10, 45]),
        ([5, 5], 100, [5, 5]),
    ],
)
def test_large_domains_are_reduced_to_one_size_and_small_ones_are_not(sizes, total, expected):
    domains = np.repeat(np.arange(len(sizes)), sizes)
    X = np.random.default_rng(1).normal(size=(sum(sizes), 4))
    chosen = choose_normals(X, domains, total)
    assert np.bincount(domains[chosen]).tolist() == expected
    assert (np.diff(chosen) > 0).all()


def test_the_first_is_the_nearest_to_the_mean_and_others_are_the_farthest():
    degrees = np.deg2rad([0, 10, 20, 30, 90])  # the mean of the vectors is at 29 degrees
    X = np.column_stack([np.cos(degrees), np.sin(degrees)])
    assert choose_normals(X, None, 2).tolist() == [3, 4]
    assert choose_normals(X, None, 3).tolist() == [0, 3, 4]


def test_copies_are_chosen_last_and_too_small_a_number_is_refused():
    X = np.random.default_rng(0).normal(size=(10, 8)) + 1
    copies = np.vstack([X] * 6)
    assert len(np.unique(copies[choose_normals(copies, None, 10)], axis=0)) == 10
    for wrong in (3, 4.5, True, None):
        with pytest.raises(InputError, match="max_normals must be a whole number of at least 4"):
            choose_normals(X, ["a"] * 5 + ["b"] * 5, wrong)
