"""Recordings on disk: named by their content, bounded, never outside of their folder; pictures."""

from __future__ import annotations

import hashlib
import io
import os
from importlib.resources import files

import numpy as np
import pytest
from matplotlib.image import imread
from service_process import RATE, wav

from daco.audio.formats import DEFAULT_LIMITS, FORMATS
from daco.backbones.classical import mel_filters
from daco.errors import AudioError, DataError
from daco.monitoring.service.recordings import (
    MEDIA_TYPES,
    WIDTH,
    ZOOM,
    Recordings,
    draw_spectrogram,
    find_normals,
    find_within,
    palette,
    sha256_of_recording,
)


def keep(recordings: Recordings, data: bytes) -> str:
    return recordings.keep(hashlib.sha256(data).hexdigest(), data)


def test_a_recording_is_kept_under_the_hash_of_its_content(tmp_path):
    recordings = Recordings(tmp_path / "clips", 1000)
    name = keep(recordings, b"RIFFabc")
    sha256 = hashlib.sha256(b"RIFFabc").hexdigest()
    assert name == f"{sha256[:2]}/{sha256}.wav"
    path = recordings.find(name)
    assert path.read_bytes() == b"RIFFabc"
    assert MEDIA_TYPES[path.suffix] == "audio/wav"
    assert (tmp_path / "clips").stat().st_mode & 0o077 == 0


def test_the_oldest_go_first_and_what_is_used_again_is_not_old(tmp_path):
    recordings = Recordings(tmp_path, 25)
    first, second, third = (keep(recordings, b"RIFF" + bytes([n]) * 6) for n in range(3))
    assert recordings.find(first) is None
    assert recordings.find(third).is_file()
    keep(recordings, b"RIFF" + bytes([1]) * 6)
    fourth = keep(recordings, b"RIFF" + bytes([3]) * 6)
    assert recordings.find(third) is None
    assert recordings.find(second).is_file()
    assert recordings.find(fourth).is_file()
    assert recordings.bytes == 20
    assert len(list(tmp_path.glob("*/*"))) == 2


def test_a_recording_is_kept_once_however_small_the_bound_until_it_is_removed(tmp_path):
    recordings = Recordings(tmp_path, 0)
    name = keep(recordings, b"RIFFabc")
    assert keep(recordings, b"RIFFabc") == name
    assert recordings.bytes == 7
    path = recordings.find(name)
    recordings.remove((name, "no/such.wav", "../x"))
    assert not path.exists()
    assert recordings.bytes == 0
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="cannot be created"):
        Recordings(tmp_path / "file" / "clips", 10)


def test_a_restart_knows_what_is_there_and_its_order(tmp_path):
    before = Recordings(tmp_path, 1000)
    old, new = keep(before, b"RIFFold"), keep(before, b"RIFFnew")
    os.utime(before.find(old), ns=(1, 1))
    (tmp_path / "zz").mkdir()
    (tmp_path / "zz" / "other.txt").write_text("not ours")
    after = Recordings(tmp_path, 15)
    assert after.bytes == 14
    keep(after, b"RIFF!!!")
    assert after.find(old) is None
    assert after.find(new).is_file()
    assert (tmp_path / "zz" / "other.txt").is_file()


def test_what_is_used_again_is_not_removed_with_its_first_use(tmp_path):
    recordings = Recordings(tmp_path, 1000)
    once, again = keep(recordings, b"RIFFone"), keep(recordings, b"RIFFtwo")
    for name in (once, again):
        os.utime(recordings.find(name), (1000, 1000))
    keep(recordings, b"RIFFtwo")
    recordings.remove((once, again), before=2000)
    assert recordings.find(once) is None
    assert recordings.find(again).is_file()


@pytest.mark.parametrize(
    "name",
    [
        "../secret.wav",
        "/etc/passwd",
        "ab/../../secret.wav",
        f"ab/{'a' * 64}.wav\n",
        f"ab/{'a' * 64}.txt",
        f"AB/{'A' * 64}.wav",
        f"ab/{'a' * 64}.wav",  # one of ours, but not there
        "",
        None,
    ],
)
def test_no_name_of_a_database_leads_elsewhere(tmp_path, name):
    (tmp_path / "secret.wav").write_bytes(b"RIFF")
    assert Recordings(tmp_path / "clips", 1000).find(name) is None


@pytest.mark.parametrize(
    ("data", "suffix"),
    [(b"RIFF", ".wav"), (b"RF64", ".wav"), (b"fLaC", ".flac"), (b"OggS", ".ogg"), (b"ID3", ".mp3")],
)
def test_the_extension_follows_from_the_content(tmp_path, data, suffix):
    assert Recordings(tmp_path, 1000).keep("ab" * 32, data) == f"ab/{'ab' * 32}{suffix}"


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_that_is_read_is_served_and_accepted_by_the_page(suffix):
    page = (files("daco.monitoring.service") / "page" / "index.html").read_text()
    accepted = page.partition('accept="')[2].partition('"')[0].split(",")
    assert suffix in accepted
    assert MEDIA_TYPES[suffix].startswith("audio/")


class TestNormals:
    @pytest.fixture
    def folder(self, tmp_path):
        for place in ("normals/train/a.wav", "normals/press/train/b.wav", "secret/c.wav"):
            (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / place).write_bytes(b"RIFF")
        (tmp_path / "normals" / "secret.txt").write_text("x")
        (tmp_path / "normals" / "link.wav").symlink_to(tmp_path / "secret" / "c.wav")
        (tmp_path / "normals" / "inner.wav").symlink_to(tmp_path / "normals" / "train" / "a.wav")
        return tmp_path / "normals"

    @pytest.mark.parametrize(
        ("name", "found"),
        [
            ("train/a.wav", ["train/a.wav"]),
            ("normals/train/a.wav", ["train/a.wav"]),  # named from one folder above
            ("train/b.wav", ["press/train/b.wav"]),  # in a folder of the machine
            ("inner.wav", ["train/a.wav"]),
            ("a.wav", []),  # another folder's file of that name is another recording
            ("fan/train/a.wav", []),
            ("../secret/c.wav", []),
            ("train/../../secret/c.wav", []),
            ("..\\secret\\c.wav", []),
            ("link.wav", []),
            ("secret.txt", []),
            ("train", []),
            ("", []),
            ("/etc/passwd", []),
            ("/", []),
        ],
    )
    def test_names_are_found_and_lead_nowhere_else(self, folder, name, found):
        assert find_normals(folder, "press", name) == [folder / each for each in found]

    def test_a_full_path_is_found_within_the_folder_only(self, folder):
        assert find_normals(folder, "../secret", "c.wav") == []
        inside, outside = folder / "train" / "a.wav", folder.parent / "secret" / "c.wav"
        assert find_normals(folder, "press", str(inside)) == [inside]
        assert find_normals(folder, "press", str(outside)) == []
        assert find_within((folder,), str(inside)) == inside
        assert find_within((), str(inside)) is None
        assert find_within((folder,), str(folder / "secret.txt")) is None

    def test_a_name_that_is_there_twice_is_found_twice(self, folder):
        mine = folder / "press" / "train" / "a.wav"
        mine.write_bytes(b"RIFFmine")
        expected = [folder / "train" / "a.wav", mine]
        assert find_normals(folder, "press", "train/a.wav") == expected


def test_the_hash_of_a_file_is_that_of_its_present_content(tmp_path):
    path, other = tmp_path / "a.wav", tmp_path / "b.wav"
    path.write_bytes(b"one")
    assert sha256_of_recording(path) == hashlib.sha256(b"one").hexdigest()
    before = path.stat()
    other.write_bytes(b"two")  # as long, and with the same time of change
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)
    assert sha256_of_recording(path) == hashlib.sha256(b"two").hexdigest()
    path.unlink()
    assert sha256_of_recording(path) is None
    with path.open("wb") as file:
        file.truncate(DEFAULT_LIMITS.bytes + 1)  # too large for a recording: it is not read
    assert sha256_of_recording(path) is None


@pytest.fixture
def tone(tmp_path):
    """Silence, then a tone of 2 kHz."""
    t = np.arange(2 * RATE) / RATE
    path = tmp_path / "tone.wav"
    path.write_bytes(wav(np.where(t < 1, 0, 0.5 * np.sin(2 * np.pi * 2000 * t))))
    return path


def draw(path, theme="light"):
    return draw_spectrogram(path, theme, RATE, DEFAULT_LIMITS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tone_is_where_it_sounds_and_as_high_as_it_is(tone, theme):
    image = imread(io.BytesIO(draw(tone, theme)))
    quiet = np.frombuffer(palette(theme)[:3], np.uint8) / 255
    away = np.abs(image[..., :3] - quiet).sum(axis=2)
    height, width = away.shape
    assert height == 128 * ZOOM
    assert away[:, : width // 2 - 5].max() < away[:, width // 2 + 5 :].max()
    row = int(away[:, width // 2 + 5 :].mean(axis=1).argmax())
    centres = mel_filters(RATE, 2048).argmax(axis=1) * RATE / 2048
    assert centres[127 - row // ZOOM] == pytest.approx(2000, rel=0.05)


def test_long_recordings_become_no_wider(tmp_path):
    path = tmp_path / "long.wav"
    path.write_bytes(wav(np.random.default_rng(0).normal(0, 0.1, 60 * RATE)))
    assert imread(io.BytesIO(draw(path))).shape[1] <= WIDTH


def test_what_cannot_be_drawn_says_so_without_its_path(tmp_path):
    short, damaged = tmp_path / "short.wav", tmp_path / "damaged.wav"
    short.write_bytes(wav(np.zeros(10)))
    damaged.write_bytes(b"RIFF....WAVE")
    for path in (short, damaged, tmp_path / "missing.wav"):
        with pytest.raises(AudioError) as caught:
            draw(path)
        assert str(tmp_path) not in str(caught.value)
