"""What findings name: changes of known kind, band and rate in real recordings, and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
from shared_data import shared

from benchmarks.findings import CHANGES, draw, is_named
from daco.audio.decode import read_audio
from daco.errors import InputError, NotEnoughClipsError
from daco.monitoring.findings import MOST_FINDINGS, findings
from daco.monitoring.healthy import HealthyProfile, evenly_chosen
from daco.monitoring.sound_features import sound_features

RATE = 16000


def recordings(machine, split):
    paths = sorted(shared("real", "audio", machine, split).glob("*_normal_*.flac"))
    return [read_audio(path) for path in paths]


@pytest.fixture(scope="module")
def noise():
    return np.random.default_rng(0).normal(0, 0.1, (24, 4 * RATE))


@pytest.fixture(scope="module")
def profile(noise):
    """Of all but the first, which tests change."""
    return HealthyProfile.from_recordings(noise[1:], RATE, ["low"] * 20 + ["high"] * 3)


def share_named(profile, test, names, level_db, seeds):
    changes = [
        draw(name, test[seed], profile, level_db, 90 + seed) for name in names for seed in seeds
    ]
    named = [
        any(is_named(each, change) for each in findings(change.wave, RATE, profile))
        for change in changes
        if change is not None
    ]
    return np.mean(named)


# Aims are 9 and 7 of 10 over many draws (benchmarks/findings.py); here 24 and 10 a machine. What
# is removed from a sound at half its loudness is hardly to be heard.
@pytest.mark.shared("real", "audio")
@pytest.mark.parametrize("machine", ["fan", "bearing"])
def test_changes_of_real_recordings_are_named_and_few_healthy_ones_have_a_finding(machine):
    profile = HealthyProfile.from_recordings(recordings(machine, "train"), RATE)
    test = recordings(machine, "test")
    assert share_named(profile, test, CHANGES, 0, (0, 5)) >= 0.83
    added = sorted(set(CHANGES) - {"missing tone", "quieter band"})
    assert share_named(profile, test, added, -6, (0,)) >= 0.6
    # Another session than the profile's: 1 in 20 is the aim, 2 of 10 a chance of 9 %.
    assert sum(bool(findings(wave, RATE, profile)) for wave in test) <= 2


def test_a_finding_is_plain_and_complete(noise, profile):
    t = np.arange(noise.shape[1]) / RATE
    knocks = np.zeros(len(t))
    for start in range(500, len(t) - 800, RATE // 12):
        knocks[start : start + 800] = np.exp(-t[:800] / 0.003) * np.sin(2 * np.pi * 3000 * t[:800])
    found = findings(noise[0] + knocks, RATE, profile)
    first = json.loads(json.dumps(found[0].to_dict()))
    assert list(first) == [
        *("kind", "low_hz", "high_hz", "rate_hz", "change_db"),
        *("start_s", "end_s", "confidence", "text"),
    ]
    assert first["kind"] == "repetition"
    assert first["rate_hz"] == pytest.approx(12, rel=0.02)
    assert first["low_hz"] < 3000 < first["high_hz"]
    assert first["text"].startswith("Knocking at about 12 per second between ")
    assert 0.95 < first["confidence"] <= 1
    assert len(found) <= MOST_FINDINGS


def test_the_same_sound_louder_is_one_finding_of_level(noise, profile):
    found = findings(10 * noise[0], RATE, profile)
    assert [(each.kind, round(each.change_db)) for each in found] == [("level", 20)]
    assert "The whole recording is 20 dB louder" in found[0].text
    assert findings(1.5 * noise[0], RATE, profile) == []


def test_silence_and_a_profile_of_one_recording_repeated():
    copies = np.tile(np.random.default_rng(1).normal(size=2 * RATE), (6, 1))
    assert findings(copies[0], RATE, copies) == []
    assert findings(np.zeros(2 * RATE), RATE, copies)[0].change_db < -50


def test_a_recording_is_compared_with_those_of_its_condition_where_these_are_enough(profile):
    assert profile.reference("low").profile.conditions.tolist() == ["low"] * 20
    assert len(profile.reference("high").profile.conditions) == 23  # three are too few
    assert len(evenly_chosen(["a"] * 1000 + ["b"] * 3)) == 259


@pytest.mark.parametrize("rate", [8000, 44100])
def test_other_sample_rates(rate):
    waves = np.random.default_rng(2).normal(size=(12, 3 * rate))
    tone = np.sin(2 * np.pi * 1500 * np.arange(3 * rate) / rate)
    (first, *_) = findings(waves[0] + tone, rate, waves[1:])
    assert first.kind == "tone"
    assert (first.low_hz + first.high_hz) / 2 == pytest.approx(1500, abs=2)


def test_mistakes_are_told(noise, profile):
    with pytest.raises(InputError, match="Resample it to 16000 Hz"):
        findings(noise[0], 8000, profile)
    with pytest.raises(InputError, match="at least 2 s"):
        sound_features(noise[0, :RATE], RATE)
    with pytest.raises(NotEnoughClipsError, match="at least 5 healthy"):
        findings(noise[0], RATE, noise[:3])
