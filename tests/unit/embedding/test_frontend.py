"""Listener: recordings become the vectors that `daco embed` makes, and odd sound is named."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from field_models import LOGMEL
from shared_data import shared
from two_microphones import RATE, write

from daco.audio.formats import AudioLimits
from daco.audio.quality import SILENT_RMS
from daco.backbones import load
from daco.data.sources import read_clips
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.frontend import Listener, cut
from daco.errors import AudioError, InputError, ModelError

MN04 = "899a8c6217063f6941793102a2780b3dd788ab11fce468d9cf5f0577c453321c"


@pytest.fixture(scope="module")
def listener():
    return Listener(LOGMEL)


def noise(seconds=10.0, level=0.1, seed=0, rate=RATE):
    return np.random.default_rng(seed).normal(0, level, round(seconds * rate)).astype(np.float32)


@pytest.mark.parametrize(
    ("suffix", "options"),
    [
        (".wav", {"subtype": "PCM_16"}),
        (".wav", {"subtype": "PCM_24"}),
        (".wav", {"subtype": "FLOAT"}),
        (".flac", {}),
        (".ogg", {}),
        (".aiff", {}),
        (".mp3", {}),
    ],
)
@pytest.mark.parametrize("rate", [16000, 22050])
def test_a_file_its_bytes_and_a_stream_are_heard_alike(tmp_path, listener, suffix, options, rate):
    path = write(tmp_path / f"a{suffix}", noise(2, rate=rate), rate, **options)
    heard = listener.embed(path)
    content = path.read_bytes()
    for source in (content, io.BytesIO(content)):
        other = listener.embed(source)
        np.testing.assert_allclose(other.embeddings, heard.embeddings, atol=1e-5)
        np.testing.assert_array_equal(other.levels, heard.levels)
        assert (other.seconds, other.sample_rate) == (heard.seconds, heard.sample_rate)
        assert other.reasons == heard.reasons


def test_a_network_with_weights(tmp_path):
    """mn04 on a real recording: its own rate, its resampler, its hash."""
    pytest.importorskip("torch", reason="networks need PyTorch")
    weights = shared("real", "mn04_as_mAP_432.pt")
    own = {"backbone": "mn04", "readout": "mean", "sample_rate": 32000, "resampler": "polyphase"}
    frontend = replace(LOGMEL, **own, weights_sha256=MN04)
    listener = Listener(frontend, weights=weights)
    path = sorted((shared("real", "audio", "fan", "train")).glob("*.flac"))[0]
    table = read_clips(path.parent.parent)
    single = replace(table, clips=tuple(clip for clip in table if clip.path.endswith(path.name)))
    embed_clips(single, load("mn04", weights), tmp_path / "e.parquet")
    expected = EmbeddingTable.read(tmp_path / "e.parquet").matrix()
    np.testing.assert_allclose(listener.embed(path).embeddings, expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(ModelError, match=r"000000000000.* 899a8c621706"):
        Listener(replace(frontend, weights_sha256="0" * 64), weights=weights)
    with pytest.raises(ModelError, match="32000 Hz with polyphase"):
        Listener(replace(frontend, sample_rate=16000), weights=weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"readout": "cls"}, "'cls'"),
        ({"weights_sha256": MN04}, "weights of logmel"),
        ({"resampler": "polyphase"}, "polyphase"),
    ],
)
def test_a_network_that_is_not_the_models_is_refused(change, message):
    with pytest.raises(ModelError, match=message):
        Listener(replace(LOGMEL, **change))


def test_a_model_of_other_embeddings_and_weights_that_nobody_needs_are_refused():
    with pytest.raises(ModelError, match="of your own"):
        Listener(None)
    with pytest.raises(InputError, match="has no weights"):
        Listener(LOGMEL, weights="x.pt")


def test_logmel_at_another_rate():
    listener = Listener(replace(LOGMEL, sample_rate=8000))
    assert listener.net.sample_rate == 8000
    assert listener.embed_waveform(noise(1, rate=8000), 8000).embeddings.shape[0] == 1
    with pytest.raises(InputError, match="16000 Hz"):
        listener.embed_waveform(noise(1), 16000)
    for wrong in (np.zeros((2, 8000)), 0.5, []):
        with pytest.raises(InputError, match="the shape"):
            listener.embed_waveform(wrong, 8000)


class TestReasons:
    @pytest.mark.parametrize("wave", [np.zeros(160_000), np.full(160_000, 0.25), noise(10, 2e-5)])
    def test_silent_with_or_without_an_offset(self, listener, tmp_path, wave):
        """A dead sensor may send a constant, or the last bit of its converter."""
        path = write(tmp_path / "a.wav", wave, subtype="PCM_24")
        (reason,) = listener.embed(path).reasons
        assert reason.startswith("silent: ")

    @pytest.mark.parametrize("rate", [16000, 48000])
    @pytest.mark.parametrize("top", [1.0, 0.4])
    def test_clipped_at_full_scale_or_before_the_gain(self, listener, tmp_path, rate, top):
        seconds = np.arange(10 * rate) / rate
        wave = np.clip(3 * top * np.sin(2 * np.pi * 180 * seconds), -top, top) * 0.99997
        (reason,) = listener.embed(write(tmp_path / "a.wav", wave, rate)).reasons
        assert reason.startswith("clipped: ")
        assert float(reason.split("%")[0].split()[-1]) > 50

    def test_quiet_is_not_silent_and_loud_is_not_clipped(self, listener):
        """A sine of full scale is at its top one sample at a time; so is a hammer."""
        sine = 0.99 * np.sin(2 * np.pi * 180 * np.arange(160_000) / RATE)
        hammer = noise(10, 0.05)
        hammer[::8000] = 0.999
        for wave in (noise(10, 3 * SILENT_RMS), sine, hammer):
            assert listener.embed_waveform(wave, RATE).reasons == ()

    @pytest.mark.parametrize(
        ("seconds", "usual", "kinds"),
        [(2, 10, ["short"]), (25, 10, ["long"]), (12, 10, []), (2, None, [])],
    )
    def test_of_another_length_than_the_normals(self, seconds, usual, kinds):
        other = Listener(replace(LOGMEL, seconds=usual))
        reasons = other.embed_waveform(noise(seconds), RATE).reasons
        assert [reason.partition(":")[0] for reason in reasons] == kinds
        assert other.embed_waveform(noise(seconds), RATE, window=1).reasons == ()


class TestWindows:
    def test_cover_the_recording_to_its_end(self, listener, tmp_path):
        wave = noise(25)
        path = write(tmp_path / "a.wav", wave, subtype="FLOAT")
        heard = listener.embed(path, window=10)
        assert heard.starts.tolist() == [0, 10, 15]
        assert heard.seconds == 25
        for start, row in zip(heard.starts, heard.embeddings, strict=True):
            part = wave[round(start * RATE) : round((start + 10) * RATE)]
            alone = listener.embed_waveform(part, RATE).embeddings[0]
            np.testing.assert_allclose(row, alone, rtol=1e-6, atol=1e-6)
        overlapping = listener.embed(path, window=10, hop=2.5)
        assert overlapping.starts.tolist() == [0, 2.5, 5, 7.5, 10, 12.5, 15]

    @pytest.mark.parametrize("samples", [100, 101, 199, 200, 205])
    @pytest.mark.parametrize("hop", [None, 0.3, 1.0])
    def test_every_sample_is_heard_once_at_least(self, samples, hop):
        starts, length = cut(samples, 10, 5.0, hop)
        covered = np.zeros(samples, int)
        for start in starts:
            covered[start : start + length] += 1
        assert covered.min() >= 1
        assert len(set(starts)) == len(starts)

    @pytest.mark.parametrize(
        ("window", "hop", "message"),
        [
            (0, None, "window"),
            (float("nan"), None, "window"),
            (float("inf"), None, "window"),
            (1, 0, "hop must be"),
            (None, 1, "hop needs a window"),
            (0.5, 1e-6, "too many"),
        ],
    )
    def test_that_cannot_be_are_refused(self, window, hop, message):
        with pytest.raises(InputError, match=message):
            cut(16_000_000, 16000, window, hop)


class TestUnusable:
    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "empty"),
            (b"hello, this is no sound at all", "known format"),
            (b"RIFF" + bytes(60), "not readable"),
        ],
    )
    def test_bytes_give_away_no_path(self, listener, content, message):
        for source in (content, io.BytesIO(content)):
            with pytest.raises(AudioError, match=message) as caught:
                listener.embed(source)
            assert "/" not in str(caught.value).replace("and/or", "")

    @pytest.mark.parametrize("limits", [AudioLimits(bytes=1000), AudioLimits(seconds=1)])
    def test_limits_hold_for_all_sources(self, listener, tmp_path, limits):
        path = write(tmp_path / "a.wav", noise(3))
        content = path.read_bytes()
        for source in (path, content, io.BytesIO(content)):
            with pytest.raises(AudioError, match=r"limit of 10*"):
                listener.embed(source, limits=limits)

    def test_a_stream_is_not_read_beyond_its_limit(self, listener):
        class Endless(io.RawIOBase):
            asked = 0

            def read(self, size=-1):
                assert 0 < size <= 1001
                Endless.asked += size
                return bytes(size)

        with pytest.raises(AudioError, match="more than the limit"):
            listener.embed(Endless(), limits=AudioLimits(bytes=1000))
        assert Endless.asked == 1001
