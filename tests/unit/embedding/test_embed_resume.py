"""A killed run goes on where it was, never with stale vectors; here and in an object store."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys

import pytest
from object_store import ObjectStore, environment, object_server, unreachable
from small_clips import RATE, FakeNet, make_clips, write_clip

from daco.backbones import load
from daco.data.clips import ClipTable
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding import parts
from daco.embedding.embed import embed_clips
from daco.embedding.output import clips_left_out
from daco.embedding.provenance import origin_of
from daco.errors import AudioError, DataError, InputError
from daco.files.remote import parse_location


@pytest.fixture(scope="module")
def server():
    with object_server() as found:
        yield found


@pytest.fixture(autouse=True)
def small_parts(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "PART_SIZE", 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


class Here:
    """A folder of this computer with the interface of `ObjectStore`."""

    def __init__(self, root):
        self.root = root

    def uri(self, key):
        return str(self.root / key)

    def put(self, key, content):
        (self.root / key).parent.mkdir(parents=True, exist_ok=True)
        (self.root / key).write_bytes(content)

    def put_tree(self, folder, key):
        shutil.copytree(folder, self.root / key)
        return self.uri(key)

    def get(self, key):
        return (self.root / key).read_bytes()

    def keys(self, prefix):
        found = self.root.rglob("*")
        names = (path.relative_to(self.root).as_posix() for path in found if path.is_file())
        return sorted(n for n in names if n.startswith(prefix) and not n.endswith(".lock"))


@pytest.fixture(params=["local", "s3"])
def place(request, tmp_path):
    """Where recordings and tables are."""
    if request.param == "local":
        (tmp_path / "there").mkdir()
        return Here(tmp_path / "there")
    return ObjectStore(*request.getfixturevalue("server"))


@pytest.fixture
def clips(place, tmp_path):
    table = make_clips(tmp_path / "clips", 10, lengths=(800, 1600, 1000))
    return ClipTable(parse_location(place.put_tree(table.root, "clips")), table.clips)


class Interrupted(FakeNet):
    """Stops the run, as Ctrl-C does, after eight clips."""

    def embed_many(self, waveforms, readouts):
        if self.seen >= 8:
            raise KeyboardInterrupt
        return super().embed_many(waveforms, readouts)


@pytest.fixture
def interrupted(clips, place, tmp_path):
    """Two of three parts are finished."""
    with pytest.raises(KeyboardInterrupt):
        embed_clips(clips, Interrupted(), place.uri("e.parquet"), batch_size=1)
    assert len([*tmp_path.rglob("*.arrow")]) == 2
    return clips


def finish(clips, place, net=None, **options):
    net = net or FakeNet()
    report = embed_clips(clips, net, place.uri("e.parquet"), **options)
    assert place.keys("e.parquet") == ["e.parquet"]
    return report.reused, net.seen


def test_the_rest_is_embedded_and_the_bytes_are_those_of_one_run(interrupted, place, tmp_path):
    embed_clips(interrupted, FakeNet(), tmp_path / "whole.parquet")
    assert finish(interrupted, place, batch_size=3, workers=1) == (8, 2)
    assert place.get("e.parquet") == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_parts_of_other_settings_are_not_used(interrupted, place):
    assert finish(interrupted, place, readouts=["length"]) == (0, 10)


@pytest.mark.parametrize("place", ["local"], indirect=True)
@pytest.mark.parametrize("sha256", ["1" * 64, None])
def test_parts_of_other_or_unknown_weights_are_not_used(interrupted, place, sha256):
    for _ in range(2):
        assert finish(interrupted, place, FakeNet(weights_sha256=sha256)) == (0, 10)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_parts_of_another_version_are_not_used(interrupted, place, monkeypatch):
    monkeypatch.setattr("daco.embedding.provenance.__version__", "99.0")
    assert finish(interrupted, place) == (0, 10)


def test_a_recording_that_changed_is_embedded_again(interrupted, place, tmp_path):
    write_clip(tmp_path / "new.wav", 0.125, samples=900)
    place.put("clips/0005.wav", (tmp_path / "new.wav").read_bytes())
    assert finish(interrupted, place) == (4, 6)
    assert EmbeddingTable.read(place.uri("e.parquet")).matrix()[5, 0] == 0.125


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_finished_table_is_recognised_without_reading_recordings(clips, place, monkeypatch):
    net, out = FakeNet(), parse_location(place.uri("e.parquet"))
    embed_clips(clips, net, out)
    origin = origin_of(net, ["level"], 0)
    with monkeypatch.context() as patch:
        patch.setattr("daco.files.hashing.hashlib.file_digest", None)
        assert clips_left_out(clips, out, origin, skip=False) == 0
    assert clips_left_out(clips, out, origin, skip=False, verify=True) == 0
    place.put("clips/0005.wav", b"RIFF")
    for verify, compared in ((False, "sizes or times"), (True, "contents")):
        with pytest.raises(InputError, match=compared):
            clips_left_out(clips, out, origin, skip=False, verify=verify)


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_missing_recording_and_a_bad_one_are_skipped_and_listed(clips, place):
    place.client.delete_object(Bucket=place.bucket, Key="clips/0001.wav")
    place.put("clips/0002.wav", b"RIFF, but no more")
    with pytest.raises(AudioError, match=r"0001.wav: cannot be opened \(No such file"):
        embed_clips(clips, FakeNet(), place.uri("e.parquet"))
    report = embed_clips(clips, FakeNet(), place.uri("e.parquet"), on_error="skip")
    assert [path for path, _ in report.skipped] == ["0001.wav", "0002.wav"]
    assert "clips" not in "".join(reason for _, reason in report.skipped)


def test_no_clip_is_skipped_because_the_store_went_away(tmp_path):
    table = make_clips(tmp_path / "clips", 3)
    with environment(**unreachable(), AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x"):
        source = ClipTable(parse_location("s3://plant/clips"), table.clips)
        with pytest.raises(DataError, match="AWS_ENDPOINT_URL"):
            embed_clips(source, FakeNet(), tmp_path / "e.parquet", on_error="skip", workers=1)
    assert not (tmp_path / "e.parquet").exists()


KILLED = """
import os, signal, sys
from daco.backbones import load
from daco.data.sources import read_clips
from daco.embedding import parts
from daco.embedding.embed import embed_clips

parts.PART_SIZE = 2

def kill(done, total):
    if done >= int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)

options = {"batch_size": 1, "progress": kill}
embed_clips(read_clips(sys.argv[1]), load("logmel"), sys.argv[2], **options)
"""


@pytest.mark.parametrize("after", [1, 7])
@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_a_kill_costs_at_most_the_part_under_way(place, tmp_path, monkeypatch, after):
    monkeypatch.setattr(parts, "PART_SIZE", 2)
    folder = tmp_path / "clips"
    folder.mkdir()
    for index in range(8):
        write_clip(folder / f"{index}.wav", 0.1 * (index + 1), samples=RATE)
    source, out = place.put_tree(folder, "clips"), place.uri("e.parquet")
    command = [sys.executable, "-c", KILLED, source, out, str(after)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert "e.parquet" not in place.keys("e.parquet")
    net = load("logmel")
    report = embed_clips(read_clips(source), net, out)
    assert report.reused >= (after - 1) // 2 * 2
    embed_clips(read_clips(source), net, tmp_path / "whole.parquet")
    assert place.get("e.parquet") == (tmp_path / "whole.parquet").read_bytes()


def test_a_failed_write_leaves_what_was_finished(tmp_path, monkeypatch):
    table = make_clips(tmp_path / "clips", 10)
    written = []

    def full_at_the_third(path, content):
        if len(written) == 2:
            raise DataError("the disk is full")
        written.append(path)
        parts.write_part(path, content)

    with monkeypatch.context() as patch:
        patch.setattr("daco.embedding.embed.write_part", full_at_the_third)
        with pytest.raises(DataError, match="disk is full"):
            embed_clips(table, FakeNet(), tmp_path / "e.parquet")
    assert embed_clips(table, FakeNet(), tmp_path / "e.parquet").reused == 8
