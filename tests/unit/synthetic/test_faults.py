"""Synthetic faults: exactly as loud as asked, like what they are called, the same every time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.errors import InputError
from daco.synthetic.faults import ALL_KINDS, KINDS, fault_changes, inject

RATE = 16000


def recording(seed=0, n=RATE, scale=0.1, offset=0.0):
    rng = np.random.default_rng(seed)
    hum = np.sin(2 * np.pi * 100 * np.arange(n) / RATE)
    return (scale * (hum + 0.3 * rng.normal(size=n)) + offset).astype(np.float32)


def fault_signal(clean, rate, kind, rng):
    return next(fault_changes(clean, rate, kind, [0.0], rng))


def level(faulted, clean):
    change = faulted.astype(np.float64) - clean.astype(np.float64)
    return 20 * np.log10(np.std(change) / np.std(clean.astype(np.float64)))


@settings(max_examples=60)
@given(
    kind=st.sampled_from(KINDS),
    level_db=st.floats(-30, 20),
    n=st.integers(2, 4000),
    rate=st.sampled_from([100, 1000, 8000, 16000, 44100, 192000]),
    seed=st.integers(0, 2**32 - 1),
    offset=st.sampled_from([0.0, 0.05]),
)
def test_the_change_has_exactly_the_level_that_was_asked_for(kind, level_db, n, rate, seed, offset):
    clean = recording(seed % 7, n, offset=offset)
    faulted = inject(clean, rate, kind, level_db, np.random.default_rng(seed))
    assert faulted.dtype == np.float32
    assert faulted.shape == clean.shape
    assert np.isfinite(faulted).all()
    # float32 samples: at -30 dB the change has 18 of the 24 bits.
    assert level(faulted, clean) == pytest.approx(level_db, abs=1e-2)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_generator_gives_the_same_fault_and_another_one_another(kind):
    clean = recording()
    first, again, other = (
        inject(clean, RATE, kind, -6, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("clean", [np.zeros(1000, np.float32), np.full(9, 0.2), [0.5]])
def test_silence_stays_silence(kind, clean):
    faulted = inject(np.asarray(clean), RATE, kind, 0, np.random.default_rng(0))
    assert np.array_equal(faulted, np.asarray(clean, np.float32))


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_one_fault_serves_all_levels(kind):
    clean = recording()
    changes = fault_changes(clean, RATE, kind, (-18, 0), np.random.default_rng(3))
    for level_db, change in zip((-18, 0), changes, strict=True):
        faulted = inject(clean, RATE, kind, level_db, np.random.default_rng(3))
        assert np.array_equal(faulted, clean + change)


def spectrum(kind, seed, n=4 * RATE):
    """Power spectrum of a fault in white noise, and its frequencies."""
    clean = np.random.default_rng(9).normal(size=n).astype(np.float32)
    change = fault_signal(clean, RATE, kind, np.random.default_rng(seed))
    return np.abs(np.fft.rfft(change)) ** 2, np.fft.rfftfreq(n, 1 / RATE), change


@pytest.mark.parametrize("seed", range(3))
def test_impacts_are_short_and_ring_where_they_should(seed):
    power, hertz, change = spectrum("impacts", seed)
    kurtosis = np.mean(change**4) / np.mean(change**2) ** 2
    assert kurtosis > 6  # of Gaussian noise it is 3
    assert 1200 < hertz[np.argmax(power)] < 6500


@pytest.mark.parametrize("seed", range(3))
def test_tones_are_a_harmonic_series(seed):
    power, hertz, _ = spectrum("tones", seed)
    peaks = hertz[power > 1e-3 * power.max()]
    fundamental = hertz[np.argmax(power)]
    assert 90 < fundamental < 2600
    orders = peaks / fundamental
    assert np.abs(orders - np.round(orders)).max() < 0.02


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_one_octave_wide(seed):
    power, hertz, _ = spectrum("noise", seed)
    inside = hertz[power > 1e-6 * power.max()]
    assert inside.max() / inside.min() == pytest.approx(2, rel=0.02)


@pytest.mark.parametrize("seed", range(3))
def test_rubs_come_one_to_four_times_a_second(seed):
    _, _, change = spectrum("rub", seed)
    frames = np.abs(change).reshape(-1, 80).max(axis=1)  # of 5 ms
    envelope = frames > 0.01 * frames.max()
    bursts = np.count_nonzero(np.diff(envelope.astype(int)) == 1) + envelope[0]
    assert 3 <= bursts <= 18
    assert 0.01 < envelope.mean() < 0.6


@pytest.mark.parametrize("seed", range(3))
def test_modulation_swells_one_to_fifteen_times_a_second(seed):
    clean = np.random.default_rng(9).normal(size=8 * RATE).astype(np.float32)
    change = fault_signal(clean, RATE, "modulation", np.random.default_rng(seed))
    gain = np.abs(np.fft.rfft(change * clean))
    hertz = np.fft.rfftfreq(len(clean), 1 / RATE)
    found = hertz[1:][np.argmax(gain[1 : 30 * 8])]
    assert 0.9 < found < 15.1


@pytest.mark.parametrize("seed", range(3))
def test_a_resonance_raises_a_band_and_adds_no_other(seed):
    power, hertz, _ = spectrum("resonance", seed)
    smooth = np.convolve(power, np.ones(400) / 400, "same")
    peak = hertz[np.argmax(smooth)]
    assert 250 < peak < 4500
    assert smooth[np.abs(np.log2(np.maximum(hertz, 1) / peak)) > 3].max() < 0.1 * smooth.max()


@pytest.mark.parametrize(
    ("wave", "rate", "kind", "level_db", "match"),
    [
        (np.ones(5), RATE, "crack", 0, "one of impacts"),
        (np.ones(5), 0, "rub", 0, "sample rate"),
        (np.ones(5), RATE, "rub", np.nan, "decibels"),
        (np.ones((2, 2, 2)), RATE, "rub", 0, "channels, samples"),
        (np.ones(5, np.int16), RATE, "rub", 0, "int16"),
        (np.empty(0), RATE, "rub", 0, "waveform"),
        (np.array([1.0, np.nan]), RATE, "rub", 0, "NaN"),
    ],
)
def test_what_cannot_be_injected_is_said(wave, rate, kind, level_db, match):
    with pytest.raises(InputError, match=match):
        inject(wave, rate, kind, level_db, np.random.default_rng(0))


@pytest.mark.parametrize(("level_db", "share"), [(-6.0206, 0.5), (-0.9151, 0.1)])
def test_a_level_makes_the_recording_quieter(level_db, share):
    clean = recording()
    faulted = inject(clean, RATE, "level", level_db, np.random.default_rng(0))
    assert faulted - faulted.mean() == pytest.approx(share * (clean - clean.mean()), abs=1e-5)


def test_a_machine_that_is_off_leaves_a_quiet_hall_for_its_share_of_the_time():
    clean = recording(n=4 * RATE)
    for level_db, share in ((-10, 0.1), (-3.0103, 0.5), (0, 1.0), (6, 1.0)):
        faulted = inject(clean, RATE, "off", level_db, np.random.default_rng(0))
        changed = faulted != clean
        assert changed.mean() == pytest.approx(share, abs=0.01)
        assert np.ptp(np.flatnonzero(changed)) + 1 == changed.sum()  # in one piece
        assert level(faulted, clean) == pytest.approx(min(0, level_db), abs=0.3)
    silent = inject(clean, RATE, "off", 0, np.random.default_rng(0))
    assert 20 * np.log10(silent.std() / clean.std()) == pytest.approx(-30, abs=0.1)


@pytest.mark.parametrize("seed", range(4))
def test_another_speed_moves_all_frequencies(seed):
    tone = np.sin(2 * np.pi * 1000 * np.arange(2 * RATE) / RATE).astype(np.float32)
    faulted = inject(tone, RATE, "speed", -20, np.random.default_rng(seed))
    power = np.abs(np.fft.rfft(faulted * np.hanning(len(tone))))
    found = np.fft.rfftfreq(len(tone), 1 / RATE)[np.argmax(power)]
    assert min(abs(found - 1100), abs(found - 1000 / 1.1)) < 1
    assert faulted.std() == pytest.approx(tone.std(), rel=0.01)


def test_white_noise_is_white():
    power, _, _ = spectrum("white", 0)
    parts = power[1:].reshape(16, -1).mean(axis=1)
    assert parts.max() / parts.min() < 2
