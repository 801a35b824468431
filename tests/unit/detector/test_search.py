"""LabelFreeSearch: the choice of a configuration as scikit-learn's searches present one."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.svm import OneClassSVM

import daco
from daco.errors import InputError
from daco.method.selection import choose_config

DOMAINS = ["source"] * 150 + ["target"] * 30
RNG = np.random.default_rng(3)
X = RNG.normal(size=(180, 8)) + 2
X[150:, :4] *= 2
FAULTS = RNG.normal(size=(40, 8)) - 4
POOL = ["raw-k1", "conf-soft-m0-k1", "conf-soft-m30-k1", "ldn-ratio-K1"]


@pytest.fixture(scope="module")
def search():
    return daco.LabelFreeSearch(POOL, n_splits=30).fit(X, domains=DOMAINS)


def test_results_are_columns_in_the_order_of_the_candidates(search):
    results = pd.DataFrame(search.cv_results_)
    assert results["param_config"].tolist() == POOL
    assert results["params"].tolist() == [{"config": name} for name in POOL]
    expected = daco.NormalBank(X, DOMAINS).balance(POOL, 30, 0)
    np.testing.assert_allclose(results["mean_criterion"], expected)
    assert (results["std_criterion"] > 0).all()
    smallest = results["mean_criterion"].idxmin()
    assert results.loc[smallest, "rank_criterion"] == 1
    assert sorted(results["rank_criterion"]) == [1, 2, 3, 4]
    assert results["agreement"].sum() == pytest.approx(1)
    assert results["pseudo_score"].between(0, 1).all()
    assert results["vetoed"].dtype == bool


def test_the_best_is_what_the_chooser_chooses(search):
    choice = choose_config(daco.NormalBank(X, DOMAINS), POOL, n_splits=30, seed=0)
    assert search.best_params_ == {"config": choice.config}
    assert POOL[search.best_index_] == choice.config
    assert search.choice_.reason == choice.reason
    assert search.best_estimator_.config_ == choice.config


def test_it_judges_as_its_best_estimator(search):
    fresh = daco.DACo(**search.best_params_).fit(X, domains=DOMAINS)
    np.testing.assert_array_equal(search.p_values(FAULTS), fresh.p_values(FAULTS))
    np.testing.assert_array_equal(search.anomaly_score(FAULTS), fresh.anomaly_score(FAULTS))
    np.testing.assert_array_equal(
        search.decision_function(FAULTS), search.score_samples(FAULTS) - search.offset_
    )
    assert search.thresholds_ == fresh.thresholds_
    assert search.domain_weights(FAULTS).shape == (40, 2)
    assert (search.predict(FAULTS) == -1).mean() > 0.9


def test_calibrating_and_sessions_reach_the_best_estimator():
    groups = [str(row // 3) for row in range(180)]
    search = daco.LabelFreeSearch(["raw-k1"], n_splits=5).fit(X, domains=DOMAINS, groups=groups)
    assert search.best_estimator_.reference_.sessions == {"source": 50, "target": 10}
    new = np.random.default_rng(9).normal(size=(25, 8)) + 2
    assert search.calibrate(new, ["source"] * 25) is search
    assert search.best_estimator_.reference_.kinds == {"source": "new", "target": "sessions"}


def test_names_detectors_and_tables_are_compared():
    table = np.linalg.norm(X - X.mean(axis=0), axis=1)
    pool = ["raw-k1", "conf-soft-m0-k1", "blend", OneClassSVM(), {"mine": table}]
    search = daco.LabelFreeSearch(pool, n_splits=10).fit(X, domains=DOMAINS)
    results = pd.DataFrame(search.cv_results_).set_index("param_config")
    assert len(results) == 17
    criterion = results["mean_criterion"]
    for base in ("ext-OneClassSVM", "ext-mine"):  # domains differ, quantile maps balance them
        assert criterion[f"conf-soft-m0-{base}"] < criterion[base] - 0.1
    # tables have no scores of pseudo-anomalies
    assert np.isfinite(results.loc["ext-OneClassSVM", "pseudo_score"])
    assert np.isnan(results.loc["ext-mine", "pseudo_score"])
    assert not results.loc["ext-mine", "vetoed"]


def test_a_chosen_table_needs_the_scores_of_new_clips():
    search = daco.LabelFreeSearch([{"mine": RNG.random(180)}], n_splits=5).fit(X, domains=DOMAINS)
    with pytest.raises(InputError, match="scores="):
        search.predict(FAULTS)
