"""DACo and LabelFreeSearch as their users meet them."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import daco
from daco.errors import ConfigError, DacoWarning, InputError


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(220, 12)).astype(np.float32) + 2
    X[200:] += 1.5
    return X, np.array(["source"] * 200 + ["target"] * 20)


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "raw-k1", "zscore-hard-k2", "ldn-diff-K1"])
def test_signs_agree(data, config):
    X, domains = data
    detector = daco.DACo(config).fit(X[::2], domains=domains[::2])
    clips = np.vstack([X[1::2], -X[:20]])
    score = detector.anomaly_score(clips)
    assert (detector.score_samples(clips) == -score).all()
    assert np.allclose(detector.decision_function(clips), detector.threshold_ - score)
    assert ((detector.predict(clips) == -1) == (score > detector.threshold_)).all()
    assert (detector.predict(-X[:20]) == -1).all()
    assert detector.offset_ == -detector.threshold_


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "raw-k1", "ratio-soft-k1", "ldn-ratio-K1"])
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_the_threshold_flags_about_the_stated_share_of_normals(config, rate):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 10)) + 2
    detector = daco.DACo(config, false_alarm_rate=rate).fit(X)
    flagged = (detector.predict(rng.normal(size=(4000, 10)) + 2) == -1).mean()
    # One domain, same distribution: binomial noise of bank and test, 3 deviations.
    assert abs(flagged - rate) < 3 * np.sqrt(rate * (1 - rate) * (1 / 1000 + 1 / 4000)) + 0.01


def test_one_threshold_serves_both_domains():
    """The problem of the paper: raw scores alarm in one domain only, calibrated in both."""
    rng = np.random.default_rng(5)

    def clips(n, spread):
        return rng.normal(size=(n, 20)) * spread + 3

    X = np.vstack([clips(400, 0.3), -clips(100, 0.9)])
    domains = ["source"] * 400 + ["target"] * 100
    rates = {}
    for config in ("raw-k1", "conf-hard-m0-k1"):
        detector = daco.DACo(config, false_alarm_rate=0.1).fit(X, domains=domains)
        rates[config] = [
            (detector.predict(test) == -1).mean() for test in (clips(2000, 0.3), -clips(2000, 0.9))
        ]
    assert rates["raw-k1"][0] == 0
    assert min(rates["conf-hard-m0-k1"]) > 0.05
    assert max(max(each) for each in rates.values()) < 0.15


def test_domain_weights_sum_to_one_in_the_order_of_domains(data):
    X, domains = data
    for config in ("conf-soft-m0-k1", "conf-hard-m0-k1", "raw-k1"):
        detector = daco.DACo(config).fit(X, domains=domains)
        assert detector.domains_ == ("source", "target")
        weights = detector.domain_weights(X[-5:])
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        assert (weights[:, 1] > 0.5).all()


def test_clone_set_params_and_refit(data):
    X, domains = data
    detector = daco.DACo("raw-k1").fit(X, domains=domains)
    copy = clone(detector).set_params(config="conf-hard-m10-k2", false_alarm_rate=0.2)
    with pytest.raises(NotFittedError):
        copy.predict(X)
    fresh = daco.DACo("conf-hard-m10-k2", 0.2).fit(X, domains=domains)
    assert copy.fit(X, domains=domains).threshold_ == fresh.threshold_
    refit = copy.fit(X[:50], domains=domains[:50])
    assert len(refit.bank_) == 50
    assert refit.domains_ == ("source",)


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "raw-k1"])
def test_the_rate_is_held_in_a_noisy_target_domain(config):
    """Soft weights mix two maps: with a threshold of 1 - rate a fifth of it would be flagged."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 64)) + 1
    X[490:] = 1.3 * rng.normal(size=(10, 64)) + 1
    domains = ["source"] * 490 + ["target"] * 10
    detector = daco.DACo(config, false_alarm_rate=0.1).fit(X, domains=domains)
    assert max(detector.leave_one_out_rates_.values()) <= 0.1


def test_parameters_changed_after_fit_wait_for_the_next_fit(data):
    X, domains = data
    detector = daco.DACo().fit(X, domains=domains)
    before = detector.predict(-X)
    detector.set_params(config="raw-k1")
    assert (detector.predict(-X) == before).all()
    assert detector.config_ == "conf-soft-m0-k1"


def test_a_failed_refit_leaves_the_earlier_fit_whole(data):
    X, domains = data
    detector = daco.DACo("raw-k5").fit(X, domains=domains)
    score = detector.anomaly_score(X)
    with pytest.raises(daco.DacoError):
        detector.fit(X[:3])
    assert (detector.anomaly_score(X) == score).all()


def test_feature_names_are_known_to_the_chosen_detector(data):
    X, domains = data
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    search = daco.LabelFreeSearch().fit(frame, domains=domains)
    assert search.domain_weights(frame).shape == (220, 2)
    assert search.best_detector_.anomaly_score(frame).shape == (220,)
    with pytest.raises(InputError, match="feature names"):
        search.anomaly_score(frame[frame.columns[::-1]])


def test_other_numbers_of_features_are_refused(data):
    X, domains = data
    with pytest.raises(InputError, match="expecting 12 features"):
        daco.DACo().fit(X, domains=domains).predict(X[:, :3])


def test_a_rate_ten_clips_cannot_support_is_answered_with_the_floor(data):
    X, domains = data
    with pytest.warns(DacoWarning, match=r"below 0.0476.*20 clips of domain 'target'.*99 clips"):
        daco.DACo(false_alarm_rate=0.01).fit(X, domains=domains)


@pytest.mark.parametrize("rate", [0, 1, -0.1, 2, 1e-17, "0.1", None, True, float("nan"), 0.1 + 0j])
def test_rates_outside_of_0_and_1_are_refused(data, rate):
    with pytest.raises(InputError, match="between 0 and 1"):
        daco.DACo(false_alarm_rate=rate).fit(data[0])


def test_wrong_configurations_are_refused_at_fit(data):
    X, domains = data
    with pytest.raises(ConfigError, match="Did you mean"):
        daco.DACo("conf-soft-m0").fit(X)
    with pytest.raises(InputError, match="which a detector never has"):
        daco.DACo("conf-oracle-m0-k1").fit(X, domains=domains)


def test_fit_predict_leaves_each_clip_out(data):
    X, domains = data
    X = X.copy()
    X[7] = -X[7]
    flags = daco.DACo("raw-k1", false_alarm_rate=0.05).fit_predict(X, domains=domains)
    assert flags[7] == -1
    assert (flags == -1).mean() < 0.1
    assert daco.DACo().fit(X, domains=domains).predict(X[7:8]) == 1  # it finds itself


def test_search_picks_the_smallest_criterion_and_says_why(data):
    X, domains = data
    search = daco.LabelFreeSearch().fit(X, domains=domains)
    table = search.results_
    assert len(table) == 9
    assert table.loc[table["criterion"].idxmin(), "config"] == search.best_config_
    assert table.loc[table["rank"] == 1, "config"].item() == search.best_config_
    assert "smallest balance criterion of 9" in search.reason_
    np.testing.assert_array_equal(search.anomaly_score(X), search.best_detector_.anomaly_score(X))
    assert search.domain_weights(X).shape == (220, 2)
    whole = daco.LabelFreeSearch(daco.paper_grid(), n_splits=3, seed=4).fit(X, domains=domains)
    assert len(whole.results_) == 51
    np.testing.assert_array_equal(
        whole.results_["criterion"], daco.NormalBank(X, domains).balance(daco.paper_grid(), 3, 4)
    )


def test_search_breaks_exact_ties_by_order():
    """Monotone maps of one score have equal criteria: the first named is taken."""
    X = np.random.default_rng(0).normal(size=(40, 5))
    domains = ["s"] * 30 + ["t"] * 10
    for pool in (["raw-k1", "conf-soft-m1000000000-k1"], ["conf-soft-m1000000000-k1", "raw-k1"]):
        search = daco.LabelFreeSearch(pool).fit(X, domains=domains)
        assert search.results_["criterion"].nunique() == 1
        assert search.best_config_ == pool[0]


def test_search_in_one_domain_takes_the_default(data):
    search = daco.LabelFreeSearch().fit(data[0])
    assert search.best_config_ == "conf-soft-m0-k1"
    assert "one domain" in search.reason_
    assert "the fixed default" in search.reason_
    assert "the first candidate" in daco.LabelFreeSearch(["raw-k4"]).fit(data[0]).reason_
    assert search.results_["criterion"].isna().all()


def test_fitted_detectors_survive_pickling_to_worker_processes(data):
    X, domains = data
    detector = daco.DACo().fit(X, domains=domains)
    stored = pickle.dumps(detector)
    assert len(stored) < 20 * X.nbytes  # the distances between clips stay behind
    again = pickle.loads(stored)
    np.testing.assert_array_equal(again.anomaly_score(X), detector.anomaly_score(X))


@pytest.mark.parametrize("kind", [daco.DACo, daco.LabelFreeSearch])
@pytest.mark.parametrize("method", ["fit", "fit_predict"])
@pytest.mark.parametrize(
    "of", [np.asarray, list, pd.Series, pd.Categorical, lambda d: d.astype("S")]
)
def test_domains_in_the_place_of_y_are_an_error_that_shows_the_call(data, kind, method, of):
    """They would be ignored, and with them the whole calibration by domain."""
    X, domains = data
    call = rf"text such as b?'source'.*{kind.__name__}\(\)\.fit\(X, domains=domains\)"
    with pytest.raises(InputError, match=call):
        getattr(kind(), method)(X, of(domains))
