"""What is said when a real Ray cluster cannot do the work: one sentence, with the remedy."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from ray_cluster import address_for_client, node_of, processes_using, ray_cluster
from shared_data import shared
from typer.testing import CliRunner

import daco
from daco.backbones import load
from daco.commands.app import app
from daco.compute import require_engine
from daco.compute.processes import outcomes
from daco.compute.ray import connection, ray_pool
from daco.data.clips import ClipTable
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding import cluster as embedding
from daco.embedding.cluster import RayEmbedding
from daco.embedding.embed import Job, embed_clips
from daco.errors import DataError, InputError, MissingExtraError

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning"),
]


@pytest.fixture(scope="module")
def bare():
    """A head that works on nothing itself, so that a test knows which node does."""
    with ray_cluster(num_cpus=0) as made:
        yield made


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clips")
    rng = np.random.default_rng(0)
    for index in range(4):
        soundfile.write(folder / f"{index}.wav", 0.1 * rng.normal(size=16000), 16000)
    return read_clips(folder)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("table") / "e.parquet"
    EmbeddingTable.from_arrays(
        rng.normal(size=(80, 4)) + 1,
        machine=["fan"] * 40 + ["pump"] * 40,
        domain=(["old"] * 30 + ["new"] * 10) * 2,
    ).write(path)
    return path


def embedded(cluster, clips, out, net=None, **options):
    net = load("logmel") if net is None else net
    place = RayEmbedding(net, address=cluster.address, **options)
    return embed_clips(clips, net, out / "e.parquet", engine=place)


def without(package, folder):
    """Environment of a node on which a package is not installed."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Missing())\n"
    )
    return {"PYTHONPATH": str(folder)}


# --- the way there ---


def test_the_other_port_of_the_head_is_pointed_out(cluster):
    said = r"is the port for computers outside the cluster: write ray://1"
    with address_for_client(cluster) as address, pytest.raises(InputError, match=said):
        require_engine("ray", address.removeprefix("ray://"))
    with pytest.raises(
        InputError, match=r"is the port for nodes of the cluster\. On a node, leave out ray://"
    ):
        require_engine("ray", f"ray://{cluster.address}")


def test_another_version_of_ray_is_said(cluster, monkeypatch):
    """Whichever way: and no half of a connection is left."""
    monkeypatch.setattr("ray.__version__", "1.2.3")
    with address_for_client(cluster) as client:
        for address in (cluster.address, client):
            with (
                pytest.raises(DataError, match=r"this computer Ray 1\.2\.3 on Python .* same ver"),
                connection(address),
            ):
                pass
    monkeypatch.undo()
    with connection(cluster.address) as ray:
        assert ray.cluster_resources()["CPU"] >= 1


# --- what is on a node ---


def test_a_node_with_another_daco_is_said(bare, clips, tmp_path):
    source = Path(daco.__file__).parent
    shutil.copytree(source, tmp_path / "daco", ignore=shutil.ignore_patterns("__pycache__"))
    told = (source / "version.py").read_text().replace(daco.__version__, "0.0.1")
    (tmp_path / "daco" / "version.py").write_text(told)
    said = rf"it has daco 0\.0\.1, but daco {daco.__version__} started this run\. Install"
    with node_of(bare, env_vars={"PYTHONPATH": str(tmp_path)}):
        with pytest.raises(DataError, match=said), ray_pool(None, bare.address) as pool:
            list(outcomes(pool, len, [(0, ("abc",))]))
        with pytest.raises(DataError, match=said):
            embedded(bare, clips, tmp_path)


def test_a_node_without_daco_is_said(bare, clips, table, tmp_path):
    said = r"A node of the Ray cluster has no daco, or another version\. Install daco-asd\[ray\] "
    with node_of(bare, env_vars=without("daco", tmp_path / "site")):
        for command in (["fit", table, "--out", tmp_path / "m"], ["select", table]):
            options = map(str, [*command, "--engine", "ray", "--address", bare.address])
            result = CliRunner().invoke(app, list(options))
            assert isinstance(result.exception, DataError)
            assert str(result.exception).startswith(said.replace("\\", ""))
        with pytest.raises(DataError, match=said):
            embedded(bare, clips, tmp_path)


def test_a_node_without_torch_is_said(bare, clips, tmp_path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    file = shared("real", "mn04_as_mAP_432.pt")
    net = load("mn04", file)
    with (
        node_of(bare, env_vars=without("torch", tmp_path / "site")),
        pytest.raises(MissingExtraError, match=r"Ray worker on \S+: .*pip install .daco-asd\[to"),
    ):
        embedded(bare, clips, tmp_path, net, weights=file)


# --- GPUs ---


class NotesItsGPU(embedding.Embedder):
    def embed(self, job, table):
        (table.root / os.environ["CUDA_VISIBLE_DEVICES"]).touch()
        give_up = time.monotonic() + 120
        while len(list(table.root.iterdir())) < 4 and time.monotonic() < give_up:
            time.sleep(0.1)
        return DataError("enough")


def test_every_worker_has_a_gpu_of_its_own_or_says_that_it_cannot_use_it(
    bare, clips, tmp_path, monkeypatch
):
    """A node that claims four, asked by a computer that has none."""
    ray = pytest.importorskip("ray", reason="Ray is not installed")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this computer has a GPU")
    file = shared("real", "mn04_as_mAP_432.pt")
    options = ["--backbone", "mn04", "--weights", file, "--device", "cuda"]
    options += ["--out", tmp_path / "e.parquet", "--engine", "ray", "--address", bare.address]
    with node_of(bare, num_cpus=4, num_gpus=4):
        result = CliRunner().invoke(app, list(map(str, ["embed", clips.root, *options])))
        assert isinstance(result.exception, InputError)
        assert str(result.exception).startswith("Ray worker on ")
        assert "The device 'cuda' cannot be used" in str(result.exception)
        monkeypatch.setattr(embedding, "Embedder", NotesItsGPU)
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        seen, spans = tmp_path / "seen", [(i, i + 1) for i in range(4)]
        seen.mkdir()
        place = RayEmbedding(load("mn04", file), device="cuda", address=bare.address)
        job = Job(
            readouts=(), channel=0, limits=None, batch_size=1, workers=1, skip=False, settings=""
        )
        try:
            with pytest.raises(DataError, match="enough"):
                list(place.shards(job, ClipTable(seen, clips.clips), spans))
        finally:
            ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
        assert sorted(each.name for each in seen.iterdir()) == ["0", "1", "2", "3"]


def test_a_cluster_without_a_place_for_a_worker_is_said(
    cluster, bare, clips, tmp_path, monkeypatch
):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setattr(embedding, "PATIENCE", 1.0)
    with pytest.raises(DataError, match=r"is large enough for a worker, which needs 64 CPU\. "):
        embedded(cluster, clips, tmp_path)
    with (
        pytest.raises(DataError, match=r"which needs 1 CPU\. .*\. Start a larger node\."),
        ray_pool(None, bare.address),
    ):
        pass


# --- full disks ---


def test_a_full_disk_of_a_node_is_said_and_nothing_is_left_of_its_cluster():
    """Ray stores no more where a disk is fuller than it is told to allow."""
    with (
        ray_cluster(_system_config={"local_fs_capacity_threshold": 1e-4}) as made,
        ray_pool(None, made.address) as pool,
    ):
        folder = str(Path(made.head_node.get_session_dir_path()).parent)
        assert len(processes_using(folder)) >= 3
        large = 100 * 2**20  # more than the memory that it has for them
        with pytest.raises(DataError, match=r"The disk of a Ray node is full\. Free some space"):
            list(outcomes(pool, np.zeros, [(0, (large, np.uint8))]))
        with pytest.raises(DataError, match=r"The disk of a Ray node is full\. Free some space"):
            list(outcomes(pool, len, [(0, (np.zeros(large, np.uint8),))]))
    assert not processes_using(folder)
    assert not Path(folder).exists()
