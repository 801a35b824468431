"""Thresholds: conformal ranks of normal scores, the largest over domains."""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest

from daco.detector.estimator import DACo
from daco.detector.model import MachineModel
from daco.detector.thresholds import paper_threshold, supported_rate, threshold_for
from daco.errors import DacoWarning, InputError
from daco.method.bank import NormalBank

RAW, QUANTILES = "raw-k1", "conf-soft-m0-k1"


@pytest.fixture(scope="module")
def machine():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(60, 8)) + 1).astype(np.float32)
    return X, np.array(["source"] * 50 + ["target"] * 10)


@pytest.mark.parametrize("config", [RAW, QUANTILES, "conf-hard-m30-k2", "zscore-soft-k1"])
def test_the_estimator_and_the_model_have_the_same_threshold(machine, config):
    X, domains = machine
    detector = DACo(config).fit(X, domains=domains)
    model = MachineModel.fit(X, domains, machine="m", config=config)
    own = NormalBank(X, domains).leave_one_out(config)[:, 0]
    assert detector.threshold_ == model.threshold == threshold_for(config, own, domains, 0.1)
    assert detector.threshold_at(0.3) == model.at_rate(0.3).threshold
    assert detector.leave_one_out_rates_ == model.leave_one_out_rates()


@pytest.mark.parametrize("config", [RAW, QUANTILES])
def test_the_detector_warns_exactly_below_the_supported_rate(machine, config):
    X, domains = machine
    floor = supported_rate(domains)
    assert floor == pytest.approx(1 / 11)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DacoWarning)
        DACo(config, floor).fit(X, domains=domains)
    with pytest.warns(DacoWarning, match="is below"):
        DACo(config, floor * 0.99).fit(X, domains=domains)


def test_the_papers_threshold_knows_no_domains():
    own = np.arange(1.0, 100.0)
    assert paper_threshold(QUANTILES, own, 0.1) == 0.9
    assert paper_threshold(RAW, own, 0.1) == pytest.approx(90.0)


@pytest.mark.parametrize("rate", [0, 1, -0.1, float("nan"), "0.1", True, None, 1e-12])
def test_what_is_no_rate_is_refused(rate):
    with pytest.raises(InputError, match="must be a number between 0 and 1"):
        threshold_for(RAW, [1.0], [0], rate)


def test_no_clip_supports_no_rate():
    with pytest.raises(InputError, match="No normal clip"):
        supported_rate([])


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
    found = threshold_for(RAW, own, domains, rate)
    if None not in ranks:
        assert found == max(ranks)
    for part in parts:
        assert np.mean(part > found) <= rate
        assert np.sum(part > found) <= rate * (len(part) + 1) - 1 or len(part) + 1 < 1 / rate


def test_beyond_the_support_the_tail_takes_over():
    """Ten clips hold 1/11; below, the threshold goes on rising without a jump."""
    own = np.arange(1.0, 11.0)
    rates = [0.2, 0.1, 1 / 11, 0.09, 0.05, 0.01, 1e-6]
    found = [threshold_for(RAW, own, np.zeros(10), rate) for rate in rates]
    assert found[:3] == [9.0, 10.0, 10.0]
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


def test_a_large_constant_still_lies_below_its_threshold():
    assert threshold_for(RAW, [1e12] * 5, np.zeros(5), 0.5) > 1e12


@pytest.mark.parametrize(("own", "domains"), [([], []), ([1.0], [0, 1]), ([[1.0]], [[0]])])
def test_scores_without_domains_have_no_threshold(own, domains):
    with pytest.raises(InputError, match="at least one normal clip"):
        threshold_for(RAW, own, domains, 0.1)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_have_no_threshold(bad):
    with pytest.raises(InputError, match="finite"):
        threshold_for(RAW, [1.0, bad], [0, 0], 0.1)
