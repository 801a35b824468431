"""Detectors of other libraries and tables of scores as base scores of a bank."""

from __future__ import annotations

import weakref
from typing import ClassVar

import numpy as np
import pytest
from pyod.models.ecod import ECOD
from pyod.models.hbos import HBOS
from pyod.models.ocsvm import OCSVM
from sklearn.base import BaseEstimator, OutlierMixin, clone
from sklearn.ensemble import IsolationForest
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import LocalOutlierFactor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import OneClassSVM

from daco import NormalBank
from daco.errors import ConfigError, DacoWarning, InputError
from daco.method.calibration import QuantileMap
from daco.method.config import ScoreConfig, calibrations_of
from daco.method.criterion import held_out_halves, ks_distance
from daco.method.external import FOLDS, parse_pool
from daco.method.vote import normal_scores

pytestmark = pytest.mark.filterwarnings("ignore:The scores of ECOD")
RNG = np.random.default_rng(7)
SOURCE, TARGET = 60, 14
X = RNG.normal(size=(SOURCE + TARGET, 6)) + 2
X[SOURCE:, :3] *= 2
DOMAINS = np.array(["source"] * SOURCE + ["target"] * TARGET)
CLIPS = RNG.normal(size=(20, 6)) * 1.5 + 2
SHUFFLED = RNG.permutation(len(X))

DETECTORS = {
    "IsolationForest": (IsolationForest(n_estimators=25), -1),
    "LocalOutlierFactor": (LocalOutlierFactor(n_neighbors=5), -1),
    "OneClassSVM": (OneClassSVM(), -1),
    "ECOD": (ECOD(), 1),
    "HBOS": (HBOS(n_bins=5), 1),
    "Pipeline": (make_pipeline(StandardScaler(), OneClassSVM()), -1),
    "GaussianMixture": (GaussianMixture(2, reg_covar=0.1), -1),
}
NAMES = pytest.mark.parametrize("label", DETECTORS)


def fitted(detector, rows):
    """What a user would write without daco."""
    detector = clone(detector)
    seeded = {"random_state": 0} if "random_state" in detector.get_params() else {}
    novel = {"novelty": True} if "novelty" in detector.get_params() else {}
    return detector.set_params(**seeded, **novel).fit(rows)


def anomaly_scores(label, detector, rows):
    sign = DETECTORS[label][1]
    high = detector.decision_function if sign == 1 else detector.score_samples
    last = detector[-1] if label == "Pipeline" else detector
    size = last.dual_coef_.sum() if isinstance(last, OneClassSVM) else 1  # a mean, not a sum
    return sign * np.asarray(high(rows), np.float64) / size


SVM_SCORES = anomaly_scores("OneClassSVM", fitted(OneClassSVM(), X), CLIPS)


def folds_of(domains, inside):
    """Members in a random order, one domain after the other, dealt to the folds in turn."""
    drawn = np.random.default_rng(0).permutation(len(domains))
    members = [i for name in np.unique(domains) for i in np.flatnonzero(domains == name)]
    members.sort(key=lambda i: (domains[i], drawn[i]))
    dealt = [i for i in members if inside[i]]
    return [dealt[number::FOLDS] for number in range(FOLDS)]


def cross_fitted(label, inside=None):
    inside = np.ones(len(X), bool) if inside is None else inside
    scores = np.full(len(X), np.nan)
    for fold in folds_of(DOMAINS, inside):
        others = [i for i in np.flatnonzero(inside) if i not in fold]
        detector = fitted(DETECTORS[label][0], X[others])
        scores[fold] = anomaly_scores(label, detector, X[fold])
    return scores


def bank_with(label, rows=X, domains=DOMAINS):
    return NormalBank(rows, domains, scorers={label: DETECTORS[label][0]})


# Detectors


@NAMES
def test_scores_of_clips_are_those_of_the_library(label):
    expected = anomaly_scores(label, fitted(DETECTORS[label][0], X), CLIPS)
    found = bank_with(label).score(CLIPS, f"ext-{label}")[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@NAMES
def test_scores_of_normals_come_from_cross_fitting(label):
    found = bank_with(label).leave_one_out(f"ext-{label}")[:, 0]
    np.testing.assert_allclose(found, cross_fitted(label), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("scorer", [OneClassSVM(), OCSVM(), make_pipeline(OneClassSVM())])
def test_scores_of_a_one_class_svm_do_not_grow_with_the_number_of_clips(scorer):
    """Or new clips would look more normal than those of the folds, which see fewer clips."""
    few = NormalBank(X, scorers={"svm": scorer}).score(CLIPS, "ext-svm")
    many = NormalBank(np.tile(X, (5, 1)), scorers={"svm": scorer}).score(CLIPS, "ext-svm")
    np.testing.assert_allclose(many, few, atol=0.003)  # libsvm stops at 0.001
    assert np.ptp(few) > 0.1


class Witness:
    """Remembers the clips that it was fitted on, and scores a clip by whether it was there."""

    fits: ClassVar[list[np.ndarray]] = []

    def fit(self, rows):
        Witness.fits.append(rows)
        self.rows = rows

    def decision_function(self, rows):
        seen = (rows[:, None] == self.rows).all(axis=2).any(axis=1)
        return seen.astype(float)


def test_no_clip_is_scored_by_a_detector_that_has_seen_it_and_folds_are_stratified():
    Witness.fits.clear()
    own = NormalBank(X[SHUFFLED], DOMAINS[SHUFFLED], scorers={"w": Witness()}).leave_one_out(
        "ext-w"
    )
    assert not own.any()
    assert len(Witness.fits) == FOLDS
    for size, rows in ((SOURCE, X[:SOURCE]), (TARGET, X[SOURCE:])):
        held = [size - sum((row == fit).all(axis=1).any() for row in rows) for fit in Witness.fits]
        assert sum(held) == size
        assert max(held) - min(held) <= 1


def test_clips_of_one_session_are_in_one_fold():
    Witness.fits.clear()
    bank = NormalBank(X, DOMAINS, scorers={"w": Witness()})
    sessions = np.arange(len(X)) // 4
    bank._external.within(ScoreConfig.parse("ext-w").base, groups=sessions)
    for fit in Witness.fits:
        seen = np.array([(row == fit).all(axis=1).any() for row in X])
        assert all(len(set(seen[sessions == each])) == 1 for each in set(sessions))


@NAMES
def test_the_order_of_the_clips_is_the_callers(label):
    whole = bank_with(label).score(CLIPS, f"conf-soft-m30-ext-{label}")
    bank = bank_with(label, X[SHUFFLED], DOMAINS[SHUFFLED])
    assert bank.leave_one_out(f"ext-{label}").shape == (len(X), 1)
    table = bank_with(label).leave_one_out(f"ext-{label}")[:, 0]
    given = NormalBank(X[SHUFFLED], DOMAINS[SHUFFLED], scorers={label: table[SHUFFLED]})
    clips = bank_with(label).score(CLIPS, f"ext-{label}")[:, 0]
    found = given.score(CLIPS, f"conf-soft-m30-ext-{label}", scores={label: clips})
    np.testing.assert_allclose(found, whole, rtol=1e-9)


@NAMES
@pytest.mark.parametrize("strength", [0, 30])
def test_calibration_is_that_of_every_base_score(label, strength):
    bank, own = bank_with(label), cross_fitted(label)
    clips = anomaly_scores(label, fitted(DETECTORS[label][0], X), CLIPS)
    weights = bank.domain_weights(CLIPS)
    pooled = QuantileMap.fit(own, signed=True)(clips)
    expected = np.zeros(len(CLIPS))
    for g, name in enumerate(bank.domains):
        part = own[name == DOMAINS]
        mapped = QuantileMap.fit(part, signed=True)(clips)
        shrunk = (len(part) * mapped + strength * pooled) / (len(part) + strength)
        expected += weights[:, g] * shrunk
    found = bank.score(CLIPS, f"conf-soft-m{strength}-ext-{label}")[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("label", ["OneClassSVM", "ECOD"])
def test_the_criterion_refits_on_halves(label):
    splits = held_out_halves([SOURCE, TARGET], 3, 5)
    expected = []
    for held in splits:
        inside = ~held
        detector = fitted(DETECTORS[label][0], X[inside])
        outside = anomaly_scores(label, detector, X[held])
        own = cross_fitted(label, inside)
        weights = NormalBank(X[inside], DOMAINS[inside]).domain_weights(X[held])
        scores = np.zeros(int(held.sum()))
        for g, name in enumerate(("source", "target")):
            support = own[inside & (name == DOMAINS)]
            scores += weights[:, g] * QuantileMap.fit(support, signed=True)(outside)
        of_source = DOMAINS[held] == "source"
        raw = ks_distance(outside[of_source], outside[~of_source])
        expected.append([raw, ks_distance(scores[of_source], scores[~of_source])])
    grid = [f"ext-{label}", f"conf-soft-m0-ext-{label}"]
    found = bank_with(label).balance_splits(grid, 3, 5)
    np.testing.assert_allclose(found, np.transpose(expected), atol=1e-12)


def test_a_detector_without_a_seed_gives_the_same_scores_again():
    grid = calibrations_of(ScoreConfig.parse("ext-IsolationForest").base)
    first, second = (bank_with("IsolationForest").score(CLIPS, grid) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("scorer", [OneClassSVM, lambda: OneClassSVM()])
def test_a_callable_returns_a_detector(scorer):
    found = NormalBank(X, scorers={"svm": scorer}).score(CLIPS, "ext-svm")[:, 0]
    np.testing.assert_allclose(found, SVM_SCORES)


def test_the_users_detector_stays_as_it_was():
    detector = IsolationForest(n_estimators=5)
    NormalBank(X, DOMAINS, scorers={"forest": detector}).score(CLIPS, "ext-forest")
    assert not hasattr(detector, "estimators_")
    assert detector.random_state is None


def test_detectors_see_the_rows_of_the_first_view_as_they_were_given():
    bank = NormalBank({"a": X, "b": X[:, :2]}, DOMAINS, scorers={"svm": OneClassSVM()})
    found = bank.score({"a": CLIPS, "b": CLIPS[:, :2]}, "ext-svm")[:, 0]
    np.testing.assert_allclose(found, SVM_SCORES, rtol=1e-6)


def test_later_changes_of_the_users_array_change_nothing():
    rows = X.copy()
    bank = NormalBank(rows, DOMAINS, scorers={"svm": OneClassSVM()})
    rows[:] = 0
    found = bank.score(CLIPS, "ext-svm")[:, 0]
    np.testing.assert_allclose(found, SVM_SCORES)


def test_a_local_outlier_factor_scores_new_clips_at_the_end_of_a_pipeline():
    bank = NormalBank(X, scorers={"lof": make_pipeline(StandardScaler(), LocalOutlierFactor(5))})
    scaler = StandardScaler().fit(X)
    lof = LocalOutlierFactor(5, novelty=True).fit(scaler.transform(X))
    expected = -lof.score_samples(scaler.transform(CLIPS))
    np.testing.assert_allclose(bank.score(CLIPS, "ext-lof")[:, 0], expected)


class Centre(OutlierMixin, BaseEstimator):
    """As scikit-learn's, high for normals, and without score_samples."""

    def fit(self, rows, y=None):
        self.centre_ = rows.mean(axis=0)
        return self

    def decision_function(self, rows):
        return -np.linalg.norm(rows - self.centre_, axis=1)


def test_the_last_step_of_a_pipeline_has_the_sign():
    scorers = {"alone": Centre(), "piped": make_pipeline("passthrough", Centre())}
    alone, piped = NormalBank(X, scorers=scorers).score(CLIPS, ["ext-alone", "ext-piped"]).T
    assert (alone > 0).all()
    np.testing.assert_array_equal(piped, alone)


def test_a_detector_that_works_in_place_changes_nothing_of_the_users():
    clips = CLIPS.copy()
    bank = NormalBank(X, scorers={"svm": make_pipeline(StandardScaler(copy=False), OneClassSVM())})
    first, second = (bank.score(clips, "ext-svm") for _ in range(2))
    np.testing.assert_array_equal(clips, CLIPS)
    np.testing.assert_array_equal(first, second)


def test_a_detector_that_ranks_clips_among_each_other_is_noticed():
    with pytest.warns(DacoWarning, match="The scores of ECOD depend on the other clips"):
        bank_with("ECOD").score(CLIPS, "ext-ECOD")


def test_a_detector_is_refitted_once_for_itself_and_the_vote():
    Witness.fits.clear()
    bank = NormalBank(X, DOMAINS, scorers={"w": Witness()})
    bank.balance(["ext-w", "vote", "conf-soft-m0-vote"], 1)
    assert len(Witness.fits) == 1 + FOLDS


@pytest.mark.parametrize("scorers", [{}, {"mine": np.zeros(len(X))}])
def test_a_bank_without_detectors_does_not_keep_the_users_array(scorers):
    rows = X.copy()
    there = weakref.ref(rows)
    bank = NormalBank(rows, DOMAINS, scorers=scorers)
    del rows
    assert there() is None
    assert len(bank) == len(X)


# Tables of scores


def test_a_table_of_nearest_neighbours_is_calibrated_as_the_built_in_score():
    """But below the smallest normal, where only distances are known to end at 0."""
    plain = NormalBank(X, DOMAINS)
    own, clips = plain.leave_one_out("raw-k1")[:, 0], plain.score(CLIPS, "raw-k1")[:, 0]
    bank = NormalBank(X, DOMAINS, scorers={"mine": own})
    above = clips >= max(own[:SOURCE].min(), own[SOURCE:].min())
    assert above.sum() > 10
    for how in ("conf-soft-m0", "conf-hard-m30", "zscore-soft"):
        found = bank.score(CLIPS, f"{how}-ext-mine", scores={"mine": clips})[above]
        np.testing.assert_allclose(found, plain.score(CLIPS, f"{how}-k1")[above], rtol=1e-6)


def test_the_criterion_of_a_table_holds_out_its_scores():
    own = RNG.random(len(X)) + (DOMAINS == "target")
    bank = NormalBank(X, DOMAINS, scorers={"mine": own})
    expected = [
        ks_distance(own[held & (DOMAINS == "source")], own[held & (DOMAINS == "target")])
        for held in held_out_halves([SOURCE, TARGET], 4, 0)
    ]
    np.testing.assert_allclose(bank.balance_splits("ext-mine", 4, 0)[0], expected)
    assert bank.balance("conf-soft-m0-ext-mine", 4, 0) < np.mean(expected)


@pytest.mark.parametrize(
    ("own", "scores", "message"),
    [
        (np.zeros(3), None, "3 scores, and the bank has 74"),
        (np.full(74, np.nan), None, "finite"),
        (np.zeros(74), None, "Pass the scores of the clips"),
        (np.zeros(74), {"mine": [1.0]}, "1 for 20 clips"),
    ],
)
def test_scores_that_do_not_fit_are_refused(own, scores, message):
    with pytest.raises(InputError, match=message):
        NormalBank(X, DOMAINS, scorers={"mine": own}).score(CLIPS, "ext-mine", scores=scores)


# Votes


def test_every_external_scorer_counts_as_a_view_in_a_vote():
    own = cross_fitted("ECOD")
    clips = anomaly_scores("ECOD", fitted(ECOD(), X), CLIPS)
    bank = NormalBank(X, DOMAINS, scorers={"ECOD": ECOD(), "mine": own})
    members = bank.members()
    assert list(members) == ["embedding", "ext-ECOD", "ext-mine"]
    assert members["ext-mine"] == tuple(
        each.name for each in calibrations_of(ScoreConfig.parse("ext-mine").base)
    )
    means = []
    for label in ("ECOD", "mine"):
        grid = list(members[f"ext-{label}"])
        support = np.sort(bank.leave_one_out(grid).T[:, None], axis=-1)
        scores = bank.score(CLIPS, grid, scores={"mine": clips}).T[:, None]
        means.append(normal_scores(support, scores)[:, 0].mean(axis=0))
    alone = NormalBank(X, DOMAINS).score(CLIPS, "vote")[:, 0]
    found = bank.score(CLIPS, "vote", scores={"mine": clips})[:, 0]
    np.testing.assert_allclose(found, (alone + sum(means)) / 3, rtol=1e-6, atol=1e-9)
    assert bank.balance(["vote", "conf-soft-m0-vote"], 3).shape == (2,)


def test_without_external_scorers_a_vote_is_what_it_was():
    np.testing.assert_array_equal(
        NormalBank(X, DOMAINS, scorers={}).score(CLIPS, "vote"),
        NormalBank(X, DOMAINS).score(CLIPS, "vote"),
    )


# Pools and mistakes


def test_a_pool_has_names_detectors_and_tables_side_by_side():
    configs, scorers = parse_pool(
        ["raw-k1", OneClassSVM(), OneClassSVM(nu=0.1), {"mine": np.zeros(3)}, "vote"]
    )
    assert list(scorers) == ["OneClassSVM", "OneClassSVM2", "mine"]
    assert [config.name for config in configs][:2] == ["raw-k1", "ext-OneClassSVM"]
    assert len(configs) == 2 + 3 * 7


class Numbered2(Centre):
    pass


class Größe(Centre):
    pass


@pytest.mark.parametrize(
    ("pool", "labels"),
    [
        (OneClassSVM(), ["OneClassSVM"]),
        ({"mine": np.zeros(3), "svm": OneClassSVM()}, ["mine", "svm"]),
        ([Numbered2(), Numbered2()], ["Numbered2", "Numbered22"]),
        ([{"Centre2": Centre()}, Centre(), Centre()], ["Centre2", "Centre", "Centre3"]),
        ([Größe()], ["Gre"]),
    ],
)
def test_every_scorer_of_a_pool_has_a_label(pool, labels):
    assert list(parse_pool(pool)[1]) == labels


@pytest.mark.parametrize("pool", [[3], [{"a b": OneClassSVM()}], [{"a": 1}, {"a": 2}], []])
def test_pools_that_make_no_sense_are_refused(pool):
    with pytest.raises(ConfigError):
        parse_pool(pool)


class Broken:
    def __init__(self, scores=None):
        self.scores = scores

    def fit(self, rows):
        if self.scores is None:
            raise RuntimeError("out of cheese")

    def decision_function(self, rows):
        return np.broadcast_to(self.scores, (len(rows), *np.shape(self.scores)))


@pytest.mark.parametrize(
    ("scorer", "message"),
    [
        (Broken(), "broken could not be fitted on 74 clips: out of cheese"),
        (Broken(np.nan), "one finite score"),
        (Broken(np.zeros(2)), r"one finite score.*\(20, 2\)"),
        (StandardScaler(), "neither 'score_samples' nor 'decision_function'"),
    ],
)
def test_what_is_wrong_with_a_detector_is_said(scorer, message):
    with pytest.raises(InputError, match=message):
        NormalBank(X, DOMAINS, scorers={"broken": scorer}).score(CLIPS, "ext-broken")


def test_an_unknown_scorer_is_named():
    with pytest.raises(ConfigError, match=r"no scorer 'forest'.*daco\.scorers"):
        NormalBank(X, DOMAINS).score(CLIPS, "conf-soft-m0-ext-forest")
    with pytest.raises(ConfigError, match="scorer's label"):
        NormalBank(X, DOMAINS, scorers={"a-b": OneClassSVM()})
