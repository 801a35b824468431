"""Readouts: what each one measures, for NumPy and torch alike."""

from __future__ import annotations

import numpy as np
import pytest

from daco.errors import InputError
from daco.readout import MODULATION_EDGES, READOUTS, modulation_bands, pool

RATE = 31.25


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_mean_is_over_time_and_frequency():
    grid = noise(3, 20, 4, 5)
    np.testing.assert_allclose(pool(grid, "mean"), grid.mean((1, 2)), atol=1e-6)


def test_meanstd_keeps_every_frequency_means_first():
    grid = noise(3, 20, 4, 5)
    both = pool(grid, "meanstd")
    np.testing.assert_allclose(both[:, :20], grid.mean(1).reshape(3, 20), atol=1e-6)
    np.testing.assert_allclose(both[:, 20:], grid.std(1).reshape(3, 20), atol=1e-6)


@pytest.mark.parametrize("name", READOUTS)
@pytest.mark.parametrize("frames", [31, 311, 400])
def test_torch_gives_what_numpy_gives(name, frames):
    torch = pytest.importorskip("torch")
    grid = noise(2, frames, 20, 3)
    ours = pool(grid, name, frame_rate=RATE)
    theirs = pool(torch.from_numpy(grid), name, frame_rate=RATE)
    assert isinstance(ours, np.ndarray)
    assert isinstance(theirs, torch.Tensor)
    assert (ours.dtype, theirs.dtype) == (np.float32, torch.float32)
    # Single precision in another order of additions; values are of order 1 to 10.
    np.testing.assert_allclose(ours, theirs.numpy(), atol=2e-5)


def test_torch_half_precision_is_read_out_in_single():
    torch = pytest.importorskip("torch")
    grid = torch.from_numpy(noise(2, 40, 2, 3)).bfloat16()
    assert torch.equal(pool(grid, "meanstd"), pool(grid.float(), "meanstd"))


@pytest.mark.parametrize("band", range(7))
@pytest.mark.parametrize("seconds", [5, 10, 25])
def test_a_band_answers_to_its_own_motion(band, seconds):
    low, high = MODULATION_EDGES[band : band + 2]
    time = np.arange(round(seconds * RATE)) / RATE
    grid = np.sin(2 * np.pi * (low + high) / 2 * time).astype(np.float32)[None, :, None, None]
    assert pool(grid, "mod", frame_rate=RATE)[0].argmax() == band


def test_the_order_is_band_then_group_then_feature():
    grid = np.zeros((1, 311, 16, 3), np.float32)
    time = np.arange(311) / RATE
    grid[0, :, 8:, 1] = np.sin(2 * np.pi * 4 * time)[:, None]  # 3 to 5 Hz, second group
    values = pool(grid, "mod", frame_rate=RATE).reshape(7, 2, 3)
    assert np.unravel_index(values.argmax(), values.shape) == (3, 1, 1)


def test_modulation_ignores_a_constant_level():
    grid = noise(2, 100, 8, 1)
    shifted = pool(grid + np.float32(40), "mod", frame_rate=RATE)
    np.testing.assert_allclose(pool(grid, "mod", frame_rate=RATE), shifted, atol=1e-3)


@pytest.mark.parametrize("seconds", [1, 2, 4, 6, 12, 60])
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


def test_up_to_ten_seconds_one_frame_more_changes_little():
    """Measured 0.3, 0.04 and 0.007: what the frame brings, with no jump when a bin moves."""
    grid = noise(1, 311, 64, 1, seed=3)
    values = [pool(grid[:, :frames], "mod", frame_rate=RATE)[0] for frames in range(30, 312)]
    steps = np.abs(np.diff(values, axis=0)).max(axis=1)
    for first, most in ((30, 0.5), (100, 0.06), (200, 0.01)):
        assert steps[first - 30 :].max() < most


@pytest.mark.parametrize(("rate", "bands"), [(31.25, 7), (100, 7), (6.25, 3), (3.125, 2), (1, 1)])
def test_bands_above_half_the_frame_rate_are_left_out(rate, bands):
    assert len(modulation_bands(rate)) == bands
    for frames in (8, 32, 333):
        values = pool(noise(1, frames, 4, 6), "mod", frame_rate=rate)
        assert values.shape == (1, bands * 6)
        assert np.isfinite(values).all()


def test_a_last_group_of_few_frequencies_is_their_mean():
    grid = noise(2, 40, 11, 2)
    whole = pool(grid, "mod", frame_rate=RATE).reshape(2, 7, 2, 2)
    rest = pool(grid[:, :, 8:], "mod", frame_rate=RATE).reshape(2, 7, 2)
    np.testing.assert_allclose(whole[:, :, 1], rest, atol=1e-5)


@pytest.mark.parametrize(
    ("grid", "name", "options", "message"),
    [
        (noise(1, 9, 1, 1), "maen", {}, "Did you mean 'mean'"),
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
