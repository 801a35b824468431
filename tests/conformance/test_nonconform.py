"""nonconform calibrates daco's estimator as any other detector, and agrees with its p-values.

nonconform needs Python 3.12 or later.
"""

from __future__ import annotations

import numpy as np
import pytest

import daco

nonconform = pytest.importorskip("nonconform", reason="nonconform needs Python 3.12 or later")


def clips(rng, count, shift=0.0):
    """Independent embeddings; `shift` moves the first feature, in standard deviations."""
    return rng.normal(size=(count, 16)) + 2 + shift * np.eye(16)[0]


@pytest.mark.parametrize("strategy", ["Split", "CrossValidation"])
def test_daco_is_a_base_detector(strategy):
    """150 and 300 calibration scores: the rate at 0.1 has a standard error of 0.025 and 0.017."""
    rng = np.random.default_rng(0)
    options = {"Split": {"n_calib": 0.5}, "CrossValidation": {"k": 5}}[strategy]
    detector = nonconform.ConformalDetector(
        daco.DACo(),
        getattr(nonconform, strategy)(**options),
        score_polarity="higher_is_normal",
        seed=1,
    ).fit(clips(rng, 300))
    normals = detector.compute_p_values(clips(rng, 2000))
    faults = detector.compute_p_values(clips(rng, 500, shift=8))
    assert np.mean(normals <= 0.1) == pytest.approx(0.1, abs=0.05)
    assert np.mean(faults <= 0.1) > 0.5


def test_p_values_from_new_normals_are_those_of_nonconform():
    """Equal p-values of the fitted estimator are ties for nonconform, which counts them."""
    rng = np.random.default_rng(0)
    X, new, test = clips(rng, 200), clips(rng, 40), np.r_[clips(rng, 100), clips(rng, 100, 4)]
    fitted = daco.DACo().fit(X)
    theirs = nonconform.ConformalDetector(
        fitted, nonconform.Split(n_calib=0.2), score_polarity="higher_is_normal"
    ).calibrate(new)
    p_values = theirs.compute_p_values(test)
    own = daco.DACo().fit(X).calibrate(new).p_values(test)
    assert np.all(own <= p_values + 1e-12)
    np.testing.assert_allclose(own, p_values, rtol=0, atol=2 / 41 + 1e-12)
