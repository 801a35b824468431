"""MachineModel: what it scores, when it alarms, and what it refuses."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest
from field_models import LOGMEL, normals, small_model

from daco.detector.estimator import DACo
from daco.detector.model import MachineModel, timestamp
from daco.detector.reference import PRIOR_CLIPS
from daco.detector.revision import add_normals, calibrate_with
from daco.errors import ConfigError, DacoError, InputError, NotEnoughClipsError
from daco.method.choice import choose_config
from daco.method.config import DEFAULT_CONFIG, blind_pool

POOL = [config.name for config in blind_pool()]


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def clips():
    X, _ = normals(seed=7)
    return np.vstack([X, -X[:5]])


@pytest.mark.parametrize("config", [*POOL, "conf-hard-m0-k2", "zscore-soft-k1", "ldn-diff-K1"])
def test_scores_are_those_of_the_estimator(config, clips):
    """The estimator is compared with the published method elsewhere."""
    X, domains = normals()
    model = MachineModel.fit(X, domains, machine="press", config=config)
    detector = DACo(config).fit(X, domains=domains)
    scored = model.score(clips)
    np.testing.assert_array_equal(scored.scores, detector.anomaly_score(clips))
    np.testing.assert_array_equal(scored.weights, detector.domain_weights(clips))
    np.testing.assert_array_equal(scored.p_values, detector.p_values(clips))
    assert (scored.alarms == (detector.predict(clips) == -1)).all()
    assert model.thresholds == detector.thresholds_
    assert scored.alarms[-5:].all()  # the opposite direction is anomalous to all of them
    assert len(scored) == len(clips)


def test_p_values_count_reference_scores_by_domain(model, clips):
    """Below the largest reference score no tail is involved: a count in each domain and in all."""
    scored = model.score(clips)
    counted = np.flatnonzero(scored.scores <= model.reference_scores.max() / 2)
    assert len(counted) > 10
    for row in counted:
        score, expected = scored.scores[row], 0.0
        pooled = _share(model.reference_scores, score)
        for code in range(2):
            own = model.reference_scores[model.reference_domains == code]
            shrunk = (len(own) * _share(own, score) + PRIOR_CLIPS * pooled) / (
                len(own) + PRIOR_CLIPS
            )
            expected += scored.weights[row, code] * shrunk
        assert scored.p_values[row] == pytest.approx(expected, rel=1e-12)
    assert (scored.p_values > 0).all()
    assert (scored.p_values <= 1).all()


def _share(own, score):
    return (1 + sum(own >= score)) / (len(own) + 1)


@pytest.mark.parametrize("config", POOL)
@pytest.mark.parametrize("rate", [0.3, 0.1, 0.01])
def test_an_alarm_has_a_p_value_at_most_the_rate_and_a_score_above_its_threshold(
    config, rate, clips
):
    """Also where so few clips cannot support the rate."""
    model = small_model(config=config, false_alarm_rate=rate)
    scored = model.score(clips)
    assert scored.alarms[-5:].all()
    assert not scored.alarms.all()
    assert (scored.alarms == (scored.p_values <= rate)).all()
    thresholds = model.reference.thresholds(scored.weights, rate)
    assert (scored.alarms == (scored.scores > thresholds)).all()


def test_thresholds_are_those_of_clips_of_one_domain(model):
    for code, name in enumerate(model.domains):
        weights = np.eye(2)[code : code + 1]
        above = np.nextafter(model.thresholds[name], np.inf)
        p_values = [model.reference.p_values([score], weights)[0] for score in
                    (model.thresholds[name], above)]  # fmt: skip
        assert p_values[0] > model.false_alarm_rate >= p_values[1]


def test_the_nearest_normal_and_the_range(model, clips):
    scored = model.score(clips)
    distances = 1 - _unit(clips) @ _unit(model.embeddings).T
    assert (scored.nearest == distances.argmin(axis=1)).all()
    np.testing.assert_allclose(scored.nearest_distance, distances.min(axis=1), atol=1e-6)
    among = 1 - _unit(model.embeddings) @ _unit(model.embeddings).T
    np.fill_diagonal(among, np.inf)
    assert model.reach == pytest.approx(among.min(axis=1).max(), abs=1e-6)
    assert (scored.far == (scored.nearest_distance > model.reach)).all()
    assert scored.far[-5:].all()
    assert not model.score(model.embeddings).far.any()


def _unit(X):
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def test_another_rate_needs_no_refit(model, clips):
    strict = model.at_rate(0.02)
    assert strict.false_alarm_rate == 0.02
    loose = model.at_rate(0.4)
    for name in model.domains:
        assert strict.thresholds[name] > model.thresholds[name] > loose.thresholds[name]
    assert strict.bank is model.bank
    assert strict.reference_scores.base is not None  # shared, not copied
    np.testing.assert_array_equal(strict.score(clips).scores, model.score(clips).scores)
    assert strict.at_rate(model.false_alarm_rate).sha256 == model.sha256 != strict.sha256
    assert strict.at_rate(0.3).thresholds == small_model(false_alarm_rate=0.3).thresholds
    with pytest.raises(InputError, match="false_alarm_rate"):
        model.at_rate(0)


def test_too_few_clips_for_the_rate_are_said_with_the_remedy():
    """A domain of ten borrows from the other one: it supports less than 1 / 11."""
    assert small_model(false_alarm_rate=0.1).cautions() == ()
    smallest = small_model().reference.smallest_rates()
    assert smallest["target"] == pytest.approx((10 / 11 + 10 / 51) / 20)
    assert smallest["source"] == pytest.approx((40 / 41 + 10 / 51) / 50)
    (caution,) = small_model(false_alarm_rate=0.05).cautions()
    assert "0.05 is below 0.0553, the smallest that 10 clips of target can support" in caution
    assert "the threshold is extrapolated" in caution
    assert "Calibrate with at least 19 new normals of target." in caution
    both = small_model(false_alarm_rate=0.01).cautions()
    assert [text.split(" can support")[0].split()[-1] for text in both] == ["source", "target"]
    assert "99 new normals of source" in both[0]


def test_arrays_are_read_only(model):
    for name in ("embeddings", "reference_scores", "reference_domains", "clip_domains"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model, name)[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.false_alarm_rate = 0.5


def test_the_users_array_stays_writeable():
    X, domains = normals()
    MachineModel.fit(X, domains, machine="press", config="raw-k1")
    X[0] = 0


def test_a_bank_without_domains_is_one_domain(clips):
    model = MachineModel.fit(normals()[0], machine="press")
    assert model.domains == ("all",)
    assert model.config == DEFAULT_CONFIG
    assert "one domain" in model.reason
    assert (model.score(clips).weights == 1).all()


class TestAuto:
    def test_a_clearly_better_one_is_taken(self):
        """Far domains of equal spread, a raw score: nothing to calibrate, and the clips of a
        small domain make the default's own map a noisy one."""
        found = {}
        for seed in range(40):
            rng = np.random.default_rng(seed)
            X = rng.normal(size=(230, 3))
            X[200:] += 30
            choice = choose_config(X, ["a"] * 200 + ["b"] * 30)
            found[choice.config] = choice
        assert len(found) > 1
        for config, choice in found.items():
            best = min(choice.criterion, key=choice.criterion.__getitem__)
            if config != DEFAULT_CONFIG:
                assert config == best
                gap = choice.criterion[DEFAULT_CONFIG] - choice.criterion[best]
                assert gap > choice.noise
                assert "; the default has" in choice.reason

    def test_one_clip_in_a_domain_is_too_few(self):
        X, _ = normals()
        choice = choose_config(X, ["a"] * 49 + ["b"])
        assert choice.config == DEFAULT_CONFIG
        assert "1 clip of b" in choice.reason
        assert choice.to_dict()["pool"] == []

    def test_a_named_configuration_is_not_chosen(self):
        model = small_model(config="raw-k2")
        assert model.reason == "named by the user"
        assert model.provenance["selection"] is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": "conf-oracle-m0-k1"}, "true domain"),
        ({"config": "raw-k300"}, "neighbours"),
        ({"config": "raw-k" + "9" * 5000}, "at most 64 characters"),
        ({"config": "raw-1"}, "Unknown configuration"),
        ({"false_alarm_rate": 1.0}, "false_alarm_rate"),
        ({"machine": ""}, "machine"),
        ({"machine": "x\0y"}, "machine"),
        ({"machine": "\ud800"}, "UTF-8"),
        ({"clip_names": ["a"]}, "clip_names"),
        ({"clip_names": ["a" * 2000] * 50}, "clip name"),
        ({"provenance": {"x": float("nan")}}, "plain JSON"),
        ({"provenance": {"x": object()}}, "plain JSON"),
        ({"frontend": dataclasses.replace(LOGMEL, backbone="siren")}, "No such network"),
        ({"frontend": dataclasses.replace(LOGMEL, sample_rate=10**9)}, "sample rate"),
        ({"frontend": dataclasses.replace(LOGMEL, channel="0")}, "channel"),
        ({"frontend": dataclasses.replace(LOGMEL, channel=-1)}, "channel"),
        ({"frontend": dataclasses.replace(LOGMEL, weights_sha256="abc")}, "SHA-256"),
        ({"frontend": dataclasses.replace(LOGMEL, seconds=-1.0)}, "seconds"),
    ],
)
def test_what_no_model_can_be_is_refused(change, message):
    with pytest.raises(DacoError, match=message):
        small_model(**change)


def test_too_many_clips_and_domains_are_refused():
    with pytest.raises(InputError, match="at most 10,000 normals"):
        MachineModel.fit(np.ones((10_001, 1)), machine="m")
    many = np.random.default_rng(0).normal(size=(130, 3))
    with pytest.raises(InputError, match="64 domains"):
        MachineModel.fit(many, [str(i // 2) for i in range(130)], machine="m", config="raw-k1")
    with pytest.raises(NotEnoughClipsError):
        MachineModel.fit(np.ones((1, 3)), machine="m")
    with pytest.raises(ConfigError):
        MachineModel.fit(np.ones((5, 3)), machine="m", config="raw")


def test_clips_of_another_size_are_refused(model):
    with pytest.raises(InputError, match="9 features"):
        model.score(np.zeros((1, 9)))
    with pytest.raises(InputError, match="9 features"):
        add_normals(model, np.zeros((1, 9)), "target", ["x"])
    with pytest.raises(InputError, match="9 features"):
        calibrate_with(model, np.zeros((1, 9)))


def test_numbers_too_large_for_float32_are_named():
    with pytest.raises(InputError, match="too large for float32"):
        MachineModel.fit(np.full((4, 2), 1e300), machine="m")


def test_the_time_can_be_set(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert timestamp() == "1970-01-01T00:00:00Z"
    X, domains = normals()
    model = MachineModel.fit(X, domains, machine="press", config="raw-k1")
    assert model.provenance["created"] == "1970-01-01T00:00:00Z"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "soon")
    assert timestamp().startswith("20")


def test_scoring_needs_neither_pandas_nor_scikit_learn():
    """A model is loaded and used where only the engine is wanted: a worker, a small device."""
    code = (
        "import sys; import daco.detector.model, daco.detector.modelfile\n"
        "print([m for m in ('pandas', 'sklearn', 'matplotlib', 'torch') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
