"""Spectrograms as PNG: the mel bands a detector uses, in colours for a light or a dark page."""

from __future__ import annotations

import asyncio
import io
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from daco.audio.decode import read_audio
from daco.audio.formats import AudioLimits
from daco.backbones.logmel import LogMel
from daco.errors import AudioError

WIDTH, ZOOM = 800, 2
"""Most columns of a picture, and rows of pixels per mel band."""

DEPTH = 70.0
"""Decibels from the darkest to the brightest colour."""

MOST_KEPT, MOST_WAITING = 128, 16

_STEP = 10.0  # of the brightest level: similar recordings get the same scale
_THEMES = {
    "dark": ("#10141a", "#3b1f63", "#8c2a6b", "#d9524b", "#f79a3e", "#fcf6c8"),
    "light": ("#ffffff", "#fbdca8", "#f0925c", "#c9416b", "#7c2278", "#1d1038"),
}

_Key = tuple[str, int, str, int]


def draw_spectrogram(path: Path, theme: str, sample_rate: int, limits: AudioLimits) -> bytes:
    """A PNG of a recording's first channel: time to the right, mel bands upwards.

    Frequencies up to half the `sample_rate` are shown. An AudioError does not name the path.
    """
    try:
        wave = read_audio(path, sample_rate=sample_rate, limits=limits)
    except AudioError as error:
        raise AudioError(error.reason) from None
    levels = mel_levels(wave, sample_rate)
    brightest = np.ceil(np.percentile(levels, 99.5) / _STEP) * _STEP
    share = np.clip((levels - brightest) / DEPTH + 1, 0, 1)
    pixels = np.rint(share * 255).astype(np.uint8)[::-1].repeat(ZOOM, axis=0)
    image = Image.fromarray(pixels)
    image.putpalette(palette(theme))
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


def mel_levels(wave: NDArray[Any], sample_rate: int) -> NDArray[np.float32]:
    """Decibels of the mel bands, (bands, columns); a column holds the loudest of its frames."""
    bands = LogMel(sample_rate).grid(wave[None])[0, :, :, 0].T
    step = -(-bands.shape[1] // WIDTH)
    padded = np.pad(bands, ((0, 0), (0, -bands.shape[1] % step)), mode="edge")
    return np.asarray(padded.reshape(len(bands), -1, step).max(axis=2), np.float32)


@cache
def palette(theme: str) -> bytes:
    """256 colours, three bytes each, from the quietest to the loudest."""
    anchors = np.array([list(bytes.fromhex(colour[1:])) for colour in _THEMES[theme]], float)
    positions = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(positions, np.arange(len(anchors)), channel) for channel in anchors.T]
    return np.rint(np.stack(channels, axis=1)).astype(np.uint8).tobytes()


class SpectrogramCache:
    """Draws one picture at a time, so that pictures take little from scoring, and keeps them.

    `draw` is called with a path, a theme and a sample rate; `busy` is raised when too many wait.
    """

    def __init__(
        self, draw: Callable[[Path, str, int], Awaitable[bytes]], busy: Callable[[], Exception]
    ) -> None:
        self._draw, self._busy = draw, busy
        self._kept: OrderedDict[_Key, bytes] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def get(self, path: Path, changed_ns: int, theme: str, sample_rate: int) -> bytes:
        """The PNG of a recording on disk that was last changed at `changed_ns`."""
        key = (str(path), changed_ns, theme, sample_rate)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._waiting >= MOST_WAITING:
            raise self._busy()
        self._waiting += 1
        try:
            async with self._turn:
                if key not in self._kept:
                    self._kept[key] = await self._draw(path, theme, sample_rate)
                    while len(self._kept) > MOST_KEPT:
                        self._kept.popitem(last=False)
                return self._kept[key]
        finally:
            self._waiting -= 1
