"""DACo and LabelFreeSearch as their users meet them."""

from __future__ import annotations

import pickle
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import daco
from daco.detector.model import MachineModel
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
    alarms = detector.predict(clips) == -1
    assert alarms[-20:].all()
    assert (alarms == (detector.p_values(clips) <= 0.1)).all()
    assert (alarms == (detector.decision_function(clips) < 0)).all()
    thresholds = detector.reference_.thresholds(detector.domain_weights(clips), 0.1)
    assert (detector.decision_function(clips) == thresholds - score).all()


def test_with_one_domain_there_is_one_threshold(data):
    X = data[0]
    detector = daco.DACo("raw-k1").fit(X[::2])
    score = detector.anomaly_score(X)
    assert detector.thresholds_ == {"all": -detector.offset_}
    assert (detector.decision_function(X) == detector.score_samples(X) - detector.offset_).all()
    assert ((detector.predict(X) == -1) == (score > detector.thresholds_["all"])).all()


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "raw-k1", "ratio-soft-k1", "ldn-ratio-K1"])
@pytest.mark.parametrize("rate", [0.1, 0.3])
def test_about_the_stated_share_of_normals_is_flagged(config, rate):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1000, 10)) + 2
    detector = daco.DACo(config, false_alarm_rate=rate).fit(X)
    flagged = (detector.predict(rng.normal(size=(4000, 10)) + 2) == -1).mean()
    # One domain, same distribution: binomial noise of bank and test, 3 deviations.
    assert abs(flagged - rate) < 3 * np.sqrt(rate * (1 - rate) * (1 / 1000 + 1 / 4000)) + 0.01


@pytest.mark.parametrize("config", ["raw-k1", "conf-hard-m0-k1", "conf-soft-m0-k1", "varmin-K4"])
def test_one_rate_serves_both_domains(config):
    """The problem of the paper, solved for every score: each domain has its own reference."""
    rng = np.random.default_rng(5)

    def clips(n, spread):
        return rng.normal(size=(n, 20)) * spread + 3

    X = np.vstack([clips(400, 0.3), -clips(100, 0.9)])
    domains = ["source"] * 400 + ["target"] * 100
    detector = daco.DACo(config, false_alarm_rate=0.1).fit(X, domains=domains)
    for test in (clips(2000, 0.3), -clips(2000, 0.9)):
        flagged = (detector.predict(test) == -1).mean()
        # Binomial noise of 100 clips of the bank and 2000 of the test: 3 deviations are 0.09.
        assert 0.05 < flagged < 0.15


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
    assert copy.fit(X, domains=domains).thresholds_ == fresh.thresholds_
    refit = copy.fit(X[:50], domains=domains[:50])
    assert len(refit.bank_) == 50
    assert refit.domains_ == ("source",)


@pytest.mark.parametrize("config", ["conf-soft-m0-k1", "raw-k1"])
def test_where_domains_look_alike_the_noisier_one_alarms_more_often_within_a_bound(config):
    """A clip of weight w in its domain alarms at rate / w at most: other domains add p-values."""
    rng = np.random.default_rng(0)

    def clips(n):
        return np.vstack([rng.normal(size=(n, 64)) + 1, 1.3 * rng.normal(size=(n, 64)) + 1])

    X = clips(490)[:500]
    domains = ["source"] * 490 + ["target"] * 10
    detector = daco.DACo(config, false_alarm_rate=0.1).fit(X, domains=domains)
    detector.calibrate(clips(500), ["source"] * 500 + ["target"] * 500)
    test = clips(2000)
    alarms = detector.predict(test).reshape(2, -1) == -1
    weight = detector.domain_weights(test)[2000:, 1].mean()
    assert 0.3 < weight < 0.5  # the domains are not told apart
    # Three deviations of 500 clips of the reference and 2000 of the test.
    assert alarms[0].mean() < 0.1
    assert 0.1 < alarms[1].mean() < 0.1 / weight + 0.06


def test_sessions_are_hidden_as_a_whole(data):
    """Clips of one recording are alike, and a new recording is not: without sessions too low."""
    rng = np.random.default_rng(6)
    X = np.repeat(rng.normal(size=(40, 12)) + 1, 5, axis=0) + 0.1 * rng.normal(size=(200, 12))
    groups = [f"recording {row // 5}" for row in range(200)]
    new = rng.normal(size=(500, 12)) + 1
    known = daco.DACo("raw-k1").fit(X, groups=groups)
    assert known.reference_.kinds == {"all": "sessions"}
    assert 0.03 < (known.predict(new) == -1).mean() < 0.25
    unknown = daco.DACo("raw-k1").fit(X)
    assert unknown.reference_.kinds == {"all": "training"}
    # Five clips of each recording: the gap after the fourth neighbour is seen in the bank.
    np.testing.assert_array_equal(unknown.reference_.scores, known.reference_.scores)
    again = daco.LabelFreeSearch(["raw-k1"]).fit(X, groups=groups)
    np.testing.assert_array_equal(again.best_detector_.reference_.scores, known.reference_.scores)
    for wrong in (groups[:3], "a" * 200, 7):
        with pytest.raises(InputError, match="groups must name each of the 200 clips"):
            daco.DACo("raw-k1").fit(X, groups=wrong)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, ""])
def test_clips_of_unknown_session_are_not_one_session(data, missing):
    X, domains = data
    groups = pd.Series([missing] * 100 + ["a", "b"] * 50 + [missing] * 20)
    reference = daco.DACo("raw-k1").fit(X, domains=domains, groups=groups).reference_
    assert reference.kinds == {"source": "sessions", "target": "training"}
    assert (reference.sessions, reference.sizes["source"]) == ({"source": 2}, 100)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.ones((8, 2, 4)), r"\(8, 2, 4\) instead.*X\.reshape\(len\(X\), -1\)"),
        (np.ones(8), r"X\.reshape\(1, -1\) for one clip"),
        ([], r"0 sample\(s\).*Give at least one clip"),
        ({}, "X must have .*Got the views none and bands of none"),
    ],
)
def test_messages_about_the_shape_of_clips_show_what_to_do(X, message):
    with pytest.raises(InputError, match=message):
        daco.DACo().fit(X)


def test_calibrating_takes_scores_of_new_clips_and_leaves_other_domains(data):
    X, domains = data
    detector = daco.DACo("raw-k1").fit(X[::2], domains=domains[::2])
    before = detector.reference_
    assert detector.calibrate(X[1:61:2], ["source"] * 30) is detector
    assert detector.reference_.kinds == {"source": "new", "target": "training"}
    assert detector.reference_.sizes == {"source": 30, "target": 10}
    source = detector.reference_.clip_domains == 0
    np.testing.assert_array_equal(
        detector.reference_.scores[source], detector.anomaly_score(X[1:61:2])
    )
    np.testing.assert_array_equal(
        detector.reference_.scores[~source], before.scores[before.clip_domains == 1]
    )
    assert len(detector.bank_) == 110  # nothing entered the bank
    detector.calibrate(X[201::2], ["target"] * 10)  # the clips of source stay
    assert detector.reference_.kinds == {"source": "new", "target": "new"}
    assert detector.reference_.sizes == {"source": 30, "target": 10}
    with pytest.raises(InputError, match="are in the bank"):
        detector.calibrate(X[:4], ["source"] * 4)
    fresh = detector.fit(X[::2], domains=domains[::2])
    assert fresh.reference_.kinds == {"source": "training", "target": "training"}
    guessed = detector.calibrate(X[1::2]).reference_.sizes
    codes = detector.domain_weights(X[1::2]).argmax(axis=1)
    assert guessed == {"source": sum(codes == 0), "target": sum(codes == 1)}
    with pytest.raises(InputError, match="night"):
        detector.calibrate(X[1:4:2], ["night", "source"])


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


def test_a_rate_so_few_clips_cannot_support_is_answered_with_the_smallest(data):
    X, domains = data
    model = MachineModel.fit(X, domains, machine="fan", config="raw-k1", false_alarm_rate=0.01)
    (caution,) = model.cautions()
    assert "0.01 is below 0.0333, the smallest that 20 clips of target can support" in caution
    with pytest.warns(DacoWarning, match=f"^{re.escape(caution)}$"):
        daco.DACo("raw-k1", false_alarm_rate=0.01).fit(X, domains=domains)


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
