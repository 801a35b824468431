"""Recordings that are not what they say: chunks of RIFF and AIFF, and the frames of FLAC."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from random import Random

import numpy as np
import soundfile
from fuzz.mutator import LONG_EXTREMES, Mutation

_STREAMINFO = 8  # after the mark and the block's own header
_STREAMINFO_BITS = (
    *((0, 16), (16, 16), (32, 24), (56, 24)),  # sizes of blocks and frames
    *((80, 20), (100, 3), (103, 5)),  # rate, channels, bits a sample
    *((108, 36), (144, 128)),  # length, hash
)
"""Where its fields are, and their lengths."""


def _sound(frames: int, channels: int = 1) -> np.ndarray:
    time = np.arange(frames)[:, None] / 16_000 + np.arange(channels) * 1e-4
    return (0.3 * np.sin(2 * np.pi * 440 * time) + 0.05 * np.sin(2e5 * time**2)).astype(np.float32)


def _written(kind: str, frames: int, rate: int, subtype: str, channels: int = 1) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, _sound(frames, channels), rate, format=kind, subtype=subtype)
    return file.getvalue()


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    # Of a low rate, so that the 0.3 s which logmel needs are few bytes.
    "wav": lambda: [
        _written("WAV", 4700, 16_000, "PCM_16"),
        _written("WAV", 700, 2_000, "PCM_16", 2),
        _written("WAV", 400, 1_000, "PCM_24"),
        _written("WAV", 400, 1_000, "FLOAT"),
        _written("WAV", 800, 2_000, "IMA_ADPCM"),
        _written("WAV", 800, 2_000, "MS_ADPCM"),
        _written("WAV", 800, 2_000, "ULAW"),
        _written("WAV", 640, 1_600, "GSM610"),
        _written("WAVEX", 400, 1_000, "PCM_16", 3),
        _written("RF64", 400, 1_000, "PCM_16"),
        _with_remarks(_written("WAV", 400, 1_000, "PCM_16")),
    ],
    "flac": lambda: [
        _written("FLAC", 4700, 16_000, "PCM_16"),
        _written("FLAC", 700, 2_000, "PCM_16", 2),
        _written("FLAC", 400, 1_000, "PCM_24"),
        _written("FLAC", 9000, 8_000, "PCM_S8"),
    ],
    "ogg": lambda: [
        _with_serial(_written("OGG", 2800, 8_000, "VORBIS")),
        _with_serial(_written("OGG", 2800, 8_000, "OPUS")),
    ],
    "aiff": lambda: [_written("AIFF", 400, 1_000, "PCM_16")],
    "mp3": lambda: [_written("MP3", 2800, 8_000, "MPEG_LAYER_III")],
}


def _with_remarks(wav: bytes) -> bytes:
    """As ffmpeg and field recorders write: text and a broadcast extension before the sound."""
    remark = b"INFOISFT" + struct.pack("<I", 8) + b"recorder"
    bext = b"bext" + struct.pack("<I", 602) + bytes(602)
    extra = b"LIST" + struct.pack("<I", len(remark)) + remark + bext
    return wav[:36] + extra + wav[36:]


def _with_serial(ogg: bytes) -> bytes:
    """The same stream with another serial number: that of the library is random."""
    pages = ogg.split(b"OggS")[1:]
    numbered = (bytearray(b"OggS" + page) for page in pages)
    fixed = []
    for page in numbered:
        page[14:26] = b"\1\0\0\0" + page[18:22] + bytes(4)
        page[22:26] = _crc(bytes(page)).to_bytes(4, "little")
        fixed.append(bytes(page))
    return b"".join(fixed)


def mutate_chunks(rng: Random, data: bytes) -> bytes:
    """A RIFF or AIFF file with its chunks in disorder and its numbers at extremes."""
    order = "<" if data[:1] == b"R" else ">"
    chunks = _chunks(data, order)
    for _ in range(rng.choice((1, 1, 2, 3))):
        rng.choice(_CHUNK_MUTATIONS)(rng, chunks)
    body = b"".join(
        name + struct.pack(order + "I", size) + payload + b"\0" * (len(payload) % 2)
        for name, payload, size in chunks
    )
    size = len(body) + 4 if rng.random() < 0.8 else rng.choice(LONG_EXTREMES) % 2**32
    return data[:4] + struct.pack(order + "I", size) + data[8:12] + body


Chunks = list[tuple[bytes, bytes, int]]


def _chunks(data: bytes, order: str) -> Chunks:
    """Name, content and declared size of every chunk."""
    chunks, at = [], 12
    while at + 8 <= len(data):
        name, (size,) = data[at : at + 4], struct.unpack_from(order + "I", data, at + 4)
        present = min(size, len(data) - at - 8)
        chunks.append((name, data[at + 8 : at + 8 + present], size))
        at += 8 + present + present % 2
    return chunks


def _lie_about_size(rng: Random, chunks: Chunks) -> None:
    at = rng.randrange(len(chunks))
    name, payload, size = chunks[at]
    lies = (*LONG_EXTREMES, size - 1, size + 1, size // 2, size * 2)
    chunks[at] = name, payload, rng.choice(lies) % 2**32


def _rearrange(rng: Random, chunks: Chunks) -> None:
    """Chunks in another order, one of them again (or often, if it is small), or one missing."""
    action, at = rng.randrange(3), rng.randrange(len(chunks))
    if action == 0:
        rng.shuffle(chunks)
    elif action == 1:
        smallest = min(chunks, key=lambda each: len(each[1]))
        chunks[at:at] = [smallest] * 1200 if rng.random() < 0.1 else [rng.choice(chunks)]
    elif len(chunks) > 1:
        del chunks[at]


def _add(rng: Random, chunks: Chunks) -> None:
    """A chunk of a name that some decoder knows, with anything in it."""
    name = rng.choice((b"LIST", b"bext", b"cart", b"cue ", b"smpl", b"inst", b"PEAK", b"fact"))
    payload = rng.randbytes(rng.choice((0, 1, 4, 24, 700)))
    size = rng.choice((len(payload), len(payload), rng.choice(LONG_EXTREMES) % 2**32))
    chunks.insert(rng.randrange(len(chunks) + 1), (name, payload, size))


def _spoil_samples(rng: Random, chunks: Chunks) -> None:
    """NaN, inf, full scale or silence where the sound is."""
    for at, (name, payload, size) in enumerate(chunks):
        if name in (b"data", b"SSND"):
            word = rng.choice((b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff" * 4, b"\0" * 4, b"\x7f"))
            chunks[at] = name, (word * len(payload))[: len(payload)], size


_CHUNK_MUTATIONS = (_lie_about_size, _rearrange, _rearrange, _add, _spoil_samples)


def mutate_flac(rng: Random, data: bytes) -> bytes:
    """A FLAC file that lies in its stream information, or has more before its sound."""
    return rng.choice((_set_streaminfo, _set_streaminfo, _spread_blocks))(rng, data)


def _set_streaminfo(rng: Random, data: bytes) -> bytes:
    """Block and frame sizes, rate, channels, bits, length, hash: any of them at an extreme."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, bits = rng.choice(_STREAMINFO_BITS)
        number = rng.choice((*LONG_EXTREMES, 1000, 8000, 96_001, 384_000, rng.getrandbits(bits)))
        whole = int.from_bytes(changed[_STREAMINFO : _STREAMINFO + 34], "big")
        shift = 8 * 34 - at - bits
        whole &= ~(((1 << bits) - 1) << shift)
        whole |= number % (1 << bits) << shift
        changed[_STREAMINFO : _STREAMINFO + 34] = whole.to_bytes(34, "big")
    return bytes(changed)


def _spread_blocks(rng: Random, data: bytes) -> bytes:
    """A metadata block of any type and length between the stream information and the sound."""
    content = rng.randbytes(rng.choice((0, 4, 34, 500)))
    size = rng.choice((len(content), len(content), 0, 0xFFFFFF))
    block = bytes([rng.randrange(256)]) + size.to_bytes(3, "big") + content
    first = _STREAMINFO + 34
    return data[:4] + bytes([data[4] & 0x7F]) + data[5:first] + block + data[first:]


def _crc(page: bytes) -> int:
    """The checksum of an Ogg page."""
    crc = 0
    for byte in page:
        crc ^= byte << 24
        for _ in range(8):
            crc = (crc << 1 ^ (0x04C11DB7 if crc >> 31 else 0)) & 0xFFFFFFFF
    return crc


MUTATIONS: dict[str, Mutation] = {"wav": mutate_chunks, "aiff": mutate_chunks, "flac": mutate_flac}
