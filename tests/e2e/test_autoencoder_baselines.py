"""The script benchmarks/autoencoders.py: its numbers, and the score files that it writes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from daco.evaluation.evaluate import evaluate_scores
from daco.synthetic.factory import synth_factory

torch = pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "autoencoders.py"


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("autoencoders", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_systems_are_trained_once_and_their_score_files_evaluated(
    script, tmp_path, monkeypatch, capsys
):
    clips = {"n_source": 12, "n_target": 4, "n_test": 8, "seconds": 1.0}
    synth_factory(tmp_path, machines=["fan"], split="dev", workers=1, **clips)
    arguments = [str(tmp_path / "dev_data"), "--out", str(tmp_path / "scores"), "--epochs", "1"]
    monkeypatch.setattr("sys.argv", ["autoencoders.py", *arguments])
    threads = torch.get_num_threads()
    try:
        script.main()
        script.main()
    finally:
        torch.set_num_threads(threads)
    assert "scored already" in capsys.readouterr().out
    for system in ("ae-maha", "ae-maha-row", "ae-mse"):
        assert 0 <= evaluate_scores(tmp_path / "scores" / system).official_score <= 100


def test_bands_are_those_of_librosa(script):
    """Values of librosa 0.11.0, which adds in float32: 3e-5 dB at most over all 4,096 values."""
    time = np.arange(16_000) / 16_000
    noise = np.random.default_rng(0).standard_normal(len(time))
    wave = (0.1 * np.sin(2 * np.pi * 440 * time) + 0.02 * noise).astype(np.float32)
    bands = script.log_mel(wave, script.mel_bank(16_000))
    assert bands.shape == (32, 128)
    expected = {
        (0, 0): -14.398129,
        (14, 14): -18.382833,
        (60, 20): -21.865637,
        (127, 31): -21.643942,
    }
    for (band, frame), value in expected.items():
        assert bands[frame, band] == pytest.approx(value, abs=1e-4)
