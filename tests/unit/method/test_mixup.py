"""MemMixup from distances alone, and GenRep's standardised domains."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_scorers as textbook
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.method import mixup
from daco.method.distances import PairwiseDistances, cosine_distances, unit_rows
from daco.method.mixup import (
    MIX,
    genrep_scores,
    mixed_domain_distance_against,
    mixed_domain_distance_within,
    target_clips,
    target_distances,
    target_domain,
)


@st.composite
def banks(draw):
    """Unit rows grouped by domain, their domain numbers, and some subsets."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.sampled_from([(9,), (14, 3), (3, 14), (8, 5, 5), (6, 6), (12, 1), (1, 1, 1)]))
    n, dim = sum(sizes), draw(st.sampled_from([1, 2, 3, 12]))
    X = rng.standard_normal((n, dim))
    kind = draw(st.sampled_from(["random", "offset", "lattice", "duplicated"]))
    if kind == "offset":
        X += 6
    elif kind == "lattice":  # exact ties and opposite directions
        X = np.round(X) + np.where(np.abs(X).max(axis=1, keepdims=True) < 0.5, 1, 0)
    elif kind == "duplicated":
        X = X[rng.integers(0, n, n)]
    codes = np.repeat(np.arange(len(sizes)), sizes)
    members = rng.random((3, n)) < 0.5
    members[0] = True
    members[1, codes == textbook.smallest_domain(codes)] = False
    return unit_rows(X), codes, members


def starts_of(codes):
    return np.concatenate([[0], np.cumsum(np.bincount(codes))])


@settings(max_examples=100)
@given(banks())
def test_distances_within_are_those_to_mixtures_made_one_by_one(bank):
    unit, codes, members = bank
    found = mixed_domain_distance_within(PairwiseDistances(unit), members, starts_of(codes))
    expected = np.stack([textbook.mixed_within(unit, codes, member) for member in members])
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=1e-14)  # 32 ulp are 0


@settings(max_examples=50)
@given(banks(), st.integers(0, 2**32 - 1))
def test_distances_of_new_clips_are_those_to_mixtures_made_one_by_one(bank, seed):
    unit, codes, _ = bank
    query = unit_rows(np.random.default_rng(seed).standard_normal((5, unit.shape[1])))
    starts = starts_of(codes)
    pairs = target_distances(PairwiseDistances(unit), target_clips(starts))
    found = mixed_domain_distance_against(cosine_distances(unit, query), pairs, starts)
    everyone = np.ones(len(unit), bool)
    expected = [textbook.mixed_distance(unit, codes, everyone, clip) for clip in query]
    np.testing.assert_allclose(found[0], np.array(expected).T, atol=1e-14)


def two_domains(rng, dtype=np.float64, n_target=6):
    unit = unit_rows((rng.standard_normal((40, 8)) + 1).astype(dtype))
    return unit, np.array([0, 40 - n_target, 40])


def test_one_domain_has_nothing_to_mix(rng):
    unit, _ = two_domains(rng)
    distances, member = PairwiseDistances(unit), rng.random(40) < 0.5
    found = mixed_domain_distance_within(distances, member[None], np.array([0, 40]))
    nearest = distances.rows(np.arange(40))[:, member].min(axis=1)
    assert (found[0, 0] == nearest).all()


def test_mixtures_never_move_a_domain_away_and_change_the_smallest_alone(rng):
    unit, starts = two_domains(rng)
    distances = PairwiseDistances(unit)
    plain = distances.rows(np.arange(40))
    found = mixed_domain_distance_within(distances, np.ones((1, 40), bool), starts)[0]
    assert (found[0] == plain[:, :34].min(axis=1)).all()
    assert (found[1] <= plain[:, 34:].min(axis=1)).all()
    assert (found[1] < plain[:, 34:].min(axis=1)).any()


def test_a_mixture_of_the_bank_is_at_no_distance(rng):
    unit, starts = two_domains(rng)
    query = unit_rows(MIX * unit[36:37] + (1 - MIX) * unit[3:4])
    pairs = target_distances(PairwiseDistances(unit), target_clips(starts))
    found = mixed_domain_distance_against(cosine_distances(unit, query), pairs, starts)
    assert found[0, 1, 0] == 0


def test_a_left_out_clip_takes_its_mixtures_with_it(rng):
    """A target clip, then a source clip: against a bank that never had them."""
    unit, starts = two_domains(rng)
    found = mixed_domain_distance_within(PairwiseDistances(unit), np.ones((1, 40), bool), starts)
    for clip, without in ((36, [0, 34, 39]), (5, [0, 33, 39])):
        rest = np.delete(unit, clip, axis=0)
        pairs = target_distances(PairwiseDistances(rest), target_clips(np.array(without)))
        new = mixed_domain_distance_against(
            cosine_distances(rest, unit[clip : clip + 1]), pairs, np.array(without)
        )
        np.testing.assert_allclose(found[0, :, clip], new[0, :, 0], rtol=1e-12)


def test_a_subset_without_target_members_is_infinitely_far_from_the_target(rng):
    unit, starts = two_domains(rng)
    member = np.arange(40) < 34
    found = mixed_domain_distance_within(PairwiseDistances(unit), member[None], starts)[0]
    assert np.isinf(found[1]).all()
    assert np.isfinite(found[0]).all()


def test_zero_and_opposite_clips_are_safe():
    """Digital silence is at right angles to everything, also as a part of a mixture."""
    unit = np.array([[1.0, 0], [-1, 0], [0, 0], [0, 1], [1, 0], [0, 0]])
    starts = np.array([0, 4, 6])
    found = mixed_domain_distance_within(PairwiseDistances(unit), np.ones((1, 6), bool), starts)
    assert np.isfinite(found).all()
    assert (found >= 0).all()
    np.testing.assert_allclose(found[0, :, 2], 1, atol=1e-15)
    assert found[0, 1, 0] == 0  # the target clip of the same direction


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blocks_and_batches_do_not_change_a_bit(rng, monkeypatch, dtype):
    """1,500 clips are two by two tiles; target clips are taken in several batches."""
    unit = unit_rows((rng.standard_normal((1500, 6)) + 1).astype(dtype))
    starts, members = np.array([0, 1480, 1500]), rng.random((2, 1500)) < 0.5
    kept = mixed_domain_distance_within(PairwiseDistances(unit), members, starts)
    monkeypatch.setattr(mixup, "TILE", 7)
    monkeypatch.setattr(mixup, "_COLUMNS_AT_ONCE", 100)
    blocks = PairwiseDistances(unit, memory_budget=0)
    assert (mixed_domain_distance_within(blocks, members, starts) == kept).all()
    assert kept.dtype == dtype


def test_single_precision_is_as_exact_as_its_distances(rng):
    unit, starts = two_domains(rng, np.float32)
    members = np.ones((1, 40), bool)
    single = mixed_domain_distance_within(PairwiseDistances(unit), members, starts)
    double = mixed_domain_distance_within(
        PairwiseDistances(unit.astype(np.float64)), members, starts
    )
    np.testing.assert_allclose(single, double, atol=8 * np.finfo(np.float32).eps)


def test_the_target_is_the_smallest_domain_and_of_equals_the_last():
    assert target_domain(np.array([0, 990, 1000])) == 1
    assert target_domain(np.array([0, 10, 1000])) == 0
    assert target_domain(np.array([0, 5, 10, 20])) == 1
    assert target_clips(np.array([0, 5, 10, 20])).tolist() == [5, 6, 7, 8, 9]


@settings(max_examples=100)
@given(banks(), st.integers(0, 2**32 - 1), st.booleans())
def test_genrep_is_the_textbook_one(bank, seed, mixed):
    unit, codes, members = bank
    starts, distances = starts_of(codes), PairwiseDistances(unit)
    domain_distance = np.random.default_rng(seed).random((3, len(starts) - 1, 7))
    if mixed:
        own = mixed_domain_distance_within(distances, members, starts)
    else:
        rows = distances.rows(np.arange(len(unit)))
        own = np.array(
            [
                [
                    rows[:, m & (codes == g)].min(axis=1, initial=np.inf)
                    for g in range(codes[-1] + 1)
                ]
                for m in members
            ]
        )
    found = genrep_scores(own, members, starts, domain_distance)
    expected = [textbook.genrep(own[s], codes, members[s], domain_distance[s]) for s in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_genrep_scores_of_members_are_centred_in_every_domain(rng):
    """A clip as far from its domain as its members are on average scores 0."""
    unit, starts = two_domains(rng)
    distances = PairwiseDistances(unit).rows(np.arange(40))
    own = np.stack([distances[:, :34].min(axis=1), distances[:, 34:].min(axis=1)])[None]
    typical = np.array([[[own[0, 0, :34].mean(), 9.0], [9.0, own[0, 1, 34:].mean()]]])
    scores = genrep_scores(own, np.ones((1, 40), bool), starts, typical)
    np.testing.assert_allclose(scores, 0, atol=1e-12)


def test_genrep_divides_by_the_spread_of_the_target_in_all_domains(rng):
    unit, starts = two_domains(rng)
    distances = PairwiseDistances(unit).rows(np.arange(40))
    own = np.stack([distances[:, :34].min(axis=1), distances[:, 34:].min(axis=1)])[None]
    two = np.array([[[0.3, 0.5], [9.0, 9.0]]])
    first, second = genrep_scores(own, np.ones((1, 40), bool), starts, two)[0]
    assert second - first == pytest.approx(0.2 / own[0, 1, 34:].std())


def test_genrep_of_a_target_with_one_member_is_finite():
    own = np.array([[[0.1, 0.2, 0.3, 0.5], [0.5, 0.5, 0.5, np.inf]]])
    clips = np.array([[[0.4], [0.2]]])
    scores = genrep_scores(own, np.ones((1, 4), bool), np.array([0, 3, 4]), clips)
    assert scores[0, 0] == pytest.approx(0 / np.std([0.1, 0.2, 0.3]), abs=1e-12)
    alone = genrep_scores(
        np.full((1, 2, 2), np.inf), np.ones((1, 2), bool), np.array([0, 1, 2]), clips
    )
    assert alone[0, 0] == 0.2  # nothing to standardise by


@pytest.fixture
def rng():
    return np.random.default_rng(5)
