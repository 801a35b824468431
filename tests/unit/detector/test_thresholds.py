"""Rates, and thresholds of score files."""

from __future__ import annotations

import numpy as np
import pytest

from daco.detector.thresholds import paper_threshold, supported_rate, threshold_for
from daco.errors import InputError

RAW, QUANTILES = "raw-k1", "conf-soft-m0-k1"


def test_the_papers_threshold_knows_no_domains():
    own = np.arange(1.0, 100.0)
    assert paper_threshold(QUANTILES, own, 0.1) == 0.9
    assert paper_threshold(RAW, own, 0.1) == pytest.approx(90.0)


@pytest.mark.parametrize("rate", [0, 1, -0.1, float("nan"), "0.1", True, None, 1e-12])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(InputError, match="must be a number between 0 and 1"):
        threshold_for(RAW, [1.0], [0], rate)


def test_no_clip_supports_no_rate():
    with pytest.raises(InputError, match="needs at least one normal"):
        supported_rate([])


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.1, 0.05])
def test_one_domain_has_the_conformal_rank(rate):
    own = np.random.default_rng(0).gamma(2, size=99)
    rank = round(100 * (1 - rate))
    assert threshold_for(RAW, own, np.zeros(99), rate) == np.sort(own)[rank - 1]


def test_of_several_domains_it_is_the_largest():
    rng = np.random.default_rng(0)
    quiet, loud = rng.gamma(2, size=200), 3 * rng.gamma(2, size=200)
    own, domains = np.concatenate([quiet, loud]), ["old"] * 200 + ["new"] * 200
    found = threshold_for(RAW, own, domains, 0.1)
    assert 0.05 < np.mean(loud > found) <= 0.12
    assert np.mean(quiet > found) < 0.02


def test_beyond_the_support_the_tail_takes_over():
    """Ten clips hold 1/11; below, the threshold goes on rising without a jump."""
    own = np.arange(1.0, 11.0)
    rates = [0.2, 0.1, 1 / 11, 0.09, 0.05, 0.01, 1e-6]
    found = [threshold_for(RAW, own, np.zeros(10), rate) for rate in rates]
    assert found[:2] == [9.0, 10.0]
    assert (np.diff(found[2:]) > 0).all()
    assert found[3] < 10.5  # just beyond the support is just above the largest score


@pytest.mark.parametrize("rate", [0.05, 0.01, 1e-3, 1e-9])
def test_quantiles_are_extrapolated_below_one(rate):
    """A threshold of 1 and above could never raise an alarm: such scores stay below 1."""
    own = np.arange(1, 11) / 11
    found = threshold_for(QUANTILES, own, np.zeros(10), rate)
    assert 10 / 11 < found < 1
    # Perfectly uniform quantiles: the extrapolated one is the rate itself, or nearly.
    assert found == pytest.approx(1 - rate, abs=0.02)
    assert threshold_for(RAW, own, np.zeros(10), rate) > found


def test_a_large_constant_is_no_alarm():
    assert threshold_for(RAW, [1e12] * 5, np.zeros(5), 0.5) >= 1e12


@pytest.mark.parametrize(("own", "domains"), [([], []), ([1.0], [0, 1]), ([[1.0]], [[0]])])
def test_scores_without_domains_have_no_threshold(own, domains):
    with pytest.raises(InputError, match="at least one score of each domain"):
        threshold_for(RAW, own, domains, 0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_have_no_threshold(bad):
    with pytest.raises(InputError, match="finite"):
        threshold_for(RAW, [1.0, bad], [0, 0], 0.1)
