"""Scores from elsewhere: literal calibration by weights, and daco's own scores by embeddings."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from textbook import calibrated, held_out, ks_between, normal_score

import daco
from daco.errors import ConfigError, InputError

DOMAINS = np.array(["old", "new", "old", "idle", "old"] * 12)
CODES = np.array([["idle", "new", "old"].index(name) for name in DOMAINS])


@pytest.fixture
def system():
    """Held-out scores of 60 normals, scores and weights of 40 clips."""
    rng = np.random.default_rng(3)
    own = rng.normal(size=60) + 2 * CODES
    weights = rng.dirichlet([0.5, 0.5, 0.5], 40)
    weights[:5] = np.eye(3)[[0, 1, 2, 0, 1]]
    return own, rng.normal(2, 3, size=40), weights


NAMES = [
    "ext-mine",
    *(f"conf-{how}-m{m}-ext-mine" for how in ("soft", "hard") for m in (0, 10, 2.5)),
    "zscore-soft-ext-mine",
    "zscore-hard-ext-mine",
]


def textbook_weights(config, weights):
    return np.eye(3)[weights.argmax(axis=1)].T if config.assignment == "hard" else weights.T


def textbook_scores(config, own, scores, weights, codes):
    if config.calibration is None:
        return scores
    return calibrated(config, own, scores, textbook_weights(config, weights), codes)


@pytest.mark.parametrize("name", NAMES)
def test_given_weights_calibrate_as_in_the_textbook(system, name):
    own, scores, weights = system
    config = daco.ScoreConfig.parse(name)
    result = daco.calibrate_scores(
        {"mine": own}, DOMAINS, {"mine": scores}, weights, [name], n_splits=6, seed=2
    )
    # Weights go through a logarithm and back: a few roundings of numbers up to 20.
    expected = textbook_scores(config, own, scores, weights, CODES)
    np.testing.assert_allclose(result.scores[:, 0], expected, rtol=1e-12, atol=1e-13)
    expected = textbook_scores(config, own, own, np.eye(3)[CODES], CODES)
    np.testing.assert_allclose(result.own[:, 0], expected, rtol=1e-12, atol=1e-13)
    values = []
    for held in held_out(CODES, 6, 2):
        maps, true = own[~held], np.eye(3)[CODES[held]]
        scored = textbook_scores(config, maps, own[held], true, CODES[~held])
        values.append(ks_between(scored, CODES[held]))
    assert result.criterion[0] == pytest.approx(np.mean(values), abs=1e-12)


def test_the_default_candidates_and_the_choice(system):
    own, scores, weights = system
    result = daco.calibrate_scores(own, DOMAINS, scores, weights, n_splits=20)
    assert result.configs == (
        "ext-scores",
        *(f"conf-soft-m{m}-ext-scores" for m in (0, 10, 30, 100, 300)),
        "zscore-soft-ext-scores",
    )
    assert result.scores.shape == (40, 7)
    assert result.own.shape == (60, 7)
    assert np.array_equal(result.scores[:, 0], scores)
    assert result.domains == ("idle", "new", "old")
    assert np.array_equal(result.weights, weights)
    assert result.choice.config in result.configs
    # Scores that differ by domain are out of balance as they are given.
    assert result.criterion[0] > 0.5 > result.criterion[1]


def test_several_systems_vote(system):
    own, scores, weights = system
    systems = {"a": own, "b": -(own**3), "silent": np.zeros(60)}
    tests = {"a": scores, "b": -(scores**3), "silent": np.zeros(40)}
    result = daco.calibrate_scores(systems, DOMAINS, tests, weights, n_splits=5)
    assert len(result.configs) == 3 * 7 + 1
    assert result.configs[-1] == "vote"
    assert np.isnan(result.criterion[-1])
    assert result.choice.config != "vote"
    speaking = [c for c, each in enumerate(result.own.T[:21]) if each.max() > np.median(each)]
    assert len(speaking) < 21
    vote = [
        np.mean([normal_score(result.own[:, c], clip[c]) for c in speaking])
        for clip in result.scores
    ]
    np.testing.assert_allclose(result.scores[:, -1], vote, rtol=1e-9, atol=1e-9)


def test_the_default_of_the_choice_is_that_of_the_first_system(system):
    own, scores, weights = system
    systems, tests = {"b": own, "a": own}, {"b": scores, "a": scores}
    result = daco.calibrate_scores(systems, DOMAINS, tests, weights, n_splits=5)
    assert result.choice.default_criterion == pytest.approx(result.criterion[1])
    assert result.configs[1] == "conf-soft-m0-ext-b"


def test_one_domain_needs_no_weights(system):
    own, scores, _ = system
    result = daco.calibrate_scores(own, None, scores)
    assert result.choice.config == "conf-soft-m0-ext-scores"
    assert np.isnan(result.criterion).all()
    assert np.array_equal(np.argsort(result.scores[:, 1]), np.argsort(scores))
    assert np.array_equal(result.weights, np.ones((40, 1)))


def test_the_order_of_the_normals_does_not_matter(system):
    own, scores, weights = system
    order = np.argsort(CODES, kind="stable")  # halves are drawn among the clips of a domain
    one = daco.calibrate_scores(own, DOMAINS, scores, weights, n_splits=5)
    other = daco.calibrate_scores(own[order], DOMAINS[order], scores, weights, n_splits=5)
    assert np.array_equal(one.scores, other.scores)
    assert np.array_equal(one.own[order], other.own)
    assert np.array_equal(one.criterion, other.criterion)


@pytest.fixture
def embedded():
    """Embeddings of 60 normals of three domains and of 30 clips."""
    rng = np.random.default_rng(8)
    centres = rng.normal(size=(3, 5)) + 1
    X = centres[CODES] + 0.2 * rng.normal(size=(60, 5)) * (1 + CODES[:, None])
    return X, centres[np.arange(30) % 3] + 0.5 * rng.normal(size=(30, 5))


@pytest.mark.parametrize("k", [1, 2])
def test_daco_s_own_scores_as_a_table_are_calibrated_as_its_own(embedded, k):
    """Above the smallest normal. Below it a distance falls to 0, an external score has a tail."""
    X, Y = embedded
    bank = daco.NormalBank(X, DOMAINS)
    own, scores = (
        each[:, 0] for each in (bank.leave_one_out(f"raw-k{k}"), bank.score(Y, f"raw-k{k}"))
    )
    # Soft weights of an external score have the temperature of k = 1; hard ones have none.
    how = ["conf-soft-m0", "conf-soft-m30", "zscore-soft"] if k == 1 else []
    how += ["conf-hard-m0", "zscore-hard"]
    result = daco.calibrate_scores(
        own, DOMAINS, scores, (X, Y), [f"{each}-ext-scores" for each in how], n_splits=3
    )
    builtin = [f"{each}-k{k}" for each in how]
    smallest = max(own[code == CODES].min() for code in range(3))
    for ours, theirs, given in (
        (result.scores, bank.score(Y, builtin), scores),
        (result.own, bank.leave_one_out(builtin), own),
    ):
        same = given >= smallest
        assert same.sum() > len(given) / 2
        np.testing.assert_allclose(ours[same], theirs[same], rtol=1e-12, atol=1e-13)
        # Below, both are quantiles under the first step of some domain.
        assert abs(ours[~same, 0] - theirs[~same, 0]).max(initial=0) < 1 / 13
    np.testing.assert_allclose(result.weights, bank.domain_weights(Y), rtol=1e-12)


def test_embeddings_have_the_criterion_of_a_bank(embedded, system):
    X, Y = embedded
    own, scores = system[0], system[1][:30]
    result = daco.calibrate_scores(own, DOMAINS, scores, (X, Y), n_splits=4, seed=1)
    bank = daco.NormalBank(X, DOMAINS, scorers={"scores": own})
    assert np.array_equal(result.criterion, bank.balance(result.configs, 4, 1))


def test_with_embeddings_daco_s_own_configurations_are_candidates_too(embedded, system):
    X, Y = embedded
    grid = ["raw-k1", "conf-soft-m0-ext-scores"]
    result = daco.calibrate_scores(system[0], DOMAINS, system[1][:30], (X, Y), grid, n_splits=4)
    assert np.array_equal(result.scores[:, :1], daco.NormalBank(X, DOMAINS).score(Y, ["raw-k1"]))


def test_weights_and_embeddings_are_told_apart_by_their_shape(embedded, system):
    (X, Y), (own, scores, weights) = embedded, system

    def calibrated_with(given, count):
        found = daco.calibrate_scores(own, DOMAINS, scores[:count], given, n_splits=2)
        return found.scores

    expected = calibrated_with(weights[:2], 2)
    for given in (tuple(map(tuple, weights[:2])), weights[:2].tolist()):
        np.testing.assert_array_equal(calibrated_with(given, 2), expected)
    columns = pd.DataFrame(weights[:2], columns=["idle", "new", "old"])[["old", "idle", "new"]]
    np.testing.assert_array_equal(calibrated_with(columns, 2), expected)
    np.testing.assert_array_equal(calibrated_with([X, Y], 30), calibrated_with((X, Y), 30))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scores": [1.0, np.nan]}, "'scores' argument must be finite"),
        ({"own_domains": ["old"] * 59}, "own_domains must hold one label per clip"),
        ({"own": {"mine": np.zeros(60)}}, "of the same systems"),
        (
            {"own": {"a": np.zeros(60), "b": np.zeros(9)}, "scores": {"a": [1], "b": [1]}},
            "'own' argument must not be ragged",
        ),
        ({"weights_or_embeddings": None}, "weights with a column for each of idle, new, old"),
        ({"weights_or_embeddings": np.full((40, 2), 0.5)}, "sum to 1, with a column for each"),
        ({"weights_or_embeddings": np.full((40, 3), 0.5)}, "must be shares that sum to 1"),
        ({"weights_or_embeddings": np.full((39, 3), 1 / 3)}, "Weights of 40 clips"),
        ({"weights_or_embeddings": (np.ones((60, 4)),) * 3}, "must be 2-D"),
        ({"configs": ["raw-k1"]}, "No system is called 'raw-k1'"),
        ({"configs": ["conf-soft-m0-ext-other"]}, "No system is called"),
        ({"configs": ["conf-oracle-m0-ext-scores"]}, "reads true domains"),
    ],
)
def test_wrong_input_is_refused(system, changes, message):
    own, scores, weights = system
    given = {"own": own, "own_domains": DOMAINS, "scores": scores}
    given |= {"weights_or_embeddings": weights, "n_splits": 2, **changes}
    with pytest.raises(InputError, match=message):
        daco.calibrate_scores(**given)


@pytest.mark.parametrize(("label", "config"), [("mine", "ext-"), ("a b", "ext-a")])
def test_an_unknown_configuration_or_label_is_refused(system, label, config):
    own, scores, weights = system
    with pytest.raises(ConfigError):
        daco.calibrate_scores({label: own}, DOMAINS, {label: scores}, weights, [config])
