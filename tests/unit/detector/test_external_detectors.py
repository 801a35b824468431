"""Detectors of other libraries as scorers: given to DACo, or installed for models and commands."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
from command_line import refused, run
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.svm import OneClassSVM
from third_party import write_package

from daco import DACo, load
from daco.data.table import EmbeddingTable
from daco.detector.model import MachineModel
from daco.detector.revision import add_normals, calibrate_with, remove_normals
from daco.errors import ModelError
from daco.method.external import installed_scorers

ECOD = pytest.importorskip("pyod.models.ecod", reason="PyOD is not installed").ECOD

DOMAINS = ["source"] * 150 + ["target"] * 30


def draw(seed, count=180):
    X = np.random.default_rng(seed).normal(size=(count, 8)) + 2
    X[-count // 6 :, :4] += 4
    return X


X, NEW = draw(3), draw(99, 600)
FAULTS = np.random.default_rng(4).normal(size=(40, 8)) - 4


class TestGivenDetectors:
    # ECOD ranks a clip among those of the same call, of which daco warns.
    @pytest.mark.filterwarnings("ignore::daco.errors.DacoWarning")
    @pytest.mark.parametrize(
        ("scorer", "higher"),
        [
            (OneClassSVM(), None),
            (ECOD(), True),
            (DACo("varmin-K4"), None),
        ],
        ids=lambda value: type(value).__name__,
    )
    def test_any_of_them_alarms_on_faults_and_seldom_on_new_normals(self, scorer, higher):
        detector = DACo(scorer=scorer, scorer_higher_is_anomalous=higher)
        detector.fit(X, domains=DOMAINS)
        assert detector.config_ == f"ext-{type(scorer).__name__}"
        detector.calibrate(draw(5, 300), ["source"] * 250 + ["target"] * 50)
        assert (detector.predict(FAULTS) == -1).mean() > 0.9
        alarms = detector.predict(NEW) == -1
        # 50 clips fix the rate of a domain to 0.04, 100 others show it with 0.03
        assert alarms[:500].mean() == pytest.approx(0.1, abs=0.1)
        assert alarms[500:].mean() == pytest.approx(0.1, abs=0.15)
        np.testing.assert_array_equal(alarms, detector.p_values(NEW) <= 0.1)

    def test_they_can_be_cloned_pickled_set_and_calibrated(self):
        detector = DACo(scorer=IsolationForest(n_estimators=10)).fit(X, domains=DOMAINS)
        again = clone(detector).set_params(scorer__n_estimators=20).fit(X, domains=DOMAINS)
        assert not np.array_equal(again.anomaly_score(NEW), detector.anomaly_score(NEW))
        loaded = pickle.loads(pickle.dumps(detector))
        np.testing.assert_array_equal(loaded.anomaly_score(NEW), detector.anomaly_score(NEW))
        loaded.calibrate(NEW[-100:], ["target"] * 100)
        assert loaded.reference_.kinds == {"source": "training", "target": "new"}


CODE = """
def forest():
    from sklearn.ensemble import IsolationForest

    return IsolationForest(n_estimators=10, random_state=0)


def constant():
    return Constant()


class Constant:
    higher_is_anomalous = True

    def fit(self, X):
        return self

    def decision_function(self, X):
        return 0 * X[:, 0]


def broken():
    import no_such_module
"""
POINTS = [f"daco.scorers:{name} = plugin:{name}" for name in ("forest", "constant", "broken")]
CONFIG = "conf-soft-m0-ext-forest"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    folder = write_package(tmp_path / "site", CODE, *POINTS)
    monkeypatch.syspath_prepend(folder)
    installed_scorers.cache_clear()
    yield folder
    installed_scorers.cache_clear()
    sys.modules.pop("plugin", None)


@pytest.fixture
def file(installed, tmp_path):
    DACo(CONFIG).fit(X, domains=DOMAINS).save(tmp_path / "fan.daco", machine="fan")
    return tmp_path / "fan.daco"


class TestInstalledDetectors:
    """A model file names them; they are fitted again when it is loaded."""

    def test_a_loaded_model_scores_as_the_fitted_one(self, file):
        fitted = MachineModel.fit(X, DOMAINS, machine="fan", config=CONFIG)
        fitted.save(file)
        scores = MachineModel.load(file).score(NEW).scores
        np.testing.assert_array_equal(scores, fitted.score(NEW).scores)
        assert (load(file).predict(FAULTS) == -1).mean() > 0.9
        assert b"sklearn" not in file.read_bytes()

    def test_other_versions_of_a_scorer_do_not_mix_in_a_model(self, file, installed):
        assert MachineModel.load(file).provenance["scorers"] == {"forest": "some-plugin 1.0"}
        (installed / "some_plugin-1.0.dist-info").rename(installed / "unknown")
        installed_scorers.cache_clear()
        with pytest.raises(ModelError, match=r"some-plugin 1\.0'\}.*\{'forest': ''\}"):
            MachineModel.load(file).score(NEW)
        write_package(installed, CODE, *POINTS, version="1.1")
        installed_scorers.cache_clear()
        model, more = MachineModel.load(file), NEW[:5].astype(np.float32)
        for revise in (
            lambda: model.score(NEW),
            lambda: add_normals(model, more, "target", list("abcde")),
            lambda: remove_normals(model, ["3"]),
            lambda: calibrate_with(model, more, ["target"] * 5),
        ):
            with pytest.raises(ModelError, match=r"some-plugin 1\.0'\}.*some-plugin 1\.1'\}"):
                revise()

    @pytest.fixture
    def table(self, tmp_path):
        columns = {"machine": "fan", "domain": DOMAINS, "split": "train"}
        EmbeddingTable.from_arrays(X, **columns).write(tmp_path / "e.parquet")
        return tmp_path / "e.parquet"

    @pytest.mark.usefixtures("installed")
    def test_fit_and_score_on_the_command_line(self, table, tmp_path):
        run("fit", table, "--config", CONFIG, "--out", tmp_path / "fan.daco")
        assert " of 180 " in run("score", tmp_path / "fan.daco", table).stdout
        assert CONFIG in run("inspect", tmp_path / "fan.daco", "--verbose").stdout

    @pytest.mark.usefixtures("installed")
    def test_one_that_cannot_be_used_is_named_before_anything_is_read(self, tmp_path):
        def fit(config):
            return str(refused("fit", tmp_path / "none", "--config", config, "--out", "fan.daco"))

        assert "Did you mean 'forest'" in fit("conf-soft-m0-ext-forst")
        assert "'broken' (plugin:broken) could not be loaded: No module named" in fit("ext-broken")

    @pytest.mark.usefixtures("installed")
    def test_one_to_which_all_clips_are_alike_is_not_blamed_on_the_normals(self, table):
        out = table.parent / "fan.daco"
        error = str(refused("fit", table, "--config", "ext-constant", "--out", out))
        assert "finds nothing anomalous" in error
        assert "normalise vectors" in error
