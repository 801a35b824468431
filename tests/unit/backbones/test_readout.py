"""Readouts: what each one measures, for NumPy and torch alike."""

from __future__ import annotations

import numpy as np
import pytest

from daco.backbones.readout import modulation_bands, pool
from daco.errors import InputError

RATE = 31.25
OF_BANDS = ("band", "max", "std", "rdp")


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("name", OF_BANDS)
def test_extreme_and_equal_values_are_finite_and_nan_stays_in_its_clip(name):
    largest = float(np.finfo(np.float32).max)
    for values in ([0.0, 0.0], [largest, largest], [-largest, largest], [1e-45, 0.0], [5.0]):
        grid = np.array(values, np.float32)[None, :, None, None]
        assert np.isfinite(pool(grid, name)).all()
    grid = noise(2, 9, 2, 3)
    grid[0, 4, 1, 2] = np.nan
    assert np.isnan(pool(grid, name)).any(axis=1).tolist() == [True, False]


def test_an_hour_of_frames_is_added_up_without_loss():
    grid = np.full((1, 360_000, 1, 2), 1000.1, np.float32)
    for name in ("mean", "band", "rdp"):
        np.testing.assert_allclose(pool(grid, name), np.float32(1000.1), rtol=2e-6)


@pytest.mark.parametrize("seconds", [1, 6, 60])
def test_noise_of_one_strength_reads_the_same_at_any_length(seconds):
    """Without the correction a 1 s clip would read 1.2 lower than one of 10 s."""

    def level(frames):
        # 1,600 series, so that the mean's own error is below 0.02.
        values = pool(noise(200, frames, 1, 8), "mod", frame_rate=RATE)
        return values.reshape(200, 7, 8).mean((0, 2))

    error = level(round(seconds * RATE)) - level(311)
    # Bands narrower than 1 / seconds hold one value instead of an average: a lower logarithm.
    # Removing the mean takes from the slowest band what it has below 1 / seconds.
    assert np.abs(error[2:]).max() < (0.2 if seconds < 4 else 0.08)
    assert np.abs(error[:2]).max() < (0.9 if seconds < 4 else 0.2)


@pytest.mark.parametrize(("rate", "bands"), [(31.25, 7), (100, 7), (6.25, 3), (3.125, 2), (1, 1)])
def test_bands_above_half_the_frame_rate_are_left_out(rate, bands):
    assert len(modulation_bands(rate)) == bands
    for frames in (8, 333):
        values = pool(noise(1, frames, 4, 6), "mod", frame_rate=rate)
        assert values.shape == (1, bands * 6)
        assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("grid", "name", "options", "message"),
    [
        (noise(1, 9, 1, 1), "gem", {}, "It has mean, band, max, std, rdp, mod"),
        (noise(1, 9, 1), "mean", {}, r"Got \(1, 9, 1\)"),
        (noise(0, 9, 1, 1), "mean", {}, "none of them 0"),
        (noise(1, 9, 1, 1), "mod", {}, "needs frame_rate"),
        (noise(1, 7, 1, 1), "mod", {"frame_rate": RATE}, "at least 8 frames"),
        (noise(1, 9, 1, 1), "mod", {"frame_rate": 0.5}, "above 0.9 frames"),
    ],
)
def test_errors_say_what_to_do(grid, name, options, message):
    with pytest.raises(InputError, match=message):
        pool(grid, name, **options)
