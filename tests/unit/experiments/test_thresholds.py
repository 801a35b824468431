"""The quantile map and the threshold of the paper's coverage table."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daco.errors import InputError
from daco.experiments.thresholds import QuantileMap, paper_threshold, supported_rate


@given(
    st.lists(st.floats(0.01, 100), min_size=2, max_size=20, unique=True),
    st.floats(0.001, 0.999),
    st.booleans(),
)
def test_the_inverse_leads_back(scores, level, signed):
    to_quantile = QuantileMap.fit(scores, signed=signed)
    assert to_quantile(to_quantile.inverse(level)) == pytest.approx(level, abs=1e-6)


def test_what_is_no_distribution_is_refused():
    with pytest.raises(InputError, match="at least one finite score"):
        QuantileMap.fit([])
    with pytest.raises(InputError, match="1 not finite"):
        QuantileMap.fit([1, np.nan])
    with pytest.raises(InputError, match=r"\[0, 1\)"):
        QuantileMap.fit([1.0]).inverse(1.0)
    with pytest.raises(InputError, match="NaN has no quantile"):
        QuantileMap.fit([1.0])([0.0, np.nan])
    assert QuantileMap.fit([1.0, 2.0])([np.inf, -np.inf]).tolist() == [1.0, 0.0]


def test_the_papers_threshold_is_a_quantile_of_all_normals():
    scores = np.random.default_rng(0).random(99)
    assert (scores > paper_threshold("raw-k1", scores, 0.1)).sum() == 9
    assert paper_threshold("conf-soft-m0-k1", scores, 0.1) == 0.9
    assert supported_rate(["source"] * 90 + ["target"] * 9) == 0.1
