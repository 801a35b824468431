"""Detectors of other libraries and tables of scores as base scores of a bank."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.ensemble import IsolationForest
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from daco import NormalBank
from daco.errors import ConfigError, DacoWarning, InputError
from daco.method.config import ScoreConfig
from daco.method.external import FOLDS, ExternalScorers, parse_pool, with_scorer

ECOD = pytest.importorskip("pyod.models.ecod", reason="PyOD is not installed").ECOD
KNN = pytest.importorskip("pyod.models.knn", reason="PyOD is not installed").KNN

RNG = np.random.default_rng(7)
SOURCE, TARGET = 60, 14
X = RNG.normal(size=(SOURCE + TARGET, 6)) + 2
X[SOURCE:, :3] *= 2
DOMAINS = np.array(["source"] * SOURCE + ["target"] * TARGET)
CLIPS = RNG.normal(size=(20, 6)) * 1.5 + 2

DETECTORS = {
    "IsolationForest": (IsolationForest(n_estimators=25), None),
    "LocalOutlierFactor": (LocalOutlierFactor(n_neighbors=5), None),
    "OneClassSVM": (OneClassSVM(), None),
    "KNN": (KNN(n_neighbors=3), True),
    "Pipeline": (make_pipeline(StandardScaler(), OneClassSVM()), None),
    "GaussianMixture": (GaussianMixture(2, reg_covar=0.1), None),
}


def bank_with(label, rows=X, domains=DOMAINS):
    detector, sign = DETECTORS[label]
    return NormalBank(rows, domains, scorers={label: detector}, scorer_higher_is_anomalous=sign)


def of_the_library(label, rows, clips):
    """What a user would write without daco."""
    detector, sign = clone(DETECTORS[label][0]), DETECTORS[label][1]
    seeded = {"random_state": 0, "novelty": True}
    known = {name: value for name, value in seeded.items() if name in detector.get_params()}
    detector = detector.set_params(**known).fit(rows)
    scores = detector.decision_function(clips) if sign else -detector.score_samples(clips)
    last = detector[-1] if label == "Pipeline" else detector
    return scores / np.sum(getattr(last, "dual_coef_", 1))  # of an SVM a mean, not a sum


class Witness:
    """Remembers the clips that it was fitted on, and scores a clip by whether it was there."""

    higher_is_anomalous = True
    fits: ClassVar[list[np.ndarray]] = []

    def fit(self, rows):
        Witness.fits.append(rows)
        self.rows = rows

    def decision_function(self, rows):
        return (rows[:, None] == self.rows).all(axis=2).any(axis=1).astype(float)


@pytest.fixture
def witness():
    Witness.fits.clear()
    return Witness()


def held_out_by(fit):
    return np.array([not (row == fit).all(axis=1).any() for row in X])


# Detectors


@pytest.mark.parametrize("label", DETECTORS)
def test_scores_of_clips_are_those_of_the_library(label):
    found = bank_with(label).score(CLIPS, f"ext-{label}")[:, 0]
    expected = of_the_library(label, X, CLIPS)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("label", DETECTORS)
def test_scores_of_normals_come_from_detectors_of_the_other_folds(label, witness):
    bank = NormalBank(X, DOMAINS, scorers={"w": witness})
    assert not bank.leave_one_out("ext-w").any()
    found = bank_with(label).leave_one_out(f"ext-{label}")[:, 0]
    assert len(Witness.fits) == FOLDS
    for fit in Witness.fits:
        held = held_out_by(fit)
        expected = of_the_library(label, X[~held], X[held])
        np.testing.assert_allclose(found[held], expected, rtol=1e-9, atol=1e-12)


def test_folds_share_every_domain_and_keep_sessions(witness):
    order = RNG.permutation(len(X))
    NormalBank(X[order], DOMAINS[order], scorers={"w": witness}).leave_one_out("ext-w")
    for domain, size in (("source", SOURCE), ("target", TARGET)):
        counts = [held_out_by(fit)[domain == DOMAINS].sum() for fit in Witness.fits]
        assert sum(counts) == size
        assert max(counts) - min(counts) <= 1
    Witness.fits.clear()
    sessions = [f"{row // 4}" if row < 40 else "" for row in range(len(X))]
    bank = NormalBank(X, DOMAINS, scorers={"w": witness})
    assert not bank.examine_normals("ext-w", sessions=sessions).scores.any()
    held = np.array([held_out_by(fit) for fit in Witness.fits])
    assert (held.sum(axis=0) == 1).all()
    assert all(len(np.unique(part, axis=1).T) == 1 for part in np.split(held[:, :40], 10, axis=1))
    assert len(np.unique(held[:, 40:], axis=1).T) == FOLDS  # unknown ones are not one session


@pytest.mark.parametrize(
    "forest",
    [
        IsolationForest(n_estimators=9),
        make_pipeline("passthrough", IsolationForest(n_estimators=9)),
    ],
)
def test_the_seed_draws_the_folds_and_seeds_the_detectors(forest):
    def scores(seed):
        order, starts = np.arange(len(X)), np.array([0, SOURCE, len(X)])
        views = NormalBank(X).views
        made = ExternalScorers({"forest": forest}, None, X, views, starts, order, seed=seed)
        return made.within("forest")[0], made.against("forest", CLIPS, None)

    for first, again, other in zip(scores(0), scores(0), scores(1), strict=True):
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


def test_the_criterion_fits_on_halves_once_for_all_configurations(witness):
    some = np.r_[: SOURCE - 1, SOURCE : len(X) - 1]  # 59 and 13, of which 29 and 6 are held out
    bank = NormalBank(X[some], DOMAINS[some], scorers={"w": witness})
    grid = ["ext-w", "conf-soft-m0-ext-w"]
    two = bank.exact_balance([*grid, "blend+w"], 2)
    assert len(Witness.fits) == 2 * (1 + FOLDS)
    assert {len(fit) for fit in Witness.fits} == {37, *(37 - n for n in (7, 8))}
    three = bank.exact_balance(grid, 3)  # the first two splits are the same
    assert len(Witness.fits) == 3 * (1 + FOLDS)
    np.testing.assert_array_equal(three.splits[:, :2], two.splits[:2])


def test_what_is_given_stays_as_it_was():
    detector, rows, clips = IsolationForest(n_estimators=5), X.copy(), CLIPS.copy()
    scaler = make_pipeline(StandardScaler(copy=False), OneClassSVM())
    bank = NormalBank(rows, DOMAINS, scorers={"forest": detector, "svm": scaler})
    first = bank.score(clips, ["ext-forest", "ext-svm"])
    rows[:] = 0
    np.testing.assert_array_equal(bank.score(clips, ["ext-forest", "ext-svm"]), first)
    np.testing.assert_array_equal(clips, CLIPS)
    assert not hasattr(detector, "estimators_")


def test_a_detector_that_ranks_clips_among_each_other_is_a_warning_of_the_main_process(monkeypatch):
    def bank():
        return NormalBank(X, DOMAINS, scorers={"ECOD": ECOD()}, scorer_higher_is_anomalous=True)

    with pytest.warns(DacoWarning, match="The scores of ECOD depend on the other clips") as caught:
        bank().score(CLIPS, ["ext-ECOD", "conf-soft-m0-ext-ECOD"])
    assert len(caught) == 1
    monkeypatch.setattr("multiprocessing.parent_process", lambda: "the one that warns")
    bank().score(CLIPS, "ext-ECOD")


# Signs


class Centre(BaseEstimator):
    def fit(self, rows, y=None):
        self.centre_ = rows.mean(axis=0)
        return self

    def decision_function(self, rows):
        return np.linalg.norm(rows - self.centre_, axis=1)


class Near(OutlierMixin, Centre):
    """As scikit-learn's, high for normals."""

    def decision_function(self, rows):
        return -super().decision_function(rows)


class Marked(Centre):
    higher_is_anomalous = True


@pytest.mark.parametrize(
    ("detector", "given"),
    [
        (Near(), None),
        (Near(), False),
        (make_pipeline("passthrough", Near()), None),
        (Marked(), None),
        (Marked, None),
        (lambda: Marked(), None),
        (make_pipeline("passthrough", Marked()), None),
        (Centre(), True),
        (Centre(), {"d": True}),
    ],
)
def test_scores_are_high_for_anomalies(detector, given):
    bank = NormalBank(X, scorers={"d": detector}, scorer_higher_is_anomalous=given)
    expected = np.linalg.norm(CLIPS - X.mean(axis=0), axis=1)
    np.testing.assert_allclose(bank.score(CLIPS, "ext-d")[:, 0], expected)


def test_a_table_of_nearest_neighbours_is_calibrated_as_the_built_in_score():
    """But below the smallest normal, where only distances are known to end at 0."""
    plain, order = NormalBank(X, DOMAINS), RNG.permutation(len(X))
    own, clips = plain.leave_one_out("raw-k1")[:, 0], plain.score(CLIPS, "raw-k1")[:, 0]
    bank = NormalBank(X[order], DOMAINS[order], scorers={"mine": own[order]})
    above = clips >= max(own[:SOURCE].min(), own[SOURCE:].min())
    assert above.sum() > 10
    for how in ("conf-soft-m0", "conf-hard-m30", "zscore-soft"):
        found = bank.score(CLIPS, f"{how}-ext-mine", scores={"mine": clips})[above]
        np.testing.assert_allclose(found, plain.score(CLIPS, f"{how}-k1")[above], rtol=1e-6)
    np.testing.assert_array_equal(bank.leave_one_out("ext-mine")[:, 0], own[order])


@pytest.mark.parametrize(
    ("config", "scorer", "name", "labels"),
    [
        ("blend", None, "blend", []),
        ("blend", Near(), "ext-Near", ["Near"]),
        ("conf-soft-m30-k2", Near(), "conf-soft-m30-ext-Near", ["Near"]),
        ("ext-mine", Near(), "ext-mine", ["mine"]),
        ("blend+mine", Near(), "blend+mine", ["mine"]),
        ("blend+a+b", {"a": Near(), "b": Near()}, "blend+a+b", ["a", "b"]),
    ],
)
def test_a_detector_replaces_the_base_score_unless_it_is_named(config, scorer, name, labels):
    found, scorers = with_scorer(ScoreConfig.parse(config), scorer)
    assert (found.name, list(scorers)) == (name, labels)


@pytest.mark.parametrize(
    ("pool", "first", "labels"),
    [
        ("raw-k1", "raw-k1", []),
        (ScoreConfig(), "raw-k1", []),
        (Near(), "ext-Near", ["Near"]),
        ({"mine": X[:, 0]}, "ext-mine", ["mine"]),
        (["raw-k2", {"a": Near(), "b": Near()}], "raw-k2", ["a", "b"]),
    ],
)
def test_a_pool_is_one_or_several_names_and_scorers(pool, first, labels):
    configs, scorers = parse_pool(pool)
    assert (configs[0].name, list(scorers)) == (first, labels)


def test_what_cannot_be_used_is_refused():
    wrong = [("blend", {"a": Near()}), ("raw-k1", {"a": Near()}), ("blend+a+b", Near())]
    wrong += [("ratio-soft-k1", Near()), *(("blend", scorer) for scorer in (3, "forest", {}, X))]
    for config, scorer in wrong:
        with pytest.raises(ConfigError):
            with_scorer(ScoreConfig.parse(config), scorer)
    for pool in ([3], [{"a b": Centre()}], [{"a": 1}, {"a": 2}], [], [Centre(), Centre()]):
        with pytest.raises(ConfigError):
            parse_pool(pool)


class Broken(Marked):
    def __init__(self, scores):
        self.scores = scores

    def decision_function(self, rows):
        return np.broadcast_to(self.scores, (len(rows), *np.shape(self.scores)))


@pytest.mark.parametrize(
    ("scorer", "sign", "error", "message"),
    [
        (OneClassSVM(nu=-1), None, InputError, "could not be fitted on 74 clips: .*nu"),
        (Broken(np.nan), None, InputError, "finite"),
        (Broken(np.zeros(2)), None, InputError, "must be 1-D"),
        (StandardScaler(), None, InputError, "neither 'score_samples' nor 'decision_function'"),
        (np.zeros(3), None, InputError, "each normal of the bank, 74 in their order. Got 3"),
        (np.zeros(74), None, InputError, "Pass the scores of the clips"),
        (None, None, ConfigError, r"no scorer 'd'.*daco\.scorers"),
        (ECOD(), None, ConfigError, "scorer_higher_is_anomalous=True, as for PyOD, or False"),
        (Centre(), {"other": True}, ConfigError, "does not tell"),
        (Near(), True, ConfigError, "follows scikit-learn"),
        (IsolationForest(), True, ConfigError, "follows scikit-learn"),
    ],
)
def test_what_is_wrong_with_a_scorer_is_said_and_no_sign_is_guessed(scorer, sign, error, message):
    scorers = {} if scorer is None else {"d": scorer}
    with pytest.raises(error, match=message):
        NormalBank(X, DOMAINS, scorers=scorers, scorer_higher_is_anomalous=sign).score(
            CLIPS, "ext-d"
        )
