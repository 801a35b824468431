"""Levels of recordings: overall, octave bands, duty, flatness."""

import numpy as np
import pytest

from daco.backbones.levels import (
    LEVELS,
    QUANTITIES,
    level_network,
    levels_text,
    parse_levels,
    sound_levels,
)
from daco.backbones.logmel import LogMel
from daco.embedding.frontend import embed_waves

RATE = 16_000


def levels_of(wave, rate=RATE):
    return dict(
        zip(QUANTITIES, sound_levels(np.asarray(wave)[None], rate)[0].tolist(), strict=True)
    )


def textbook(wave, rate):
    """The definition, one frame and one band after the other."""
    hop = round(0.064 * rate)
    size = 2 * hop
    window = np.hanning(size)
    hertz = np.arange(size // 2 + 1) * rate / size
    spectra = []
    for start in range(0, len(wave) - size + 1, hop):
        spectrum = np.fft.rfft(wave[start : start + size] * window)
        spectra.append(2 * np.abs(spectrum) ** 2 / (size * np.sum(window**2)))
    spectra = np.array(spectra)
    audible = hertz >= 62.5 / np.sqrt(2)
    frames = spectra[:, audible].sum(axis=1)
    values = [10 * np.log10(frames.mean() + 1e-14)]
    for octave in range(-4, 4):
        inside = (hertz >= 1000 * 2 ** (octave - 0.5)) & (hertz < 1000 * 2 ** (octave + 0.5))
        values.append(10 * np.log10(spectra[:, inside].sum(axis=1).mean() + 1e-14))
    values.append(100 * np.mean(frames >= 0.1 * np.quantile(frames, 0.95)))
    shape = spectra[:, audible & (hertz < 1000 * 2**2.5)].mean(axis=0)
    values.append(10 * np.log10(np.exp(np.log(shape).mean()) / shape.mean()))
    return np.array(values)


@pytest.mark.parametrize("rate", [8_000, 16_000, 44_100])
def test_levels_are_those_of_the_definition(rate):
    rng = np.random.default_rng(rate)
    wave = 0.01 * np.cumsum(rng.normal(size=3 * rate)) / 30 + 0.02 * rng.normal(size=3 * rate)
    wave[: rate // 2] *= 0.05
    # float32 spectra: 1e-6 of the power, which is far below 0.01 dB.
    assert sound_levels(wave.astype(np.float32)[None], rate)[0] == pytest.approx(
        textbook(wave, rate), abs=0.01
    )


def test_silence_short_clips_and_bands_above_the_rate_have_finite_levels():
    assert levels_of(np.zeros(RATE, np.float32))["level"] == -140
    assert np.isfinite(sound_levels(np.full((1, 100), 0.1, np.float32), RATE)).all()
    low = levels_of(0.1 * np.random.default_rng(0).normal(size=8000).astype(np.float32), 4000)
    assert low["4000 Hz"] == low["8000 Hz"] == -140
    assert low["1000 Hz"] > -40


def test_text_of_a_table_gives_the_levels_back():
    noise = 0.01 * np.random.default_rng(0).normal(size=(3, RATE)).astype(np.float32)
    levels = sound_levels(noise, RATE)
    assert parse_levels(levels_text(levels)) == pytest.approx(levels, abs=0.0051)
    assert parse_levels(["", ""]) is None
    assert parse_levels([None, "1 2 3"]) is None


def test_of_several_networks_the_order_does_not_matter():
    low, high = LogMel(8000), LogMel(16_000)
    assert level_network([low, high]) is level_network([high, low]) is low
    wave = 0.01 * np.random.default_rng(0).normal(size=(1, 2, RATE)).astype(np.float32)
    near = embed_waves(high, [wave], ["mod", LEVELS], "residual-c0.5")[LEVELS]
    assert np.array_equal(near, sound_levels(wave[:, 0], RATE))
