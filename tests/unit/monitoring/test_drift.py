"""Recent decisions against the promised rate: what is called stale, and what is said."""

from __future__ import annotations

import math

import numpy as np
import pytest

from daco.monitoring.drift import FEWEST, LEVEL, drift_of, largest_by_chance

SOURCE, TARGET = {"source": 0.9, "target": 0.1}, {"source": 0.2, "target": 0.8}


def judged(anomalous: int, n: int, weights=SOURCE, power=1.0):
    """Clips whose normals have uniform p-values, or smaller ones for a larger power."""
    flags = [row < anomalous for row in range(n)]
    normal = 0.1 + 0.9 * ((np.arange(n) * 0.618) % 1) ** power
    return [(flag, weights, 0.02 if flag else p) for flag, p in zip(flags, normal, strict=True)]


def tail(k: int, n: int, p: float) -> float:
    """P(more than k of n), by its definition."""
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1, n + 1))


def test_some_clips_far_out_point_to_the_machine_and_are_called_anomalous_not_false():
    drift = drift_of(judged(42, 200), 0.1, model="press.daco")
    assert drift.stale
    assert "points to the machine. 21 % of the last 200 " in drift.sentence
    assert "false" not in drift.sentence
    assert drift.remedy == "daco calibrate press.daco NEW_NORMALS --domain source"
    assert "Listen" in drift.caution  # they may be faults
    for odder in (judged(42, 200, power=3), judged(195, 200)):  # or hardly any normal clip is left
        assert "or the machine changed for good" in drift_of(odder, 0.1).sentence


def test_recordings_that_cannot_be_judged_are_told_apart():
    sentences = set()
    for code in ("range", "short", "rate", "silent", "clipped"):
        drift = drift_of(judged(20, 200), 0.1, not_judged={code: 80, "long": 3})
        assert drift.sentence.startswith("80 of the last 283 recordings ")
        only = drift_of([], 0.1, not_judged={code: 200})
        assert only.sentence.startswith("200 of the last 200 recordings ")
        assert "%" not in only.sentence  # of nothing
        assert not drift_of([], 0.1, not_judged={code: 8}).stale
        sentences.add(only.sentence)
    assert len(sentences) == 5


def test_too_quiet_is_drift_and_few_anomalies_alone_are_not():
    quiet = drift_of(judged(1, 200, power=0.2), 0.1)
    assert quiet.stale
    assert "calmer" in quiet.sentence
    assert not drift_of(judged(1, 200), 0.1).stale
    assert not drift_of(judged(1, 20, power=0.2), 0.1).stale


@pytest.mark.parametrize("n", [1, 30, 57, 200])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
def test_the_bound_is_that_of_the_binomial_distribution(n, rate):
    k = largest_by_chance(n, rate)
    assert tail(k, n, rate) <= LEVEL * (1 + 1e-9)
    assert k == 0 or tail(k - 1, n, rate) > LEVEL * (1 - 1e-9)
    if (n, rate) == (200, 0.1):
        assert [drift_of(judged(k + more, n), rate).stale for more in (0, 1)] == [False, True]


def test_few_clips_are_an_alarm_and_no_drift():
    assert drift_of([], 0.1) is None
    drift = drift_of(judged(FEWEST - 1, FEWEST - 1), 0.1)
    assert not drift.stale
    assert drift_of(judged(FEWEST, FEWEST), 0.1).stale


def test_a_small_domain_cannot_drift_unseen_in_the_total():
    clips = judged(2, 160) + judged(20, 40, TARGET)
    assert sum(flag for flag, _, _ in clips) <= largest_by_chance(200, 0.1)
    drift = drift_of(clips, 0.1, model="a b.daco")
    assert drift.stale
    assert "50 % of the last 40 recordings of the condition target are anomalous" in drift.sentence
    assert drift.remedy == "daco calibrate 'a b.daco' NEW_NORMALS --domain target"
