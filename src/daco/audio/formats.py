"""The audio formats that daco reads, and the names of those that it does not.

A module of its own, so that listing a folder imports no decoder.
"""

from __future__ import annotations

import re

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

_SUFFIXES = tuple(FORMATS)
_UNREADABLE = re.compile(
    r"\.(3gp|aac|ac3|aifc|amr|ape|au|caf|dsf|dts|m4a|m4b|mka|mp2|mp4|mpc|oma|pcm|ra|raw|sf|snd"
    r"|sph|spx|tta|voc|vox|w64|wave|webm|wma|wv)$",
    re.IGNORECASE,
)
_MAGIC = (
    (b"RIFF", ".wav"),
    (b"RF64", ".wav"),
    (b"RIFX", ".wav"),
    (b"fLaC", ".flac"),
    (b"OggS", ".ogg"),
    (b"FORM", ".aiff"),
    (b"ID3", ".mp3"),
)


def is_readable(name: str) -> bool:
    """Whether a file has the extension of a format that is read.

    >>> is_readable("fan/a.MP3"), is_readable("fan/a.m4a")
    (True, False)
    """
    return name.lower().endswith(_SUFFIXES)


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
    for magic, suffix in _MAGIC:
        if data.startswith(magic):
            return suffix
    # The first frame of an MP3: eleven bits set, a version, layer III.
    frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2
    return ".mp3" if frame else None
