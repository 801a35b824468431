"""Subtracting the far microphone: against loops and torch, and what must hold exactly."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import textbook_subtraction as textbook
from hypothesis import given
from hypothesis import strategies as st
from two_microphones import RATE, both

from daco.audio import subtraction
from daco.audio.subtraction import far_gain, least_squares, magnitude_gain, spectral_subtraction

BOTH = [(least_squares, textbook.least_squares, 1024)]
BOTH += [(spectral_subtraction, textbook.spectral_subtraction, 512)]


def spectra(frames, frequencies, seed):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(2, frames, frequencies)) + 1j * rng.normal(
        size=(2, frames, frequencies)
    )


class TestTheRecipe:
    @pytest.mark.parametrize(("fast", "slow", "window"), BOTH)
    @pytest.mark.parametrize("samples", [513, 896, 1024, 3968, 16_000])
    def test_it_is_the_textbooks(self, fast, slow, window, samples):
        near, far = both(seconds=samples / RATE)
        expected = slow(near, far, window)
        # Sums of 1024 float32 products: a few 1e-7 of the loudest sample.
        np.testing.assert_allclose(fast(near, far), expected, rtol=0, atol=2e-6 * np.ptp(near))

    @pytest.mark.parametrize("subtract", [least_squares, spectral_subtraction])
    def test_blocks_join_without_a_seam(self, subtract, monkeypatch):
        near, far = both(seconds=9_000 / RATE)
        whole = subtract(near, far)
        for block in (3, 1):
            monkeypatch.setattr(subtraction, "_BLOCK", block)
            np.testing.assert_allclose(subtract(near, far), whole, rtol=0, atol=1e-7)


class TestLeastSquares:
    @given(st.integers(2, 60), st.integers(0, 2**32))
    def test_a_coherent_component_is_found_and_removed_exactly(self, frames, seed):
        """near = H far + rest, with a rest that is orthogonal to far: the rest is left."""
        rest, far = spectra(frames, 9, seed)
        rest -= (rest * far.conj()).sum(0) / (abs(far) ** 2).sum(0) * far
        path = spectra(1, 9, seed + 1)[0]
        near = path * far + rest
        gain = far_gain([(near, far)])
        np.testing.assert_allclose(gain, path[0], atol=1e-9)
        np.testing.assert_allclose(near - gain * far, rest, atol=1e-9)

    @given(st.integers(513, 4000))
    def test_silence_and_one_dead_microphone_at_every_length(self, samples):
        near, far = both(seconds=samples / RATE)
        nothing = np.zeros_like(near)
        assert not least_squares(nothing, nothing).any()
        assert not least_squares(nothing, far).any()
        back = least_squares(near, nothing)
        np.testing.assert_allclose(back, near, rtol=0, atol=1e-5 * np.abs(near).max())

    def test_no_length_ends_in_a_click(self):
        """At 1,000 samples the recipe divides by 1e-5: there, and only there, daco departs."""
        near, far = both(seconds=1000 / RATE)
        assert np.abs(textbook.least_squares(near, far)).max() > 3 * np.abs(near).max()
        for samples in range(513, 2100, 7):
            near, far = both(seconds=samples / RATE)
            assert np.abs(least_squares(near, far)).max() < 1.5 * np.abs(near).max(), samples

    def test_a_long_recording_takes_little_more_than_its_waveforms(self):
        near, far = np.random.default_rng(0).standard_normal((2, 4_800_000), np.float32)  # 5 min
        tracemalloc.start()
        least_squares(near, far)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        # The padded pair and the result; all spectra of both would be 4 waveforms more.
        assert peak < 3.1 * near.nbytes + (8 << 20)


class TestSpectralSubtraction:
    @given(st.integers(0, 2**32))
    def test_nothing_gets_louder_and_no_phase_turns(self, seed):
        near, far = spectra(20, 9, seed).astype(np.complex64)
        near[3] = far[4] = 0
        gain = magnitude_gain(near, far)
        assert gain.min() >= 0
        assert gain.max() <= 1
        louder = abs(near) > abs(far)
        np.testing.assert_array_equal(gain[~louder], np.float32(0.1))
        expected = (abs(near) - abs(far))[louder]
        np.testing.assert_allclose(gain[louder] * abs(near)[louder], expected, atol=1e-6)
