"""What is said where a Ray cluster cannot be used, as far as none is needed to find out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from typer.testing import CliRunner

from daco.backbones import load
from daco.commands.app import app
from daco.compute import ray as cluster
from daco.compute import require_engine
from daco.compute.ray import cluster_error, connection
from daco.data.clips import ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding import cluster as embedding
from daco.embedding.cluster import RayEmbedding
from daco.errors import DataError, InputError, MissingExtraError, WeightsError


@pytest.fixture
def ray():
    return pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture
def inputs(tmp_path):
    """What each command is given, and a folder for what it makes."""
    rng = np.random.default_rng(0)
    (tmp_path / "clips").mkdir()
    for index in range(4):
        wave = 0.1 * rng.normal(size=8000)
        soundfile.write(tmp_path / "clips" / f"{index}.wav", wave, 16000)
    table = tmp_path / "e.parquet"
    EmbeddingTable.from_arrays(
        rng.normal(size=(40, 4)), machine="fan", domain=["old"] * 30 + ["new"] * 10
    ).write(table)
    return {
        "embed": ("embed", tmp_path / "clips", "--out", tmp_path / "made.parquet"),
        "fit": ("fit", tmp_path / "clips", "--out", tmp_path / "made.daco"),
        "study": ("study", "--dev", table, "--out", tmp_path / "made"),
        "select": ("select", table, "--out", tmp_path / "made.json"),
    }


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("command", ["embed", "fit", "study", "select"])
def test_a_cluster_that_does_not_exist_is_one_sentence_of_every_command(inputs, command, tmp_path):
    place = ("--engine", "ray", "--address", "127.0.0.1:1")
    result = subprocess.run(
        [sys.executable, "-m", "daco.cli", *map(str, inputs[command]), *place],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr == (
        "error: There is no Ray cluster at 127.0.0.1:1 (Connection refused). Start one with 'ray "
        "start --head', or correct the address.\n"
    )
    assert not list(tmp_path.glob("made*.*"))


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_something_else_that_listens_is_not_waited_for(scheme, monkeypatch):
    monkeypatch.setattr(cluster, "PATIENCE", 0.5)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"{scheme}127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(DataError, match=r"\(something else answers there\)"):
            require_engine("ray", address)


@pytest.mark.usefixtures("ray")
@pytest.mark.parametrize("address", ["somewhere", "http://host:1", "host:port", "host:999999"])
def test_what_is_no_address_is_said(address):
    with pytest.raises(InputError, match="auto, host:6379 or ray://host:10001"):
        require_engine("ray", address)


@pytest.mark.usefixtures("ray")
def test_the_address_of_the_environment_is_looked_at_too(monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    with pytest.raises(DataError, match=r"no Ray cluster at 127\.0\.0\.1:1"):
        require_engine("ray")


def test_a_connection_that_failed_leaves_nothing_initialised(ray, monkeypatch):
    """Ray keeps to the client mode when a client does not come to be."""
    from ray._private import client_mode_hook

    tried = []

    def fail(*options, **named):
        tried.append(named["address"])
        client_mode_hook._explicitly_enable_client_mode()
        raise ConnectionAbortedError(
            "Initialization failure from server:\nTraceback\nRuntimeError: Starting Ray client "
            "server failed. See ray_client_server_23000.err for detailed logs."
        )

    monkeypatch.setattr(ray, "init", fail)
    monkeypatch.setattr(cluster, "require_cluster", lambda address: None)
    monkeypatch.setattr(cluster.time, "sleep", lambda seconds: None)
    with (
        pytest.raises(DataError, match=r"answers, but started no server .* 4 attempts.* less busy"),
        connection("ray://127.0.0.1:10001"),
    ):
        pass
    assert tried == ["ray://127.0.0.1:10001"] * 4
    assert not client_mode_hook.client_mode_should_convert()
    assert not ray.is_initialized()


@pytest.mark.usefixtures("ray")
def test_a_ray_that_cannot_be_started_here_is_said(inputs, tmp_path):
    """Its sockets are files, whose names may not be long."""
    long = tmp_path / ("x" * 120)
    long.mkdir()
    result = subprocess.run(
        [sys.executable, "-m", "daco.cli", *map(str, inputs["select"]), "--engine", "ray"],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "2000", "RAY_TMPDIR": str(long), "RAY_ADDRESS": ""},
    )
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("error: Ray could not be started on this computer (")
    assert line.endswith("), or use the engine local.")


def test_an_engine_that_does_not_exist_is_said():
    with pytest.raises(InputError, match="must be one of local, ray"):
        require_engine("dask")


def test_an_address_needs_the_engine_ray(tmp_path):
    (tmp_path / "clips").mkdir()
    options = ["--out", str(tmp_path / "e.parquet"), "--address", "auto"]
    result = CliRunner().invoke(app, ["embed", str(tmp_path / "clips"), *options])
    assert isinstance(result.exception, InputError)
    assert "needs the engine ray" in str(result.exception)


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"pip install .daco-asd\[ray\]"), connection():
        pass
    with pytest.raises(MissingExtraError, match=r"pip install .daco-asd\[ray\]"):
        require_engine("ray", "127.0.0.1:1")


# --- what a worker says of itself ---


def on_a_worker(recipe, root):
    return embedding.Embedder(recipe).embed(None, ClipTable(root, ()))


def test_recordings_that_a_worker_does_not_see_are_said(tmp_path):
    error = on_a_worker(embedding.Recipe("logmel"), tmp_path / "nowhere")
    assert isinstance(error, DataError)
    assert "nowhere is not a folder on this node. Keep the recordings where all nodes" in str(error)


def test_other_weights_on_a_worker_are_said(tmp_path, monkeypatch):
    net = load("logmel")
    monkeypatch.setattr(embedding, "load", lambda *options: net)
    recipe = embedding.Recipe("mn04", str(tmp_path / "gone.pt"), ("ab" * 32,))
    error = on_a_worker(recipe, tmp_path)
    assert isinstance(error, WeightsError)
    assert "not abababababab. Put the same file on all nodes." in str(error)


def test_a_full_disk_that_a_worker_meets_is_said(tmp_path, monkeypatch):
    def full(*options):
        raise OSError(28, "No space left on device", str(tmp_path / "x"))

    monkeypatch.setattr(embedding, "make_shards", full)
    error = on_a_worker(embedding.Recipe("logmel"), tmp_path)
    assert isinstance(error, DataError)
    assert "x: cannot be written (No space left on device). Free some space" in str(error)


def test_what_ray_says_is_one_sentence_with_a_remedy():
    exceptions = pytest.importorskip("ray.exceptions", reason="Ray is not installed")
    said = str(cluster_error(exceptions.OutOfDiskError("a long story")))
    assert said.startswith("The disk of a Ray node is full. Free some space on it")
    assert "ran out of memory" in str(cluster_error(exceptions.OutOfMemoryError("a long story")))
    said = str(cluster_error(exceptions.WorkerCrashedError()))
    assert "lost its workers repeatedly" in said
    assert "run the same command again" in said
    own = RuntimeError("a mistake of ours")
    assert cluster_error(own) is own


def test_weights_in_memory_and_a_numbered_gpu_are_refused():
    net = load("logmel")
    with pytest.raises(InputError, match="Ray gives every worker a GPU of its own"):
        RayEmbedding(net, device="cuda:1")
    net.name, net.has_weights = "mn04", True
    with pytest.raises(InputError, match="in memory only"):
        RayEmbedding(net)
