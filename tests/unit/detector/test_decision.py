"""The decision rule: p-values, thresholds, the choice of references, and the rate to expect."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import beta

import daco
from daco.detector.decision import (
    INDEPENDENT,
    NEW,
    SESSIONS,
    TRAINING,
    ReferenceScores,
    expected_rates,
    is_anomalous,
    oddness,
    require_rate,
)
from daco.detector.reference import basis_in_words, parse_sessions, reference_for
from daco.errors import InputError

scores = st.floats(-1e6, 1e6, allow_subnormal=False)
quantiles = st.floats(0, 0.999)
rates = st.floats(1e-6, 0.99)


@st.composite
def references(draw, values=scores, bounded=False):
    """Few scores, often equal, of one to three domains."""
    value = st.one_of(values, st.sampled_from([0.0, 0.25, 0.5]))
    parts = draw(st.lists(st.lists(value, min_size=1, max_size=15), min_size=1, max_size=3))
    codes = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return ReferenceScores(np.concatenate(parts), codes, tuple("abc"[: len(parts)]), bounded)


either = st.one_of(references(), references(quantiles, bounded=True))


def weights_of(reference, share):
    """Weights of one clip: a share for the first domain, the rest for the last."""
    weights = np.zeros(len(reference.domains))
    weights[0] += share
    weights[-1] += 1 - share
    return weights


def parts_of(reference):
    return [
        reference.scores[reference.clip_domains == code] for code in range(len(reference.domains))
    ]


def literal_p_value(score, parts, weights):
    """The weighted conformal p-value as it is defined, without a tail."""
    n = 1 / sum(weight**2 / len(part) for weight, part in zip(weights, parts, strict=True))
    shares = [sum(each >= score for each in part) / len(part) for part in parts]
    weighted = sum(weight * share for weight, share in zip(weights, shares, strict=True))
    return (1 + n * weighted) / (n + 1)


class TestPValues:
    @given(either, st.floats(0, 1), st.one_of(scores, quantiles))
    def test_are_as_defined_up_to_the_largest_reference(self, reference, share, score):
        weights, parts = weights_of(reference, share), parts_of(reference)
        expected = literal_p_value(score, parts, weights)
        found = reference.p_values([score], [weights])[0]
        # domains with less than a twentieth of the largest weight have no say in the tail
        matter = [
            part.max() for part, w in zip(parts, weights, strict=True) if w >= max(weights) / 20
        ]
        if score <= max(matter):
            assert found == pytest.approx(expected, rel=1e-12)
        else:
            assert 0 <= found <= expected * (1 + 1e-12)

    @given(either, st.floats(0, 1), st.lists(st.one_of(scores, quantiles), min_size=2))
    def test_fall_with_the_score(self, reference, share, values):
        weights = np.tile(weights_of(reference, share), (len(values), 1))
        found = reference.p_values(np.sort(values), weights)
        assert (np.diff(found) <= 1e-15).all()

    def test_weigh_domains_by_the_effective_number_of_references(self):
        reference = ReferenceScores(np.arange(40), np.repeat([0, 1], [30, 10]), ("a", "b"))
        weights = [[1, 0], [0, 1], [0.75, 0.25], [0.5, 0.5]]
        assert reference.smallest(weights) == pytest.approx([1 / 31, 1 / 11, 1 / 41, 1 / 31])

    @pytest.mark.parametrize("bounded", [False, True])
    def test_continue_below_what_the_references_support(self, bounded):
        own = np.arange(1, 20) / 20
        reference = ReferenceScores(own, np.zeros(19), ("all",), bounded)
        values = np.array([0.94, 0.95, 0.951, 0.96, 0.97, 0.99])
        found = reference.p_values(values, np.ones((6, 1)))
        assert found[:2] == pytest.approx(2 * [2 / 20])
        assert found[2] == pytest.approx(1 / 20, rel=0.03)  # no jump
        assert (np.diff(found[2:]) < 0).all()
        marked = reference.extrapolated(found, np.ones((6, 1)))
        assert marked.tolist() == [False, False, True, True, True, True]
        if bounded:  # uniform quantiles: the tail is about what it should be
            assert found[3:] == pytest.approx(1 - values[3:], rel=0.15)

    def test_just_above_the_largest_reference_are_supported(self):
        reference = ReferenceScores(np.arange(9.0), np.zeros(9), ("all",))
        p_value = reference.p_values([np.nextafter(8.0, 9.0)], [[1.0]])
        assert not reference.extrapolated(p_value, [[1.0]])[0]
        assert is_anomalous(p_value, 0.1)[0]

    def test_a_domain_of_little_weight_does_not_end_the_tail(self):
        reference = ReferenceScores([1, 2, 3, 50], [0, 0, 0, 1], ("a", "b"))
        little, some = reference.p_values([9.0, 9.0], [[0.99, 0.01], [0.7, 0.3]])
        assert little < 0.05
        assert some > 0.4

    def test_a_twentieth_of_the_largest_weight_is_no_little_weight(self):
        reference = ReferenceScores([1, 2, 1, 2, 50], [0, 0, 1, 1, 2], ("a", "b", "c"))
        weights = np.array([0.47, 0.5, 0.03])
        literal = literal_p_value(9.0, parts_of(reference), weights)
        assert reference.p_values([9.0], [weights]) == pytest.approx([literal])
        assert reference.threshold(weights, 0.05) > 50

    @pytest.mark.parametrize(
        ("given", "halving"),
        [
            (np.arange(1.0, 10), 4 / np.log2(5)),  # the exponential is 1/2 at the median
            ([0.0, 1.0], 0.5),  # of a few references it is not slower than that
            ([100.0] * 9, 1e-7 / np.log2(5)),  # equal ones have no scale of their own
        ],
    )
    def test_the_tail_halves_p_as_fast_as_the_references_rise(self, given, halving):
        reference = ReferenceScores(given, np.zeros(len(given)), ("all",))
        found = reference.p_values(max(given) + halving * np.arange(1, 3), np.ones((2, 1)))
        assert found == pytest.approx(np.array([1 / 2, 1 / 4]) / (len(given) + 1), rel=1e-5)

    def test_one_clip_is_judged_as_a_row_is(self):
        reference = ReferenceScores([1, 2, 3, 50], [0, 0, 0, 1], ("a", "b"))
        weights = np.array([0.8, 0.2])
        for score in (2.5, 9.0, 60.0):
            assert reference.p_values(score, weights) == reference.p_values([score], [weights])[0]
        assert reference.smallest(weights) == reference.smallest([weights])[0]


class TestThresholds:
    @given(either, st.floats(0, 1), rates)
    def test_p_is_at_most_the_rate_exactly_above(self, reference, share, rate):
        """Within the rounding of scores, which is coarse for quantiles near 1."""
        weights = weights_of(reference, share)
        threshold = reference.threshold(weights, rate)
        assert np.isfinite(threshold)
        assert threshold < 1 or not reference.bounded
        assume(threshold < 1 - 1e-6 or not reference.bounded)
        step, slack = 4 * np.spacing(abs(threshold)), 1e-5
        just_above, at, below = reference.p_values(
            [threshold + step, threshold, threshold - step], [weights] * 3
        )
        assert just_above <= rate * (1 + slack)
        assert at >= rate * (1 - slack)
        assert below >= rate * (1 - slack)
        for score in reference.scores:
            p_value = reference.p_values([score], [weights])[0]
            assert is_anomalous(p_value, rate) == (score > threshold) or p_value == pytest.approx(
                rate, rel=slack
            )

    def test_oddness_is_a_ratio_of_logarithms_and_finite(self):
        found = [oddness(p, 0.1) for p in (1.0, 0.5, 0.1, 0.01, 0.0)]
        assert found == pytest.approx([0, np.log10(2), 1, 2, 307.65], abs=0.01)

    @given(rates, st.one_of(st.just(1.0), st.floats(0, 3)))
    def test_oddness_is_at_least_one_exactly_where_a_clip_is_anomalous(self, rate, factor):
        p_value = min(1.0, rate * factor)
        assert (oddness(p_value, rate) >= 1) == is_anomalous(p_value, rate)
        assert 0 <= oddness(p_value, rate) < np.inf

    @pytest.mark.parametrize("rate", [0.5, 0.2, 0.1, 0.05])
    def test_of_one_domain_it_has_the_conformal_rank(self, rate):
        own = np.random.default_rng(0).gamma(2, size=99)
        reference = ReferenceScores(own, np.zeros(99), ("all",))
        rank = round(100 * (1 - rate))
        assert reference.domain_thresholds(rate) == {"all": np.sort(own)[rank - 1]}

    def test_references_of_a_domain_of_little_weight_stay_above_it(self):
        """They count in the share although they have no say in the tail."""
        reference = ReferenceScores([*range(5), 100], [0] * 5 + [1], ("a", "b"))
        weights = np.array([0.97, 0.03])
        threshold = reference.threshold(weights, 0.01)
        assert threshold >= 100
        assert reference.p_values([threshold + 1e-6], [weights])[0] <= 0.01


class TestBadInput:
    @pytest.mark.parametrize("rate", [0, 1, -0.1, float("nan"), "0.1", True, None, 1e-12])
    def test_what_is_no_rate_is_refused_and_the_smallest_one_is_not(self, rate):
        require_rate(1e-9)
        with pytest.raises(InputError, match="must be a number between 0 and 1"):
            require_rate(rate)

    @pytest.mark.parametrize(
        ("values", "codes", "domains"),
        [
            ([], [], "a"),
            ([1.0], [0], "ab"),
            ([1.0, 2.0], [0, 2], "ab"),
            ([1.0, 2.0], [0], "a"),
            ([[1.0]], [[0]], "a"),
            ([1.0, np.nan], [0, 0], "a"),
            ([1.0, np.inf], [0, 0], "a"),
        ],
    )
    def test_scores_that_nothing_can_be_judged_by_are_refused(self, values, codes, domains):
        with pytest.raises(InputError, match=r"finite|each domain"):
            ReferenceScores(values, codes, tuple(domains))

    def test_sessions_name_each_clip_or_are_none(self):
        assert parse_sessions(None, 3) == parse_sessions(["", "", ""], 3) == ()
        assert parse_sessions([1, 2, ""], 3) == ("1", "2", "")
        for wrong in (["a"], "abc", 7):
            with pytest.raises(InputError, match="groups must name each of the 3 clips"):
                parse_sessions(wrong, 3)


class TestShift:
    def test_moving_one_domain_leaves_the_others(self):
        reference = ReferenceScores([1, 2, 3, 10, 20], [0, 0, 0, 1, 1], ("a", "b"))
        moved = reference.shifted({"b": 2.0, "unknown": 9.0})
        assert moved.scores.tolist() == [1, 2, 3, 20, 30]

    def test_moved_quantiles_stay_quantiles(self):
        bounded = ReferenceScores([0.2, 0.5, 0.9], [0, 0, 0], ("a",), bounded=True)
        up = bounded.shifted({"a": 1.0}).scores
        assert ((up > bounded.scores) & (up < 1)).all()
        np.testing.assert_allclose(bounded.shifted({}).scores, bounded.scores)

    @given(references(), st.floats(0, 1), st.floats(0, 5), scores)
    def test_moving_the_references_up_never_lowers_a_p_value(self, reference, share, shift, score):
        weights = [weights_of(reference, share)]
        moved = reference.shifted(dict.fromkeys(reference.domains, shift))
        before, after = (each.p_values([score], weights)[0] for each in (reference, moved))
        assert after >= before - 1e-9


DOMAINS = np.array(["old"] * 60 + ["new"] * 20)
TAKES = [f"take {row // 4}" for row in range(80)]


def draw(seed, takes, size=4):
    """Clips of recordings: clips of one recording are alike."""
    rng = np.random.default_rng(seed)
    X = np.repeat(rng.normal(size=(takes, 8)) + 1, size, axis=0)
    return X + 0.2 * rng.normal(size=X.shape)


@pytest.fixture(scope="module")
def bank():
    return daco.NormalBank(draw(0, 20), DOMAINS)


def part(reference, name):
    return reference.scores[reference.clip_domains == reference.domains.index(name)]


class TestWhichReferences:
    @pytest.mark.parametrize("config", ["blend", "raw-k1", "conf-soft-m0-k1", "varmin-K4"])
    @pytest.mark.parametrize(
        ("siblings", "kind"), [("auto", TRAINING), (2, TRAINING), (0, INDEPENDENT)]
    )
    def test_clips_of_the_bank_have_their_siblings_hidden(self, bank, config, siblings, kind):
        reference = reference_for(bank, config, siblings=siblings)
        assert reference.kinds == {"new": kind, "old": kind}
        assert reference.bounded == config.startswith("conf")
        normals = bank.examine_normals(config, siblings)
        for name in bank.domains:
            np.testing.assert_array_equal(part(reference, name), normals.scores[name == DOMAINS])
            hidden = normals.hidden[name == DOMAINS].mean()
            assert reference.siblings[name] == pytest.approx(hidden)

    def test_known_sessions_are_hidden_instead(self, bank):
        reference = reference_for(bank, "raw-k1", TAKES)
        assert reference.kinds == {"new": SESSIONS, "old": SESSIONS}
        assert reference.sessions == {"new": 5, "old": 15}
        expected = bank.examine_normals("raw-k1", sessions=TAKES).scores
        for name in bank.domains:
            np.testing.assert_array_equal(part(reference, name), expected[name == DOMAINS])

    def test_clips_without_a_session_do_not_count_beside_those_with_one(self, bank):
        some = [name if row % 8 else "" for row, name in enumerate(TAKES)]
        assert reference_for(bank, "raw-k1", some).sizes == {"new": 18, "old": 52}

    @pytest.mark.parametrize("session", ["one day", ""])
    def test_a_domain_of_one_session_is_not_hidden_whole(self, bank, session):
        reference = reference_for(bank, "raw-k1", [*TAKES[:60], *[session] * 20])
        assert reference.kinds == {"new": TRAINING, "old": SESSIONS}
        expected = part(reference_for(bank, "raw-k1"), "new")
        np.testing.assert_array_equal(part(reference, "new"), expected)

    @pytest.mark.parametrize("sessions", [(), TAKES])
    def test_new_clips_come_first_in_their_domain_alone(self, bank, sessions):
        new = draw(1, 6, 1)
        reference = reference_for(bank, "raw-k1", sessions, (new, np.zeros(6, np.int32)))
        assert reference.kinds == {"new": NEW, "old": SESSIONS if sessions else TRAINING}
        np.testing.assert_array_equal(part(reference, "new"), bank.score(new, "raw-k1")[:, 0])
        others = part(reference_for(bank, "raw-k1", sessions), "old")
        np.testing.assert_array_equal(part(reference, "old"), others)

    def test_with_new_clips_of_every_domain_no_normal_is_scored(self, bank, monkeypatch):
        monkeypatch.setattr(daco.NormalBank, "examine_normals", lambda *_: pytest.fail("scored"))
        codes = np.array([0, 1, 0, 1, 1, 1], np.int32)
        assert reference_for(bank, "raw-k1", (), (draw(1, 6, 1), codes)).sizes == {
            "new": 2,
            "old": 4,
        }

    def test_support_is_what_a_typical_clip_of_the_domain_has(self, bank):
        """Domains that look alike lend each other references."""
        new, codes = draw(1, 50, 1), np.repeat(np.array([0, 1], np.int32), 25)
        reference = reference_for(bank, "raw-k1", (), (new, codes))
        weights = bank.examine(new, "raw-k1").weights
        n = 1 / reference.smallest(weights) - 1
        assert reference.support["new"] == pytest.approx(np.median(n[:25]))
        assert 25 < reference.support["new"] <= 50


class TestWhatIsSaidOfTheRate:
    def test_training_clips_tell_no_rate(self, bank):
        assert expected_rates(reference_for(bank, "raw-k1"), 0.1) == {"new": None, "old": None}

    @pytest.mark.parametrize("kind", [NEW, INDEPENDENT])
    def test_of_independent_clips_it_is_a_range_around_the_rate(self, kind):
        few, many = (
            ReferenceScores(range(n), [0] * n, ("a",), kinds={"a": kind}) for n in (19, 199)
        )
        (low, high), (lower, higher) = (expected_rates(r, 0.1)["a"] for r in (few, many))
        assert low < lower < 0.1 < higher < high
        exact = beta.ppf([0.05, 0.95], 2, 18)  # if the references did not share the bank
        assert low < exact[0] < exact[1] < high

    def test_of_three_clips_it_is_that_of_half_a_rank(self):
        ends = {}
        for kind, share in ((NEW, 0.9), (INDEPENDENT, 0.7)):
            reference = ReferenceScores([1, 2, 3], [0, 0, 0], ("a",), kinds={"a": kind})
            ends[kind] = expected_rates(reference, 0.1)["a"]
            assert ends[kind] == pytest.approx(beta.ppf([0.05, 0.95], share * 0.5, share * 3.5))
        assert ends[NEW][1] < ends[INDEPENDENT][1]

    def test_clips_of_one_session_count_as_one(self, bank):
        reference = reference_for(bank, "raw-k1", TAKES)
        of_sessions = expected_rates(reference, 0.2)["old"]
        alone = ReferenceScores(range(15), [0] * 15, ("a",), kinds={"a": SESSIONS})
        assert of_sessions == expected_rates(alone, 0.2)["a"]

    @pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.99])
    def test_a_range_has_rates_for_any_rate(self, bank, rate):
        for reference in (
            reference_for(bank, "raw-k1", siblings=0),
            reference_for(bank, "raw-k1", TAKES),
        ):
            for low, high in expected_rates(reference, rate).values():
                assert 0 <= low < high <= 1

    @pytest.mark.parametrize(
        ("kind", "when", "tokens"),
        [
            (NEW, "2026-05-12T08:00:00Z", ["25 new", "12 May 2026"]),
            (NEW, "soon", ["25 new"]),
            (SESSIONS, None, ["25", "session"]),
            (INDEPENDENT, None, ["independent"]),
            (TRAINING, None, ["unknown"]),
        ],
    )
    def test_one_sentence_tells_the_origin_for_all_domains(self, kind, when, tokens):
        each = {"kind": kind, "clips": 25, "when": when}
        sentence = basis_in_words({"all": each})
        assert all(token in sentence for token in tokens)
        assert basis_in_words({"a": each | {"clips": 20}, "b": each | {"clips": 5}}) == sentence

    def test_a_rate_that_too_few_clips_support_is_warned_of(self):
        reference = ReferenceScores(range(29), [0] * 20 + [1] * 9, ("day", "night"))
        assert reference.warnings(0.1) == ()
        (sentence,) = reference.warnings(0.05)
        assert all(token in sentence for token in ("0.05", "0.1", "9 clips of night", "19 new"))
        assert len(reference.warnings(0.01)) == 2
