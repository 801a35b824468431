"""DACo and LabelFreeSearch with detectors of other libraries."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pyod.models.ecod import ECOD
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor
from sklearn.svm import OneClassSVM

from daco import DACo, LabelFreeSearch
from daco.errors import ConfigError, InputError

RNG = np.random.default_rng(3)
DOMAINS = ["source"] * 150 + ["target"] * 30


def normals(rng, count=180):
    X = rng.normal(size=(count, 8)) + 2
    X[-count // 6 :, :4] *= 2
    return X


X = normals(RNG)
FAULTS = RNG.normal(size=(40, 8)) - 4
pytestmark = pytest.mark.filterwarnings("ignore::daco.errors.DacoWarning")


@pytest.mark.parametrize(
    "scorer", [IsolationForest(), LocalOutlierFactor(), OneClassSVM(), ECOD(), DACo("varmin-K4")]
)
def test_any_detector_alarms_on_faults_and_seldom_on_new_normals(scorer):
    detector = DACo(scorer=scorer, false_alarm_rate=0.1).fit(X, domains=DOMAINS)
    assert detector.config_ == f"conf-soft-m0-ext-{type(scorer).__name__}"
    assert (detector.predict(FAULTS) == -1).mean() > 0.9
    fresh = normals(np.random.default_rng(99), 600)
    alarms = detector.predict(fresh) == -1
    assert alarms[:500].mean() < 0.2
    assert alarms[500:].mean() < 0.3  # 30 clips fix the rate of a domain to about 0.1
    p_values = detector.p_values(fresh)
    np.testing.assert_array_equal(alarms, p_values <= 0.1)
    np.testing.assert_array_equal(alarms, detector.decision_function(fresh) < 0)


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("raw-k1", "ext-OneClassSVM"),
        ("zscore-hard-k4", "zscore-hard-ext-OneClassSVM"),
        ("conf-hard-m30-ldnK1", "conf-hard-m30-ext-OneClassSVM"),
        ("conf-soft-m0-ext-mine", "conf-soft-m0-ext-mine"),
        ("vote", "vote"),
        ("recommended", "vote"),
    ],
)
def test_a_scorer_takes_the_place_of_the_base_score(config, name):
    detector = DACo(config, scorer=OneClassSVM()).fit(X, domains=DOMAINS)
    assert detector.config_ == name
    if name == "vote":
        assert "ext-OneClassSVM" in detector.bank_.members()


def test_the_detector_can_be_cloned_pickled_set_and_calibrated():
    detector = DACo(scorer=IsolationForest(n_estimators=10)).fit(X, domains=DOMAINS)
    again = clone(detector).set_params(scorer__n_estimators=20).fit(X, domains=DOMAINS)
    assert again.scorer.n_estimators == 20
    assert not np.array_equal(again.anomaly_score(X), detector.anomaly_score(X))
    loaded = pickle.loads(pickle.dumps(detector))
    np.testing.assert_array_equal(loaded.anomaly_score(FAULTS), detector.anomaly_score(FAULTS))
    new = normals(np.random.default_rng(5), 60)
    loaded.calibrate(new, ["source"] * 50 + ["target"] * 10)
    assert loaded.reference_.kinds == {"source": "new", "target": "new"}


def test_a_bank_without_external_scorers_pickles_no_second_copy_of_its_vectors():
    X = np.random.default_rng(0).normal(size=(400, 64))
    size = len(pickle.dumps(DACo("raw-k1").fit(X)))
    assert size < 1.5 * X.nbytes


def test_sessions_are_scored_by_detectors_that_have_not_seen_them():
    rng = np.random.default_rng(1)
    sessions = np.repeat(np.arange(30), 6)
    X = rng.normal(size=(30, 8))[sessions] + 0.05 * rng.normal(size=(180, 8)) + 2
    scorer = LocalOutlierFactor(n_neighbors=3)
    blind = DACo("raw-k1", scorer=scorer).fit(X)
    aware = DACo("raw-k1", scorer=scorer).fit(X, groups=list(map(str, sessions)))
    assert aware.reference_.kinds == {"all": "sessions"}
    assert np.median(aware.reference_.scores) > 2 * np.median(blind.reference_.scores)


def test_a_search_compares_names_detectors_and_tables():
    own = np.linalg.norm(X - X.mean(axis=0), axis=1)
    pool = ["raw-k1", "conf-soft-m0-k1", "vote", OneClassSVM(), {"mine": own}]
    search = LabelFreeSearch(pool, n_splits=20).fit(X, domains=DOMAINS)
    results = search.results_.set_index("config")
    assert len(results) == 17
    # a score whose domains differ is balanced by its quantile maps
    for base in ("ext-OneClassSVM", "ext-mine"):
        assert (
            results.loc[f"conf-soft-m0-{base}", "criterion"] < results.loc[base, "criterion"] - 0.1
        )
    # the veto judges detectors; tables, and votes that count them, cannot score pseudo-anomalies
    assert np.isfinite(results.loc["ext-OneClassSVM", "pseudo_score"])
    for name in ("ext-mine", "vote"):
        assert np.isnan(results.loc[name, "pseudo_score"])
        assert not results.loc[name, "vetoed"]
    assert search.predict(FAULTS).shape == (40,)


def test_a_chosen_detector_can_be_fitted_again():
    search = LabelFreeSearch([OneClassSVM()], n_splits=5).fit(X, domains=DOMAINS)
    best = search.best_detector_
    again = clone(best).fit(X, domains=DOMAINS)
    np.testing.assert_allclose(again.anomaly_score(FAULTS), search.anomaly_score(FAULTS))


def test_a_chosen_vote_can_be_fitted_again_with_all_its_scorers():
    pool = ["conf-soft-m0-vote", OneClassSVM(), {"trees": IsolationForest(n_estimators=10)}]
    search = LabelFreeSearch(pool, n_splits=3).fit(X, domains=DOMAINS)
    assert search.best_config_ == "conf-soft-m0-vote"
    again = clone(search.best_detector_).fit(X, domains=DOMAINS)
    assert again.bank_.members() == search.best_detector_.bank_.members()
    np.testing.assert_array_equal(again.anomaly_score(FAULTS), search.anomaly_score(FAULTS))


def test_a_chosen_table_needs_the_scores_of_new_clips():
    search = LabelFreeSearch([{"mine": RNG.random(180)}], n_splits=5).fit(X, domains=DOMAINS)
    with pytest.raises(InputError, match="scores="):
        search.predict(FAULTS)
    found = search.best_detector_.bank_.score(
        FAULTS, search.best_config_, scores={"mine": np.ones(40)}
    )
    assert found.shape == (40, 1)


def test_what_is_no_detector_and_no_calibration_of_one_is_refused():
    with pytest.raises(ConfigError, match="never negative"):
        DACo("ratio-soft-k1", scorer=OneClassSVM()).fit(X, domains=DOMAINS)
    with pytest.raises(ConfigError, match="pool"):
        LabelFreeSearch([3]).fit(X, domains=DOMAINS)
    with pytest.raises(ConfigError, match="pool"):
        LabelFreeSearch(3).fit(X, domains=DOMAINS)
    with pytest.raises(ConfigError, match="'raw-k1' uses none of the scorers mine"):
        DACo("raw-k1", scorer={"mine": OneClassSVM()}).fit(X, domains=DOMAINS)
    for scorer in ("forest", np.zeros(180), {}):
        with pytest.raises(ConfigError, match="'scorer' parameter must be a detector"):
            DACo(scorer=scorer).fit(X, domains=DOMAINS)
