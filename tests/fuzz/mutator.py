"""Damaged and hostile inputs, each the same every time: one of a kind and a number.

::

    python tests/fuzz/mutator.py KIND INDEX OUT   # write the input that a failing test names
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

if __name__ == "__main__":
    tests = Path(__file__).resolve().parents[1]
    sys.path[:0] = [str(tests), str(tests / "helpers")]

Mutation = Callable[[Random, bytes], bytes]

EXTREMES = (0, 1, 2, 3, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x10000)
LONG_EXTREMES = (*EXTREMES, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 2**63 - 1, 2**64 - 1)

KINDS = ("wav", "flac", "model", "manifest", "ogg", "aiff", "mp3", "parquet", "list")
"""A ``manifest`` is CSV, a ``list`` the same as Parquet; ``parquet`` has embeddings."""

SUFFIXES = {kind: f".{kind}" for kind in KINDS} | {
    "model": ".daco",
    "manifest": ".csv",
    "list": ".parquet",
}


@cache
def seeds(kind: str) -> tuple[bytes, ...]:
    """The small sound files that the mutations of a kind begin with."""
    from fuzz import mutate_audio, mutate_model, mutate_tables

    for module in (mutate_audio, mutate_model, mutate_tables):
        if kind in module.SEEDS:
            return tuple(module.SEEDS[kind]())
    raise ValueError(f"There is no kind {kind!r}, only {', '.join(KINDS)}.")


def mutated(kind: str, index: int) -> bytes:
    """The input of this kind and number."""
    from fuzz import mutate_audio, mutate_model, mutate_tables

    rng = Random(f"{kind} {index}")
    structural = {
        **mutate_audio.MUTATIONS,
        **mutate_model.MUTATIONS,
        **mutate_tables.MUTATIONS,
    }.get(kind)
    data = rng.choice(seeds(kind))
    # Most stay readable to some depth: a damaged header hides all that lies behind it.
    way = rng.choices(("structure", "bytes", "both"), (6, 3, 1))[0] if structural else "bytes"
    if structural and way != "bytes":
        data = structural(rng, data)
    if way != "structure":
        for _ in range(rng.choice((1, 1, 2, 5))):
            data = rng.choice(BYTE_MUTATIONS)(rng, data)
    return data


def flip_bits(rng: Random, data: bytes) -> bytes:
    """Some bits the other way round, most often in the header."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if changed:
            changed[_place(rng, data)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncate(rng: Random, data: bytes) -> bytes:
    """The beginning only."""
    return data[: _place(rng, data)]


def cut_out(rng: Random, data: bytes) -> bytes:
    """Some bytes in the middle missing."""
    start, stop = _span(rng, data)
    return data[:start] + data[stop:]


def duplicate(rng: Random, data: bytes) -> bytes:
    """Some bytes twice, or many times."""
    start, stop = _span(rng, data)
    return data[:stop] + data[start:stop] * rng.choice((1, 1, 2, 16)) + data[stop:]


def insert_garbage(rng: Random, data: bytes) -> bytes:
    """Bytes that nobody meant."""
    at = _place(rng, data)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 4, 17, 256))) + data[at:]


def overwrite_run(rng: Random, data: bytes) -> bytes:
    """A run of zeros or of ones, as a dying disk leaves it."""
    start, stop = _span(rng, data)
    return data[:start] + rng.choice((b"\0", b"\xff")) * (stop - start) + data[stop:]


def overwrite_number(rng: Random, data: bytes) -> bytes:
    """An extreme number where a length, a count or an offset may be."""
    width = rng.choice((1, 2, 4, 8))
    at = _place(rng, data) // width * width if rng.random() < 0.7 else _place(rng, data)
    number = rng.choice(LONG_EXTREMES) % (1 << 8 * width)
    return data[:at] + number.to_bytes(width, rng.choice(("little", "big"))) + data[at + width :]


def splice(rng: Random, data: bytes) -> bytes:
    """The beginning of this file and the end of one of another kind."""
    other = rng.choice(seeds(rng.choice(("wav", "flac", "manifest", "ogg", "parquet"))))
    return data[: _place(rng, data)] + other[_place(rng, other) :]


BYTE_MUTATIONS: tuple[Mutation, ...] = (
    flip_bits,
    truncate,
    cut_out,
    duplicate,
    insert_garbage,
    overwrite_run,
    overwrite_number,
    splice,
)


def _place(rng: Random, data: bytes) -> int:
    """A position in the file; half of the time among the first bytes, where headers are."""
    if not data:
        return 0
    return rng.randrange(min(64, len(data)) if rng.random() < 0.5 else len(data))


def _span(rng: Random, data: bytes) -> tuple[int, int]:
    start = _place(rng, data)
    return start, min(len(data), start + rng.choice((1, 2, 4, 8, 64, 512)))


def main() -> None:
    """Write one input to a file."""
    parser = argparse.ArgumentParser(description="Write the input that a failing test names.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("index", type=int)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    given.out.write_bytes(mutated(given.kind, given.index))


if __name__ == "__main__":
    main()
