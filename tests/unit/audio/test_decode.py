"""Decoding: what comes out is right, and every bad file ends in an error that names it."""

from __future__ import annotations

import dataclasses
import os
import struct

import numpy as np
import pytest
import soundfile
from scipy.signal import resample_poly

from daco.audio.decode import AudioInfo, Decoder, probe, read_audio
from daco.audio.formats import AudioLimits
from daco.errors import AudioError, InputError

RATE = 16000


@pytest.fixture
def stereo():
    t = np.arange(RATE) / RATE
    return np.stack(
        [0.5 * np.sin(2 * np.pi * 440 * t), 0.25 * np.cos(2 * np.pi * 1000 * t)], 1
    ).astype(np.float32)


@pytest.fixture
def stereo_wav(tmp_path, stereo):
    path = tmp_path / "clip.wav"
    soundfile.write(path, stereo, RATE, subtype="FLOAT")
    return path


def refused(path, *words, **options):
    with pytest.raises(AudioError) as caught:
        read_audio(path, **options)
    message = str(caught.value)
    assert str(path) in message
    for word in words:
        assert word in message


def wav_header(n_bytes, *, claimed=None, rate=RATE, channels=1, bits=16):
    claimed = n_bytes if claimed is None else claimed
    block = channels * bits // 8
    head = struct.pack("<4sI4s4sIHHIIHH", b"RIFF", (36 + claimed) & 0xFFFFFFFF, b"WAVE", b"fmt ",
                       16, 1, channels, rate, (rate * block) & 0xFFFFFFFF, block, bits)  # fmt: skip
    return head + struct.pack("<4sI", b"data", claimed)


def test_channels_are_chosen_by_index_or_mixed(stereo_wav, stereo):
    np.testing.assert_array_equal(read_audio(stereo_wav), stereo[:, 0])
    np.testing.assert_array_equal(read_audio(stereo_wav, channel=1), stereo[:, 1])
    mixed = read_audio(stereo_wav, channel="mix")
    np.testing.assert_allclose(mixed, stereo.mean(axis=1), atol=1e-7)
    assert mixed.dtype == np.float32
    assert probe(stereo_wav) == AudioInfo(sample_rate=RATE, channels=2, seconds=1.0)
    refused(stereo_wav, "no channel 2", "has 2", channel=2)


@pytest.mark.parametrize("rate", [8000, 22050, 32000, 48000])
def test_resampling_keeps_the_duration_and_the_tone(stereo_wav, rate):
    wave = read_audio(stereo_wav, sample_rate=rate)
    assert abs(len(wave) - rate) <= 1
    t = np.arange(len(wave)) / rate
    inner = slice(rate // 10, -rate // 10)  # the filter rings at the edges
    np.testing.assert_allclose(wave[inner], 0.5 * np.sin(2 * np.pi * 440 * t)[inner], atol=2e-3)


def test_blocks_join_without_a_seam(tmp_path, monkeypatch, stereo):
    path = tmp_path / "clip.flac"
    soundfile.write(path, stereo, RATE)
    whole = read_audio(path, channel=1)
    monkeypatch.setattr("daco.audio.decode._BLOCK_VALUES", 2000)
    np.testing.assert_array_equal(read_audio(path, channel=1), whole)


@pytest.mark.parametrize("extension", [".wav", ".flac", ".ogg", ".aiff"])
def test_truncated_files_are_errors(tmp_path, extension):
    path = tmp_path / f"clip{extension}"
    soundfile.write(path, 0.1 * np.random.default_rng(0).normal(size=4 * RATE), RATE)
    path.write_bytes(path.read_bytes()[: os.path.getsize(path) // 2])
    refused(path)


def test_a_lying_header_allocates_nothing_and_that_of_a_pipe_is_no_lie(tmp_path):
    path = tmp_path / "lie.wav"
    path.write_bytes(wav_header(0, claimed=0xFFFFFF00, channels=2) + bytes(400))
    refused(path, "truncated")
    with pytest.raises(AudioError, match="truncated"):
        probe(path)
    path.write_bytes(wav_header(0, claimed=0xFFFFFFFF) + bytes(3200))
    assert read_audio(path).shape == (1600,)


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"bytes": 1000}, "bytes"),
        ({"values": 2 * RATE - 1}, "channels"),
        ({"seconds": 0.9}, "1.0 s"),
        ({"max_rate": 8000}, "16000 Hz"),
    ],
)
def test_limits_hold_before_decoding(stereo_wav, monkeypatch, limits, word):
    monkeypatch.setattr("soundfile.SoundFile.read", None)  # decoding would now raise a TypeError
    refused(stereo_wav, word, limits=AudioLimits(**limits))


def test_the_length_after_resampling_is_limited(stereo_wav):
    limits = dataclasses.replace(AudioLimits(), values=40_000)
    assert len(read_audio(stereo_wav, limits=limits)) == RATE
    refused(stereo_wav, "48000 samples", sample_rate=48_000, limits=limits)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_samples_that_are_no_numbers_are_refused(tmp_path, stereo, value):
    stereo[123, 0] = value
    path = tmp_path / "nan.wav"
    soundfile.write(path, stereo, RATE, subtype="FLOAT")
    refused(path, "sample 123")
    assert np.isfinite(read_audio(path, channel=1)).all()
    soundfile.write(path, np.full(100, 1e30), RATE, subtype="DOUBLE")
    refused(path, "1e+30")


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("empty.wav", b"", "empty"),
        ("text.wav", b"this is no recording" * 100, "not readable"),
        ("noise.flac", np.random.default_rng(0).bytes(5000), "not readable"),
        ("notes.txt", b"hello", "extension '.txt'"),
        ("voice.vox", bytes(1000), "extension '.vox'"),
        ("head.wav", wav_header(0), "0 frames"),
        ("slow.wav", wav_header(3200, rate=500) + bytes(3200), "500 Hz"),
        ("fast.wav", wav_header(3200, rate=10**6) + bytes(3200), "1000000 Hz"),
        ("channels.wav", wav_header(3200, channels=0) + bytes(3200), ""),
        ("rate.wav", wav_header(3200, rate=0) + bytes(3200), ""),
        ("short.wav", b"RIFF", "not readable"),
        ("hollow.wav", b"RIFF\x10\x00\x00\x00WAVE" + b"junk\x00\x00\x00\x00" * 3000, ""),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, name, content, word):
    path = tmp_path / name
    path.write_bytes(content)
    refused(path, word)


def test_a_wrong_extension_is_named(tmp_path, stereo):
    path = tmp_path / "clip.flac"
    soundfile.write(path, stereo, RATE)
    refused(path.rename(tmp_path / "clip.wav"), "extension is .wav", "content is FLAC")


def test_paths_that_are_no_files_are_refused(tmp_path):
    refused(tmp_path / "missing.wav", "No such file")
    (tmp_path / "folder.wav").mkdir()
    refused(tmp_path / "folder.wav", "not a regular file")
    os.mkfifo(tmp_path / "pipe.wav")
    refused(tmp_path / "pipe.wav", "not a regular file")


def test_content_that_was_read_already_is_decoded_in_place_of_the_file(stereo_wav, stereo):
    content = stereo_wav.read_bytes()
    stereo_wav.unlink()
    sound = Decoder(RATE).decode(stereo_wav, content)
    np.testing.assert_array_equal(sound.native, stereo[:, 0])
    assert (sound.rate, sound.channels) == (RATE, 2)
    with pytest.raises(AudioError, match=r"^not audio of a known format"):
        Decoder().decode(b"no recording" * 100)


def test_the_polyphase_resampler_is_scipys(tmp_path):
    wave = np.random.default_rng(0).uniform(-0.5, 0.5, 1600).astype(np.float32)
    soundfile.write(tmp_path / "a.wav", wave, 16_000, subtype="FLOAT")
    got = read_audio(tmp_path / "a.wav", sample_rate=32_000, resampler="polyphase")
    np.testing.assert_array_equal(got, resample_poly(wave, 2, 1).astype(np.float32))
    for options in ({"resampler": "linear"}, {"sample_rate": 0}):
        with pytest.raises(InputError, match=next(iter(options))):
            read_audio(tmp_path / "a.wav", **{"sample_rate": 32_000, **options})
