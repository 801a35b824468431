"""Fast statistics against slow, literal ones: the same draws must give the same numbers."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, spearmanr, t
from sklearn.metrics import roc_auc_score

from daco.errors import InputError
from daco.evaluation import intervals
from daco.evaluation.intervals import (
    clip_bootstrap,
    family_block_bootstrap,
    machine_bootstrap,
    machine_jackknife,
    too_few_machines,
)
from daco.evaluation.metrics import harmonic_mean
from daco.evaluation.statistics import family_mean_permutation, paired_p_value, spearman

# Few distinct values, so that ties are the rule: they are where rank code goes wrong.
tied = st.integers(-3, 3).map(float)
grids = st.integers(3, 14).flatmap(
    lambda n: st.tuples(
        st.lists(tied, min_size=n, max_size=n),
        st.lists(tied, min_size=n, max_size=n),
        st.lists(st.sampled_from("abcd"), min_size=n, max_size=n),
    ).filter(lambda grid: len(set(grid[2])) > 1)
)


def slow_spearman(x, y):
    if len(set(x)) < 2 or len(set(y)) < 2:
        return np.nan
    return spearmanr(x, y).statistic


@given(grids)
def test_spearman_is_scipys_with_ties_and_nan_when_constant(grid):
    x, y, _ = grid
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours = spearman(x, y)
    # rank sums are exact here; scipy's covariance rounds
    assert ours == pytest.approx(slow_spearman(x, y), abs=1e-12, nan_ok=True)


# Family-block bootstrap


@settings(max_examples=30, deadline=None)
@given(grids, st.integers(0, 2**32))
def test_block_bootstrap_is_the_naive_loop_over_copied_rows(grid, seed):
    x, y, families = (np.array(column) for column in grid)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interval = family_block_bootstrap(x, y, families, n_draws=25, seed=seed)
    names = np.unique(families)
    naive = []
    for counts in intervals._multiplicities(np.random.default_rng(seed), 25, len(names)):
        taken = [np.flatnonzero(families == name) for name in np.repeat(names, counts.astype(int))]
        rows = np.concatenate(taken)
        naive.append(slow_spearman(x[rows], y[rows]))
    naive = np.array(naive)
    np.testing.assert_allclose(interval.draws, naive[~np.isnan(naive)], atol=1e-12)
    assert interval.estimate == pytest.approx(slow_spearman(x, y), abs=1e-12, nan_ok=True)


def test_draws_without_a_correlation_are_left_out():
    interval = family_block_bootstrap([1, 2], [1, 2], ["a", "b"], n_draws=2000, seed=3)
    # a draw is undefined when it takes the same family twice, with probability 1/2; four
    # standard deviations of a binomial count
    assert abs(len(interval.draws) - 1000) < 4 * np.sqrt(2000 / 4)
    assert (interval.low, interval.high) == (1, 1)
    constant = family_block_bootstrap([1, 1, 1], [1, 2, 3], ["a", "b", "b"], n_draws=50)
    assert np.isnan([constant.estimate, constant.low, constant.high]).all()


# Machine bootstrap


def test_machine_bootstrap_is_the_naive_loop_over_copied_machines():
    rng = np.random.default_rng(5)
    criterion = rng.random((7, 9))
    criterion[:, 4] = criterion[:, 3]  # two configurations that are equal in every draw
    metrics = rng.uniform(30, 95, (8, 9, 3))
    metrics[:, 6] = metrics[:, 5]
    interval = machine_bootstrap(criterion, metrics, n_draws=60, seed=2)
    draws = np.random.default_rng(2)
    dev = intervals._multiplicities(draws, 60, 7).astype(int)
    evaluation = intervals._multiplicities(draws, 60, 8).astype(int)
    naive = []
    for dev_counts, eval_counts in zip(dev, evaluation, strict=True):
        mean = np.repeat(criterion, dev_counts, axis=0).mean(axis=0)
        drawn = np.repeat(metrics, eval_counts, axis=0)
        omega = [harmonic_mean(drawn[:, config]) for config in range(9)]
        # rounding restores the ties that summation order breaks in this loop
        naive.append(spearmanr(-mean.round(10), np.round(omega, 10)).statistic)
    np.testing.assert_allclose(interval.draws, naive, atol=1e-12)


# Clip bootstrap


def slow_official_score(systems, labels, domains, rows):
    quantities = []
    for machine, scores in systems.items():
        taken = rows[machine]
        score, label, domain = scores[taken], labels[machine][taken], domains[machine][taken]
        for name in ("source", "target"):
            keep = (label == 1) | (domain == name)
            quantities.append(roc_auc_score(label[keep], score[keep]))
        quantities.append(roc_auc_score(label, score, max_fpr=0.1))
    return 100 * harmonic_mean(quantities)


@pytest.mark.parametrize("decimals", [0, 1, 12])
def test_clip_bootstrap_is_the_literal_one_on_resampled_clips(decimals):
    """0 decimals: nearly all scores tie; 12: none do."""
    rng = np.random.default_rng(decimals)
    first, second, labels, domains = {}, {}, {}, {}
    for machine, size in {"fan": 40, "valve": 57, "ToyCar": 33}.items():
        labels[machine] = rng.permutation(np.arange(size) % 2)
        domains[machine] = np.where(rng.random(size) < 0.6, "source", "target")
        first[machine] = (rng.normal(size=size) + labels[machine]).round(decimals)
        second[machine] = (rng.normal(size=size) + 0.4 * labels[machine]).round(decimals)
    interval = clip_bootstrap(first, second, labels, domains, n_draws=15, seed=9)

    draws = np.random.default_rng(9)
    taken = {
        machine: intervals._stratified_picks(draws, 15, labels[machine], domains[machine])
        for machine in first
    }
    for machine, rows in taken.items():  # each clip is replaced by one of its label and domain
        assert (labels[machine][rows] == labels[machine]).all()
        assert (domains[machine][rows] == domains[machine]).all()
    naive = []
    for draw in range(15):
        rows = {machine: picks[draw] for machine, picks in taken.items()}
        one, two = (slow_official_score(s, labels, domains, rows) for s in (first, second))
        naive.append(one - two)
    # percent points; only the order of summation differs
    np.testing.assert_allclose(interval.draws, naive, atol=1e-9)
    whole = {machine: np.arange(len(label)) for machine, label in labels.items()}
    one, two = (slow_official_score(s, labels, domains, whole) for s in (first, second))
    assert interval.estimate == pytest.approx(one - two, abs=1e-9)


def test_a_system_does_not_differ_from_its_monotone_copy():
    rng = np.random.default_rng(1)
    scores = {"fan": rng.normal(size=60)}
    copy = {"fan": np.exp(scores["fan"])}
    labels, domains = {"fan": np.arange(60) % 2}, {"fan": np.repeat(["source", "target"], 30)}
    interval = clip_bootstrap(scores, copy, labels, domains, n_draws=200)
    assert (interval.estimate, interval.low, interval.high) == (0, 0, 0)


CLIPS = {
    "first": {"fan": [1, 2, 3, 4]},
    "second": {"fan": [1, 2, 3, 4]},
    "labels": {"fan": [0, 0, 1, 1]},
    "domains": {"fan": ["source", "target", "source", "target"]},
}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({name: {} for name in CLIPS}, "no machine"),
        ({"second": {"valve": [1, 2, 3, 4]}}, "the same machines, also 'fan'"),
        ({"second": {"fan": [1, 2, 3]}}, "Machine 'fan'"),
        ({"first": {"fan": [1, np.nan, 3, 4]}}, "Machine 'fan'"),
        ({"labels": {"fan": [0, 1, 1, 1]}}, "Machine 'fan'"),
    ],
)
def test_clip_bootstrap_names_the_machine_it_cannot_score(change, message):
    with pytest.raises(InputError, match=message):
        clip_bootstrap(**{**CLIPS, **change})


@pytest.mark.parametrize(
    ("statistic", "arguments", "message"),
    [
        (spearman, ([], []), "Got 0 and 0 values"),
        (spearman, ([1, 2], [1, 2, 3]), "Got 2 and 3 values"),
        (spearman, ([1, np.nan], [1, 2]), "must be finite. Got nan at index 1"),
        (family_block_bootstrap, ([1, 2], [1, 2], ["a", "a"]), "at least two families"),
        (family_mean_permutation, ([1, 2], [1, 2], ["a"]), "one family for each of the 2"),
        (family_block_bootstrap, ([1, 2], [1, 2], ["a", "b"], 0), "n_draws must be a whole number"),
        (machine_bootstrap, (np.ones((4, 2)), np.ones((5, 3, 3))), "has 2 columns, 'metrics' 3"),
        (machine_jackknife, ([[60, 50]], [[60, 50]]), "at least two"),
        (machine_jackknife, ([[60, 50]] * 2, [[60, 50]] * 3), r"shapes \(2, 2\) and \(3, 2\)"),
        (paired_p_value, ([60, 50], [60, 50]), "must be 2-D"),
    ],
)
def test_wrong_arguments_are_named(statistic, arguments, message):
    with pytest.raises(InputError, match=message):
        statistic(*arguments)


# Jackknife


def test_jackknife_is_the_textbook_formula_over_left_out_machines():
    rng = np.random.default_rng(4)
    first, second = rng.uniform(40, 90, (2, 8, 3))
    result = machine_jackknife(first, second)
    left_out = np.array(
        [
            harmonic_mean(np.delete(first, i, 0)) - harmonic_mean(np.delete(second, i, 0))
            for i in range(8)
        ]
    )
    se = np.sqrt(7 / 8 * np.sum((left_out - left_out.mean()) ** 2))
    assert result.delta == pytest.approx(harmonic_mean(first) - harmonic_mean(second), abs=1e-12)
    assert result.se == pytest.approx(se, abs=1e-12)
    # sums of other orders: a few ulp of numbers near 60, 1e-14 each
    assert (result.loo_low, result.loo_high) == pytest.approx(
        (left_out.min(), left_out.max()), abs=1e-12
    )
    reach = t.ppf(0.975, 7) * se
    assert (result.low, result.high) == pytest.approx(
        (result.delta - reach, result.delta + reach), abs=1e-10
    )
    assert machine_jackknife(second, first).delta == -result.delta


TRIALS = 4000


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_an_interval_over_machines_covers_what_it_states(n):
    """Two systems on n machines of one population; the interval holds the true difference."""
    rng = np.random.default_rng(n)

    def systems(*shape):
        machine = rng.normal(0, 6, (*shape, 1))
        return [
            mean + machine + rng.normal(0, 3, (*shape, 1)) + rng.normal(0, 4, (*shape, 3))
            for mean in (66, 62)
        ]

    truth = np.subtract(*(harmonic_mean(values) for values in systems(1_000_000)))
    found = [machine_jackknife(*pair) for pair in zip(*systems(TRIALS, n), strict=True)]
    covered = np.mean([each.low <= truth <= each.high for each in found])
    # four binomial standard deviations of a share of 95 % in 4,000 trials: 1.4 points
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / TRIALS))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_a_paired_p_value_counts_every_exchange_of_two_systems(n):
    rng = np.random.default_rng(n)
    first, second = rng.uniform(40, 90, (2, n, 3))
    observed = abs(harmonic_mean(first) - harmonic_mean(second))
    as_large = []
    for exchanged in itertools.product([False, True], repeat=n):
        swap = np.array(exchanged)[:, None]
        difference = harmonic_mean(np.where(swap, second, first)) - harmonic_mean(
            np.where(swap, first, second)
        )
        as_large.append(abs(difference) >= observed - 1e-9)
    assert paired_p_value(first, second) == pytest.approx(np.mean(as_large), abs=1e-12)
    assert paired_p_value(first + 100, second) == 2 / 2**n  # better on every machine


def test_a_drawn_paired_p_value_is_never_zero():
    assert paired_p_value(np.full((20, 3), 80), np.full((20, 3), 60)) == 2 / 10_000


def test_the_caution_is_for_fewer_than_five_machines():
    assert too_few_machines(4) == "4 machines are too few to tell a difference from chance."
    assert too_few_machines(5) is None


def test_few_machines_widen_a_bootstrap_interval():
    rng = np.random.default_rng(0)
    criterion, metrics = rng.random((4, 9)), rng.uniform(40, 90, (6, 9, 3))
    found = machine_bootstrap(criterion, metrics, seed=1)
    low, high = np.quantile(found.draws, [0.025, 0.975])
    assert found.low < low < high < found.high
    # the tail of a normal distribution beyond what t and n - 1 reach, for the 4 machines
    tail = norm.sf(np.sqrt(4 / 3) * t.ppf(0.975, 3))
    assert (found.low, found.high) == tuple(np.quantile(found.draws, [tail, 1 - tail]))


# Permutation of family means


@settings(max_examples=20, deadline=None)
@given(grids)
def test_exact_permutation_counts_every_ordering(grid):
    x, y, families = (np.array(column) for column in grid)
    result = family_mean_permutation(x, y, families)
    names = np.unique(families)
    means_x, means_y = ([v[families == f].mean() for f in names] for v in (x, y))
    observed = slow_spearman(means_x, means_y)
    assert result.rho == pytest.approx(observed, abs=1e-12, nan_ok=True)
    assert result.exact
    if np.isnan(observed):
        assert np.isnan([result.p_one_sided, result.p_two_sided]).all()
        return
    all_rho = [slow_spearman(means_x, order) for order in itertools.permutations(means_y)]
    # scipy rounds where ours is exact, so equal correlations need a tolerance there
    one_sided = np.mean(np.array(all_rho) >= observed - 1e-9)
    two_sided = np.mean(np.abs(all_rho) >= abs(observed) - 1e-9)
    assert result.p_one_sided == pytest.approx(one_sided, abs=1e-12)
    assert result.p_two_sided == pytest.approx(two_sided, abs=1e-12)


def test_drawn_orderings_agree_with_counted_ones():
    rng = np.random.default_rng(3)
    x, families = rng.normal(size=27), np.repeat(list("abcdefghi"), 3)
    y = x + 2 * rng.normal(size=27)
    drawn = family_mean_permutation(x, y, families, seed=1)
    counted = family_mean_permutation(x, y, families, n_permutations=362_880)
    assert (drawn.exact, drawn.n_permutations) == (False, 200_000)
    assert (counted.exact, counted.n_permutations) == (True, 362_880)
    for ours, truth in (
        (drawn.p_one_sided, counted.p_one_sided),
        (drawn.p_two_sided, counted.p_two_sided),
    ):
        # four standard deviations of a binomial share of 200,000
        assert abs(ours - truth) < 4 * np.sqrt(truth * (1 - truth) / 200_000)


def test_a_drawn_p_value_is_never_zero():
    families = [str(i) for i in range(12)]
    result = family_mean_permutation(range(12), range(12), families, n_permutations=99)
    assert (result.p_one_sided, result.p_two_sided) == (0.01, 0.01)
