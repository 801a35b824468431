"""Weighted conformal p-values agree with nonconform's (`tests/golden/p_values/make.py`)."""

from __future__ import annotations

import numpy as np
import pytest
from shared_data import ROOT

from daco.detector.decision import ReferenceScores


@pytest.mark.parametrize("case", range(40))
def test_p_values_are_nonconforms(case):
    with np.load(ROOT / "tests" / "golden" / "p_values" / "weighted.npz") as file:
        names = ("scores", "codes", "clips", "weights", "p_values")
        scores, codes, clips, weights, expected = (file[f"{name}_{case}"] for name in names)
    reference = ReferenceScores(scores, codes, tuple(range(codes.max() + 1)))
    p_values = reference.p_values(clips, weights)
    # Above the largest reference of a domain that matters, daco's are extrapolated, and smaller.
    largest = np.array([scores[codes == code].max() for code in np.unique(codes)])
    inside = np.all((clips[:, None] <= largest) | (weights < 0.05 * weights.max(1)[:, None]), 1)
    assert inside.any()
    np.testing.assert_allclose(p_values[inside], expected[inside], rtol=1e-12)
    assert np.all(p_values <= expected * (1 + 1e-12))
