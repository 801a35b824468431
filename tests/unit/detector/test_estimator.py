"""DACo on arrays: signs, parameters, sessions, calibration, model files and warnings."""

from __future__ import annotations

import pickle
import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import daco
from daco.detector.model import MachineModel
from daco.errors import ConfigError, InputError

DOMAINS = np.array(["source"] * 200 + ["target"] * 20)
CONFIGS = ["blend", "conf-soft-m0-k1", "raw-k1", "zscore-hard-k2", "ldn-diff-K1"]


def draw(seed, n_source, n_target):
    X = np.random.default_rng(seed).normal(size=(n_source + n_target, 12)) + 2
    X[n_source:] += 1.5
    return X


X, NEW = draw(1, 200, 20), draw(2, 60, 60)
FAULTS = -X[:20]


@pytest.fixture(scope="module")
def fitted():
    return daco.DACo().fit(X, domains=DOMAINS)


class TestJudging:
    @pytest.mark.parametrize("config", CONFIGS)
    def test_decision_function_is_score_samples_less_the_offset(self, config):
        detector = daco.DACo(config).fit(X, domains=DOMAINS)
        clips = np.vstack([NEW, FAULTS])
        p_values, decision = detector.p_values(clips), detector.decision_function(clips)
        np.testing.assert_array_equal(decision, detector.score_samples(clips) - detector.offset_)
        np.testing.assert_allclose(np.exp(detector.score_samples(clips)), p_values, rtol=1e-12)
        expected = daco.NormalBank(X, DOMAINS).score(clips, config)[:, 0]
        np.testing.assert_array_equal(detector.anomaly_score(clips), expected)
        assert detector.offset_ == pytest.approx(np.log(0.1))
        alarms = detector.predict(clips) == -1
        np.testing.assert_array_equal(alarms, decision < 0)
        np.testing.assert_array_equal(alarms, p_values <= 0.1)
        order = np.argsort(decision)
        assert (np.diff(p_values[order]) >= -1e-15).all()  # a logarithm rounds
        assert alarms[-20:].all()
        assert alarms[:120].mean() < 0.25

    def test_domain_weights_sum_to_one_in_the_order_of_domains(self, fitted):
        assert fitted.domains_ == ("source", "target")
        weights = fitted.domain_weights(NEW)
        np.testing.assert_allclose(weights.sum(axis=1), 1)
        assert weights[:60, 0].mean() > 0.7
        assert weights[60:, 1].mean() > 0.7

    @pytest.mark.parametrize("rate", [0.05, 0.1, 0.3])
    @pytest.mark.parametrize("config", ["blend", "raw-k1", "conf-soft-m0-k1"])
    def test_fit_predict_flags_the_rate_in_each_domain(self, config, rate):
        flags = daco.DACo(config, false_alarm_rate=rate).fit_predict(X, domains=DOMAINS)
        for name, size in (("source", 200), ("target", 20)):
            assert (flags[name == DOMAINS] == -1).sum() == round(rate * size)

    def test_fit_predict_does_not_hide_the_only_session_of_a_domain(self):
        groups = [*map(str, range(200)), *["one day"] * 20]
        flags = daco.DACo("raw-k1").fit_predict(X, domains=DOMAINS, groups=groups)
        assert (flags[200:] == -1).sum() == 2


class TestReferences:
    def test_siblings_declares_clips_independent(self):
        detector = daco.DACo("raw-k1", siblings=0).fit(X, domains=DOMAINS)
        assert detector.reference_.kinds == {"source": "independent", "target": "independent"}
        for wrong in ("many", -1, 1.5):
            with pytest.raises(InputError, match="'siblings' parameter must be 'auto' or an int"):
                daco.DACo(siblings=wrong).fit(X)

    @pytest.mark.parametrize("missing", [None, np.nan, pd.NA, ""])
    def test_clips_of_unknown_session_are_not_one_session(self, missing):
        groups = pd.Series([missing] * 100 + ["a", "b"] * 50 + [missing] * 20)
        reference = daco.DACo("raw-k1").fit(X, domains=DOMAINS, groups=groups).reference_
        assert reference.kinds == {"source": "sessions", "target": "training"}
        assert (reference.sessions, reference.sizes["source"]) == ({"source": 2}, 100)


class TestCalibrating:
    def test_it_takes_scores_of_new_clips_and_leaves_other_domains(self):
        detector = daco.DACo("raw-k1").fit(X, domains=DOMAINS)
        assert detector.calibrate(NEW[:30], ["source"] * 30) is detector
        assert detector.reference_.kinds == {"source": "new", "target": "training"}
        assert len(detector.bank_) == 220  # nothing entered the bank
        detector.calibrate(NEW[60:75], ["target"] * 15)  # those of source stay
        assert detector.reference_.sizes == {"source": 30, "target": 15}
        assert detector.fit(X, domains=DOMAINS).reference_.kinds["source"] == "training"

    def test_clips_of_the_bank_and_unknown_domains_are_refused(self, fitted):
        before = fitted.reference_
        with pytest.raises(InputError, match="are in the bank"):
            fitted.calibrate(np.vstack([NEW[:3], 2 * X[:1]]), ["source"] * 4)
        with pytest.raises(InputError, match="night"):
            fitted.calibrate(NEW[:2], ["night", "source"])
        with pytest.raises(NotFittedError):
            daco.DACo().calibrate(NEW)
        assert fitted.reference_ is before


class TestModelFiles:
    @pytest.mark.parametrize("config", ["blend", "conf-soft-m0-k1"])
    @pytest.mark.parametrize("calibrated", [False, True])
    def test_a_saved_detector_judges_as_before(self, tmp_path, config, calibrated):
        """A file has unit vectors in float32: scores move by its rounding."""
        groups = [str(row // 2) for row in range(200)] + [""] * 20
        detector = daco.DACo(config, false_alarm_rate=0.2, siblings=3)
        detector.fit(X, domains=DOMAINS, groups=groups)
        if calibrated:
            detector.calibrate(NEW[60:], ["target"] * 60)
        detector.save(tmp_path / "fan.daco", machine="fan")
        again = daco.load(tmp_path / "fan.daco")
        clips = np.vstack([NEW + 0.1, FAULTS])
        np.testing.assert_allclose(
            again.anomaly_score(clips), detector.anomaly_score(clips), atol=1e-3
        )
        # one reference that changes places is 1/60 of a domain
        np.testing.assert_allclose(again.p_values(clips), detector.p_values(clips), atol=0.02)
        assert again.reference_.kinds == detector.reference_.kinds
        assert again.reference_.sessions == detector.reference_.sessions
        assert again.get_params() == detector.get_params() | {"config": config}
        again.calibrate(NEW[:60], ["source"] * 60)
        assert again.reference_.kinds["target"] == detector.reference_.kinds["target"]

    def test_numbers_of_domains_are_names_in_a_file(self, tmp_path):
        detector = daco.DACo("raw-k1").fit(X, domains=[10] * 200 + [2] * 20)
        detector.calibrate(NEW[60:], [2] * 60)
        detector.save(tmp_path / "fan.daco", machine="fan")
        model = MachineModel.load(tmp_path / "fan.daco")
        assert model.machine == "fan"
        assert model.reference.kinds == {"10": "training", "2": "new"}

    def test_what_cannot_be_saved_is_refused(self, tmp_path):
        from sklearn.svm import OneClassSVM

        with pytest.raises(NotFittedError):
            daco.DACo().save(tmp_path / "fan.daco")
        with pytest.raises(InputError, match=r"entry point of 'daco\.scorers'"):
            daco.DACo(scorer=OneClassSVM()).fit(X).save(tmp_path / "fan.daco")
        assert not (tmp_path / "fan.daco").exists()

    def test_fitted_detectors_survive_pickling(self, fitted):
        stored = pickle.dumps(fitted)
        assert len(stored) < 20 * X.nbytes  # the distances between clips stay behind
        np.testing.assert_array_equal(pickle.loads(stored).p_values(NEW), fitted.p_values(NEW))


class TestParameters:
    def test_parts_of_a_configuration_can_be_set(self):
        assert daco.DACo("conf-soft-m0-k1", k=4, m=30, assignment="hard").fit(X).config_ == (
            "conf-hard-m30-k4"
        )
        assert daco.DACo(daco.ScoreConfig(k=2), assignment="soft").fit(X).config_ == (
            "conf-soft-m0-k2"
        )
        assert daco.DACo(assignment="soft", m=10).fit(X).config_ == "conf-soft-m10-blend"

    def test_parts_that_a_configuration_has_not_are_refused(self):
        wrong = [({"k": 4}, "k="), ({"m": 10}, "'m'"), ({"config": "conf-soft-m0"}, "-m0'")]
        for options, token in wrong:
            with pytest.raises(ConfigError, match=token):
                daco.DACo(**options).fit(X)
        with pytest.raises(InputError, match="conf-oracle-m0-k1"):
            daco.DACo("conf-oracle-m0-k1").fit(X, domains=DOMAINS)

    def test_the_rate_can_change_after_the_fit_and_nothing_else(self):
        detector = daco.DACo().fit(X, domains=DOMAINS)
        p_values = detector.p_values(NEW)
        detector.set_params(config="raw-k1", false_alarm_rate=0.3)
        assert detector.config_ == "blend"
        np.testing.assert_array_equal(detector.predict(NEW) == -1, p_values <= 0.3)
        detector.set_params(false_alarm_rate=7)
        with pytest.raises(InputError, match="between 0 and 1"):
            detector.predict(NEW)

    def test_a_failed_refit_leaves_the_earlier_fit_whole(self):
        detector = daco.DACo("raw-k5").fit(X, domains=DOMAINS)
        before = detector.p_values(NEW)
        with pytest.raises(daco.DacoError):
            detector.fit(X[:3])
        with pytest.raises(daco.DacoError):
            detector.fit(X, domains=DOMAINS, groups=["a"])
        np.testing.assert_array_equal(detector.p_values(NEW), before)


class TestInput:
    @pytest.mark.parametrize("scorer", [None, "forest"])
    def test_the_last_step_of_a_pipeline_gets_the_domains(self, scorer):
        from sklearn.ensemble import IsolationForest

        if scorer:
            scorer = IsolationForest(n_estimators=10, random_state=0)
        steps = StandardScaler(), PCA(6, random_state=0)
        by_name = make_pipeline(*steps, daco.DACo(scorer=scorer)).fit(X, daco__domains=DOMAINS)
        with sklearn.config_context(enable_metadata_routing=True):
            step = daco.DACo(scorer=scorer).set_fit_request(domains=True)
            routed = make_pipeline(*steps, step).fit(X, domains=DOMAINS)
        front = make_pipeline(*steps)
        plain = daco.DACo(scorer=scorer).fit(front.fit_transform(X), domains=DOMAINS)
        wanted = plain.p_values(front.transform(NEW))
        for pipeline in (by_name, routed):
            np.testing.assert_allclose(np.exp(pipeline.score_samples(NEW)), wanted, rtol=1e-9)
            np.testing.assert_array_equal(pipeline.predict(NEW) == -1, wanted <= 0.1)

    @pytest.mark.parametrize(
        ("clips", "message"),
        [
            (np.ones((8, 2, 4)), r"\(8, 2, 4\) instead.*X\.reshape\(len\(X\), -1\)"),
            (np.ones(8), r"X\.reshape\(1, -1\) for one clip"),
            ([], r"0 sample\(s\).*Give at least one clip"),
            ({}, "X must have at least one view"),
        ],
    )
    def test_messages_about_the_shape_of_clips_show_what_to_do(self, clips, message):
        with pytest.raises(InputError, match=message):
            daco.DACo().fit(clips)

    @pytest.mark.parametrize("kind", [daco.DACo, daco.LabelFreeSearch])
    @pytest.mark.parametrize("method", ["fit", "fit_predict"])
    @pytest.mark.parametrize(
        "of", [np.asarray, list, pd.Series, pd.Categorical, lambda d: d.astype("S")]
    )
    def test_domains_in_the_place_of_y_are_an_error_that_shows_the_call(self, kind, method, of):
        call = rf"text such as b?'source'.*{kind.__name__}\(\)\.fit\(X, domains=domains\)"
        with pytest.raises(InputError, match=call):
            getattr(kind(), method)(X, of(DOMAINS))


class TestWarnings:
    def caught(self, action):
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("default")
            action()
        assert all(each.filename == __file__ for each in found)  # the user's line
        return [str(each.message) for each in found]

    def test_rows_of_the_bank_among_the_clips_to_judge(self, fitted):
        clips = np.vstack([NEW[:5], X[:2]])
        for method in (fitted.predict, fitted.p_values, fitted.decision_function):
            (sentence,) = self.caught(lambda method=method: method(clips))
            assert sentence.startswith("2 clips of 7 are in the bank")

    def test_it_is_said_once_at_a_line(self, fitted):
        assert len(self.caught(lambda: [fitted.predict(X[:1]) for _ in range(5)])) == 1

    def test_identical_normals(self):
        (sentence,) = self.caught(lambda: daco.DACo().fit(np.vstack([X, X[:2]])))
        assert sentence.startswith("2 normals are copies of others")

    def test_a_domain_below_ten_clips(self):
        for kind in (daco.DACo("raw-k1"), daco.LabelFreeSearch(["raw-k1"], n_splits=2)):
            kind.set_params(false_alarm_rate=0.2)
            fit = partial(kind.fit, X[:209], domains=DOMAINS[:209])
            (sentence,) = self.caught(fit)
            assert sentence == "Few normals: 9 of target. Ten of each domain are a good start."
