"""Embedding many clips: order, batches, and what happens to files that are no sound."""

from __future__ import annotations

import json
import os
import resource
import signal
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
from small_clips import RATE, FakeNet, levels, make_clips

from daco.data.clips import ClipTable
from daco.data.manifest import write_manifest
from daco.data.table import EmbeddingTable
from daco.embedding import parts
from daco.embedding.embed import embed_clips
from daco.errors import DataError, InputError


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    monkeypatch.setattr(parts, "PART_SIZE", 4)


@pytest.fixture
def ten(tmp_path):
    return make_clips(tmp_path / "clips", 10, lengths=(800, 1600, 1000))


def test_rows_are_in_the_order_of_the_clips_whatever_the_batches(ten, tmp_path, monkeypatch):
    contents = set()
    out = tmp_path / "emb.parquet"
    for batch_size, workers, size in [(1, 1, 1), (4, 3, 4), (32, 2, 256), (2, 8, 7)]:
        monkeypatch.setattr(parts, "PART_SIZE", size)
        options = {"readouts": ["level", "length"], "batch_size": batch_size, "workers": workers}
        report = embed_clips(ten, FakeNet(), out, **options, force=True)
        assert (report.clips, report.embedded, report.reused, report.skipped) == (10, 10, 0, ())
        table = EmbeddingTable.read(out)
        assert table.column("path").tolist() == [clip.path for clip in ten]
        np.testing.assert_allclose(table.matrix()[:, 0], levels(10), rtol=1e-6)  # float32 file
        assert table.matrix("length")[:3, 0].tolist() == [800, 1600, 1000]
        assert table.column("attributes")[3] == {"n": "0003.wav"}
        contents.add(table.matrix().tobytes())
        assert sorted(each.name for each in tmp_path.iterdir()) == ["clips", "emb.parquet"]
    assert len(contents) == 1


def test_a_batch_has_few_large_recordings(ten, tmp_path, monkeypatch):
    monkeypatch.setattr("daco.embedding.parts._BLOCK_BYTES", 5000)
    net = FakeNet()
    embed_clips(ten, net, tmp_path / "e.parquet")
    assert max(count * samples for count, samples in net.batches) <= 2 * 1600


def test_the_metadata_says_where_the_vectors_came_from(ten, tmp_path):
    embed_clips(ten, FakeNet(), tmp_path / "e.parquet", channel="mix")
    metadata = dict(EmbeddingTable.read(tmp_path / "e.parquet").metadata)
    assert all(len(metadata.pop(name)) == 64 for name in ("recordings", "contents"))
    assert metadata == {
        "backbone": "fake",
        "weights_sha256": "0" * 64,
        "readouts": '["level"]',
        "precision": "fp32",
        "device": "cpu",
        "channel": "mix",
        "sample_rate": "8000",
        "resampler": "soxr",
        "version": __import__("daco").__version__,
        "skipped": "[]",
    }


def test_progress_counts_to_the_end(ten, tmp_path):
    calls = []
    embed_clips(ten, FakeNet(), tmp_path / "e.parquet", progress=lambda *c: calls.append(c))
    assert calls[0] == (0, 10)
    assert calls[-1] == (10, 10)
    assert calls == sorted(calls)


class Broken(FakeNet):
    def embed_many(self, waveforms, readouts):
        if self.batches:
            raise self.error
        return super().embed_many(waveforms, readouts)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("lost the device")])
def test_no_thread_outlives_an_error(ten, tmp_path, error):
    net = Broken()
    net.error = error
    with pytest.raises(type(error)):
        embed_clips(ten, net, tmp_path / "e.parquet", batch_size=1)
    assert not [each for each in threading.enumerate() if each.name.startswith("daco")]


def spoil(folder):
    """Every kind of bad file, by row, with a word of the reason."""
    (folder / "0000.wav").write_bytes(b"")
    (folder / "0002.wav").write_bytes(b"this is a text, not a sound\n" * 40)
    whole = (folder / "0003.wav").read_bytes()
    (folder / "0003.wav").write_bytes(whole[: len(whole) // 2])
    soundfile.write(folder / "0005.wav", np.array([0.1, np.nan], np.float32), RATE, subtype="FLOAT")
    soundfile.write(folder / "0006.flac", np.zeros(800), RATE)
    (folder / "0006.flac").replace(folder / "0006.wav")
    (folder / "0007.wav").unlink()
    os.mkfifo(folder / "0007.wav")  # nobody waits for it
    (folder / "0008.wav").unlink()
    return {0: "empty", 2: "readable", 3: "truncated", 5: "NaN", 6: "FLAC", 7: "regular", 8: "such"}


def test_skipped_clips_are_listed_with_their_reasons(ten, tmp_path):
    reasons = spoil(ten.root)
    out = tmp_path / "e.parquet"
    report = embed_clips(ten, FakeNet(), out)
    assert [path for path, _ in report.skipped] == [ten.clips[row].path for row in reasons]
    for (_, reason), word in zip(report.skipped, reasons.values(), strict=True):
        assert word in reason
        assert str(ten.root) not in reason  # the path is said once
    assert (report.clips, report.embedded) == (3, 3)
    table = EmbeddingTable.read(out)
    assert table.column("path").tolist() == ["0001.wav", "0004.wav", "0009.wav"]
    np.testing.assert_allclose(table.matrix()[:, 0], levels(10)[[1, 4, 9]], rtol=1e-6)
    listed = json.loads(table.metadata["skipped"])
    assert [(each["path"], each["reason"]) for each in listed] == list(report.skipped)


def test_no_clips_are_an_error(tmp_path):
    with pytest.raises(DataError, match="no clips"):
        embed_clips(ClipTable(tmp_path, ()), FakeNet(), tmp_path / "e.parquet")


def test_nothing_embedded_is_an_error_and_not_an_empty_table(ten, tmp_path):
    for clip in ten:
        (ten.root / clip.path).write_bytes(b"")
    with pytest.raises(DataError, match=r"0000\.wav: the file is empty"):
        embed_clips(ten, FakeNet(), tmp_path / "e.parquet")
    assert not (tmp_path / "e.parquet").exists()


class Picky(FakeNet):
    """Refuses what is louder than 0.85 and gives NaN for what is softer than 0.15."""

    def embed_many(self, waveforms, readouts):
        if np.abs(waveforms).max() > 0.85:
            raise InputError("waveforms are too loud")
        found = super().embed_many(waveforms, readouts)
        return {
            name: np.where(found["level"][:, :1] < 0.15, np.nan, values)
            for name, values in found.items()
        }


def test_a_clip_the_network_refuses_spoils_no_other_of_its_batch(ten, tmp_path):
    report = embed_clips(ten, Picky(), tmp_path / "e.parquet")
    assert dict(report.skipped) == {
        "0000.wav": "its fake embedding contains NaN or infinity",
        "0009.wav": "waveforms are too loud",
    }
    np.testing.assert_allclose(
        EmbeddingTable.read(report.out).matrix()[:, 0], levels(10)[1:9], rtol=1e-6
    )


def test_vectors_of_different_sizes_are_refused(ten, tmp_path):
    class Growing(FakeNet):
        def embed_many(self, waveforms, readouts):
            return {"level": np.ones((len(waveforms), waveforms.shape[1] // 100), np.float32)}

    with pytest.raises(DataError, match="Embed clips of different lengths separately"):
        embed_clips(ten, Growing(), tmp_path / "e.parquet")


def test_running_out_of_memory_says_what_to_do(ten, tmp_path):
    class Full(FakeNet):
        def embed_many(self, waveforms, readouts):
            raise MemoryError

    with pytest.raises(InputError, match="smaller --batch-size"):
        embed_clips(ten, Full(), tmp_path / "e.parquet")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readouts": ["cls"]}, "'cls'"),
        ({"readouts": ["level", "level"]}, "named twice"),
        ({"batch_size": 0}, "batch_size"),
        ({"workers": 0}, "workers"),
        ({"channel": "left"}, "'left'"),
    ],
)
def test_wrong_options_are_named_before_any_work(ten, tmp_path, options, message):
    net = FakeNet()
    with pytest.raises(InputError, match=message):
        embed_clips(ten, net, tmp_path / "e.parquet", **options)
    assert net.batches == []
    assert [each.name for each in tmp_path.iterdir()] == ["clips"]


def test_a_file_size_limit_is_one_sentence_and_not_a_crash(ten, tmp_path):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(DataError, match=r"cannot be written \(File too large\)"):
            embed_clips(ten, FakeNet(), tmp_path / "e.parquet")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [each.name for each in tmp_path.iterdir()] == ["clips"]


def test_eight_times_the_clips_take_the_same_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "PART_SIZE", 32)
    made = make_clips(tmp_path / "clips", 40, lengths=(4000,))
    peaks = []
    for count in (64, 64, 512):  # the first run imports
        clips = ClipTable(made.root, tuple(made.clips[row % 40] for row in range(count)))
        tracemalloc.start()
        embed_clips(clips, FakeNet(), tmp_path / "e.parquet", workers=2, force=True)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # The samples of 448 more clips are 7 MB; what is known of each clip is kept.
    _, few, many = peaks
    assert many - few < 2_000_000, peaks


def test_only_a_table_of_embeddings_is_ever_replaced(ten, tmp_path):
    notes, manifest = tmp_path / "notes.parquet", tmp_path / "manifest.parquet"
    notes.write_text("precious")
    write_manifest(ten, manifest)
    before = manifest.read_bytes()
    (tmp_path / "folder.parquet").mkdir()
    for out in (notes, manifest, tmp_path / "e.csv", tmp_path / "folder.parquet", Path(".")):
        with pytest.raises(DataError):
            embed_clips(ten, FakeNet(), out)
    assert notes.read_text() == "precious"
    assert manifest.read_bytes() == before
    for _ in range(2):  # its own table is replaced
        assert embed_clips(ten, FakeNet(), tmp_path / "e.parquet", force=True).embedded == 10
