"""Choosing a configuration: what each rule picks, what it excludes, and what it says."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from daco import NormalBank
from daco.errors import InputError
from daco.method.config import PAPER_CONFIG, blind_pool
from daco.method.selection import (
    Rule,
    choose,
    choose_config,
)

GRID = {
    "config": ["raw-k1", PAPER_CONFIG, "conf-hard-m0-k1", "ldn-diff-K16"],
    "criterion": [0.62, 0.50, 0.49, 0.40],
    "dev_score": [58.0, 56.0, 57.0, 50.0],
}


def grid(**changes):
    return {name: column for name, column in (GRID | changes).items() if column is not None}


def resamples(*winners):
    """Criteria in which row r has the smallest value as often as `winners` says."""
    rows = np.repeat(np.arange(len(winners)), winners)
    samples = np.full((len(winners), len(rows)), 0.5)
    samples[rows, np.arange(len(rows))] = 0.4
    return samples


# Rules


@pytest.mark.parametrize(
    ("rule", "config"),
    [
        ("paper", "conf-hard-m0-k1"),
        ("criterion", "ldn-diff-K16"),
        ("dev", "raw-k1"),
        ("guarded", "conf-hard-m0-k1"),
        ("label-free", "ldn-diff-K16"),
    ],
)
def test_each_rule_picks_by_its_own_columns(rule, config):
    known = grid(viable=[True] * 4)
    for table in (known, pd.DataFrame(known)):
        choice = choose(table, rule)
        assert (choice.config, choice.pick, choice.rule) == (config, config, Rule(rule))
    paper = choose(GRID, "paper")
    assert paper.vetoed == {"ldn-diff-K16": "dev-score veto"}
    assert (paper.agreement, paper.n_resamples, paper.stability) == (None, 0, "")


def test_ties_go_to_the_first_row_and_nan_is_never_chosen():
    tied = {"config": ["raw-k4", "raw-k1", "raw-k2"], "dev_score": [1.0, 2.0, 2.0]}
    assert choose(tied, "dev").config == "raw-k1"
    values = [np.nan, 0.4 + 1e-15, 0.4]  # the difference is rounding
    assert choose(tied | {"criterion": values}, "criterion").config == "raw-k1"
    unknown = choose(grid(criterion=[np.nan] * 4))
    assert (unknown.config, unknown.pick) == (PAPER_CONFIG, PAPER_CONFIG)


def test_the_label_free_veto_acts_with_or_without_dev_scores():
    viable_column = [True, True, False, True]
    both = choose(grid(viable=viable_column))
    assert both.config == PAPER_CONFIG
    assert both.vetoed == {"conf-hard-m0-k1": "label-free veto", "ldn-diff-K16": "dev-score veto"}
    alone = choose(grid(viable=viable_column, dev_score=[np.nan] * 4))
    assert alone.config == "ldn-diff-K16"
    label_free = choose(grid(viable=viable_column), "label-free")
    assert (label_free.config, label_free.warnings) == ("ldn-diff-K16", ())
    assert label_free.vetoed == {"conf-hard-m0-k1": "label-free veto"}
    # the paper's own choice knows nothing of it
    assert choose(grid(viable=viable_column), "paper").config == "conf-hard-m0-k1"


def test_candidates_that_share_the_best_dev_score_are_not_vetoed():
    """An easy machine: all detect everything, and no decile of them is the bottom one."""
    for rule in ("paper", "guarded"):
        assert choose(grid(dev_score=[100.0] * 4), rule).vetoed == {}
    mostly = choose(grid(dev_score=[50.0, 100.0, 100.0, 100.0]), "paper")
    assert list(mostly.vetoed) == [grid()["config"][0]]


NONE_LEFT = [False, False, False, True]  # but the last is in the bottom decile


@pytest.mark.parametrize(
    ("changes", "rule", "message"),
    [
        ({"viable": [False] * 4, "dev_score": None}, "guarded", "leaves 0, so"),
        ({"viable": NONE_LEFT}, "guarded", "leaves 3 .* leaves 1, so "),
        ({}, "label-free", "no column 'viable'"),
        ({"config": ["raw-k1", "raw-k2", "raw-k1", "raw-k4"]}, "paper", "each once"),
        ({"dev_score": [58.0, np.nan, 57.0, 50.0]}, "guarded", "dev_score.*nan at index 1"),
        ({"dev_score": [58.0, 57.0]}, "paper", "'dev_score' must have 4 values"),
        ({"dev_score": None}, "paper", "no column 'dev_score'. It has: config, criterion"),
        ({"criterion": None}, "criterion", "^The table has no column 'criterion'. It has: config"),
        ({"criterion": ["low", "high", "low", "low"]}, "criterion", "must be numbers"),
        ({"criterion": [np.nan, np.nan, np.nan, 0.1]}, "paper", "has a criterion"),
        ({}, "best", "guarded, label-free, paper, criterion, dev. Got 'best'"),
    ],
)
def test_what_is_wrong_is_said_and_a_veto_that_leaves_nothing_is_named(changes, rule, message):
    with pytest.raises(InputError, match=message):
        choose(grid(**changes), rule)
    only = {"config": ["raw-k1"], "criterion": [0.5], "dev_score": [50.0], "viable": [False]}
    assert choose(only).reason == "the only candidate"


# Resamples


def test_the_pick_is_what_most_resamples_agree_on():
    table = {"config": ["raw-k1", "raw-k2", "raw-k4"], "criterion": [0.45, 0.50, 0.44]}
    choice = choose(table, resampled=resamples(30, 50, 20))
    assert (choice.config, choice.agreement, choice.n_resamples) == ("raw-k2", 0.5, 100)
    assert "50 of 100 resamples" in choice.reason
    # as many each: the smaller criterion; other rules do not look at resamples
    assert choose(table, resampled=resamples(40, 40, 20)).config == "raw-k1"
    assert choose(table, "criterion", resampled=resamples(30, 50, 20)).config == "raw-k4"
    undefined = resamples(30, 50, 20)
    undefined[0, :95] = np.nan  # only complete resamples count
    assert choose(table, resampled=undefined).n_resamples == 5
    with pytest.raises(InputError, match="a row for each of the 3"):
        choose(table, resampled=np.zeros((2, 10)))


@pytest.mark.parametrize(("share_worse", "stays"), [(0.90, True), (0.97, False)])
def test_the_default_stays_unless_it_is_worse_in_nearly_all_resamples(share_worse, stays):
    """Paired: a common shift of both, however large, says nothing."""
    shift = np.random.default_rng(0).normal(0, 0.2, 1000)
    difference = np.where(np.arange(1000) < 1000 * share_worse, 0.01, -0.01)
    samples = np.array([shift, shift + difference])
    table = {"config": ["raw-k1", PAPER_CONFIG], "criterion": [0.50, 0.51]}
    choice = choose(table, resampled=samples)
    assert choice.pick == "raw-k1"
    assert choice.config == (PAPER_CONFIG if stays else "raw-k1")
    assert choice.agreement == pytest.approx(share_worse)
    wins = f"{round(1000 * share_worse)} of 1000 resamples pick"
    kept = f"kept as the default within the noise; {wins} raw-k1"
    assert choice.stability == (kept if stays else f"{wins} it")
    assert all(value in choice.reason for value in ("0.5000", "0.5100"))
    # a default that a veto excludes does not stay
    assert choose(table | {"viable": [True, False]}, resampled=samples).config == "raw-k1"
    assert choose(table, resampled=samples, default="raw-k1").config == "raw-k1"


# What a choice says


def test_a_dev_score_far_below_the_best_is_a_warning():
    near, far = grid(dev_score=[58.0, 56, 53.1, 50]), grid(dev_score=[58.0, 56, 53.0, 50])
    assert choose(near).warnings == ()
    (warning,) = choose(far).warnings
    assert "conf-hard-m0-k1" in warning
    assert "58.0 of raw-k1" in warning


def test_a_choice_is_plain_json():
    choice = choose(grid(criterion=[0.6, np.nan, 0.5, 0.4]), resampled=resamples(50, 0, 50, 0))
    document = json.loads(json.dumps(choice.to_dict(), allow_nan=False))
    assert document["criterion"][PAPER_CONFIG] is None
    assert document["vetoed"] == choice.vetoed
    assert (document["rule"], document["agreement"]) == ("guarded", 0.5)
    assert not {"balance", "pseudo"} & set(document)


# One machine


def machine(seed, n_source=60, n_target=12, shift=1.0, spread=1.0, dim=16):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_source + n_target, dim))
    X[n_source:] = spread * X[n_source:] + shift * rng.normal(size=dim)
    return NormalBank(X + 2, ["source"] * n_source + ["target"] * n_target)


def test_one_machine_is_chosen_for_by_the_guarded_rule():
    bank = machine(2, 200, 100, shift=0.0, spread=2.0)
    choice = choose_config(bank, n_splits=40)
    assert list(choice.criterion) == [config.name for config in blind_pool()]
    np.testing.assert_allclose(
        list(choice.criterion.values()), bank.balance(blind_pool(), 40), atol=1e-12
    )
    assert choice.pick == choice.config != PAPER_CONFIG  # wide domains are told from narrow ones
    assert choice.pseudo.configs == tuple(choice.criterion)
    assert choice.balance.resampled.shape == (9, choice.n_resamples)


def test_a_veto_gives_the_pseudo_score_as_its_reason():
    choice = choose_config(machine(2), ["raw-k1", PAPER_CONFIG, "ldn-diff-K16"], n_splits=5)
    assert list(choice.vetoed) == ["ldn-diff-K16"]
    assert f"{100 * choice.pseudo.score[2]:.1f}, below the limit" in choice.vetoed["ldn-diff-K16"]


def test_alike_domains_keep_the_default_for_any_seed():
    bank = machine(0, shift=0.0)
    for seed in range(3):
        assert choose_config(bank, n_splits=40, seed=seed).config == PAPER_CONFIG


@pytest.mark.parametrize(
    ("bank", "reason"),
    [
        (NormalBank(np.eye(8)), "one domain, so there is nothing to balance: the fixed default"),
        (machine(5, 30, 1), "too few clips to compare (1 clip of target)"),
    ],
)
def test_where_nothing_can_be_compared_the_default_is_used_and_said(bank, reason):
    choice = choose_config(bank)
    assert choice.config == PAPER_CONFIG
    assert choice.criterion == {}
    assert reason in choice.reason
    assert choose_config(bank, ["raw-k2", "raw-k1"]).config == "raw-k2"


def test_the_veto_is_optional_and_skipped_for_too_few_clips():
    few = machine(4, 3, 3)
    assert choose_config(few, n_splits=4).pseudo is None
    enough = machine(1)
    assert choose_config(enough, n_splits=4).pseudo is not None
    assert choose_config(enough, n_splits=4, veto=False).pseudo is None
    with pytest.raises(InputError, match="true domain"):
        choose_config(enough, ["conf-oracle-m0-k1", "raw-k1"])
