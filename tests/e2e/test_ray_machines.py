"""Models and choices of machines made on a real Ray cluster, against those made in this process."""

from __future__ import annotations

import numpy as np
import pytest
import soundfile
from ray_cluster import address_for_client, occupied_head, switch_off
from typer.testing import CliRunner

from daco.commands.app import app
from daco.compute.processes import outcomes
from daco.compute.ray import ray_pool
from daco.data.table import EmbeddingTable
from daco.detector.model import MachineModel
from daco.errors import NotEnoughClipsError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning"),
]


@pytest.fixture(autouse=True)
def time_stands_still(monkeypatch):
    """A model tells when it was made."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")


def run(*arguments, code=0):
    result = CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"})
    assert result.exit_code == code, (result.output, result.exception)
    return result


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Normals of six machines, the third of which has one clip."""
    return normals(tmp_path_factory.mktemp("table") / "e.parquet", 6)


def normals(path, machines):
    rng = np.random.default_rng(0)
    sizes = [(1, 0) if index == 2 else (40, 8) for index in range(machines)]
    machines = [f"m{index}" for index, size in enumerate(sizes) for _ in range(sum(size))]
    domains = [name for old, new in sizes for name in ["old"] * old + ["new"] * new]
    shift = np.array([name == "new" for name in domains])[:, None]
    EmbeddingTable.from_arrays(
        rng.normal(size=(len(domains), 12)) + 1 + shift, machine=machines, domain=domains
    ).write(path)
    return path


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Half a second of three machines in two domains."""
    root = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(1)
    for machine in ("drill", "fan", "press"):
        (root / machine / "train").mkdir(parents=True)
        for index in range(13):
            domain = ("source", "target")[index >= 8]
            name = f"section_00_{domain}_train_normal_{index:04d}_noAttribute.wav"
            soundfile.write(root / machine / "train" / name, 0.1 * rng.normal(size=8000), 16000)
    return root


def bytes_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_node_killed_during_a_fit_changes_no_byte(cluster, second, tmp_path, monkeypatch):
    """Nor does the machine that cannot be fitted, which is named all the same."""
    table = normals(tmp_path / "e.parquet", 60)
    made, said = {}, {}

    def fit(engine):
        folder = tmp_path / engine / "models"
        folder.parent.mkdir()
        result = run("fit", table, "--out", folder, "--engine", engine, code=1)
        assert isinstance(result.exception, NotEnoughClipsError)
        made[engine] = bytes_of(folder)
        said[engine] = result.stdout.replace(str(folder), ""), str(result.exception)

    fit("local")
    with occupied_head(cluster, tmp_path) as release:
        to_bytes = MachineModel.to_bytes

        def switch_off_at_the_first_model(model):
            if second in cluster.worker_nodes:
                switch_off(cluster, second)
                release()
            return to_bytes(model)

        monkeypatch.setattr(MachineModel, "to_bytes", switch_off_at_the_first_model)
        fit("ray")
    assert second not in cluster.worker_nodes
    assert len(made["local"]) == 59
    assert made["ray"] == made["local"]
    assert said["ray"] == said["local"]
    assert "m2: " in said["ray"][1]


def test_recordings_are_embedded_and_fitted_there(cluster, recordings, tmp_path):
    """By a computer outside the cluster, with one connection for both."""
    run("fit", recordings, "--out", tmp_path / "local")
    with address_for_client(cluster) as address:
        place = ("--engine", "ray", "--address", address)
        run("fit", recordings, "--out", tmp_path / "ray", *place)
    assert sorted(bytes_of(tmp_path / "local")) == ["drill.daco", "fan.daco", "press.daco"]
    assert bytes_of(tmp_path / "ray") == bytes_of(tmp_path / "local")


def test_vectors_of_only_so_many_machines_are_on_their_way(cluster):
    taken, most = 0, 0

    def items():
        nonlocal taken
        for index in range(30):
            taken += 1
            yield index, (index,)

    with ray_pool(None, cluster.address) as pool:
        for done, (index, outcome) in enumerate(outcomes(pool, str, items())):
            assert outcome == str(index)
            most = max(most, taken - done)
    assert done == 29
    assert most <= pool.ahead


def test_results_that_are_kept_do_not_fill_the_store_of_ray(cluster):
    with ray_pool(None, cluster.address) as pool:
        kept = dict(outcomes(pool, np.zeros, ((index, (2**18,)) for index in range(60))))
    assert sum(each.nbytes for each in kept.values()) > 80 * 2**20  # what the store has
    assert all(each.flags.writeable for each in kept.values())  # what lies in it is read-only
