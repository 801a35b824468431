"""Properties of the gate: honest normals stay, one far away goes, whatever the units."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.detector.gate import FEWEST, suspicious_normals
from daco.embedding.normals import Normals

DIMENSIONS = st.sampled_from([8, 16, 64, 128])
SIZES = st.sampled_from([(FEWEST, 0), (10, 0), (40, 10), (200, 10)])


@st.composite
def banks(draw):
    """Clips around the centre of each domain; the second one may be wider."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim, sizes = draw(DIMENSIONS), draw(SIZES)
    spreads = (1.0, draw(st.sampled_from([0.5, 1.0, 3.0])))
    parts = [
        draw(st.sampled_from([0.0, 1.0, 5.0])) + spread * rng.normal(size=(size, dim))
        for size, spread in zip(sizes, spreads, strict=True)
    ]
    X = np.concatenate(parts).astype(np.float32)
    return X, ["old"] * sizes[0] + ["new"] * sizes[1], rng


def normals(X, domains):
    names = tuple(f"{row}.wav" for row in range(len(X)))
    return Normals("press", X, tuple(domains), names, None, {})


@settings(max_examples=60, derandomize=True, deadline=None)
@given(banks())
def test_independent_normals_are_kept(bank):
    X, domains, _ = bank
    assert suspicious_normals(normals(X, domains)) == {}


@settings(max_examples=40, derandomize=True, deadline=None)
@given(banks(), st.integers(0, 10**6))
def test_a_vector_on_the_other_side_is_found_alone(bank, number):
    X, domains, _ = bank
    X = X + 6  # within a narrow cone
    row = number % len(X)
    X[row] *= -1
    assert list(suspicious_normals(normals(X, domains))) == [row]
