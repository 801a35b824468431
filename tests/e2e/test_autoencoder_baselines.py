"""The script benchmarks/autoencoders.py on a synthetic factory, and its score files in a study."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from daco.backbones import load
from daco.data.sources import read_clips
from daco.embedding.embed import embed_clips
from daco.evaluation.evaluate import evaluate_scores
from daco.evaluation.official import official_scores
from daco.experiments.study import study
from daco.synthetic.factory import synth_factory

pytest.importorskip("torch")

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "autoencoders.py"
SYSTEMS = ["ae-maha", "ae-maha-row", "ae-mse"]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("autoencoders", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def factory(script, tmp_path_factory):
    """Two machines with clips of 2 s, their embeddings, and score files of the script."""
    folder = tmp_path_factory.mktemp("factory")
    synth_factory(
        folder,
        machines=["fan", "valve"],
        split="dev",
        n_source=12,
        n_target=4,
        n_test=12,
        seconds=2.0,
        workers=1,
    )
    clips = read_clips(folder / "dev_data")
    embed_clips(clips, load("logmel"), folder / "dev.parquet", workers=1)
    train(script, folder)
    return folder


def train(script, folder):
    import torch

    threads = torch.get_num_threads()
    arguments = [str(folder / "dev_data"), "--out", str(folder / "scores"), "--epochs", "3"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["autoencoders.py", *arguments])
        script.main()
    torch.set_num_threads(threads)


def test_a_study_compares_the_scores_of_each_system(factory):
    labels = {name.replace("-", "_"): name for name in SYSTEMS}
    result = study(
        factory / "dev.parquet",
        systems={label: factory / "scores" / name for label, name in labels.items()},
        grid=["raw-k1"],
        n_splits=2,
        workers=1,
    )
    assert result.candidates == ["raw-k1"]
    columns = [f"ext-{label}" for label in labels]
    assert set(columns) <= set(result.compared)
    scores = official_scores(result.metrics(columns), result.years["dev"])
    for label, name in labels.items():
        evaluated = evaluate_scores(factory / "scores" / name).official_score
        assert scores[f"ext-{label}"] == pytest.approx(evaluated, abs=1e-8)  # another order of sums


def test_finished_machines_are_not_trained_again(script, factory, capsys):
    files = {path: path.stat().st_mtime_ns for path in (factory / "scores").rglob("*.csv")}
    train(script, factory)
    assert capsys.readouterr().out.count("scored already") == 2
    assert {path: path.stat().st_mtime_ns for path in files} == files


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


def test_scores_are_those_of_loops_over_rows(script):
    rng = np.random.default_rng(1)
    residuals = rng.normal(0.3, 1, size=(90, 640)).astype(np.float32)
    domains = np.repeat(["source", "target"], [50, 40])
    inverses = script.inverse_covariances([(residuals, domains)])
    rows = residuals[:50].reshape(-1, 128).astype(float)
    usual = np.cov(rows, rowvar=False) * (len(rows) - 1) / 49  # over vectors, of five rows each
    np.testing.assert_allclose(np.linalg.inv(inverses["source"]), usual, rtol=1e-6, atol=1e-9)
    scores = script.clip_scores(residuals[:3], inverses)
    products = [rows[:15] @ inverse @ rows[:15].T for inverse in inverses.values()]
    assert scores["ae-mse"] == pytest.approx(np.mean(rows[:15] ** 2))
    assert scores["ae-maha"] == pytest.approx(min(np.mean(product) for product in products))
    assert scores["ae-maha-row"] == pytest.approx(min(np.trace(p) / 15 for p in products))
