"""Ranges of two real machines: new normals stay inside, what is not the machine does not.

40 source and 10 target normals each, and 10 test normals of other sessions. A model that is fitted
on recordings has the ranges; its score is not looked at.
"""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from shared_data import shared

from daco.backbones import load
from daco.detector.fit import fit_machines
from daco.detector.verdict import judge, verdict_of
from daco.embedding.frontend import Listener
from daco.embedding.normals import normals_of_recordings

RATE = 16_000


@pytest.fixture(scope="module", params=["bearing", "fan"])
def machine(request):
    """A model, its listener, and the paths and samples of the test normals."""
    folder = shared("real", "audio", request.param)
    gathered = normals_of_recordings(folder, load("logmel"), readout="mod")
    ((_, model),) = fit_machines(gathered.machines, config="raw-k1")
    paths = sorted((folder / "test").glob("*_normal_*.flac"))
    assert len(paths) == 10
    waves = [soundfile.read(path, dtype="float32")[0] for path in paths]
    return model, Listener(model.frontend), paths, waves


def states(machine, change):
    model, listener, _, waves = machine
    rng = np.random.default_rng(0)
    changed = [np.clip(change(wave, rng), -1, 1).astype(np.float32) for wave in waves]
    recordings = [listener.embed_waveform(wave, RATE) for wave in changed]
    return [verdict_of(model, recording, name="a").state for recording in recordings]


def noise(wave, rng, rms):
    return rms * rng.normal(size=len(wave))


def hall(wave, rng):
    """Mains hum and pink noise, 20 dB below the machine."""
    hertz = np.fft.rfftfreq(len(wave), 1 / RATE)
    pink = np.fft.irfft(np.fft.rfft(rng.normal(size=len(wave))) / np.sqrt(np.maximum(hertz, 1)))
    seconds = np.arange(len(wave)) / RATE
    hum = sum(np.sin(2 * np.pi * 50 * order * seconds) / order for order in (1, 2, 3, 4))
    return 0.1 * wave.std() * (pink / pink.std() + hum / hum.std()) / np.sqrt(2)


def test_new_normals_stay_inside(machine):
    model, listener, paths, _ = machine
    verdicts = [judge(model, listener, path, name=path.name) for path in paths]
    assert {verdict.state for verdict in verdicts} <= {"normal", "anomalous"}


def test_a_file_and_its_samples_have_the_same_levels(machine):
    _, listener, paths, waves = machine
    file, samples = listener.embed(paths[0]), listener.embed_waveform(waves[0], RATE)
    assert file.levels == pytest.approx(samples.levels, abs=1e-3)


def test_a_machine_at_a_tenth_of_its_level_is_off(machine):
    assert set(states(machine, lambda wave, rng: 0.1 * wave)) == {"off"}


def test_a_machine_at_ten_times_its_level_is_out_of_range(machine):
    assert set(states(machine, lambda wave, rng: 10 * wave)) == {"out of range"}


def test_white_noise_at_the_level_of_the_machine_is_out_of_range(machine):
    assert set(states(machine, lambda wave, rng: noise(wave, rng, wave.std()))) == {"out of range"}


def test_quiet_noise_and_a_humming_hall_are_a_machine_that_is_off(machine):
    assert set(states(machine, lambda wave, rng: noise(wave, rng, 1e-3))) <= {"off", "out of range"}
    assert set(states(machine, hall)) == {"off"}


def test_silence_and_clipping_are_recorder_faults(machine):
    assert set(states(machine, lambda wave, rng: 0 * wave)) == {"recorder fault"}
    assert set(states(machine, lambda wave, rng: wave * 5 / wave.std())) == {"recorder fault"}


def test_half_the_sample_rate_and_a_tenth_of_the_length_are_recorder_faults(machine, tmp_path):
    model, listener, _, waves = machine
    soundfile.write(tmp_path / "low.wav", waves[0][::2], RATE // 2)
    soundfile.write(tmp_path / "short.wav", waves[0][:RATE], RATE)
    low = judge(model, listener, tmp_path / "low.wav", name="low")
    short = judge(model, listener, tmp_path / "short.wav", name="short")
    assert low.state == short.state == "recorder fault"
    assert low.reasons[0] == "rate: 8000 Hz, the normals have 16000 Hz"
    assert short.reasons[0].startswith("short: ")
