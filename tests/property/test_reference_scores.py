"""Reference scores: true of any scores, domains, weights and rate."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daco.detector.reference import PRIOR_CLIPS, ReferenceScores

scores = st.floats(-1e6, 1e6, allow_subnormal=False)
quantiles = st.floats(0, 0.999)
rates = st.floats(1e-9, 1, exclude_max=True)


@st.composite
def references(draw, values=scores, bounded=False):
    """Few scores, often equal, of one to three domains."""
    value = st.one_of(values, st.sampled_from([0.0, 0.25, 0.5]))
    parts = draw(st.lists(st.lists(value, min_size=1, max_size=15), min_size=1, max_size=3))
    codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    domains = tuple("abc"[: len(parts)])
    return ReferenceScores(np.concatenate(parts), codes, domains, bounded)


either = st.one_of(references(), references(quantiles, bounded=True))


def weights_of(reference, share):
    """Weights of one clip: a share for the first domain, the rest for the last."""
    weights = np.zeros((1, len(reference.domains)))
    weights[0, 0] += share
    weights[0, -1] += 1 - share
    return weights


@given(either, st.floats(0, 1), rates, st.one_of(scores, quantiles))
def test_a_score_is_above_the_threshold_exactly_where_p_is_at_most_the_rate(
    reference, share, rate, score
):
    weights = weights_of(reference, share)
    threshold = reference.thresholds(weights, rate)[0]
    assert np.isfinite(threshold)
    for each in (score, threshold, np.nextafter(threshold, np.inf), *reference.scores):
        p_value = reference.p_values([each], weights)[0]
        assert 0 <= p_value <= 1
        assert (each > threshold) == (p_value <= rate)


@given(either, st.floats(0, 1), rates, rates)
def test_a_smaller_rate_never_lowers_the_threshold(reference, share, first, second):
    strict, loose = sorted((first, second))
    weights = weights_of(reference, share)
    assert reference.thresholds(weights, strict) >= reference.thresholds(weights, loose)


@given(references(quantiles, bounded=True), st.floats(0, 1), rates)
def test_of_quantiles_the_threshold_stays_below_one(reference, share, rate):
    assert reference.thresholds(weights_of(reference, share), rate)[0] < 1


@given(st.lists(scores, min_size=1, max_size=15), scores)
def test_one_domain_has_the_textbook_p_value_up_to_the_largest(own, score):
    reference = ReferenceScores(own, [0] * len(own), ("all",))
    expected = (1 + sum(each >= score for each in own)) / (len(own) + 1)
    found = reference.p_values([score], [[1.0]])[0]
    if score <= max(own):
        assert found == pytest.approx(expected)
    else:
        assert found < expected + 1e-12


@given(references(), st.floats(0, 1), scores)
def test_several_domains_have_the_weighted_mean_of_shrunk_p_values(reference, share, score):
    if len(reference.domains) == 1 or score > reference.scores.min():
        return  # up to the smallest score no tail is involved
    weights = weights_of(reference, share)
    pooled = np.mean([*(reference.scores >= score), 1])
    expected = 0.0
    for code, weight in enumerate(weights[0]):
        own = reference.scores[reference.clip_domains == code]
        p_value = (1 + sum(own >= score)) / (len(own) + 1)
        total = len(own) + PRIOR_CLIPS
        expected += weight * (len(own) * p_value + PRIOR_CLIPS * pooled) / total
    assert reference.p_values([score], weights)[0] == pytest.approx(expected)


@given(references(), st.floats(0, 1), st.floats(0, 5), scores)
def test_moving_the_reference_up_never_lowers_a_p_value(reference, share, shift, score):
    weights = weights_of(reference, share)
    moved = reference.shifted(dict.fromkeys(reference.domains, shift))
    before, after = (each.p_values([score], weights)[0] for each in (reference, moved))
    assert after >= before - 1e-9


@given(either, st.randoms(), st.floats(0, 1), rates)
def test_the_order_of_clips_does_not_matter(reference, random, share, rate):
    order = random.sample(range(len(reference.scores)), len(reference.scores))
    shuffled = ReferenceScores(
        reference.scores[order],
        reference.clip_domains[order],
        reference.domains,
        reference.bounded,
    )
    weights = weights_of(reference, share)
    assert shuffled.thresholds(weights, rate) == reference.thresholds(weights, rate)
