"""Models whose base score is a detector of another package: fitted again when they are loaded."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from command_line import refused, run
from third_party import write_package

from daco import NormalBank
from daco.data.table import EmbeddingTable
from daco.detector.model import MachineModel
from daco.detector.revision import add_normals, calibrate_with, remove_normals
from daco.errors import ModelError
from daco.method.external import installed_scorers

CODE = """
def forest():
    from sklearn.ensemble import IsolationForest

    return IsolationForest(n_estimators=30, random_state=0)


def deaf():
    return Deaf()


class Deaf:
    def fit(self, X):
        return self

    def decision_function(self, X):
        return 0 * X[:, 0]


def broken():
    import no_such_module
"""
POINTS = [f"daco.scorers:{name} = plugin:{name}" for name in ("forest", "deaf", "broken")]
CONFIG = "conf-soft-m0-ext-forest"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    folder = write_package(tmp_path / "site", CODE, *POINTS)
    monkeypatch.syspath_prepend(folder)
    installed_scorers.cache_clear()
    yield folder
    installed_scorers.cache_clear()
    sys.modules.pop("plugin", None)


def normals():
    X = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32) + 3
    X[48:] += 1
    return X, ["source"] * 48 + ["target"] * 12


@pytest.fixture
def file(installed, tmp_path):
    X, domains = normals()
    MachineModel.fit(X, domains, machine="fan", config=CONFIG).save(tmp_path / "fan.daco")
    return tmp_path / "fan.daco"


def test_a_loaded_model_scores_as_the_fitted_one(file):
    X, domains = normals()
    clips = X[::7] + np.linspace(0, 3, 9)[:, None]
    fitted = MachineModel.fit(X, domains, machine="fan", config=CONFIG)
    found = MachineModel.load(file).score(clips)
    np.testing.assert_array_equal(found.scores, fitted.score(clips).scores)
    assert found.alarms[-1]
    assert b"sklearn" not in file.read_bytes()


def test_a_model_records_the_package_of_its_scorer(file, installed):
    assert MachineModel.load(file).provenance["scorers"] == {"forest": "some-plugin 1.0"}
    (installed / "some_plugin-1.0.dist-info").rename(installed / "unknown")
    installed_scorers.cache_clear()
    with pytest.raises(
        ModelError, match=r"\{'forest': 'some-plugin 1\.0'\}. Here they are \{'forest': ''\}"
    ):
        MachineModel.load(file).score(normals()[0])
    write_package(installed, CODE, *POINTS, version="1.1")
    installed_scorers.cache_clear()
    with pytest.raises(ModelError, match=r"some-plugin 1\.0'\}.*'some-plugin 1\.1'\}: install"):
        MachineModel.load(file).score(normals()[0])


def test_other_versions_of_a_scorer_do_not_mix_in_a_model(file, installed):
    (installed / "some_plugin-1.0.dist-info").rename(installed / "some_plugin-1.1.dist-info")
    metadata = installed / "some_plugin-1.1.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "1.1"))
    installed_scorers.cache_clear()
    model = MachineModel.load(file)
    for revise in (
        lambda: add_normals(model, normals()[0][:2] + 1, "target", ["a", "b"]),
        lambda: remove_normals(model, ["3"]),
        lambda: calibrate_with(model, normals()[0][:5] + 1, ["target"] * 5),
    ):
        with pytest.raises(ModelError, match=r"some-plugin 1\.0"):
            revise()


@pytest.mark.usefixtures("installed")
def test_a_bank_finds_installed_scorers_after_it_was_pickled_and_the_array_changed():
    X, domains = normals()
    bank = NormalBank(X, domains)
    expected = bank.score(X[:5], CONFIG)
    again = pickle.loads(pickle.dumps(NormalBank(X, domains)))
    clips = X[:5].copy()
    X[:] = 0
    np.testing.assert_array_equal(again.score(clips, CONFIG), expected)


@pytest.fixture
def table(tmp_path):
    X, domains = normals()
    columns = {"machine": "fan", "domain": domains, "split": "train"}
    EmbeddingTable.from_arrays(X, **columns).write(tmp_path / "e.parquet")
    return tmp_path / "e.parquet"


@pytest.mark.usefixtures("installed")
def test_fit_and_score_on_the_command_line(table, tmp_path):
    run("fit", table, "--config", CONFIG, "--out", tmp_path / "fan.daco")
    text = run("score", tmp_path / "fan.daco", table).stdout
    assert "of 60 clips are anomalous" in text
    inspected = " ".join(run("inspect", tmp_path / "fan.daco").stdout.split())
    assert "conf-soft-m0-ext-forest: forest, turned into its quantile" in inspected


@pytest.mark.usefixtures("installed")
def test_a_scorer_that_cannot_be_used_is_named_before_anything_is_read(tmp_path):
    def fit(config):
        return str(refused("fit", tmp_path / "nowhere", "--config", config, "--out", "fan.daco"))

    assert "Did you mean 'forest'" in fit("conf-soft-m0-ext-forst")
    assert "'broken' (plugin:broken) could not be loaded: No module named" in fit("ext-broken")


@pytest.mark.usefixtures("installed")
def test_a_scorer_to_which_all_clips_are_alike_is_not_blamed_on_the_normals(table):
    error = str(refused("fit", table, "--config", "ext-deaf", "--out", table.parent / "fan.daco"))
    assert "finds nothing anomalous" in error
    assert "normalise vectors" in error


@pytest.mark.parametrize("config", ["recommended", "vote"])
def test_the_recommended_configuration_is_a_vote(config, table):
    run("fit", table, "--config", config, "--out", table.parent / "fan.daco")
    assert MachineModel.load(table.parent / "fan.daco").config == "vote"
