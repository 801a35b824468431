"""Embeddings of real recordings, and what they are worth on whole machines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from shared_data import shared

import daco
from daco.backbones import load
from daco.evaluation.metrics import harmonic_mean

MACHINES = ("bearing", "fan")


def recordings(machine: str, embeddings: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Waveforms (70, 160000) of the machine's clips, and their rows of the reference arrays."""
    soundfile = pytest.importorskip("soundfile")
    paths = sorted(shared("real", "audio", machine).glob("*/*.flac"))
    assert len(paths) == 70
    reference = np.load(shared("real", "embeddings", f"{machine}_{embeddings}.npz"))
    row = {Path(name).stem: index for index, name in enumerate(reference["file_name"])}
    rows = [row[path.stem] for path in paths]
    waves = np.stack([soundfile.read(path, dtype="float32")[0] for path in paths])
    return waves, {name: reference[name][rows] for name in reference.files}


@pytest.mark.parametrize("machine", MACHINES)
def test_modulation_embedding_of_every_clip(machine):
    waves, reference = recordings(machine, "logmel_mod")
    # Measured: 7.2e-7, the reference's own rounding to float32.
    np.testing.assert_allclose(load("logmel").embed(waves), reference["embedding"], atol=1e-5)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    # Measured: 1.8e-3 and 2.0e-3, the references' rounding to float16, and 1.8e-6.
    ("view", "tolerance"),
    [("env", 4e-3), ("mod60", 4e-3), ("cep", 1e-3)],
)
def test_weight_free_view_of_every_clip(machine, view, tolerance):
    waves, reference = recordings(machine, view)
    vectors = load("logmel").embed(waves, view)
    np.testing.assert_allclose(vectors, reference[view].astype(np.float32), atol=tolerance)


@pytest.mark.parametrize(("machine", "knn", "ldn"), [("fan", 70.0, 73.9), ("bearing", 55.5, 63.5)])
def test_modulation_embedding_detects_as_reported(machine, knn, ldn):
    data = np.load(shared("real", "embeddings", f"{machine}_logmel_mod.npz"))
    names = data["file_name"]
    train = np.array(["_train_" in name for name in names])
    domains = np.array([name.split("_")[2] for name in names])
    labels = np.array(["_anomaly_" in name for name in names]).astype(int)[~train]
    vectors = data["embedding"].astype(np.float64)  # the reported figures are of float64 distances
    bank = daco.NormalBank(vectors[train], domains[train])
    scores = bank.score(vectors[~train], ["raw-k1", "ldn-ratio-K1"])
    found = [
        100 * harmonic_mean(list(daco.machine_metrics(column, labels, domains[~train]).values()))
        for column in scores.T
    ]
    # Reported with one decimal.
    np.testing.assert_allclose(found, [knn, ldn], atol=0.05 + 1e-9)


@pytest.fixture(scope="module")
def mn04():
    pytest.importorskip("torch")
    return load("mn04", shared("real", "mn04_as_mAP_432.pt"))


def test_mn04_says_which_weights_and_rate_it_has(mn04):
    assert mn04.weights_sha256 == daco.backbones.weights.SOURCES["mn04"].sha256
    assert (mn04.sample_rate, mn04.default_readout) == (32000, "mean")


@pytest.mark.parametrize("machine", MACHINES)
def test_mn04_embedding_of_every_clip(mn04, machine):
    from scipy.signal import resample_poly

    waves, reference = recordings(machine, "mn04")
    waves = resample_poly(waves, 2, 1, axis=1).astype(np.float32)
    grid = np.concatenate([mn04.grid(waves[i : i + 10]) for i in range(0, 70, 10)])
    assert grid.shape == (70, 32, 4, 384)
    # Measured: 1.1e-5; embeddings have a root mean square of 0.24.
    np.testing.assert_allclose(grid.mean((1, 2)), reference["embedding"], atol=1e-4)
    np.testing.assert_allclose(mn04.embed(waves[:2]), reference["embedding"][:2], atol=1e-4)
    _, reference = recordings(machine, "mn04_band")
    np.testing.assert_allclose(grid.mean(1), reference["band"], atol=2e-3)  # stored as float16
