"""A killed run goes on where it was, never with stale vectors; here and in an object store."""

from __future__ import annotations

import pytest
from object_store import ObjectStore, environment, object_server, unreachable
from small_clips import FakeNet, make_clips, write_clip

from daco.data.clips import ClipTable
from daco.data.table import EmbeddingTable
from daco.embedding import parts
from daco.embedding.embed import embed_clips
from daco.errors import DataError, InputError
from daco.files.remote import parse_location


@pytest.fixture(scope="module")
def server():
    with object_server() as found:
        yield found


@pytest.fixture(autouse=True)
def small_parts(monkeypatch, tmp_path):
    monkeypatch.setattr(parts, "PART_SIZE", 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(params=["local", "s3"])
def place(request, tmp_path):
    """The folder of recordings and tables."""
    if request.param == "local":
        (tmp_path / "there" / "clips").mkdir(parents=True)
        return tmp_path / "there"
    return parse_location(ObjectStore(*request.getfixturevalue("server")).uri("there"))


@pytest.fixture
def clips(place, tmp_path):
    table = make_clips(tmp_path / "clips", 10, lengths=(800, 1600, 1000))
    for clip in table:
        (place / "clips" / clip.path).write_bytes((table.root / clip.path).read_bytes())
    return ClipTable(place / "clips", table.clips)


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
        embed_clips(clips, Interrupted(), str(place / "e.parquet"), batch_size=1)
    assert len([*tmp_path.rglob("*.arrow")]) == 2
    return clips


def finish(clips, place, net=None, **options):
    net = net or FakeNet()
    report = embed_clips(clips, net, str(place / "e.parquet"), **options)
    files = [path.name for path in place.rglob("*.*") if path.suffix not in (".wav", ".lock")]
    assert files == ["e.parquet"]
    return report.reused, net.seen


def test_the_rest_is_embedded_and_the_bytes_are_those_of_one_run(interrupted, place, tmp_path):
    embed_clips(interrupted, FakeNet(), tmp_path / "whole.parquet")
    assert finish(interrupted, place, batch_size=3, workers=1) == (8, 2)
    assert (place / "e.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()


@pytest.mark.parametrize("place", ["local"], indirect=True)
@pytest.mark.parametrize(
    ("sha256", "readout"), [("0" * 64, "length"), ("1" * 64, "level"), (None, "level")]
)
def test_parts_of_other_readouts_or_weights_are_not_used(interrupted, place, sha256, readout):
    options = {"readouts": [readout], "force": True}
    for _ in range(2):
        assert finish(interrupted, place, FakeNet(weights_sha256=sha256), **options) == (0, 10)


@pytest.mark.parametrize("place", ["local"], indirect=True)
def test_parts_of_another_version_are_not_used(interrupted, place, monkeypatch):
    monkeypatch.setattr("daco.embedding.provenance.__version__", "99.0")
    assert finish(interrupted, place) == (0, 10)


def test_a_recording_that_changed_is_embedded_again(interrupted, place, tmp_path):
    write_clip(tmp_path / "new.wav", 0.125, samples=900)
    (place / "clips" / "0005.wav").write_bytes((tmp_path / "new.wav").read_bytes())
    assert finish(interrupted, place) == (4, 6)
    assert EmbeddingTable.read(place / "e.parquet").matrix()[5, 0] == 0.125


@pytest.mark.parametrize("place", ["s3"], indirect=True)
def test_a_finished_table_is_recognised_without_reading_recordings(clips, place, monkeypatch):
    finish(clips, place)
    with monkeypatch.context() as patch:
        patch.setattr("daco.files.hashing.hashlib.file_digest", None)
        assert finish(clips, place) == (10, 0)
    assert finish(clips, place, verify=True) == (10, 0)
    (place / "clips" / "0005.wav").write_bytes(b"RIFF")
    for verify, compared in ((False, "sizes or times"), (True, "contents")):
        with pytest.raises(InputError, match=compared):
            finish(clips, place, verify=verify)


def test_no_clip_is_skipped_because_the_store_went_away(tmp_path):
    table = make_clips(tmp_path / "clips", 3)
    with environment(**unreachable(), AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x"):
        source = ClipTable(parse_location("s3://plant/clips"), table.clips)
        with pytest.raises(DataError, match="AWS_ENDPOINT_URL"):
            embed_clips(source, FakeNet(), tmp_path / "e.parquet", workers=1)
    assert not (tmp_path / "e.parquet").exists()
