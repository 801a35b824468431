"""Thresholds that hold a rate: true of any scores, domains and rate."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from daco.detector.thresholds import more_clips_for, threshold_for

RAW, QUANTILES = "raw-k1", "conf-soft-m0-k1"
scores = st.floats(-1e6, 1e6, allow_subnormal=False)
quantiles = st.floats(0, 0.999)
rates = st.floats(1e-9, 1, exclude_max=True)


def banks(values):
    """Scores and a domain for each: often few, often equal."""
    return st.lists(
        st.tuples(st.one_of(values, st.sampled_from([0.0, 0.25, 0.5])), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    )


@given(banks(scores), rates)
def test_no_domain_exceeds_the_rate_and_none_is_flagged_whole(bank, rate):
    own, domains = (np.array(part) for part in zip(*bank, strict=True))
    threshold = threshold_for(RAW, own, domains, rate)
    assert np.isfinite(threshold)
    for domain in np.unique(domains):
        part = own[domains == domain]
        assert np.mean(part > threshold) <= rate
        assert threshold > part.min()


@given(banks(quantiles), rates)
def test_of_quantiles_the_threshold_stays_below_one(bank, rate):
    own, domains = (np.array(part) for part in zip(*bank, strict=True))
    threshold = threshold_for(QUANTILES, own, domains, rate)
    assert own.min() < threshold < 1


@given(banks(scores), rates, rates)
def test_a_smaller_rate_never_lowers_the_threshold(bank, first, second):
    own, domains = zip(*bank, strict=True)
    strict, loose = sorted((first, second))
    assert threshold_for(RAW, own, domains, strict) >= threshold_for(RAW, own, domains, loose)


@given(banks(scores), rates, st.integers(0, 3))
def test_leaving_a_domain_out_never_raises_it(bank, rate, left_out):
    rest = [(score, domain) for score, domain in bank if domain != left_out]
    if rest:
        whole, part = (threshold_for(RAW, *zip(*each, strict=True), rate) for each in (bank, rest))
        assert whole >= part


@given(banks(scores), rates, st.randoms())
def test_the_order_of_clips_does_not_matter(bank, rate, random):
    shuffled = random.sample(bank, len(bank))
    first, second = (threshold_for(RAW, *zip(*b, strict=True), rate) for b in (bank, shuffled))
    assert first == second


@given(st.floats(1e-6, 0.99), st.integers(1, 1000))
def test_the_clips_asked_for_are_enough_and_no_more(rate, n):
    more = more_clips_for(rate, n)
    assert 1 / (n + more + 1) <= rate * (1 + 1e-6)
    if more:
        assert 1 / (n + more) > rate * (1 - 1e-6)
