"""nonconform calibrates daco's estimator as any other detector.

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
