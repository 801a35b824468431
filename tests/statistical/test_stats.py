"""Fast statistics against slow, literal ones: the same draws must give the same numbers."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pandas as pd
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
    family_mean_permutation,
    machine_bootstrap,
    paired_p_value,
    spearman,
    too_few_machines,
)
from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.evaluation.official import score_estimates

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


def test_without_a_correlation_there_is_no_interval():
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


def slow_official_score(clips, system):
    quantities = []
    for _, rows in clips.groupby("machine", sort=False):
        for name in ("source", "target"):
            kept = rows[(rows["label"] == 1) | (rows["domain"] == name)]
            quantities.append(roc_auc_score(kept["label"], kept[system]))
        quantities.append(roc_auc_score(rows["label"], rows[system], max_fpr=0.1))
    return 100 * harmonic_mean(quantities)


def slow_difference(clips):
    return slow_official_score(clips, "first") - slow_official_score(clips, "second")


@pytest.mark.parametrize("decimals", [0, 12])
def test_clip_bootstrap_is_the_literal_one_on_resampled_clips(decimals):
    """0 decimals: nearly all scores tie; 12: none do."""
    rng = np.random.default_rng(decimals)
    parts = []
    for machine, size in {"fan": 40, "ToyCar": 33}.items():
        part = pd.DataFrame({"machine": machine, "section": "00"}, range(size))
        part["label"] = rng.permutation(np.arange(size) % 2)
        part["domain"] = np.where(rng.random(size) < 0.6, "source", "target")
        part["first"] = (rng.normal(size=size) + part["label"]).round(decimals)
        part["second"] = (rng.normal(size=size) + 0.4 * part["label"]).round(decimals)
        parts.append(part)
    clips = pd.concat(parts, ignore_index=True)
    interval = clip_bootstrap(clips, "first", "second", n_draws=10, seed=9)

    draws = np.random.default_rng(9)
    truth = [(part["label"].to_numpy(), part["domain"].to_numpy()) for part in parts]
    taken = [intervals._stratified_picks(draws, 10, *each) for each in truth]
    for rows, (labels, domains) in zip(taken, truth, strict=True):
        assert (labels[rows] == labels).all()  # each clip is replaced by one of its label
        assert (domains[rows] == domains).all()
    naive = []
    for draw in range(10):
        drawn = [part.iloc[rows[draw]] for part, rows in zip(parts, taken, strict=True)]
        naive.append(slow_difference(pd.concat(drawn)))
    # percent points; only the order of summation differs
    np.testing.assert_allclose(interval.draws, naive, atol=1e-9)
    assert interval.estimate == pytest.approx(slow_difference(clips), abs=1e-9)


def fan(**columns):
    known = {"machine": "fan", "section": "00", "label": [0, 0, 1, 1], "domain": list("stst")}
    return pd.DataFrame(known | {"first": [1.0, 2, 3, 4], "second": [1.0, 2, 3, 4]} | columns)


@pytest.mark.parametrize(
    ("statistic", "arguments", "message"),
    [
        (spearman, ([], []), "Got 0 and 0 values"),
        (spearman, ([1, 2], [1, 2, 3]), "Got 2 and 3 values"),
        (spearman, ([1, np.nan], [1, 2]), "must be finite. Got nan at index 1"),
        (family_block_bootstrap, ([1, 2], [1, 2], ["a", "a"]), "at least two families"),
        (family_mean_permutation, ([1, 2], [1, 2], ["a"]), "one family for each of the 2"),
        (family_block_bootstrap, ([1, 2], [1, 2], ["a", "b"], 0), "n_draws must be a whole number"),
        (machine_bootstrap, (np.ones((4, 2)), np.ones((5, 3, 3))), "Got 2 and 3 values"),
        (paired_p_value, ([[60, 50]] * 2, [[60, 50]] * 3), r"shapes \(2, 2\) and \(3, 2\)"),
        (paired_p_value, ([60, 50], [60, 50]), "must be 2-D"),
        (clip_bootstrap, (fan()[:0], "first", "second"), "no test clip"),
        (clip_bootstrap, (fan(first=[1, np.nan, 3, 4]), "first", "second"), "'fan', first"),
        (clip_bootstrap, (fan(label=[0, 1, 1, 1]), "first", "second"), "Machine 'fan'"),
    ],
)
def test_wrong_arguments_are_named(statistic, arguments, message):
    with pytest.raises(InputError, match=message):
        statistic(*arguments)


# Over machines


TRIALS = 2000


@pytest.mark.parametrize("n", [2, 3, 10])
def test_an_interval_over_machines_covers_what_it_states(n):
    """Systems on n machines of one population; the interval holds the population's score."""
    rng = np.random.default_rng(n)

    def metrics(*shape):
        return 66 + rng.normal(0, 6, (*shape, 1)) + rng.normal(0, 4, (*shape, 3))

    truth = harmonic_mean(metrics(200_000))
    table = pd.DataFrame(metrics(TRIALS, n).reshape(-1, 3), columns=QUANTITIES)
    systems, machines = np.divmod(np.arange(TRIALS * n), n)
    found = score_estimates(table.assign(section="00", machine=machines, configuration=systems))
    covered = (found["low"] <= truth) & (truth <= found["high"])
    # four binomial standard deviations of a share of 95 % in 2,000 trials: 1.9 points
    assert covered.mean() == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / TRIALS))


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
    if np.isnan(observed):
        assert np.isnan([result.p_one_sided, result.p_two_sided]).all()
        return
    all_rho = [slow_spearman(means_x, order) for order in itertools.permutations(means_y)]
    assert result.n_permutations == len(all_rho)
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
    assert (drawn.n_permutations, counted.n_permutations) == (200_000, 362_880)
    for ours, truth in (
        (drawn.p_one_sided, counted.p_one_sided),
        (drawn.p_two_sided, counted.p_two_sided),
    ):
        # four standard deviations of a binomial share of 200,000
        assert abs(ours - truth) < 4 * np.sqrt(truth * (1 - truth) / 200_000)
