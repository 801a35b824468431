"""The audio formats that daco reads: extensions, limits, signs of truncation.

It imports no decoder, so that listing a folder is quick.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import BinaryIO, Literal

FORMATS = {
    ".wav": ("WAV", "WAVEX", "RF64"),
    ".flac": ("FLAC",),
    ".ogg": ("OGG",),
    ".oga": ("OGG",),
    ".opus": ("OGG",),
    ".aif": ("AIFF",),
    ".aiff": ("AIFF",),
    ".mp3": ("MP3", "MPEG"),
}
"""File extensions that are read, and the container each must hold."""

READABLE = "WAV, FLAC, OGG, Opus, AIFF or MP3"
"""The same list for people."""

_UNREADABLE = re.compile(
    r"\.(3gp|aac|ac3|aifc|amr|ape|au|caf|dsf|dts|m4a|m4b|mka|mp2|mp4|mpc|oma|pcm|ra|raw|sf|snd"
    r"|sph|spx|tta|voc|vox|w64|wave|webm|wma|wv)$",
    re.IGNORECASE,
)
_MAX_CHUNKS = 1000
_OGG_PAGE = 65_307
_LAST_PAGE = 4  # flag in the header of an Ogg page


_SUFFIXES = {
    b"RIFF": ".wav",
    b"RF64": ".wav",
    b"RIFX": ".wav",
    b"FORM": ".aiff",
    b"fLaC": ".flac",
    b"OggS": ".ogg",
}
"""By the first four bytes of a file."""

_BIG_ENDIAN = (b"RIFX", b"FORM")


@dataclass(frozen=True)
class AudioLimits:
    """The largest recording to decode; a larger one raises an `AudioError`."""

    bytes: int = 1 << 30
    """Size of the file."""
    values: int = 1 << 27
    """Samples of all channels, as the header declares them, and of one after resampling."""
    min_rate: int = 1_000
    max_rate: int = 384_000
    """Sample rates in Hz."""
    seconds: float = 3600.0


DEFAULT_LIMITS = AudioLimits()
"""An hour at 32 kHz mono still fits."""


def is_readable(name: str) -> bool:
    """Whether a file has the extension of a format that is read.

    >>> is_readable("fan/a.MP3"), is_readable("fan/a.m4a")
    (True, False)
    """
    return name.lower().endswith(tuple(FORMATS))


def is_unreadable(name: str) -> bool:
    """Whether a file has the extension of a format of recordings that is not read.

    >>> is_unreadable("fan/a.m4a"), is_unreadable("fan/notes.txt")
    (True, False)
    """
    return _UNREADABLE.search(name) is not None


def suffix_of_content(data: bytes) -> str | None:
    r"""The extension that fits the first bytes of a recording; None for an unknown format.

    >>> suffix_of_content(b"fLaC\0\0"), suffix_of_content(b"RIFF\0\0"), suffix_of_content(b"PK")
    ('.flac', '.wav', None)
    """
    if data[:4] in _SUFFIXES:
        return _SUFFIXES[data[:4]]
    # The first frame of an MP3: eleven bits set, a version, layer III.
    frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2
    return ".mp3" if frame or data.startswith(b"ID3") else None


def truncation(file: BinaryIO) -> str | None:
    """What shows that a file has lost its end, which libsndfile ignores; None if nothing does."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    mark = file.read(12)[:4]
    if mark == b"OggS":
        return "its end is missing" if _ogg_is_cut(file, size) else None
    if _SUFFIXES.get(mark) not in (".wav", ".aiff"):
        return None
    claimed, present = _sound_bytes(file, size, "big" if mark in _BIG_ENDIAN else "little")
    return f"it has {present} of {claimed} bytes of sound" if claimed > present else None


def _sound_bytes(
    file: BinaryIO, size: int, byte_order: Literal["big", "little"]
) -> tuple[int, int]:
    """Bytes of sound that a RIFF or AIFF header claims, and bytes that there are."""
    long_size = None
    for _ in range(_MAX_CHUNKS):
        header = file.read(8)
        if len(header) < 8:
            break
        claimed = int.from_bytes(header[4:], byte_order)
        start = file.tell()
        if header[:4] in (b"data", b"SSND"):
            if claimed == 0xFFFFFFFF:  # RF64, or written to a pipe: then the length is unknown
                claimed = size - start if long_size is None else long_size
            return claimed, size - start
        if header[:4] == b"ds64":  # RF64 keeps its 64-bit sizes here
            long_size = int.from_bytes(file.read(16)[8:16], "little")
        file.seek(start + claimed + claimed % 2)
    return 0, 0


def _ogg_is_cut(file: BinaryIO, size: int) -> bool:
    """Whether the last page of an Ogg stream is not marked as the last."""
    file.seek(max(0, size - _OGG_PAGE))
    tail = file.read(_OGG_PAGE)
    last = tail.rfind(b"OggS")
    return last < 0 or len(tail) < last + 6 or not tail[last + 5] & _LAST_PAGE
