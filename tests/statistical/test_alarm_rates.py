"""The decision keeps its word: simulated banks with fixed seeds, and two real machines.

The simulation is that of ``benchmarks/alarm.py``, which has more sizes. Nominal rate 0.10, realised
in the source and the target domain, means over 200 banks (here fewer) of 30 + 10 and 300 + 10:

- equal domains, or 3 deviations apart with half to twice the spread: .07 to .10 after calibrating
  with 25 a domain, .08 to .12 fitted with ``siblings=0``, .04 to .12 with the default rule;
- overlapping domains of different spread: at most .10 after calibrating. What is lost is power: a
  domain within a wider one finds a fifth to two fifths of the faults that it would find alone;
- the printed ranges hold in 87 to 95 % of the runs.
"""

from __future__ import annotations

import importlib.util
from functools import cache

import numpy as np
import pytest
from shared_data import ROOT

from daco.detector.model import MachineModel

pytestmark = pytest.mark.statistical

_SPEC = importlib.util.spec_from_file_location("alarm", ROOT / "benchmarks" / "alarm.py")
alarm = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(alarm)

RATE = alarm.RATE
BANKS = {30: 80, 300: 40, 990: 12}
"""By clips of the source domain. The rate of one bank has a standard deviation of 0.1, 0.08 and
0.06: their means have one of 0.011 to 0.017."""


@cache
def study(source, target, shift, spread, centre=4, tested=100):
    case = alarm.Case(source, target, shift, spread, centre=centre)
    return alarm.study(case, BANKS[source], workers=1, tested=tested)


def assert_rates(rows, slack=0.0):
    """Within 0.04 of nominal, and 0.06 in the target domain, which has ten references."""
    calibrated, fitted = rows["calibrated"]["rates"], rows["fitted"]["rates"]
    assert np.abs(calibrated - RATE).max() <= 0.04 + slack
    assert (np.abs(fitted - RATE) <= np.array([0.04, 0.06]) + slack).all()


def assert_default_rule(rows):
    """The rule for siblings neither mutes a domain nor floods it."""
    rates = rows["auto"]["rates"]
    assert ((rates >= 0.02) & (rates <= 0.15)).all()


@pytest.mark.parametrize(("shift", "spread"), alarm.APART)
@pytest.mark.parametrize("sizes", [(30, 10), (300, 10)])
def test_equal_or_separate_domains_realise_the_rate_and_keep_the_power(sizes, shift, spread):
    rows = study(*sizes, shift, spread)
    assert_rates(rows)
    assert_default_rule(rows)
    for name in ("calibrated", "fitted"):
        assert (rows[name]["power"] >= 0.9 * rows[name]["known"]).all()
        assert rows[name]["power"][0] > 0.7


@pytest.mark.parametrize(("shift", "spread"), [(0, 1), (3, 0.5), (3, 2)])
def test_rates_hold_where_directions_are_arbitrary(shift, spread):
    """At centre 0 cosine distance knows nothing of a clip of the source domain."""
    rows = study(30, 10, shift, spread, centre=0)
    assert_rates(rows)
    assert_default_rule(rows)


def test_rates_hold_in_a_bank_of_a_thousand():
    rows = study(990, 10, shift=3, spread=1)
    assert_rates(rows, slack=0.017)
    assert_default_rule(rows)


@pytest.mark.parametrize("target", [5, 16, 17])
def test_domains_as_small_as_a_density_keep_the_rate(target):
    """A clip less, and the density of the others would reach into the other domain: up to .55."""
    case = alarm.Case(70, target, 3, 0.5, dim=64, centre=4)
    rows = alarm.study(case, 30, workers=1, tested=100)
    assert 0.02 <= rows["fitted"]["rates"][1] <= 0.15
    assert_default_rule(rows)


@pytest.mark.parametrize(
    ("sizes", "shift", "spread"),
    [((30, 10), *case) for case in alarm.OVERLAPPING] + [((300, 10), 0, 0.5), ((300, 10), 0, 2)],
)
def test_overlapping_domains_of_different_spread_never_flood_once_calibrated(sizes, shift, spread):
    assert study(*sizes, shift, spread)["calibrated"]["rates"].max() <= 0.15


@pytest.mark.parametrize("spread", [1, 2])
def test_printed_ranges_hold_in_about_nine_runs_of_ten(spread):
    """500 clips show a rate to 0.013, against a range of 0.15; 80 runs the share to 0.034."""
    rows = study(30, 10, 3, spread, tested=500)
    error = 2 * np.sqrt(0.9 * 0.1 / BANKS[30])
    for name in ("calibrated", "fitted"):
        assert rows[name]["holds"].min() >= 0.85 - error
        assert rows[name]["holds"].max() <= min(1, 0.97 + error)
    assert np.isnan(rows["auto"]["holds"]).all()  # the rate is called unknown


class TestSiblings:
    """40 recordings of 10 clips; the clips to judge are of new recordings."""

    @pytest.mark.parametrize(("spread", "tolerance"), [(0.3, 0.05), (0.7, 0.07)])
    def test_new_recordings_alarm_at_about_the_nominal_rate(self, spread, tolerance):
        """Measured .09 and .14: where siblings are hardly alike, some are not found.

        One bank has a standard error of .05, as a quantile of 40 recordings; twenty have .01.
        """
        rates = [alarm.sibling_rates(40, 10, spread, seed) for seed in range(20)]
        independent, auto, sessions = np.mean(rates, axis=0)
        assert independent > 0.9
        assert auto == pytest.approx(RATE, abs=tolerance)
        assert sessions == pytest.approx(RATE, abs=0.05)


SESSIONS, CLIPS, DIM = 10, 12, 16


def record(rng, sessions, clips):
    """Clips of sessions that differ more from each other than the clips of one do."""
    places = rng.normal(size=(sessions, DIM)) * 0.5 + 3
    return np.repeat(places, clips, axis=0) + rng.normal(size=(sessions * clips, DIM)) * 0.3


def realised(seed, groups):
    rng = np.random.default_rng(seed)
    normals, new = record(rng, SESSIONS, CLIPS), record(rng, 60, 3)
    domains = ["all"] * len(normals)
    model = MachineModel.fit(normals, domains, machine="fan", config="raw-k1", groups=groups)
    return model.score(new.astype(np.float32)).anomalous.mean()


def test_the_rate_holds_in_new_sessions_where_those_of_the_normals_are_known():
    names = np.repeat(np.arange(SESSIONS), CLIPS).astype(str).tolist()
    rates = [realised(seed, names) for seed in range(20)]
    # The rate of one model has a standard deviation of 0.05 over draws of ten sessions.
    assert abs(np.mean(rates) - 0.1) < 0.04
    assert max(rates) < 0.3


@pytest.mark.shared("real", "embeddings")
@pytest.mark.parametrize("count", [4, 5], ids=["four views", "with mn04"])
def test_real_machines_once_calibrated_realise_the_rate_and_find_faults(count):
    """A fan and a bearing, 50 healthy and 50 faulty test clips a domain, 25 of them calibrate.

    Measured: .09 / .09 and 52 %, .08 / .14 and 35 %; with a network's view 55 and 37 %. Fitted to
    their training clips alone they realise up to .94: the test clips are of another session.
    """
    views = list(alarm.VIEWS)[:count]
    outcomes = [alarm.judge_real(machine, views, draws=40) for machine in ("fan", "bearing")]
    *rates, faults = np.array([outcome.calibrated for outcome in outcomes]).T
    assert np.abs(np.array(rates) - RATE).mean() < 0.04
    assert np.max(rates) < 0.17
    # soft weights find 40 % on average over six machines
    assert faults.mean() >= 0.4
    assert faults.min() >= 0.3
