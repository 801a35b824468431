"""DomainCalibrator: calibration and p-values of the scores of any system."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import daco
from daco.errors import ConfigError, InputError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(100, 6)) + 2
X[80:] += 2
DOMAINS = np.array(["source"] * 80 + ["target"] * 20)
SCORES = RNG.normal(size=100) + 4 * (DOMAINS == "target")
TEST = RNG.normal(size=(30, 6)) + 3
NEW_SCORES = RNG.normal(size=30) + 2
CERTAIN = np.array([[1, 0]] * 15 + [[0, 1]] * 15)


@pytest.fixture(scope="module")
def calibrator():
    return daco.DomainCalibrator().fit(SCORES, DOMAINS, embeddings=X)


@pytest.mark.parametrize("assignment", ["soft", "hard"])
@pytest.mark.parametrize("m", [0, 30])
def test_embeddings_give_the_calibration_of_a_bank_with_these_scores(m, assignment):
    calibrator = daco.DomainCalibrator(m, assignment).fit(SCORES, DOMAINS, embeddings=X)
    bank = daco.NormalBank(X, DOMAINS, scorers={"mine": SCORES})
    expected = bank.score(TEST, f"conf-{assignment}-m{m}-ext-mine", scores={"mine": NEW_SCORES})
    found = calibrator.transform(NEW_SCORES, embeddings=TEST)
    np.testing.assert_allclose(found, expected[:, 0], atol=1e-12)


def test_quantiles_are_those_of_the_domain(calibrator):
    ranks = np.argsort(np.argsort(SCORES[80:])) + 1
    found = calibrator.transform(SCORES[80:], weights=[[0, 1]] * 20)
    np.testing.assert_allclose(found, ranks / 21)


def test_p_values_are_those_of_the_decision(calibrator):
    expected = calibrator.reference_.p_values(NEW_SCORES, CERTAIN)
    np.testing.assert_array_equal(calibrator.p_values(NEW_SCORES, weights=CERTAIN), expected)
    weights = calibrator.p_values(NEW_SCORES, embeddings=TEST)
    shares = daco.NormalBank(X, DOMAINS).examine(TEST, "raw-k1").weights
    np.testing.assert_array_equal(weights, calibrator.reference_.p_values(NEW_SCORES, shares))


def test_named_columns_are_put_in_order(calibrator):
    frame = pd.DataFrame(CERTAIN[:, ::-1], columns=["target", "source"])
    np.testing.assert_array_equal(
        calibrator.transform(NEW_SCORES, weights=frame),
        calibrator.transform(NEW_SCORES, weights=CERTAIN),
    )


def test_one_domain_needs_no_weights():
    calibrator = daco.DomainCalibrator().fit(SCORES)
    assert calibrator.domains_ == ("all",)
    assert calibrator.transform(NEW_SCORES).shape == (30,)
    assert calibrator.p_values([SCORES.max() + 100.0])[0] < 1 / 101


def test_it_is_an_estimator(calibrator):
    again = clone(calibrator).set_params(m=10)
    assert again.get_params() == {"m": 10, "assignment": "soft"}
    with pytest.raises(NotFittedError):
        again.transform(NEW_SCORES, weights=CERTAIN)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "Give domain weights with a column for each of source, target"),
        (np.ones((30, 2)), "shares that sum to 1"),
        (CERTAIN[:5], "Weights of 30 clips"),
        (np.ones((30, 1)), "shares that sum to 1"),
        (2 * CERTAIN - CERTAIN[:, ::-1], "shares that sum to 1"),
    ],
)
def test_what_are_no_weights_is_refused(calibrator, weights, message):
    for method in (calibrator.transform, calibrator.p_values):
        with pytest.raises(InputError, match=message):
            method(NEW_SCORES, weights=weights)


def test_what_does_not_fit_together_is_refused(calibrator):
    with pytest.raises(InputError, match="99 scores and 100 embeddings"):
        daco.DomainCalibrator().fit(SCORES[:99], DOMAINS[:99], embeddings=X)
    with pytest.raises(InputError, match="30 scores and 5 embeddings"):
        calibrator.transform(NEW_SCORES, embeddings=TEST[:5])
    with pytest.raises(InputError, match="embeddings of the normals"):
        daco.DomainCalibrator().fit(SCORES, DOMAINS).p_values(NEW_SCORES, embeddings=TEST)
    with pytest.raises(InputError, match="finite"):
        daco.DomainCalibrator().fit([1.0, np.nan])
    with pytest.raises((InputError, ConfigError), match="assignment"):
        daco.DomainCalibrator(assignment="oracle").fit(SCORES, DOMAINS)
    with pytest.raises(ConfigError, match="'m' parameter"):
        daco.DomainCalibrator(m=-1).fit(SCORES, DOMAINS)
