"""Readouts: what each one measures, for NumPy and torch alike."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daco.backbones.logmel import LogMel
from daco.backbones.pooling import MODULATION_EDGES, modulation_bands
from daco.backbones.protocol import Backbone
from daco.backbones.readout import READOUTS, Readout, parse_readout, pool
from daco.errors import InputError

RATE = 31.25
EVERY = (*READOUTS, "gem-p3", "gem-p0.5", "rdp-g4", "rdp1-g4", "rdpgem-g16")
BAND_READOUTS = EVERY[3:]


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_mean_is_over_everything_and_meanstd_keeps_every_frequency_means_first():
    grid = noise(3, 20, 4, 5)
    np.testing.assert_allclose(pool(grid, "mean"), grid.mean((1, 2)), atol=1e-6)
    both = np.hstack([grid.mean(1).reshape(3, 20), grid.std(1).reshape(3, 20)])
    np.testing.assert_allclose(pool(grid, "meanstd"), both, atol=1e-6)


def test_what_keeps_the_bands_is_ordered_by_band():
    grid = noise(2, 20, 4, 5)
    for name in BAND_READOUTS:
        alone = [pool(grid[:, :, band : band + 1], name) for band in range(4)]
        if name != "rdp1-g4":  # whose weights are of all bands together
            np.testing.assert_allclose(pool(grid, name), np.concatenate(alone, axis=1), atol=1e-6)
        assert pool(grid, name).shape == (2, 20)


def test_deviation_pooling_leans_to_the_frames_that_stand_out():
    grid = np.zeros((1, 10, 2, 3), np.float32)
    grid[0, 4, 1] = 1  # one frame of one band
    band, own, shared = (pool(grid, name).reshape(2, 3) for name in ("band", "rdp-g4", "rdp1-g4"))
    assert (own[1] > 4 * band[1]).all()
    np.testing.assert_allclose(own, shared, atol=1e-6)
    # rho is 1/9 for the nine others: their mean is a tenth of the way to the one.
    weight = 2**4 / (2**4 + 9 * (1 + 1 / 9) ** 4)
    np.testing.assert_allclose(own[1], weight, rtol=1e-5)


@pytest.mark.parametrize("name", EVERY)
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


def libraries():
    torch = pytest.importorskip("torch")
    return (np.asarray, torch.from_numpy)


LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("name", [*BAND_READOUTS, "gem-p9999.999", "rdp-g9999", "rdpgem-g9999"])
@pytest.mark.parametrize(
    "values",
    [
        [0.0, 0.0, 0.0],
        [LARGEST, LARGEST, LARGEST],
        [LARGEST, -LARGEST, LARGEST],
        [-LARGEST, -LARGEST, -LARGEST / 2],
        [1e-45, 0.0, -1e-45],
        [LARGEST, 1e-45, 0.0],
        [1e-20, 1e20, 1.0],
        [5.0],
    ],
)
def test_no_finite_frames_give_anything_but_values_among_them(name, values):
    for library in libraries():
        grid = np.array(values, np.float32)[None, :, None, None].repeat(3, axis=3)
        value = np.asarray(pool(library(grid), name), np.float64)
        assert np.isfinite(value).all()
        lowest, highest = np.float64(grid.min()), np.float64(grid.max())
        slack = 1e-5 * max(-lowest, highest)
        assert (value >= (max(lowest, 0.0) if "gem" in name else lowest) - slack).all()
        assert (value <= max(highest, 0.0) + slack).all()


@pytest.mark.parametrize("name", ["mean", "meanstd", *BAND_READOUTS])
def test_nan_stays_in_its_clip(name):
    for library in libraries():
        grid = noise(2, 9, 2, 3)
        grid[0, 4, 1, 2] = np.nan
        values = np.asarray(pool(library(grid), name))
        assert np.isnan(values[0]).any()
        assert np.isfinite(values[1]).all()


@pytest.mark.parametrize("name", ["band", "rdp-g0", "rdp1-g0", "rdpgem-g0", "gem-p1"])
def test_an_hour_of_frames_is_added_up_without_loss(name):
    grid = np.full((1, 360_000, 1, 2), 1000.1, np.float32)
    for library in libraries():
        value = np.asarray(pool(library(grid), name))
        np.testing.assert_allclose(value, np.float32(1000.1), rtol=2e-6)


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


@pytest.mark.parametrize(("rate", "bands"), [(31.25, 7), (100, 7), (6.25, 3), (3.125, 2), (1, 1)])
def test_bands_above_half_the_frame_rate_are_left_out(rate, bands):
    assert len(modulation_bands(rate)) == bands
    for frames in (8, 32, 333):
        values = pool(noise(1, frames, 4, 6), "mod", frame_rate=rate)
        assert values.shape == (1, bands * 6)
        assert np.isfinite(values).all()


NUMBERS = st.integers(0, 9_999_999).map(lambda thousandths: thousandths / 1000)
LAYERS = st.none() | st.integers(1, 999)


@given(
    st.builds(Readout, st.sampled_from(READOUTS), layer=LAYERS)
    | st.builds(Readout, st.sampled_from(["rdp", "rdp1", "rdpgem"]), NUMBERS, LAYERS)
    | st.builds(Readout, st.just("gem"), NUMBERS.filter(bool), LAYERS)
)
def test_a_name_and_its_readout_are_one(readout):
    assert parse_readout(readout.name) == readout
    assert parse_readout(readout.name).name == readout.name


@given(st.text("gemrdpanox10.-@Lpb2", max_size=14) | st.text(max_size=8))
def test_what_is_read_is_spelt_one_way(name):
    try:
        readout = parse_readout(name)
    except InputError:
        return
    assert readout.name == name


@pytest.mark.parametrize("name", [None, 4, "", "@", "@L4", "rdp-g٤", "mean\n", "median filter"])
def test_what_is_no_readout_is_refused_with_the_list(name):
    with pytest.raises(InputError, match=r"mean, meanstd, mod, band, max, gem-p<P>, rdp-g<G>"):
        parse_readout(name)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rdp-g4.0", "rdp-g4"),
        ("rdp-g04", "rdp-g4"),
        ("rdp-g4.", "rdp-g4"),
        ("gem-p.5", "gem-p0.5"),
        ("gem-p0.50", "gem-p0.5"),
        ("rdp4", "rdp-g4"),
        ("rdp-4", "rdp-g4"),
        ("rdp-p4", "rdp-g4"),
        ("gem3", "gem-p3"),
        ("gem-g3", "gem-p3"),
        ("RDP-g4", "rdp-g4"),
        ("rdp1-4", "rdp1-g4"),
        ("rdp_gem-g4", "rdpgem-g4"),
        ("rdpgem_g16", "rdpgem-g16"),
        ("maen", "mean"),
        ("bands", "band"),
        ("Max", "max"),
        ("mean@4", "mean@L4"),
        ("mean@l4", "mean@L4"),
        ("mean@L04", "mean@L4"),
        ("mean@layer4", "mean@L4"),
        ("rdp4@9", "rdp-g4@L9"),
        ("mean@L0", "mean"),
        ("mean@", "mean"),
    ],
)
def test_a_misspelt_readout_is_answered_with_the_right_one(name, meant):
    with pytest.raises(InputError, match=f"no readout '{name}'.*Did you mean '{meant}'\\?$"):
        parse_readout(name)


@pytest.mark.parametrize("name", ["gem-p0", "rdp-g-1", "rdp-g1e3", "rdp-g12345", "gem-p0.0001"])
def test_a_number_that_cannot_be_is_answered_with_what_can(name):
    with pytest.raises(InputError, match=r"decimals such as 4 or 0\.5, below 10000; P is above 0"):
        parse_readout(name)


class Plain(Backbone):
    """A backbone of someone else's."""

    name = "plain"
    readouts = ("level", "slope")


def test_any_backbone_can_be_asked_for_its_readouts():
    Plain().check_readout("level")
    with pytest.raises(InputError, match=r"plain has no readout 'levle'\. It has level, slope"):
        Plain().check_readout("levle")
    LogMel().check_readout("mod")
    with pytest.raises(InputError, match=r"logmel has no readout 'rdp-g4'\. It has mod, mean"):
        LogMel().check_readout("rdp-g4")


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
