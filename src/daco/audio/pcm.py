"""Plain 16-bit WAV files, which most recorders write, read without libsndfile's overhead."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

from daco.audio.formats import AudioLimits

INT16_SCALE = np.float32(1 / 32768)
"""A sample of 16 bits times this is one of float32, as libsndfile gives it."""

_HEADER = struct.Struct("<4sI4s4sIHHIIHH")
_CHUNK = struct.Struct("<4sI")
_REMARK = struct.Struct("<4sI4s4sI")


def plain_pcm16(
    data: bytes, sample_rate: int, channel: int | str, limits: AudioLimits
) -> NDArray[np.int16] | None:
    """The samples of a plain 16-bit WAV file at this rate, 32768 times what libsndfile gives.

    None for every other file, also a damaged one: `daco.audio.decode` reads it or says what is
    wrong with it.
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
