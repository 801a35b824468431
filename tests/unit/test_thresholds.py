"""Thresholds: order statistics of normal scores, or the rate itself, and the detector's own."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from daco.bank import NormalBank
from daco.config import paper_grid
from daco.detector import DACo
from daco.errors import DacoWarning, InputError
from daco.thresholds import supported_rate, threshold_for


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
