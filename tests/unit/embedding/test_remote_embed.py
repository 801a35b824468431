"""Embedding from and to object stores: the bytes of a local run, and resuming after a kill."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest
from object_store import ObjectStore, closed_port, object_server
from shared_data import shared
from small_clips import RATE, FakeNet, make_clips, write_clip

from daco.backbones import load
from daco.data.clips import ClipTable
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding import shards
from daco.embedding.embed import embed_clips
from daco.errors import AudioError, DataError
from daco.files.remote import parse_location
from daco.files.stores import RemotePath


@pytest.fixture(scope="module")
def server():
    with object_server() as found:
        yield found


@pytest.fixture
def store(server):
    return ObjectStore(*server)


class Interrupted(FakeNet):
    """Stops the run, as Ctrl-C does, after some clips."""

    def embed_many(self, waveforms, readouts):
        if self.seen >= 8:
            raise KeyboardInterrupt
        return super().embed_many(waveforms, readouts)


def remote(store, table, key="clips"):
    store.put_tree(table.root, key)
    return ClipTable(parse_location(store.uri(key)), table.clips)


@pytest.mark.parametrize("to", ["remote", "local"])
@pytest.mark.parametrize("of", ["remote", "local"])
def test_real_recordings_give_the_bytes_of_a_local_run(store, tmp_path, of, to):
    machine = shared("real", "audio", "bearing")
    here = tmp_path / "bearing"
    for split in ("train", "test"):
        (here / split).mkdir(parents=True)
        for path in sorted((machine / split).glob("*.flac"))[:6]:
            shutil.copy(path, here / split)
    shutil.copy(machine / "attributes_00.csv", here)
    net = load("logmel")
    expected = tmp_path / "expected.parquet"
    embed_clips(read_clips(here), net, expected, shard_size=5)
    source = store.put_tree(here, "bearing") if of == "remote" else here
    out = store.uri("tables/emb.parquet") if to == "remote" else tmp_path / "emb.parquet"
    table = read_clips(source)
    report = embed_clips(table, net, out, shard_size=5)
    assert report.embedded == 12
    assert parse_location(out).read_bytes() == expected.read_bytes()
    assert store.keys("tables") == (["tables/emb.parquet"] if to == "remote" else [])


def test_an_interrupted_run_goes_on_from_what_is_in_the_store(store, tmp_path):
    table = make_clips(tmp_path / "clips", 10, lengths=(800, 1600, 1000))
    expected = tmp_path / "e.parquet"
    embed_clips(table, FakeNet(), expected, shard_size=4)
    source, out = remote(store, table), store.uri("e.parquet")
    with pytest.raises(KeyboardInterrupt):
        embed_clips(source, Interrupted(), out, shard_size=4, batch_size=1)
    kept = store.keys("e.parquet")
    assert kept == [
        "e.parquet.shards/000000000-000000004.arrow",
        "e.parquet.shards/000000004-000000008.arrow",
    ]
    net = FakeNet()
    report = embed_clips(source, net, out, shard_size=4)
    assert (net.seen, report.reused, report.embedded) == (2, 8, 2)
    assert store.get("e.parquet") == expected.read_bytes()
    assert store.keys("e.parquet") == ["e.parquet"]


@pytest.mark.parametrize("settled", [True, False], ids=["older", "just written"])
def test_a_recording_that_changed_is_embedded_again(store, tmp_path, monkeypatch, settled):
    """Also where size and time stayed: an object's time has whole seconds only."""
    if settled:
        monkeypatch.setattr(shards, "_SETTLED", -10.0)
    table = make_clips(tmp_path / "clips", 10)
    source, out = remote(store, table), store.uri("e.parquet")
    with pytest.raises(KeyboardInterrupt):
        embed_clips(source, Interrupted(), out, shard_size=4, batch_size=1)
    if settled:
        time.sleep(1.1)
    write_clip(tmp_path / "new.wav", 0.125)
    store.put("clips/0005.wav", (tmp_path / "new.wav").read_bytes())
    net = FakeNet()
    embed_clips(source, net, out, shard_size=4)
    assert net.seen == 6
    assert EmbeddingTable.read(out).matrix()[5, 0] == 0.125


def test_recordings_that_have_not_changed_are_not_fetched_again(store, tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "_SETTLED", -10.0)
    source = remote(store, make_clips(tmp_path / "clips", 10))
    out = store.uri("e.parquet")
    with pytest.raises(KeyboardInterrupt):
        embed_clips(source, Interrupted(), out, shard_size=4, batch_size=1)
    fetched = []
    real = RemotePath.fetch

    def fetch(path, *limit):
        fetched.append(path.name)
        return real(path, *limit)

    monkeypatch.setattr(RemotePath, "fetch", fetch)
    embed_clips(source, FakeNet(), out, shard_size=4)
    assert sorted(n for n in fetched if n.endswith(".wav")) == ["0008.wav", "0009.wav"]


def test_what_is_no_table_of_ours_is_not_replaced(store, tmp_path):
    store.put("other.parquet", b"somebody else's")
    with pytest.raises(DataError, match="was not written by this command"):
        embed_clips(make_clips(tmp_path / "clips", 3), FakeNet(), store.uri("other.parquet"))
    assert store.get("other.parquet") == b"somebody else's"


def test_a_missing_object_and_a_bad_one_are_skipped_and_listed(store, tmp_path):
    source = remote(store, make_clips(tmp_path / "clips", 4))
    store.client.delete_object(Bucket=store.bucket, Key="clips/0001.wav")
    store.put("clips/0002.wav", b"RIFF, but no more")
    with pytest.raises(AudioError, match=r"0001.wav: cannot be opened \(No such file"):
        embed_clips(source, FakeNet(), store.uri("e.parquet"))
    report = embed_clips(source, FakeNet(), store.uri("e.parquet"), on_error="skip")
    assert [path for path, _ in report.skipped] == ["0001.wav", "0002.wav"]
    assert "s3://" not in "".join(reason for _, reason in report.skipped)


def test_no_clip_is_skipped_because_the_store_went_away(tmp_path):
    """Whoever leaves out what cannot be read must not leave out what cannot be reached."""
    table = make_clips(tmp_path / "clips", 3)
    gone = f"?endpoint_override=127.0.0.1:{closed_port()}&scheme=http&region=us-east-1"
    source = ClipTable(parse_location(f"s3://plant/clips{gone}"), table.clips)
    with pytest.raises(DataError, match=r"plant cannot be reached \(Failed to connect .*\)\. Che"):
        embed_clips(source, FakeNet(), tmp_path / "e.parquet", on_error="skip", workers=1)
    assert not (tmp_path / "e.parquet").exists()


def test_shards_of_other_settings_are_noticed(store, tmp_path, monkeypatch):
    """Two runs on one output must not mix the vectors of two networks."""

    def overtaken(folder, shard):
        shards.write_shard(folder, replace(shard, settings="of another network"))

    monkeypatch.setattr("daco.embedding.embed.write_shard", overtaken)
    table = make_clips(tmp_path / "clips", 8)
    with pytest.raises(DataError, match="another run changed or deleted"):
        embed_clips(table, FakeNet(), store.uri("e.parquet"), shard_size=4)
    assert store.keys("e.parquet")[0] != "e.parquet"


def test_two_runs_at_once_leave_the_table_of_one(store, tmp_path):
    """The second finds the shards of the first, or makes the same ones."""
    source = remote(store, make_clips(tmp_path / "clips", 8))
    out = store.uri("e.parquet")

    class Second(FakeNet):
        def embed_many(self, waveforms, readouts):
            if not self.seen:
                embed_clips(source, FakeNet(), out, shard_size=4)
            return super().embed_many(waveforms, readouts)

    with contextlib.suppress(DataError):  # the first one has removed the shards
        embed_clips(source, Second(), out, shard_size=4)
    embed_clips(source, FakeNet(), tmp_path / "e.parquet", shard_size=4)
    assert store.get("e.parquet") == (tmp_path / "e.parquet").read_bytes()


KILLED = """
import os, signal, sys
from daco.backbones import load
from daco.data.sources import read_clips
from daco.embedding.embed import embed_clips

def kill(done, total):
    if done >= 6:
        os.kill(os.getpid(), signal.SIGKILL)

embed_clips(read_clips(sys.argv[1]), load("logmel"), sys.argv[2], shard_size=2, progress=kill)
"""


def test_a_killed_run_is_resumed(store, tmp_path):
    folder = tmp_path / "clips"
    folder.mkdir()
    for index in range(8):
        write_clip(folder / f"{index}.wav", 0.1 * (index + 1), samples=RATE)
    expected = tmp_path / "e.parquet"
    embed_clips(read_clips(folder), load("logmel"), expected, shard_size=2)
    source, out = store.put_tree(folder, "clips"), store.uri("e.parquet")
    command = [sys.executable, "-c", KILLED, source, out]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert any(key.endswith(".arrow") for key in store.keys("e.parquet.shards"))
    report = embed_clips(read_clips(source), load("logmel"), out, shard_size=2)
    assert report.reused >= 2
    assert store.get("e.parquet") == expected.read_bytes()
