"""Thresholds: order statistics of normal scores, or the rate itself, and the detector's own."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

from daco.detector.estimator import DACo
from daco.detector.thresholds import (
    more_clips_for,
    supported_rate,
    threshold_for,
    threshold_holding,
)
from daco.errors import DacoWarning, InputError
from daco.method.bank import NormalBank
from daco.method.config import paper_grid


@pytest.fixture(scope="module")
def machine():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 8)) + 1
    return X, np.array(["source"] * 50 + ["target"] * 10)


def textbook_threshold(own, rate):
    """The (1 - rate)(n + 1)-th smallest score, interpolated between neighbours."""
    ascending = sorted(own)
    position = (1 - rate) * (len(own) + 1)
    below = int(position)
    low, high = ascending[below - 1], ascending[min(below, len(own) - 1)]
    return low + (position - below) * (high - low)


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.1, 0.02])
def test_thresholds_of_every_configuration_of_the_paper(machine, rate):
    X, domains = machine
    bank = NormalBank(X, domains)
    for config in paper_grid():
        own = bank.leave_one_out(config)[:, 0]
        wanted = 1 - rate if config.calibration == "conf" else textbook_threshold(own, rate)
        assert threshold_for(config, own, rate) == pytest.approx(wanted, rel=1e-12)
        if config.calibration != "conf":
            assert np.mean(own > threshold_for(config, own, rate)) <= rate


def test_below_the_smallest_rate_thresholds_still_rise():
    own = np.arange(10.0)
    rates = [1 / 11, 0.05, 0.01, 1e-3, 1e-6]
    thresholds = [threshold_for("raw-k1", own, rate) for rate in rates]
    assert thresholds[0] == pytest.approx(9.0)  # the largest of ten
    assert thresholds == sorted(thresholds)
    assert np.isfinite(thresholds).all()


@pytest.mark.parametrize("config", ["raw-k1", "conf-hard-m30-k2", "zscore-soft-k1"])
def test_the_detector_has_the_same(machine, config):
    X, domains = machine
    detector = DACo(config, 0.2).fit(X, domains=domains)
    own = NormalBank(X, domains).leave_one_out(config)[:, 0]
    assert detector.threshold_ == threshold_for(config, own, 0.2)
    assert detector.threshold_at(0.3) == threshold_for(config, own, 0.3)


@pytest.mark.parametrize("config", ["raw-k1", "conf-soft-m0-k1"])
def test_the_detector_warns_exactly_below_the_supported_rate(machine, config):
    X, domains = machine
    floor = supported_rate(config, domains)
    assert floor == pytest.approx(1 / 11 if config.startswith("conf") else 1 / 61)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DacoWarning)
        DACo(config, floor).fit(X, domains=domains)
    with pytest.warns(DacoWarning, match="is below"):
        DACo(config, floor * 0.99).fit(X, domains=domains)


@pytest.mark.parametrize("rate", [0, 1, -0.1, float("nan"), "0.1", True, None, 1e-12])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(InputError, match="must be a number between 0 and 1"):
        threshold_for("raw-k1", [1.0], rate)


def test_no_clip_supports_no_rate():
    with pytest.raises(InputError, match="No normal clip"):
        supported_rate("raw-k1", [])


def textbook_rank(own, rate):
    """The conformal rank counted out with fractions: no rounding to argue about."""
    n = len(own)
    rank = -((-(n + 1) * (1 - Fraction(str(rate)))).__floor__())
    return sorted(own)[rank - 1] if rank <= n else None


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.1, 0.05])
@pytest.mark.parametrize("sizes", [(40,), (200, 20), (19, 99, 30)])
def test_the_held_threshold_is_the_largest_conformal_rank(rate, sizes):
    rng = np.random.default_rng(len(sizes))
    parts = [rng.gamma(2, g + 1, size) for g, size in enumerate(sizes)]
    own, domains = np.concatenate(parts), np.repeat(np.arange(len(sizes)), sizes)
    ranks = [textbook_rank(part, rate) for part in parts]
    found = threshold_holding(own, domains, rate)
    if None not in ranks:
        assert found == max(ranks)
    for part in parts:
        assert np.mean(part > found) <= rate
        assert np.sum(part > found) <= rate * (len(part) + 1) - 1 or len(part) + 1 < 1 / rate


def test_names_of_domains_do_as_well_as_numbers():
    own = np.arange(30.0)
    assert threshold_holding(own, ["b"] * 10 + ["a"] * 20, 0.1) == threshold_holding(
        own, [0] * 10 + [1] * 20, 0.1
    )


def test_beyond_the_support_the_tail_takes_over():
    """Ten clips hold 1/11; below, the threshold goes on rising without a jump."""
    own = np.arange(1.0, 11.0)
    rates = [0.2, 0.1, 1 / 11, 0.09, 0.05, 0.01, 1e-6]
    found = [threshold_holding(own, np.zeros(10), rate) for rate in rates]
    assert found[:3] == [9.0, 10.0, 10.0]
    assert (np.diff(found[2:]) > 0).all()
    assert found[3] < 10.5  # just beyond the support is just above the largest score


@pytest.mark.parametrize("rate", [0.05, 0.01, 1e-3, 1e-9])
def test_quantiles_are_extrapolated_below_one(rate):
    """A threshold of 1 and above could never raise an alarm: such scores stay below 1."""
    own = np.arange(1, 11) / 11
    found = threshold_holding(own, np.zeros(10), rate, bounded=True)
    assert 10 / 11 < found < 1
    # Perfectly uniform quantiles: the extrapolated one is the rate itself, or nearly.
    assert found == pytest.approx(1 - rate, abs=0.02)
    assert threshold_holding(own, np.zeros(10), rate) > found


@pytest.mark.parametrize("rate", [0.999999, 0.97, 0.9, 0.5, 0.1, 0.01, 1e-9])
@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize(
    "own",
    [[0.0] * 20, [0.3] * 20, [0.3], [0.1, 0.1, 0.1, 0.2], [0.1, 0.9], list(np.linspace(0, 0.9, 9))],
)
def test_the_threshold_is_never_the_smallest_score(own, rate, bounded):
    """No anomalies, constant scores, one clip, any rate: not everything becomes an alarm."""
    found = threshold_holding(own, np.zeros(len(own)), rate, bounded=bounded)
    assert found > min(own)
    assert np.isfinite(found)
    assert np.mean(np.array(own) > found) < 1
    other = threshold_holding([*own, 5.0], [0] * len(own) + [1], rate)
    assert other > 5.0  # nor that of any domain


def test_a_large_constant_still_lies_below_its_threshold():
    assert threshold_holding([1e12] * 5, np.zeros(5), 0.5) > 1e12


@pytest.mark.parametrize(("own", "domains"), [([], []), ([1.0], [0, 1]), ([[1.0]], [[0]])])
def test_scores_without_domains_have_no_threshold(own, domains):
    with pytest.raises(InputError, match="at least one normal clip"):
        threshold_holding(own, domains, 0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_have_no_threshold(bad):
    with pytest.raises(InputError, match="finite"):
        threshold_holding([1.0, bad], [0, 0], 0.1)


@pytest.mark.parametrize("rate", [0.5, 0.3, 0.1, 0.05, 1 / 3, 0.013])
def test_so_many_more_clips_support_a_rate(rate):
    for n in (1, 7, 19, 40):
        enough = n + more_clips_for(rate, n)
        assert 1 / (enough + 1) <= rate * (1 + 1e-9)
        if enough > n:
            assert 1 / enough > rate
