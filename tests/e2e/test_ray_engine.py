"""Work on a real Ray cluster of two nodes, one of which is killed, against work in this process."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from ray_cluster import (
    PATIENCE,
    SMALL,
    address_for_client,
    occupied_head,
    switch_off,
    workers_of,
)
from shared_data import shared
from small_runs import DEV, machine_table

from daco.backbones import load
from daco.data.clips import ClipTable
from daco.data.sources import read_clips
from daco.embedding.cluster import RayEmbedding
from daco.embedding.embed import embed_clips
from daco.errors import AudioError
from daco.experiments.study import study

pytestmark = [
    pytest.mark.cluster,
    # Ray's own: where no GPU is asked for, and the logs of the server that a test connects to.
    pytest.mark.filterwarnings("ignore:.*RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file .*ray_client_server:ResourceWarning"),
]

SHARD = 4


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


def comes_to_work(node):
    """Whether a node has an actor that embeds, or gets one in a while."""
    give_up = time.monotonic() + 10
    while time.monotonic() < give_up:
        if any("Embedder" in title for title in workers_of(node).values()):
            return True
        time.sleep(0.05)
    return False


def test_a_node_that_joins_is_put_to_work(cluster, clips, expected, tmp_path):
    joined, used = [], []

    def progress(done, total):
        if done and not joined:
            joined.append(cluster.add_node(**SMALL))
            cluster.wait_for_nodes(timeout=PATIENCE)
        if 0 < done < 50 and not used:
            used.extend(node for node in joined if comes_to_work(node))

    net, out = load("logmel"), tmp_path / "e.parquet"
    place = RayEmbedding(net, address=cluster.address)
    try:
        embed_clips(clips, net, out, engine=place, progress=progress, **OPTIONS)
    finally:
        cluster.remove_node(joined[0])
    assert used == joined
    assert out.read_bytes() == expected


def test_a_node_killed_while_embedding_changes_no_byte(cluster, second, clips, expected, tmp_path):
    seen = []

    def progress(done, total):
        seen.append(done)
        if second in cluster.worker_nodes and 0 < done < 50 and comes_to_work(second):
            switch_off(cluster, second)

    net, out = load("logmel"), tmp_path / "e.parquet"
    place = RayEmbedding(net, address=cluster.address)
    report = embed_clips(clips, net, out, engine=place, progress=progress, **OPTIONS)
    assert second not in cluster.worker_nodes
    assert out.read_bytes() == expected
    assert (report.clips, report.embedded, report.reused) == (59, 59, 0)
    assert seen == sorted(seen)
    assert seen[-1] == 60
    assert [each.name for each in tmp_path.iterdir()] == ["e.parquet"]


def test_a_computer_outside_the_cluster_gets_the_same_bytes(cluster, clips, expected, tmp_path):
    net, out = load("logmel"), tmp_path / "e.parquet"
    with address_for_client(cluster) as address:
        place = RayEmbedding(net, address=address)
        embed_clips(clips, net, out, engine=place, **OPTIONS)
    assert out.read_bytes() == expected


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
    there = tmp_path / "ray"
    with occupied_head(cluster, tmp_path) as release:

        def progress(stage, done, total):
            if done and second in cluster.worker_nodes:
                switch_off(cluster, second)
                release()

        study(dev, out=there, engine="ray", progress=progress, **options)
    assert second not in cluster.worker_nodes
    for name in ("clips.parquet", "criteria.parquet"):
        assert (there / name).read_bytes() == (tmp_path / "local" / name).read_bytes(), name


def test_a_machine_that_cannot_be_studied_is_named_as_it_is_here(cluster, tmp_path):
    dev = machine_table(tmp_path / "dev.parquet", DEV)
    said = []
    for options in ({"workers": 1}, {"engine": "ray", "address": cluster.address}):
        with pytest.raises(ValueError, match="No machine is left to work on") as caught:
            study(dev, grid=["raw-k1", "raw-k40"], n_splits=3, **options)
        said.append((type(caught.value), str(caught.value)))
    assert said[0] == said[1]
