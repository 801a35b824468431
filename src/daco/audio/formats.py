"""The audio formats that daco reads: extensions, headers, signs of truncation, limits.

It imports no decoder, so that listing a folder is quick. Plain 16-bit WAV files, which most
recorders write, are read here, without libsndfile's overhead.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import BinaryIO, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


class _Container(NamedTuple):
    suffix: str
    sound_chunk: bytes = b""
    byte_order: Literal["little", "big"] = "little"


_CONTAINERS = {
    b"RIFF": _Container(".wav", b"data"),
    b"RF64": _Container(".wav", b"data"),
    b"RIFX": _Container(".wav", b"data", "big"),
    b"FORM": _Container(".aiff", b"SSND", "big"),
    b"fLaC": _Container(".flac"),
    b"OggS": _Container(".ogg"),
}
"""By their first four bytes."""

_UNREADABLE = re.compile(
    r"\.(3gp|aac|ac3|aifc|amr|ape|au|caf|dsf|dts|m4a|m4b|mka|mp2|mp4|mpc|oma|pcm|ra|raw|sf|snd"
    r"|sph|spx|tta|voc|vox|w64|wave|webm|wma|wv)$",
    re.IGNORECASE,
)
_MAX_CHUNKS = 1000
_OGG_PAGE = 65_307
INT16_SCALE = np.float32(1 / 32768)
"""A sample of 16 bits times this is one of float32, as libsndfile gives it."""

_HEADER = struct.Struct("<4sI4s4sIHHIIHH")
_CHUNK = struct.Struct("<4sI")
_REMARK = struct.Struct("<4sI4s4sI")


@dataclass(frozen=True)
class AudioLimits:
    """The largest recording to decode; a larger one raises an `AudioError`.

    Attributes
    ----------
    bytes : int
        Size of the file.
    values : int
        Samples of all channels, as the header declares them.
    min_rate, max_rate : int
        Sample rates in Hz.
    seconds : float
        Length of the recording.
    samples : int
        Length of one channel after resampling.
    """

    bytes: int = 1 << 30
    values: int = 1 << 27
    min_rate: int = 1_000
    max_rate: int = 384_000
    seconds: float = 3600.0
    samples: int = 1 << 27


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
    if data[:4] in _CONTAINERS:
        return _CONTAINERS[data[:4]].suffix
    # The first frame of an MP3: eleven bits set, a version, layer III.
    frame = len(data) > 1 and data[0] == 0xFF and data[1] & 0xE6 == 0xE2
    return ".mp3" if frame or data.startswith(b"ID3") else None


def truncation(file: BinaryIO, size: int) -> str | None:
    """What shows that a file of `size` bytes has lost its end, which libsndfile ignores."""
    claimed, present = _sound_bytes(file, size)
    if claimed > present:
        return f"it has {present} of {claimed} bytes of sound"
    return "its end is missing" if _ogg_is_cut(file, size) else None


def _sound_bytes(file: BinaryIO, size: int) -> tuple[int, int]:
    """Bytes of sound a RIFF or AIFF header claims and bytes there are; (0, 0) without such one."""
    container = _CONTAINERS.get(file.read(12)[:4])
    if container is None or not container.sound_chunk:
        return 0, 0
    long_size = None
    for _ in range(_MAX_CHUNKS):
        header = file.read(8)
        if len(header) < 8:
            break
        claimed = int.from_bytes(header[4:], container.byte_order)
        start = file.tell()
        if header[:4] == container.sound_chunk:
            if claimed == 0xFFFFFFFF:  # RF64, or written to a pipe: then the length is unknown
                claimed = size - start if long_size is None else long_size
            return claimed, size - start
        if header[:4] == b"ds64":  # RF64 keeps its 64-bit sizes here
            long_size = int.from_bytes(file.read(16)[8:16], "little")
        file.seek(start + claimed + claimed % 2)
    return 0, 0


def _ogg_is_cut(file: BinaryIO, size: int) -> bool:
    """Whether the last page of an Ogg stream is not marked as the last."""
    file.seek(0)
    if file.read(4) != b"OggS":
        return False
    file.seek(max(0, size - _OGG_PAGE))
    tail = file.read(_OGG_PAGE)
    last = tail.rfind(b"OggS")
    return last < 0 or len(tail) < last + 6 or not tail[last + 5] & 4


def plain_pcm16(
    data: bytes, sample_rate: int, channel: int | str, limits: AudioLimits
) -> NDArray[np.int16] | None:
    """The samples of a plain 16-bit WAV file at this rate, 32768 times what libsndfile gives.

    None for every other file, also a damaged one, which `daco.audio.decode` reads or refuses.
    """
    if not _HEADER.size + _CHUNK.size < len(data) <= limits.bytes:
        return None
    riff, _, wave, fmt, fmt_size, code, channels, rate, _, block, bits = _HEADER.unpack_from(data)
    if (riff, wave, fmt, fmt_size, code, bits) != (b"RIFF", b"WAVE", b"fmt ", 16, 1, 16):
        return None
    if rate != sample_rate or not channels or block != 2 * channels:
        return None
    index = 0 if channel == "mix" and channels == 1 else channel
    if isinstance(index, str) or index >= channels:
        return None
    start = _sound_chunk(data)
    if len(data) < start + _CHUNK.size:
        return None
    name, size = _CHUNK.unpack_from(data, start)
    start += _CHUNK.size
    frames, rest = divmod(size, block)
    if name != b"data" or rest or not 0 < size == len(data) - start:
        return None
    if not limits.min_rate <= rate <= limits.max_rate or frames / rate > limits.seconds:
        return None
    if frames > limits.samples or frames * channels > limits.values:
        return None
    values = np.frombuffer(data, "<i2", frames * channels, start)
    return values if channels == 1 else values[index::channels].astype(np.int16)


def _sound_chunk(data: bytes) -> int:
    """Start of the samples' chunk: after the header, or one remark such as ffmpeg adds."""
    start = _HEADER.size
    if data[start : start + 4] == b"LIST" and len(data) >= start + _REMARK.size:
        _, size, kind, _, length = _REMARK.unpack_from(data, start)
        if kind == b"INFO" and length % 2 == 0 and size == length + 12:
            return start + _CHUNK.size + int(size)
    return start
