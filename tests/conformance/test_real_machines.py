"""Real machines: embeddings of their recordings, and official scores as reported."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from golden_machines import scaled_error
from numpy.testing import assert_allclose
from shared_data import shared
from tolerances import SPREAD

import daco
from daco.backbones import load
from daco.evaluation.metrics import grid_metrics, harmonic_mean

MACHINES = ("bearing", "fan")
WEIGHT_FREE = ("logmel_mod", "mod60", "env", "cep")

# Harmonic mean of AUC source, AUC target and pAUC, percent, as reported with one decimal.
REPORTED = {
    ("fan", "mn04"): {"raw-k1": 61.3, "ldn-ratio-K1": 68.0, "varmin-K4": 71.4},
    ("bearing", "mn04"): {"raw-k1": 57.0, "ldn-ratio-K1": 60.1, "varmin-K4": 62.8},
    ("fan", "logmel_mod"): {"raw-k1": 70.0, "ldn-ratio-K1": 73.9, "varmin-K4": 73.9},
    ("bearing", "logmel_mod"): {"raw-k1": 55.5, "ldn-ratio-K1": 63.5, "varmin-K4": 61.4},
}


class Clips(NamedTuple):
    """Embeddings of a machine's clips in some views, and what their names tell."""

    views: dict
    names: np.ndarray

    @property
    def train(self):
        return np.char.count(self.names, "_train_") == 1

    @property
    def domains(self):
        return np.where(np.char.count(self.names, "_target_") == 1, "target", "source")

    @property
    def labels(self):
        return np.char.count(self.names, "_anomaly_")

    def take(self, rows):
        return {view: X[rows] for view, X in self.views.items()}

    def bank(self):
        return daco.NormalBank(self.take(self.train), self.domains[self.train])

    def metrics(self, config):
        """AUC of the domains and pAUC of the test clips."""
        test = ~self.train
        scores = self.bank().score(self.take(test), config)[:, 0]
        return list(daco.machine_metrics(scores, self.labels[test], self.domains[test]).values())


def machine_clips(machine, embeddings, dtype=np.float32):
    tables = [np.load(shared("real", "embeddings", f"{machine}_{name}.npz")) for name in embeddings]
    names = [np.char.rpartition(table["file_name"].astype(str), "/")[:, 2] for table in tables]
    assert all((each == names[0]).all() for each in names)
    vectors = [next(x for x in map(table.get, table.files) if x.ndim == 2) for table in tables]
    views = {name: X.astype(dtype) for name, X in zip(embeddings, vectors, strict=True)}
    return Clips(views, names[0])


@pytest.mark.parametrize(("machine", "embeddings"), REPORTED)
def test_scorers_give_the_reported_figures(machine, embeddings):
    clips = machine_clips(machine, [embeddings], np.float64)  # as the figures were computed
    reported = REPORTED[machine, embeddings]
    found = {name: 100 * harmonic_mean(clips.metrics(name)) for name in reported}
    assert found == pytest.approx(reported, abs=0.05 + 1e-9)


@pytest.mark.parametrize(("more", "reported"), [((), 69.4), (("mn04",), 70.5)])
def test_the_blend_gives_the_reported_figure_over_both_machines(more, reported):
    clips = [machine_clips(machine, [*WEIGHT_FREE, *more]) for machine in MACHINES]
    metrics = [each.metrics("blend") for each in clips]
    assert 100 * harmonic_mean(np.concatenate(metrics)) == pytest.approx(reported, abs=0.2)


@pytest.mark.parametrize("machine", MACHINES)
def test_the_mean_over_16_neighbours_does_not_collapse_where_the_sum_does(machine):
    clips = machine_clips(machine, ["mn04"])
    names = ("ldn-diff-K16", "ldn-mean-K16", "raw-k1")
    summed, mean, nearest = (100 * harmonic_mean(clips.metrics(name)) for name in names)
    assert mean > nearest + 5
    assert mean > summed + 1


@pytest.mark.parametrize("machine", MACHINES)
def test_the_papers_grid_gives_the_expected_values(machine):
    """Expected values are of float32 distances: another processor is `SPREAD` roundings away."""
    clips = machine_clips(machine, ["mn04"])
    expected = np.load(shared("real", "embeddings", f"{machine}_mn04_expected.npz"))
    grid = [str(name) for name in expected["config_names"]]
    order = np.char.rpartition(expected["test_file_name"].astype(str), "/")[:, 2]
    rows = [clips.names.tolist().index(name) for name in order]
    X, bank = clips.take(rows), clips.bank()
    scores = bank.score(X, grid)
    double = machine_clips(machine, ["mn04"], np.float64)
    exact = double.bank().score(double.take(rows), grid)
    tolerance = SPREAD * scaled_error(scores.T, exact.T, grid).max()
    assert scaled_error(scores.T, expected["scores"], grid).max() < tolerance
    metrics = grid_metrics(scores, clips.labels[rows], clips.domains[rows]).values
    assert_allclose(metrics, expected["metrics"], atol=1e-3)
    assert_allclose(bank.balance(grid, n_splits=10), expected["balance_ks"], atol=1e-3)
    assert bank.separability() == pytest.approx(float(expected["separability"]), abs=1e-3)


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
@pytest.mark.parametrize(
    # Measured: 7e-7 and 1.8e-6, rounding to float32; 1.8e-3 and 2.0e-3, rounding to float16.
    ("view", "table", "tolerance"),
    [("mod", "logmel_mod", 1e-5), ("cep", "cep", 1e-3), ("env", "env", 4e-3),
     ("mod60", "mod60", 4e-3)],
)  # fmt: skip
def test_weight_free_view_of_every_clip(machine, view, table, tolerance):
    waves, reference = recordings(machine, table)
    expected = reference["embedding" if view == "mod" else view].astype(np.float32)
    assert_allclose(load("logmel").embed(waves, view), expected, atol=tolerance)


@pytest.fixture(scope="module")
def mn04():
    pytest.importorskip("torch")
    return load("mn04", shared("real", "mn04_as_mAP_432.pt"))


def test_mn04_names_its_weights_and_rate(mn04):
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
    assert_allclose(grid.mean((1, 2)), reference["embedding"], atol=1e-4)
    assert_allclose(mn04.embed(waves[:2]), reference["embedding"][:2], atol=1e-4)
    _, reference = recordings(machine, "mn04_band")
    assert_allclose(grid.mean(1), reference["band"], atol=2e-3)  # stored as float16
