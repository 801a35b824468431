"""DACo beside detectors of PyOD and as the last step of a pipeline of scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daco

RNG = np.random.default_rng(0)
DOMAINS = np.repeat(["source", "target"], [60, 12])
X = RNG.normal(size=(72, 10)) + 2 + 2 * (DOMAINS == "target")[:, None]
X_TEST = RNG.normal(size=(20, 10)) + 3


@pytest.mark.parametrize("scorer", [None, IsolationForest(n_estimators=10, random_state=0)])
def test_the_last_step_of_a_pipeline_gets_the_domains(scorer):
    steps = StandardScaler(), PCA(6, random_state=0)
    by_name = make_pipeline(*steps, daco.DACo(scorer=scorer)).fit(X, daco__domains=DOMAINS)
    with sklearn.config_context(enable_metadata_routing=True):
        step = daco.DACo(scorer=scorer).set_fit_request(domains=True)
        routed = make_pipeline(*steps, step).fit(X, domains=DOMAINS)
    front = make_pipeline(*steps)
    plain = daco.DACo(scorer=scorer).fit(front.fit_transform(X), domains=DOMAINS)
    wanted = plain.score_samples(front.transform(X_TEST))
    for pipeline in (by_name, routed):
        assert pipeline[-1].domains_ == ("source", "target")
        np.testing.assert_allclose(pipeline.score_samples(X_TEST), wanted, rtol=1e-9)
        np.testing.assert_array_equal(
            pipeline.predict(X_TEST), plain.predict(front.transform(X_TEST))
        )


def test_a_pipeline_is_a_scorer_too():
    """The other way round: a pipeline that ends with a detector is one more base score."""
    detector = daco.DACo(scorer=make_pipeline(StandardScaler(), IsolationForest(n_estimators=10)))
    scores = detector.fit(X, domains=DOMAINS).anomaly_score(np.vstack([X[:1] + 0.01, X[:1] + 9]))
    assert detector.config_ == "conf-soft-m0-ext-Pipeline"
    assert scores[0] < scores[1]


def test_scores_join_a_combination_of_pyod():
    """A mean of standardised columns, as PyOD combines detectors, ranks by both."""
    iforest = pytest.importorskip("pyod.models.iforest", reason="needs PyOD").IForest
    standardizer = pytest.importorskip("pyod.utils.utility").standardizer
    mine = daco.DACo().fit(X, domains=DOMAINS)
    other = iforest(n_estimators=10, random_state=0).fit(X)
    # One held-out score per normal, in the order of the rows
    assert mine.reference_.scores.shape == other.decision_scores_.shape
    own = np.column_stack([mine.reference_.scores, other.decision_scores_])
    test = np.column_stack([mine.anomaly_score(X_TEST), other.decision_function(X_TEST)])
    scaled, scaled_test = standardizer(own, test)
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    wanted = (test - own.mean(axis=0)) / own.std(axis=0)
    np.testing.assert_allclose(scaled_test, wanted, rtol=1e-9, atol=1e-12)
    far = mine.anomaly_score(-X[:1]) > mine.anomaly_score(X_TEST)
    assert far.mean() > 0.9  # higher is more anomalous on both sides
