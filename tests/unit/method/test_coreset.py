"""A coreset: how well it covers, and what it keeps of every domain."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.errors import InputError
from daco.method.coreset import choose_normals, domain_counts, k_centres
from daco.method.distances import unit_rows


def radius(unit, chosen):
    """The largest Euclidean distance of a row to its nearest chosen one."""
    apart = np.linalg.norm(unit[:, None] - unit[None, list(chosen)], axis=2)
    return apart.min(axis=1).max()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(4, 11),
    count=st.integers(1, 4),
    dim=st.sampled_from([2, 3, 8]),
)
def test_no_choice_of_as_many_clips_has_half_the_radius(seed, n, count, dim):
    unit = unit_rows(np.random.default_rng(seed).normal(size=(n, dim)))
    best = min(radius(unit, chosen) for chosen in combinations(range(n), count))
    assert radius(unit, k_centres(unit, count)) <= 2 * best + 1e-9


def test_the_same_clips_are_chosen_whatever_stands_beside_them_and_copies_last():
    X = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32) + 1
    chosen = choose_normals(X, None, 20)
    assert (chosen == choose_normals(X, ["all"] * 60, 20)).all()
    assert len(set(chosen.tolist())) == 20
    copies = np.vstack([X[:10]] * 6)
    assert len(np.unique(copies[choose_normals(copies, None, 10)], axis=0)) == 10


@pytest.mark.parametrize(
    ("sizes", "total", "expected"),
    [
        ([990, 10], 200, [190, 10]),  # a small domain is not thinned
        ([10, 990], 20, [10, 10]),
        ([500, 400], 100, [50, 50]),
        ([500, 10, 300], 101, [46, 10, 45]),
        ([5, 5], 100, [5, 5]),
    ],
)
def test_large_domains_are_thinned_to_one_size_and_small_ones_are_not(sizes, total, expected):
    assert domain_counts(np.array(sizes), total) == expected
    domains = np.repeat(np.arange(len(sizes)), sizes)
    X = np.random.default_rng(1).normal(size=(sum(sizes), 4))
    kept = np.bincount(domains[choose_normals(X, domains, total)])
    assert kept.tolist() == expected


def test_nothing_is_thinned_that_is_small_enough_and_too_few_are_refused():
    X = np.random.default_rng(0).normal(size=(30, 4))
    assert choose_normals(X, None, 30).tolist() == list(range(30))
    for wrong in (3, 2.5, True, None):
        with pytest.raises(InputError, match="max_normals must be a whole number of at least 4"):
            choose_normals(X, ["a"] * 20 + ["b"] * 10, wrong)
