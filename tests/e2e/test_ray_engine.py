"""Work on a real Ray cluster of two nodes, one of which is killed, against work in this process."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from shared_data import shared
from small_runs import DEV, machine_table
from typer.testing import CliRunner

from daco.backbones import load
from daco.cli import app
from daco.clips import ClipTable, read_clips
from daco.embed import embed_clips
from daco.engines import embedding
from daco.engines.cluster import connected, explained
from daco.engines.embedding import RayEmbedding
from daco.errors import AudioError, DataError, InputError, MissingExtraError, WeightsError
from daco.experiments.run import study

pytestmark = [
    # Ray's own: where no GPU is asked for, and the logs of the server that a test connects to.
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning"),
]

SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
SHARD = 4
TIMES = ("cost.csv", "run.json")
"""Files of a study that tell how long it took."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A head with one CPU; a test adds the node that it needs. Its ports are its own."""
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    import ray

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    before = os.environ.get("RAY_USAGE_STATS_ENABLED")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    made = utils.Cluster(
        initialize_head=True,
        head_node_args={
            **SMALL,
            "include_dashboard": False,
            "ray_client_server_port": port,
        },
    )
    made.client = f"ray://127.0.0.1:{port}"
    folder = made.head_node.get_session_dir_path()
    yield made
    ray.shutdown()
    made.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
    if before is None:
        del os.environ["RAY_USAGE_STATS_ENABLED"]


@pytest.fixture
def second(cluster):
    """A second node, gone when the test is."""
    node = cluster.add_node(**SMALL)
    cluster.wait_for_nodes()
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """60 clips of two lengths, one of them empty."""
    folder = tmp_path_factory.mktemp("clips")
    rng = np.random.default_rng(0)
    for index in range(60):
        wave = 0.1 * rng.normal(size=(32000, 24000)[index % 3 == 0])
        soundfile.write(folder / f"{index:04d}.wav", wave, 16000, subtype="PCM_16")
    (folder / "0017.wav").write_bytes(b"")
    return read_clips(folder)


OPTIONS = {"shard_size": SHARD, "batch_size": 3, "on_error": "skip"}


@pytest.fixture(scope="module")
def expected(clips, tmp_path_factory):
    out = tmp_path_factory.mktemp("local") / "e.parquet"
    embed_clips(clips, load("logmel"), out, **OPTIONS)
    return out.read_bytes()


def workers_of(node):
    """The processes that a node has started, and what they say they do."""
    if not Path("/proc").is_dir():
        pytest.skip("what a node runs is only known on Linux")
    (raylet,) = node.all_processes["raylet"]
    pid = raylet.process.pid
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # one that has just ended
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_text()
    return found


def switch_off(cluster, node):
    """End a node at once with all that runs on it; Ray's own way lets workers finish."""
    for pid in workers_of(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)


class Crew(embedding._Crew):
    """Tells how many workers came, and how many were lost."""

    made = None

    def __init__(self, *options):
        super().__init__(*options)
        type(self).made, self.came, self.lost = self, 0, 0

    def _welcome(self, ref):
        super()._welcome(ref)
        self.came += 1

    def _dismiss(self, actor):
        super()._dismiss(actor)
        self.lost += 1


def test_a_node_that_joins_is_put_to_work(cluster, clips, expected, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "_Crew", Crew)
    joined = []

    def progress(done, total):
        if done and not joined:
            joined.append(cluster.add_node(**SMALL))
            cluster.wait_for_nodes()
        if 0 < done < 50 and Crew.made.came < 2:
            time.sleep(0.5)

    net, out = load("logmel"), tmp_path / "e.parquet"
    place = RayEmbedding(net, address=cluster.address)
    try:
        embed_clips(clips, net, out, engine=place, progress=progress, **OPTIONS)
    finally:
        cluster.remove_node(joined[0])
    assert Crew.made.came == 2
    assert out.read_bytes() == expected


def test_a_node_killed_while_embedding_changes_no_byte(
    cluster, second, clips, expected, tmp_path, monkeypatch
):
    monkeypatch.setattr(embedding, "_Crew", Crew)
    seen, losses = [], []

    def progress(done, total):
        seen.append(done)
        losses.append(Crew.made.lost if done else 0)
        if second not in cluster.worker_nodes or not 0 < done < 50:
            return
        if Crew.made.came < 2:
            time.sleep(0.5)
        else:
            switch_off(cluster, second)

    net, out = load("logmel"), tmp_path / "e.parquet"
    place = RayEmbedding(net, address=cluster.address)
    report = embed_clips(clips, net, out, engine=place, progress=progress, **OPTIONS)
    assert second not in cluster.worker_nodes
    assert Crew.made.came == 2
    assert losses[-1] >= 1
    assert out.read_bytes() == expected
    assert (report.clips, report.embedded, report.reused) == (59, 59, 0)
    assert seen == sorted(seen)
    assert seen[-1] == 60
    assert [each.name for each in tmp_path.iterdir()] == ["e.parquet"]


def test_a_run_begun_here_goes_on_on_a_cluster(cluster, clips, expected, tmp_path):
    def interrupt(done, total):
        if done > 30:
            raise KeyboardInterrupt

    net, out = load("logmel"), tmp_path / "e.parquet"
    with pytest.raises(KeyboardInterrupt):
        embed_clips(clips, net, out, progress=interrupt, **OPTIONS)
    place = RayEmbedding(net, address=cluster.address)
    report = embed_clips(clips, net, out, engine=place, **OPTIONS)
    assert report.reused > 20
    assert report.embedded < 40
    assert out.read_bytes() == expected


def test_a_computer_outside_the_cluster_gets_the_same_bytes(cluster, clips, expected, tmp_path):
    net, out = load("logmel"), tmp_path / "e.parquet"
    place = RayEmbedding(net, address=cluster.client)
    embed_clips(clips, net, out, engine=place, **OPTIONS)
    assert out.read_bytes() == expected


def test_the_command_writes_the_bytes_of_the_engine_local(cluster, clips, tmp_path):
    made = {}
    for engine in (["local"], ["ray", "--address", cluster.address]):
        out = tmp_path / f"{engine[0]}.parquet"
        options = ["--out", str(out), "--on-error", "skip", "--engine", *engine]
        result = CliRunner().invoke(app, ["embed", str(clips.root), *options])
        assert result.exit_code == 4, result.output  # a clip was skipped
        made[engine[0]] = out.read_bytes()
    assert made["ray"] == made["local"]


def test_the_first_clip_that_is_wrong_is_named(cluster, second, clips, tmp_path):
    net, out = load("logmel"), tmp_path / "e.parquet"
    shutil.copytree(clips.root, tmp_path / "clips")
    for name in ("0022.wav", "0031.wav"):
        (tmp_path / "clips" / name).write_bytes(b"")
    place = RayEmbedding(net, address=cluster.address)
    table = read_clips(tmp_path / "clips")
    with pytest.raises(AudioError, match=r"0017\.wav: the file is empty"):
        embed_clips(table, net, out, engine=place, **{**OPTIONS, "on_error": "fail"})
    assert len(list(Path(f"{out}.shards").glob("*.arrow"))) >= 4


def test_a_real_network_gives_the_bytes_of_as_many_threads_here(cluster, clips, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    weights = shared("real", "mn04_as_mAP_432.pt")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        net = load("mn04", weights)
        table = ClipTable(clips.root, clips.clips[:8])
        embed_clips(table, net, tmp_path / "local.parquet", **OPTIONS)
    finally:
        torch.set_num_threads(before)
    place = RayEmbedding(net, weights=weights, address=cluster.address)
    embed_clips(table, net, tmp_path / "ray.parquet", engine=place, **OPTIONS)
    made = [(tmp_path / f"{engine}.parquet").read_bytes() for engine in ("local", "ray")]
    assert made[0] == made[1]


# --- a study ---


def test_a_node_killed_during_a_study_changes_no_byte(cluster, second, tmp_path):
    dev = machine_table(tmp_path / "dev.parquet", (*DEV, "gearbox"))
    options = {"grid": ("raw-k1", "conf-soft-m0-k1", "ratio-hard-k1"), "n_splits": 3}
    study(dev, out=tmp_path / "local", workers=1, **options)
    killers = []

    def kill_when_it_works():
        for _ in range(10_000):
            if any(title.startswith("ray::_call") for title in workers_of(second).values()):
                switch_off(cluster, second)
                return
            time.sleep(0.002)

    def progress(stage, done, total):
        if not killers:
            killers.append(threading.Thread(target=kill_when_it_works))
            killers[0].start()

    there = tmp_path / "ray"
    study(dev, out=there, engine="ray", address=cluster.address, progress=progress, **options)
    killers[0].join()
    assert second not in cluster.worker_nodes
    names = {each.name for each in there.iterdir() if each.is_file()}
    assert {"grid.csv", "per_machine.csv", "selection.json"} <= names
    for name in names - set(TIMES):
        assert (there / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name


def test_a_machine_that_cannot_be_studied_is_named_as_it_is_here(cluster, tmp_path):
    dev = machine_table(tmp_path / "dev.parquet", DEV)
    said = []
    for options in ({"workers": 1}, {"engine": "ray", "address": cluster.address}):
        with pytest.raises(ValueError, match="3 of 3 machines could not be studied") as caught:
            study(dev, grid=["raw-k1", "raw-k40"], n_splits=3, **options)
        said.append((type(caught.value), str(caught.value)))
    assert said[0] == said[1]


# --- what is said when it cannot work ---


def test_a_cluster_without_a_place_for_a_worker_is_said(cluster, clips, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "64")
    monkeypatch.setattr(embedding, "PATIENCE", 1.0)
    net = load("logmel")
    place = RayEmbedding(net, address=cluster.address)
    with pytest.raises(DataError, match=r"gave no worker in 1 s: .* a worker needs 64 CPU of one"):
        embed_clips(clips, net, tmp_path / "e.parquet", engine=place, **OPTIONS)


def test_an_unreachable_cluster_is_said_at_once(cluster):
    started = time.perf_counter()
    for address in ("127.0.0.1:1", "ray://127.0.0.1:1"):
        with (
            pytest.raises(DataError, match=r"no Ray cluster at .*:1 \(Connection refused\)"),
            connected(address),
        ):
            pass
    assert time.perf_counter() - started < 5


@pytest.mark.parametrize("address", ["somewhere", "http://host:1", "host:port"])
def test_what_is_no_address_is_said(cluster, address):
    with (
        pytest.raises(InputError, match="auto, host:6379 or ray://host:10001"),
        connected(address),
    ):
        pass


def test_another_version_of_ray_is_said(cluster, monkeypatch):
    monkeypatch.setattr("ray.__version__", "1.2.3")
    with (
        pytest.raises(DataError, match=r"this computer Ray 1\.2\.3 on Python .* same versions"),
        connected(cluster.address),
    ):
        pass


def on_a_worker(recipe, root):
    return embedding.Embedder(recipe).ready(str(root))


def test_another_version_of_daco_on_a_worker_is_said(tmp_path):
    recipe = embedding.Recipe("logmel", version="0.0.1")
    error = on_a_worker(recipe, tmp_path)
    assert isinstance(error, DataError)
    assert "the computer that asks 0.0.1. Install the same" in str(error)


def test_recordings_that_a_worker_does_not_see_are_said(tmp_path):
    error = on_a_worker(embedding.Recipe("logmel"), tmp_path / "nowhere")
    assert isinstance(error, DataError)
    assert "nowhere is not a folder there. Keep the recordings where all nodes" in str(error)


def test_other_weights_on_a_worker_are_said(tmp_path, monkeypatch):
    net = load("logmel")
    monkeypatch.setattr(embedding, "load", lambda *options: net)
    recipe = embedding.Recipe("mn04", str(tmp_path / "gone.pt"), "ab" * 32)
    error = on_a_worker(recipe, tmp_path)
    assert isinstance(error, WeightsError)
    assert "not abababababab. Put the same file on all nodes." in str(error)


def test_a_full_disk_on_a_worker_is_said(tmp_path, monkeypatch):
    worker = embedding.Embedder(embedding.Recipe("logmel"))
    assert worker.ready(str(tmp_path)) is None

    def full(*options):
        raise OSError(28, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr(embedding, "embed_shard", full)
    error = worker.embed(None, None)
    assert isinstance(error, DataError)
    assert "x: cannot be written (No space left on device). Free some space" in str(error)


def test_what_ray_says_of_full_disks_and_lost_workers_is_one_sentence_with_a_remedy():
    exceptions = pytest.importorskip("ray.exceptions", reason="Ray is not installed")
    said = str(explained(exceptions.OutOfDiskError("a long story")))
    assert said.startswith("The disk of a Ray worker is full. Free some space on it")
    assert "ran out of memory" in str(explained(exceptions.OutOfMemoryError("a long story")))
    said = str(explained(exceptions.WorkerCrashedError()))
    assert "again and again" in said
    assert "the same command goes on from there" in said
    own = RuntimeError("a mistake of ours")
    assert explained(own) is own


def test_weights_in_memory_and_a_numbered_gpu_are_refused():
    net = load("logmel")
    with pytest.raises(InputError, match="Ray gives every worker a GPU of its own"):
        RayEmbedding(net, device="cuda:1")
    net.name = "mn04"
    with pytest.raises(InputError, match="in memory only"):
        RayEmbedding(net)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install .daco-asd\[ray\]"), connected():
        pass


def test_an_address_needs_the_engine_ray(tmp_path):
    result = CliRunner().invoke(
        app, ["embed", str(tmp_path), "--out", str(tmp_path / "e.parquet"), "--address", "auto"]
    )
    assert isinstance(result.exception, InputError) or "choose the engine ray" in result.output
