"""Which normals clips are judged against, and what a model says about it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta

import daco
from daco.detector.reference import (
    NEW,
    SESSIONS,
    TRAINING,
    ReferenceScores,
    basis_in_words,
    expected_rates,
    parse_sessions,
    reference_fields,
    reference_for,
)
from daco.errors import InputError
from daco.method.siblings import likely_siblings, scores_of_normals

DOMAINS = ["old"] * 60 + ["new"] * 20
TAKES = [f"take {row // 4}" for row in range(80)]


def draw(rng, takes, size=4, noise=0.2):
    """Clips of recordings: clips of one recording are alike."""
    X = np.repeat(rng.normal(size=(takes, 8)) + 1, size, axis=0)
    return X + noise * rng.normal(size=X.shape)


@pytest.fixture(scope="module")
def bank():
    return daco.NormalBank(draw(np.random.default_rng(0), 20), DOMAINS)


@pytest.fixture(scope="module")
def new():
    return draw(np.random.default_rng(1), 6, 1)


def part(reference, name):
    return reference.scores[reference.clip_domains == reference.domains.index(name)]


def rows(name):
    return np.array(DOMAINS) == name


class TestWhichScores:
    @pytest.mark.parametrize("config", ["raw-k1", "conf-soft-m0-k1", "varmin-K4", "vote"])
    def test_without_anything_known_likely_siblings_are_hidden(self, bank, config):
        reference = reference_for(bank, config)
        assert reference.kinds == {"new": TRAINING, "old": TRAINING}
        assert reference.sizes == {"new": 20, "old": 60}
        assert reference.bounded == config.startswith("conf")
        expected = scores_of_normals(bank, config, likely_siblings(bank))
        for name in bank.domains:
            np.testing.assert_array_equal(part(reference, name), expected[rows(name)])

    def test_known_sessions_are_hidden_instead(self, bank):
        X = draw(np.random.default_rng(0), 20)  # the bank's
        reference = reference_for(bank, "raw-k1", TAKES)
        assert reference.kinds == {"new": SESSIONS, "old": SESSIONS}
        assert reference.sessions == {"new": 5, "old": 15}
        expected = [
            daco.NormalBank(X[others], np.array(DOMAINS)[others]).score(X[[row]], "raw-k1")[0, 0]
            for row in range(80)
            for others in [np.array(TAKES) != TAKES[row]]
        ]
        for name in bank.domains:
            found, wanted = part(reference, name), np.array(expected)[rows(name)]
            np.testing.assert_allclose(found, wanted, rtol=1e-9)

    def test_clips_without_a_session_do_not_count_beside_those_with_one(self, bank):
        some = [name if row % 8 else "" for row, name in enumerate(TAKES)]
        reference = reference_for(bank, "raw-k1", some)
        assert reference.sizes == {"new": 18, "old": 52}
        assert reference.kinds == {"new": SESSIONS, "old": SESSIONS}
        known = np.array(some) != ""
        expected = scores_of_normals(bank, "raw-k1", likely_siblings(bank), some)
        np.testing.assert_array_equal(part(reference, "old"), expected[rows("old") & known])

    def test_a_domain_of_one_session_is_not_hidden_whole(self, bank):
        """Nothing of its domain would be left: its clips lose their likely siblings."""
        for unknown in ("one day", ""):
            given = [*TAKES[:60], *[unknown] * 20]
            reference = reference_for(bank, "raw-k1", given)
            assert reference.kinds == {"new": TRAINING, "old": SESSIONS}
            assert reference.sizes == {"new": 20, "old": 60}
            expected = part(reference_for(bank, "raw-k1"), "new")
            np.testing.assert_array_equal(part(reference, "new"), expected)
        with_sessions = part(reference_for(bank, "raw-k1", TAKES), "old")
        np.testing.assert_array_equal(part(reference, "old"), with_sessions)

    @pytest.mark.parametrize("sessions", [(), TAKES])
    def test_new_clips_come_first_in_their_domain_alone(self, bank, new, sessions):
        codes = np.zeros(6, np.int32)  # the domain called new
        reference = reference_for(bank, "raw-k1", sessions, (new, codes))
        assert reference.kinds == {"new": NEW, "old": SESSIONS if sessions else TRAINING}
        assert reference.sizes == {"new": 6, "old": 60}
        np.testing.assert_array_equal(part(reference, "new"), bank.score(new, "raw-k1")[:, 0])
        others = part(reference_for(bank, "raw-k1", sessions), "old")
        np.testing.assert_array_equal(part(reference, "old"), others)

    def test_with_new_clips_of_every_domain_no_normal_is_scored(self, bank, new, monkeypatch):
        name = "daco.detector.reference.scores_of_normals"
        monkeypatch.setattr(name, lambda *_: pytest.fail("scored"))
        codes = np.array([0, 1, 0, 1, 1, 1], np.int32)
        reference = reference_for(bank, "raw-k1", (), (new, codes))
        assert reference.sizes == {"new": 2, "old": 4}

    def test_hidden_siblings_bring_the_rate_of_new_recordings_near_the_stated_one(self):
        """Left out alone, clips find their siblings: nearly every new clip is an alarm then."""
        rng = np.random.default_rng(2)
        bank = daco.NormalBank(draw(rng, 50))
        tomorrow = bank.score(draw(rng, 500, 1), "raw-k1")[:, 0]
        weights = np.ones((500, 1))
        own = bank.leave_one_out("raw-k1")[:, 0]
        rates = {
            name: float((reference.p_values(tomorrow, weights) <= 0.1).mean())
            for name, reference in (
                ("left out", ReferenceScores(own, np.zeros(200), ("all",))),
                ("siblings", reference_for(bank, "raw-k1")),
                ("sessions", reference_for(bank, "raw-k1", [str(row // 4) for row in range(200)])),
            )
        }
        assert rates["left out"] > 0.8
        # 50 recordings: three deviations are 0.13
        assert rates["siblings"] == pytest.approx(0.1, abs=0.13)
        assert rates["sessions"] == pytest.approx(0.1, abs=0.13)


class TestExpectedRates:
    def test_of_new_clips_they_are_the_limits_of_so_many(self, bank):
        new = draw(np.random.default_rng(4), 50, 1)
        codes = np.repeat(np.array([0, 1], np.int32), [19, 31])
        reference = reference_for(bank, "raw-k1", (), (new, codes))
        found = expected_rates(bank, "raw-k1", reference, 0.1)
        assert found["new"] == pytest.approx(beta.ppf([0.05, 0.95], 2, 18))
        assert found["old"] == pytest.approx(beta.ppf([0.05, 0.95], 3, 29))

    def test_of_sessions_they_are_the_limits_of_so_many_sessions(self, bank):
        reference = reference_for(bank, "raw-k1", TAKES)
        found = expected_rates(bank, "raw-k1", reference, 0.2)
        assert found["new"] == pytest.approx(beta.ppf([0.05, 0.95], 1, 5))
        assert found["old"] == pytest.approx(beta.ppf([0.05, 0.95], 3, 13))

    def test_of_training_clips_they_are_wider(self, bank):
        reference = reference_for(bank, "raw-k1")
        found = expected_rates(bank, "raw-k1", reference, 0.1)
        thresholds = reference.domain_thresholds(0.1)
        alone = bank.leave_one_out("raw-k1")[:, 0]
        far = [5 * max(count, 1) for count in likely_siblings(bank)]
        distant = scores_of_normals(bank, "raw-k1", far, share=0.5)
        for name, size in reference.sizes.items():
            rank = int(0.1 * (size + 1))
            low, high = beta.ppf([0.05, 0.95], rank, size + 1 - rank)
            shares = [(each[rows(name)] > thresholds[name]).mean() for each in (alone, distant)]
            assert found[name] == pytest.approx((min(low, *shares), max(high, *shares)))
            assert found[name][0] < 0.1 < found[name][1]

    @pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 0.99])
    def test_they_are_rates_for_any_rate(self, bank, rate):
        for reference in (reference_for(bank, "raw-k1"), reference_for(bank, "raw-k1", TAKES)):
            for low, high in expected_rates(bank, "raw-k1", reference, rate).values():
                assert 0 <= low <= high <= 1


class TestTheBasis:
    def test_a_time_stays_while_the_kind_does(self, bank, new):
        codes = np.zeros(6, np.int32)
        first = reference_fields(bank, "raw-k1", (), (new, codes), None, {"new": "2026-05-12"})
        assert first["basis"] == {
            "new": {"kind": NEW, "clips": 6, "when": "2026-05-12"},
            "old": {"kind": TRAINING, "clips": 60, "when": None},
        }
        again = reference_fields(bank, "raw-k1", (), (new[:4], codes[:4]), first["basis"])
        assert again["basis"]["new"] == {"kind": NEW, "clips": 4, "when": "2026-05-12"}
        without = reference_fields(bank, "raw-k1", (), None, first["basis"])
        assert without["basis"]["new"] == {"kind": TRAINING, "clips": 20, "when": None}

    def test_sessions_are_counted(self, bank):
        basis = reference_fields(bank, "raw-k1", TAKES)["basis"]
        assert basis["old"] == {"kind": SESSIONS, "clips": 60, "when": None, "sessions": 15}

    @pytest.mark.parametrize(
        ("kind", "when", "sentence"),
        [
            (NEW, "2026-05-12T08:00:00Z", "from 25 new recordings of 12 May 2026"),
            (NEW, "2026-05-02", "from 25 new recordings of 2 May 2026"),
            (NEW, None, "from 25 new recordings"),
            (NEW, "soon", "from 25 new recordings"),
            (TRAINING, None, "from the training recordings only, so it may be far off"),
        ],
    )
    def test_one_sentence_for_all_domains(self, kind, when, sentence):
        each = {"kind": kind, "clips": 25, "when": when}
        assert basis_in_words({"all": each}) == sentence
        both = basis_in_words({"a": each | {"clips": 20}, "b": each | {"clips": 5}})
        assert both == sentence  # the clips of both together

    def test_domains_are_named_where_they_differ(self):
        new = {"kind": NEW, "clips": 1, "when": None}
        old = {"kind": TRAINING, "clips": 40, "when": None}
        sentence = basis_in_words({"day": old, "late": old, "night": new})
        assert sentence == (
            "for day, late from the training recordings only, so it may be far off; "
            "for night from 1 new recording"
        )

    def test_of_sessions_it_says_what_was_hidden(self):
        each = {"kind": SESSIONS, "clips": 40, "when": None, "sessions": 8}
        assert (
            basis_in_words({"all": each}) == "from 40 recordings, each judged without its session"
        )


def test_sessions_name_each_clip_or_are_none():
    assert parse_sessions(None, 3) == parse_sessions(["", "", ""], 3) == ()
    assert parse_sessions([1, 2, ""], 3) == ("1", "2", "")
    with pytest.raises(InputError, match="groups must name each of the 3 clips"):
        parse_sessions(["a"], 3)


@pytest.mark.parametrize(
    ("scores", "codes", "domains", "message"),
    [
        ([], [], ("a",), "at least one score of each domain"),
        ([1.0], [0], ("a", "b"), "at least one score of each domain"),
        ([1.0, 2.0], [0, 2], ("a", "b"), "at least one score of each domain"),
        ([1.0, 2.0], [0], ("a",), "at least one score of each domain"),
        ([1.0, np.nan], [0, 0], ("a",), "finite"),
        ([1.0, np.inf], [0, 0], ("a",), "finite"),
    ],
)
def test_scores_that_nothing_can_be_judged_by_are_refused(scores, codes, domains, message):
    with pytest.raises(InputError, match=message):
        ReferenceScores(scores, codes, domains)


def test_moving_one_domain_leaves_the_others():
    reference = ReferenceScores([1, 2, 3, 10, 20], [0, 0, 0, 1, 1], ("a", "b"))
    moved = reference.shifted({"b": 2.0, "unknown": 9.0})
    assert moved.scores.tolist() == [1, 2, 3, 20, 30]
    bounded = ReferenceScores([0.2, 0.5, 0.9], [0, 0, 0], ("a",), bounded=True)
    up = bounded.shifted({"a": 1.0}).scores
    assert (up > bounded.scores).all()
    assert (up < 1).all()
    np.testing.assert_allclose(bounded.shifted({}).scores, bounded.scores)
