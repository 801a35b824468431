"""The criterion of domains that do not differ."""

from __future__ import annotations

import numpy as np
import pytest

import daco
from daco.errors import InputError
from daco.experiments.floors import bank_floor, h0_floor


@pytest.mark.statistical
def test_the_floor_is_the_published_one():
    floor = h0_floor(495, 5, n_splits=10, n_simulations=8000)
    # Converged: mean 0.3594, sd 0.0348 (standard errors of 8,000 runs: 0.0004, 0.0003).
    assert floor.mean == pytest.approx(0.3594, abs=0.0016)
    assert floor.sd == pytest.approx(0.0348, abs=0.0012)
    # Published 0.357, sd 0.032, and 0.0123 for a mean of 7 machines, from an unstated number of
    # runs; these are within two standard errors of 200 runs (0.0025, 0.0017, 0.0007).
    assert floor.mean == pytest.approx(0.357, abs=2 * 0.0025)
    assert floor.sd == pytest.approx(0.032, abs=2 * 0.0017)
    assert floor.sd / np.sqrt(7) == pytest.approx(0.0123, abs=2 * 0.0007)


@pytest.mark.statistical
def test_banks_without_a_shift_have_the_floor_as_their_criterion():
    """Splits of one bank share clips, so that their mean varies more than that of new clips."""
    rng = np.random.default_rng(0)
    domains = ["a"] * 20 + ["b"] * 10
    banks = (daco.NormalBank(rng.normal(size=(30, 20)), domains) for _ in range(500))
    values = [bank.balance("raw-k1", 10)[0] for bank in banks]
    floor = h0_floor(10, 5, 10)
    # The target half has other neighbours than the source half: 5 % beside the noise.
    assert np.mean(values) == pytest.approx(floor.mean, rel=0.05)
    assert np.std(values) > floor.sd
    assert bank_floor((20, 10)) == pytest.approx(floor.mean, abs=0.02)


def test_small_domains_have_no_floor():
    assert bank_floor((20,)) is None
    assert bank_floor((20, 1)) is None
    with pytest.raises(InputError, match=">= 1"):
        h0_floor(0, 5)
