"""MachineModel: what it scores, when it alarms, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from field_models import LOGMEL, normals, small_model

from daco.detector.decision import is_anomalous
from daco.detector.model import MachineModel
from daco.errors import DacoError, InputError, NotEnoughClipsError
from daco.method.bank import NormalBank

MANY = np.random.default_rng(0).normal(size=(130, 3))
CONFIGS = ["blend", "raw-k1", "conf-soft-m0-k1", "ldn-ratio-K1", "conf-soft-m0-blend"]


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture(scope="module")
def clips():
    """New normals, and five clips in the opposite direction."""
    X, _ = normals(seed=7)
    return np.vstack([X, -X[:5]])


@pytest.mark.parametrize("config", CONFIGS)
def test_scores_are_those_of_the_bank_and_p_values_those_of_the_reference(config, clips):
    X, domains = normals()
    model = MachineModel.fit(X, domains, machine="press", config=config)
    scored, expected = model.score(clips), NormalBank(X, domains).examine(clips, config)
    for name, values in vars(expected).items():
        np.testing.assert_array_equal(getattr(scored, name), values)
    p_values = model.reference.p_values(scored.scores, scored.weights)
    np.testing.assert_array_equal(scored.p_values, p_values)
    assert (scored.anomalous == is_anomalous(p_values, 0.1)).all()
    assert scored.anomalous[-5:].all()
    assert not scored.anomalous[:-5].all()
    assert len(scored) == len(clips)


def test_a_clip_is_far_if_no_normal_is_as_far_from_its_nearest(model, clips):
    unit = model.embeddings / np.linalg.norm(model.embeddings, axis=1, keepdims=True)
    among = 1 - unit @ unit.T
    np.fill_diagonal(among, np.inf)
    assert model.reach == pytest.approx(among.min(axis=1).max(), abs=1e-6)
    scored = model.score(clips)
    assert (scored.far == (scored.distance > model.reach)).all()
    assert scored.far[-5:].all()
    assert not model.score(model.embeddings).far.any()


def test_another_rate_needs_no_refit(model):
    strict, loose = model.at_rate(0.02), model.at_rate(0.4)
    for name in model.domains:
        assert strict.thresholds[name] > model.thresholds[name] > loose.thresholds[name]
    assert strict.bank is model.bank
    assert strict.at_rate(model.false_alarm_rate).sha256 == model.sha256 != strict.sha256
    with pytest.raises(InputError, match="false_alarm_rate"):
        model.at_rate(0)


def test_the_default_is_a_blend_and_a_named_configuration_says_so(model):
    assert (model.config, model.reason) == ("blend", "the default")
    assert small_model(config="raw-k2").reason == "named by the user"


def test_a_model_is_immutable_and_leaves_the_array_of_the_user_alone(model):
    for name in ("embeddings", "reference_scores", "clip_domains"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(model, name)[0] = 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        model.false_alarm_rate = 0.5
    X, domains = normals()
    MachineModel.fit(X, domains, machine="press")
    X[0] = 0


@pytest.mark.parametrize(
    ("change", "token"),
    [
        ({"config": "conf-oracle-m0-k1"}, "true domain"),
        ({"config": "raw-k300"}, "raw-k300"),
        ({"config": "raw-k" + "9" * 5000}, "64"),
        ({"config": "raw-1"}, "raw-1"),
        ({"siblings": "many"}, "siblings"),
        ({"machine": "\ud800"}, "machine"),
        ({"clip_names": ["a"]}, "clip_names"),
        ({"clip_names": ["a" * 2000] * 50}, "clip_names"),
        ({"clip_sha256": ["a" * 64]}, "clip_sha256"),
        ({"clip_sha256": ["A" * 64] * 50}, "clip_sha256"),
        ({"groups": ["a"]}, "groups"),
        ({"provenance": {"x": float("nan")}}, "provenance"),
        ({"provenance": {"x": object()}}, "provenance"),
        ({"frontend": dataclasses.replace(LOGMEL, weights_sha256="abc")}, "frontend"),
        ({"frontend": dataclasses.replace(LOGMEL, others=(LOGMEL,))}, "2 views"),
    ],
)
def test_what_no_model_can_be_is_refused(change, token):
    with pytest.raises(DacoError, match=token):
        small_model(**change)


@pytest.mark.parametrize(
    ("X", "domains", "kind", "token"),
    [
        (np.ones((10_001, 1)), None, InputError, "10,000"),
        (MANY, [str(row // 2) for row in range(130)], InputError, "64 domains"),
        (np.ones((1, 3)), None, NotEnoughClipsError, "1"),
        (np.full((4, 2), 1e300), None, InputError, "float32"),
    ],
)
def test_what_no_bank_can_be_is_refused(model, X, domains, kind, token):
    with pytest.raises(kind, match=token):
        MachineModel.fit(X, domains, machine="m", config="raw-k1")
    with pytest.raises(InputError, match="9 features"):
        model.score(np.zeros((1, 9)))
