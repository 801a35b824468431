"""The weight-free views are what their recipes say, at any rate and length."""

from __future__ import annotations

import numpy as np
import pytest
import textbook_views as textbook
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.backbones.classical import VIEWS
from daco.backbones.logmel import LogMel

SIZES = {"env": 640, "cep": 40, "mod60": 192}
# Single against double precision; measured 2.3e-5 (env), 3e-7 (cep), 1.5e-6 (mod60).
TOLERANCE = {"env": 5e-4, "cep": 1e-5, "mod60": 5e-5}
NAMES = sorted(SIZES)
RATES = st.integers(1000, 50_000)


def machine(seconds, rate, seed=0):
    """Noise whose strength repeats 7 and 90 times a second, and a family of harmonics."""
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate)) / rate
    motion = 1 + 0.5 * np.sin(2 * np.pi * 7 * t) + 0.3 * (np.sin(2 * np.pi * 90 * t) > 0.9)
    tones = sum(np.sin(2 * np.pi * 43.7 * k * t) / k for k in range(1, 9))
    return (0.05 * motion * rng.normal(size=len(t)) + 0.02 * tones).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("rate", "seconds"),
    [(16000, 10), (16000, 1), (16000, 12), (8000, 3), (44100, 3)],
)
def test_a_clip_follows_the_recipe(name, rate, seconds):
    wave = machine(seconds, rate)
    ours = LogMel(rate).embed(wave[None], name)[0]
    expected = getattr(textbook, name)(wave, rate)
    assert ours.shape == expected.shape == (SIZES[name],)
    np.testing.assert_allclose(ours, expected, atol=TOLERANCE[name])


@settings(max_examples=15)
@given(RATES, st.floats(1, 1.5), st.sampled_from(NAMES), st.integers(0, 99))
def test_any_rate_and_length_follow_the_recipe(rate, seconds, name, seed):
    wave = machine(seconds, rate, seed)
    ours = VIEWS[name](wave, rate)
    assert ours.shape == (SIZES[name],)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, getattr(textbook, name)(wave, rate), atol=TOLERANCE[name])


@settings(max_examples=25)
@given(RATES, st.floats(1, 30), st.sampled_from(NAMES), st.sampled_from([0.0, 0.5, -1.0, 1e-30]))
def test_silence_and_constants_are_finite_and_have_a_direction(rate, seconds, name, value):
    vector = VIEWS[name](np.full(round(seconds * rate), value, np.float32), rate)
    assert np.isfinite(vector).all()
    assert np.linalg.norm(vector) > 1
    if value == 0:
        np.testing.assert_allclose(vector, np.log(1e-3), rtol=1e-6)


@pytest.mark.parametrize(
    # Samples of a frame and of a step, and frames of each of four equal segments.
    ("name", "frame", "hop", "each"),
    [("env", 128, 16, 9998), ("cep", 8192, 4096, 38)],
)
def test_a_long_clip_is_the_mean_over_its_segments(name, frame, hop, each):
    wave = machine(40, 16000)
    starts = range(0, 4 * each * hop, each * hop)
    parts = [wave[start : start + (each - 1) * hop + frame] for start in starts]
    expected = np.mean([VIEWS[name](part, 16000) for part in parts], axis=0)
    np.testing.assert_allclose(VIEWS[name](wave, 16000), expected, atol=1e-5)
