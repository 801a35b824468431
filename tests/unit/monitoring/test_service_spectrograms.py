"""Spectrograms: a PNG that others can read, and the sound where it belongs in it."""

from __future__ import annotations

import io

import numpy as np
import pytest
from matplotlib.image import imread
from service_process import RATE, wav

from daco.audio.formats import DEFAULT_LIMITS
from daco.backbones.logmel import mel_filters
from daco.errors import AudioError
from daco.monitoring.service.recordings import WIDTH, ZOOM, draw_spectrogram, palette


@pytest.fixture
def tone(tmp_path):
    """Silence, then a tone of 2 kHz."""
    t = np.arange(2 * RATE) / RATE
    path = tmp_path / "tone.wav"
    path.write_bytes(wav(np.where(t < 1, 0, 0.5 * np.sin(2 * np.pi * 2000 * t))))
    return path


def drawn(path, theme="light"):
    return draw_spectrogram(path, theme, RATE, DEFAULT_LIMITS)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_tone_is_where_it_sounds_and_as_high_as_it_is(tone, theme):
    image = imread(io.BytesIO(drawn(tone, theme)))
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
    assert imread(io.BytesIO(drawn(path))).shape[1] <= WIDTH


def test_what_cannot_be_drawn_says_so_without_its_path(tmp_path):
    short, damaged = tmp_path / "short.wav", tmp_path / "damaged.wav"
    short.write_bytes(wav(np.zeros(10)))
    damaged.write_bytes(b"RIFF....WAVE")
    for path in (short, damaged, tmp_path / "missing.wav"):
        with pytest.raises(AudioError) as caught:
            drawn(path)
        assert str(tmp_path) not in str(caught.value)
