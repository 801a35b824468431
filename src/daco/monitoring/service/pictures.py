"""Spectrograms as PNG: the mel bands a detector hears, in colours for a light or a dark page."""

from __future__ import annotations

import struct
import zlib
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daco.audio.decode import read_audio
from daco.audio.formats import DEFAULT_LIMITS, AudioLimits
from daco.errors import AudioError
from daco.validation import Float32s

WIDTH, ZOOM = 800, 2
"""Most columns of a picture, and rows of pixels per mel band."""

DEPTH = 70.0
"""Decibels from the darkest to the brightest colour."""

_STEP = 10.0  # of the brightest level: two similar recordings get the very same scale
_THEMES = {
    "dark": ("#10141a", "#3b1f63", "#8c2a6b", "#d9524b", "#f79a3e", "#fcf6c8"),
    "light": ("#ffffff", "#fbdca8", "#f0925c", "#c9416b", "#7c2278", "#1d1038"),
}
THEMES = tuple(_THEMES)


def spectrogram(
    path: Path,
    *,
    theme: str = "light",
    sample_rate: int = 16000,
    limits: AudioLimits = DEFAULT_LIMITS,
) -> bytes:
    """A PNG of a recording: time to the right, mel bands upwards.

    Parameters
    ----------
    path : Path
        A recording of any format that `daco.audio.decode` reads; its first channel is shown.
    theme : {"light", "dark"}
    sample_rate : int
        Frequencies up to half of it are shown.
    limits : AudioLimits

    Raises
    ------
    AudioError
        The recording cannot be decoded, or is too short for a picture; the path is not named.
    """
    try:
        wave = read_audio(path, sample_rate=sample_rate, limits=limits)
    except AudioError as error:
        raise AudioError(error.reason) from None
    levels = mel_levels(wave, sample_rate)
    brightest = np.ceil(np.percentile(levels, 99.5) / _STEP) * _STEP
    share = np.clip((levels - brightest) / DEPTH + 1, 0, 1)
    pixels = np.rint(share * 255).astype(np.uint8)[::-1].repeat(ZOOM, axis=0)
    return png(pixels, colours(theme))


def mel_levels(wave: Float32s, rate: int) -> NDArray[np.float32]:
    """Decibels of the mel bands, (bands, columns); of several frames in a column the loudest."""
    from daco.backbones.logmel import LogMel

    bands = LogMel(rate).grid(wave[None])[0, :, :, 0].T
    step = -(-bands.shape[1] // WIDTH)
    padded = np.pad(bands, ((0, 0), (0, -bands.shape[1] % step)), mode="edge")
    return np.asarray(padded.reshape(len(bands), -1, step).max(axis=2), np.float32)


@cache
def colours(theme: str) -> bytes:
    """256 colours, three bytes each, from the quietest to the loudest."""
    anchors = np.array([list(bytes.fromhex(colour[1:])) for colour in _THEMES[theme]], float)
    places = np.linspace(0, len(anchors) - 1, 256)
    parts = [np.interp(places, np.arange(len(anchors)), part) for part in anchors.T]
    return np.rint(np.stack(parts, axis=1)).astype(np.uint8).tobytes()


def png(pixels: NDArray[np.uint8], palette: bytes) -> bytes:
    r"""A PNG file of indices into a palette.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.monitoring.service.pictures import colours, png
    >>> png(np.zeros((2, 3), np.uint8), colours("dark"))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    height, width = pixels.shape
    rows = np.pad(pixels, ((0, 0), (1, 0)))  # a zero before each row: no filter
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    chunks = (b"IHDR", head), (b"PLTE", palette), (b"IDAT", zlib.compress(rows.tobytes(), 6))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*each) for each in (*chunks, (b"IEND", b"")))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
