"""Evidence, trends and expectations: realised against stated rates, on simulated clips."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from scipy.signal import lfilter
from scipy.special import ndtr

from daco.errors import InputError, NotEnoughClipsError
from daco.monitoring.evidence import Evidence, advance, limit, quantiles, rank_p_values
from daco.monitoring.expectation import clips_until_alarm, expect
from daco.monitoring.trends import BLOCK, Trend, advance_block, advance_trend


def process(rng, count, correlation, rows=1):
    noise = rng.normal(size=(rows, count + 100))
    return lfilter([np.sqrt(1 - correlation**2)], [1, -correlation], noise)[:, 100:]


def conformal(scores, references):
    above = len(references) - np.searchsorted(np.sort(references), scores)
    return (1 + above) / (len(references) + 1)


def alarms(p_values, threshold):
    steps, value, count = quantiles(p_values) - 0.5, np.zeros(len(p_values)), 0
    for step in steps.T:
        value = np.maximum(0, value + step)
        count += int(np.sum(value >= threshold))
        value[value >= threshold] = 0
    return count


@pytest.mark.statistical
@pytest.mark.parametrize("correlation", [0, 0.5])
def test_the_interval_between_false_alarms_is_within_a_factor_of_two(correlation):
    rng = np.random.default_rng(0)
    stated, count, clips = 500, 0, 0
    for _ in range(8):
        references = process(rng, 500, correlation)[0]
        threshold = limit(rank_p_values(references), stated)
        live = process(rng, 2500, correlation, rows=8)
        count += alarms(conformal(live, references), threshold)
        clips += live.size
    assert stated / 2 < clips / count < stated * 2


def test_evidence_adds_up_where_no_clip_is_anomalous():
    threshold = limit(np.random.default_rng(1).permutation(100) / 100 + 0.01, 1000)
    evidence = Evidence()
    while evidence.value < threshold:
        evidence = advance(evidence, 0.12)
    assert 5 < evidence.clips < 15
    assert Evidence(**json.loads(json.dumps(asdict(evidence)))) == evidence
    steps = quantiles([0.12]).item() - 0.5
    assert evidence.value == pytest.approx(evidence.clips * steps)


def test_ties_and_extreme_p_values_are_bounded():
    assert rank_p_values([1.0, 1.0, 1.0]).tolist() == [1, 1, 1]
    assert advance(Evidence(), 0.0).value < 4
    assert advance(Evidence(3.0, 2), 1.0).value == pytest.approx(2.5 + quantiles(1.0).item())
    assert advance(Evidence(1.0, 2), 1.0) == Evidence()
    with pytest.raises(InputError, match="between 0 and 1"):
        advance(Evidence(), float("nan"))
    with pytest.raises(NotEnoughClipsError, match="at least 10"):
        limit([0.5] * 9, 1000)


def test_a_rarer_alarm_and_correlated_references_need_more_evidence():
    rng = np.random.default_rng(3)
    alone, alike = (rank_p_values(process(rng, 400, r)[0]) for r in (0, 0.7))
    limits = [limit(alone, clips) for clips in (100, 1000, 10_000, 500_000)]
    assert limits == sorted(limits)
    assert limit(alike, 1000) > 1.5 * limit(alone, 1000)


def blocks(values):
    return np.maximum(values, quantiles(1.0)).reshape(-1, BLOCK).mean(axis=1).tolist()


@pytest.mark.statistical
@pytest.mark.parametrize("clips", [525_600, 52_550])  # a year of one a minute, or in ten
@pytest.mark.parametrize("correlation", [0, 0.8])
def test_stationary_clips_have_at_most_one_trend_a_year(clips, correlation):
    rng, count, years = np.random.default_rng(4), 0, 3
    for _ in range(years):
        trend = Trend()
        for block in blocks(process(rng, clips // BLOCK * BLOCK, correlation)[0]):
            trend = advance_block(trend, block)
            if trend.is_rising:
                count, trend = count + 1, Trend()
    assert count <= years


@pytest.mark.parametrize(("correlation", "least"), [(0, 1.0), (0.5, 1.0), (0.8, 0.8)])
def test_a_drift_of_one_deviation_in_2000_clips_is_found_within_1000_more(correlation, least):
    rng, found = np.random.default_rng(5), []
    for _ in range(20):
        drift = np.clip(np.arange(8000) / 2000 - 2.5, 0, 1)  # begins at clip 5,000
        trend = Trend()
        for block in blocks(process(rng, 8000, correlation)[0] + drift):
            trend = advance_block(trend, block)
        found.append(trend.is_rising)
    assert np.mean(found) >= least


def test_a_trend_by_clips_is_the_trend_by_blocks_and_survives_a_restart():
    p_values = ndtr(-process(np.random.default_rng(6), 30 * BLOCK, 0)[0])
    by_clips = Trend()
    for p in p_values:
        by_clips = Trend(**json.loads(json.dumps(asdict(advance_trend(by_clips, p)))))
    by_blocks = Trend()
    for block in quantiles(p_values).reshape(-1, BLOCK).mean(axis=1):
        by_blocks = advance_block(by_blocks, block)
    assert (by_clips.blocks, by_clips.rising) == (by_blocks.blocks, by_blocks.rising)
    assert by_clips.evidence == pytest.approx(by_blocks.evidence)


@pytest.mark.parametrize(
    ("k", "n", "share", "r"), [(3, 5, 0.2, 0), (2, 4, 0.1, 0.4), (1, 1, 0.05, 0.3)]
)
def test_clips_until_an_alarm_are_those_of_a_simulation(k, n, share, r):
    rng, lengths = np.random.default_rng(7), []
    for _ in range(1500):
        recent, clips = [False], 0
        while sum(recent) < k:
            recent = [*recent, rng.random() < share * (1 - r) + r * recent[-1]][-n:]
            clips += 1
        lengths.append(clips)
    mean, median = clips_until_alarm(k, n, share, r)
    assert mean == pytest.approx(np.mean(lengths), rel=0.1)
    assert median == pytest.approx(np.median(lengths), rel=0.15, abs=1)


def test_long_rules_are_simulated_alike():
    assert clips_until_alarm(5, 14, 0.3)[0] == pytest.approx(
        clips_until_alarm(5, 13, 0.3)[0], rel=0.15
    )
    assert clips_until_alarm(3, 5, 0.0)[0] == np.inf


def test_expectations_in_words():
    often, seldom = expect((3, 5), 0.1, 1440), expect((3, 5), 0.02, 24, references=100)
    assert often.sentences[0] == "Expect about 41 false alarms a week."
    assert seldom.sentences[0].startswith("Expect about one false alarm in ")
    assert seldom.false_alarms_low < seldom.false_alarms_a_week < seldom.false_alarms_high
    evidence = expect(5.0, 0.1, 144, clips_between=4320)
    assert evidence.false_alarms_a_week == pytest.approx(7 * 144 / 4320)
    assert 5 < evidence.clips_to_alarm < 15
