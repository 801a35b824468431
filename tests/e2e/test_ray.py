"""Work on a real Ray cluster of two nodes against work on this computer."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import soundfile
from ray_cluster import address_for_client, node_of, ray_cluster, switch_off
from shared_data import shared
from synthetic_machines import small_table
from typer.testing import CliRunner

import daco
from daco.commands.app import app
from daco.compute import run as run_each
from daco.errors import DataError
from daco.experiments.study import study

pytestmark = [
    pytest.mark.cluster,
    # Ray's own: where no GPU is asked for, and the logs of the server that a test connects to.
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def connection(monkeypatch):
    """Every test connects anew; a model tells when it was made."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    yield
    ray.shutdown()


@pytest.fixture
def engine(cluster, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", cluster.address)
    return "ray"


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Three machines in two domains; one recording is empty."""
    root = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(1)
    for machine in ("drill", "fan", "press"):
        (root / machine / "train").mkdir(parents=True)
        for index in range(13):
            domain = ("source", "target")[index >= 8]
            name = f"section_00_{domain}_train_normal_{index:04d}_noAttribute.wav"
            soundfile.write(root / machine / "train" / name, 0.1 * rng.normal(size=8000), 16000)
    (root / "fan" / "train" / "section_00_source_train_normal_0009_noAttribute.wav").touch()
    return root


def command(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_node_that_is_switched_off_costs_no_item(engine, second, cluster):
    def items():
        for number in range(12):
            if number == 6:
                switch_off(cluster, second)
            yield number, (number,)

    results = dict(run_each(str, items(), engine=engine))
    assert second not in cluster.worker_nodes
    assert results == {number: str(number) for number in range(12)}


def test_models_are_those_of_this_computer(cluster, second, recordings, tmp_path):
    """Asked for by a computer outside the cluster."""
    command("fit", recordings, "--out", tmp_path / "local", code=4)
    with address_for_client(cluster) as address:
        command("fit", recordings, "--out", tmp_path / "ray", "--engine", address, code=4)
    assert sorted(bytes_of(tmp_path / "local")) == ["drill.daco", "fan.daco", "press.daco"]
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "local")


@pytest.mark.parametrize("backbone", ["logmel", "mn04"])
def test_tables_are_those_of_this_computer(engine, second, recordings, tmp_path, backbone):
    """A network of torch gives the same bytes with as many threads."""
    options = ["--backbone", backbone]
    if backbone != "logmel":
        torch = pytest.importorskip("torch", reason="PyTorch is not installed")
        torch.set_num_threads(1)
        options += ["--weights", shared("real", "mn04_as_mAP_432.pt")]
    made = {}
    for where in ("local", engine):
        out = tmp_path / f"{where}.parquet"
        command("embed", recordings, "--out", out, "--engine", where, *options, code=4)
        made[where] = out.read_bytes()
    assert made["local"] == made[engine]


def test_a_study_is_that_of_this_computer(engine, second, tmp_path):
    dev = tmp_path / "dev.parquet"
    small_table("fan", "pump", "valve", "gearbox").write(dev)
    options = {"grid": ("raw-k1", "conf-soft-m0-k1", "ratio-hard-k1"), "n_splits": 3}
    study(dev, out=tmp_path / "local", workers=1, **options)
    study(dev, out=tmp_path / "ray", engine=engine, **options)
    for name in ("clips.parquet", "criteria.parquet"):
        made = [(tmp_path / where / name).read_bytes() for where in ("local", "ray")]
        assert made[0] == made[1], name


def test_a_node_with_another_daco_or_none_is_named(tmp_path, monkeypatch):
    source = Path(daco.__file__).parent
    shutil.copytree(source, tmp_path / "daco", ignore=shutil.ignore_patterns("__pycache__"))
    other = (source / "version.py").read_text().replace(daco.__version__, "0.0.1")
    (tmp_path / "daco" / "version.py").write_text(other)
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "daco.py").write_text(
        "raise ModuleNotFoundError('No module of that name')"
    )
    with ray_cluster(num_cpus=0) as bare:
        monkeypatch.setenv("RAY_ADDRESS", bare.address)
        with node_of(bare, num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path)}):
            result = dict(run_each(len, [(0, ("abc",))], engine="ray"))[0]
            assert "has daco 0.0.1, but daco " in str(result)
        with (
            node_of(bare, num_cpus=2, env_vars={"PYTHONPATH": str(tmp_path / "none")}),
            pytest.raises(DataError, match=r"cannot work .*No module.* Install daco-asd"),
        ):
            list(run_each(len, [(0, ("abc",))], engine="ray"))
        with pytest.raises(DataError, match="has no CPU"):
            list(run_each(len, [(0, ("abc",))], engine="ray"))
