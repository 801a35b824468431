"""Scores of normals with their siblings hidden, against a literal loop, and how many these are."""

from __future__ import annotations

import numpy as np
import pytest
import textbook
import textbook_frontier

import daco
from daco.errors import NotEnoughClipsError
from daco.method.config import ScoreConfig
from daco.method.siblings import likely_siblings, scores_of_normals

CONFIGS = ["raw-k1", "raw-k4", "varmin-K4", "ldn-mean-K4", "ldn-ratio-K1", "conf-soft-m0-k1",
           "conf-hard-m10-k2", "conf-soft-m0-varmin-K4", "zscore-soft-k1"]  # fmt: skip


@pytest.fixture(scope="module")
def machine():
    """Recordings of two to five clips in two domains, which are mixed in the table."""
    rng = np.random.default_rng(3)
    sizes = rng.integers(2, 6, size=20)
    X = np.repeat(rng.normal(size=(20, 6)) + 1, sizes, axis=0)
    X += 0.2 * rng.normal(size=X.shape)
    order = rng.permutation(len(X))
    sessions = np.repeat([f"take {number}" for number in range(20)], sizes)
    domains = np.where(np.repeat(np.arange(20), sizes) < 15, "old", "new")
    return X[order], domains[order].tolist(), sessions[order].tolist()


def hidden_clips(distance, codes, row, siblings, share, sessions):
    """Clips that are hidden from one clip: itself, and its session or its nearest."""
    if sessions and sessions[row]:
        return {other for other in range(len(codes)) if sessions[other] == sessions[row]}
    mates = [o for o in range(len(codes)) if codes[o] == codes[row] and o != row]
    count = min(siblings, int(share * (len(mates) + 1)))
    return {row, *sorted(mates, key=lambda other: distance[row, other])[:count]}


def literal_scores(X, domains, name, siblings, share=1 / 3, sessions=()):
    """For each clip the bank's distances with the hidden ones missing, scored by the textbook."""
    config = ScoreConfig.parse(name)
    codes = np.unique(domains, return_inverse=True)[1]
    distance = textbook.left_out(textbook.distances(textbook.unit(X), textbook.unit(X)))
    found = []
    for row in range(len(X)):
        query = distance[row : row + 1].copy()
        query[0, list(hidden_clips(distance, codes, row, siblings, share, sessions))] = np.inf
        own, score = textbook_frontier.local(config.base, distance, query, codes)
        if config.calibration is not None:
            nearest = textbook.mean_of_nearest(distance, 1)
            temperature = np.median(own if config.base.scorer == "knn" else nearest)
            weights = textbook.assignment_weights(config, query, codes, temperature, None)
            score = textbook.calibrated(config, own, score, weights, codes)
        found.append(score[0])
    return np.array(found)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("siblings", [1, 4, 30])
def test_nearest_normals_of_the_same_domain_are_hidden(machine, config, siblings):
    """Of 30 a third of the domain at most; distances in float64, so that ranks are the same."""
    X, domains, _ = machine
    bank = daco.NormalBank(X, domains)
    expected = literal_scores(X, domains, config, siblings)
    found = scores_of_normals(bank, config, [siblings])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("config", CONFIGS)
def test_sessions_are_hidden_whole_and_others_lose_their_siblings(machine, config):
    X, domains, sessions = machine
    known = [name if name > "take 14" else "" for name in sessions]
    bank = daco.NormalBank(X, domains)
    for given in (sessions, known):
        expected = literal_scores(X, domains, config, 3, sessions=given)
        found = scores_of_normals(bank, config, [3], given)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5])
def test_no_more_than_a_share_of_a_domain_is_hidden(machine, share):
    X, domains, _ = machine
    found = scores_of_normals(daco.NormalBank(X, domains), "raw-k1", [30], share=share)
    expected = literal_scores(X, domains, "raw-k1", 30, share)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("config", [*CONFIGS, "vote"])
def test_without_siblings_they_are_leave_one_out_scores(machine, config):
    """Quantile maps are those of the whole bank either way; ties of a vote are half a rank."""
    X, domains, _ = machine
    bank = daco.NormalBank(X, domains)
    found, expected = scores_of_normals(bank, config, [0]), bank.leave_one_out(config)[:, 0]
    np.testing.assert_allclose(found, expected, atol=0.02 if config == "vote" else 1e-9)


def test_a_vote_of_two_views_is_the_mean_over_the_members_of_each(machine):
    """Each view has its own nearest normals, and hides as many of them as are likely in it."""
    X, domains, _ = machine
    views, siblings = {"mod": X[:, :3], "cep": X[:, 3:]}, (2, 5)
    bank = daco.NormalBank(views, domains)
    by_view = []
    for (view, members), count in zip(bank.members().items(), siblings, strict=True):
        alone = daco.NormalBank(views[view], domains)
        own = alone.leave_one_out(members)
        hidden = [scores_of_normals(alone, member, [count]) for member in members]
        by_view.append(
            [
                np.mean(
                    [
                        textbook.normal_score(own[:, column], scores[row])
                        for column, scores in enumerate(hidden)
                    ]
                )
                for row in range(len(X))
            ]
        )
    found = scores_of_normals(bank, "vote", siblings)
    np.testing.assert_allclose(found, np.mean(by_view, axis=0), atol=0.02)


def test_scores_rise_with_the_number_of_siblings(machine):
    X, domains, _ = machine
    bank = daco.NormalBank(X, domains)
    found = [scores_of_normals(bank, "raw-k1", [count]) for count in (0, 1, 2, 5, 9)]
    assert (np.diff(found, axis=0) >= 0).all()
    assert (np.diff(found, axis=0).max(axis=1) > 0).all()


def test_neither_order_nor_names_of_domains_matter(machine):
    X, domains, sessions = machine
    order = np.random.default_rng(0).permutation(len(X))
    other = [{"old": "a", "new": "z"}[name] for name in domains]
    for config in ("varmin-K4", "conf-soft-m0-k1"):
        expected = scores_of_normals(daco.NormalBank(X, domains), config, [3], sessions)
        bank = daco.NormalBank(X[order], [other[row] for row in order])
        found = scores_of_normals(bank, config, [3], [sessions[row] for row in order])
        np.testing.assert_allclose(found, expected[order], rtol=1e-9)


def test_enough_normals_stay_to_score_by(machine):
    """All clips of one session: as many stay as a score needs, the farthest ones."""
    X, domains, _ = machine
    bank = daco.NormalBank(X, domains)
    found = scores_of_normals(bank, "raw-k4", [0], ["all day"] * len(X))
    distance = textbook.left_out(textbook.distances(textbook.unit(X), textbook.unit(X)))
    farthest = np.sort(distance, axis=1)[:, -5:-1].mean(axis=1)  # the last is itself, at inf
    np.testing.assert_allclose(found, farthest, rtol=1e-9)
    with pytest.raises(NotEnoughClipsError):
        scores_of_normals(daco.NormalBank(X[:4]), "raw-k4", [0])


class TestLikelySiblings:
    @pytest.mark.parametrize("seed", range(5))
    @pytest.mark.parametrize("dim", [4, 16])
    def test_independent_clips_have_none(self, seed, dim):
        X = np.random.default_rng(seed).normal(size=(300, dim)) + 1
        assert likely_siblings(daco.NormalBank(X)) == (0,)

    @pytest.mark.parametrize("size", [2, 3, 5, 10])
    @pytest.mark.parametrize("noise", [0.05, 0.3])
    def test_clips_of_equal_recordings_have_all_the_others(self, size, noise):
        rng = np.random.default_rng(size)
        X = np.repeat(rng.normal(size=(240 // size, 32)), size, axis=0)
        X += noise * rng.normal(size=X.shape)
        assert likely_siblings(daco.NormalBank(X)) == (size - 1,)

    def test_recordings_of_different_length_have_about_the_mean(self):
        rng = np.random.default_rng(0)
        sizes = rng.integers(3, 9, size=60)
        X = np.repeat(rng.normal(size=(60, 32)), sizes, axis=0)
        X += 0.2 * rng.normal(size=X.shape)
        (found,) = likely_siblings(daco.NormalBank(X))
        assert 3 <= found <= 8

    def test_each_view_has_its_own(self):
        rng = np.random.default_rng(0)
        takes = np.repeat(rng.normal(size=(40, 16)), 5, axis=0) + 0.1 * rng.normal(size=(200, 16))
        views = {"mod": takes, "cep": rng.normal(size=(200, 8))}
        assert likely_siblings(daco.NormalBank(views)) == (4, 0)

    @pytest.mark.parametrize("count", [2, 5, 19])
    def test_few_clips_cannot_show_that_they_have_none(self, count):
        X = np.repeat(np.random.default_rng(0).normal(size=(count, 8)), 2, axis=0)[:count]
        assert likely_siblings(daco.NormalBank(X)) == (1,)

    def test_copies_are_siblings(self):
        X = np.repeat(np.random.default_rng(0).normal(size=(50, 8)), 4, axis=0)
        assert likely_siblings(daco.NormalBank(X)) == (3,)

    def test_lengths_of_vectors_and_the_order_of_clips_do_not_matter(self):
        rng = np.random.default_rng(0)
        X = np.repeat(rng.normal(size=(40, 16)), 5, axis=0) + 0.1 * rng.normal(size=(200, 16))
        scaled = X * rng.uniform(0.1, 10, size=(200, 1))
        assert likely_siblings(daco.NormalBank(scaled[rng.permutation(200)])) == (4,)
