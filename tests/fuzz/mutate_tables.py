"""Manifests and embedding tables that are not what they say."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from random import Random

import numpy as np
from fuzz.mutator import LONG_EXTREMES, Mutation

RECORDINGS = ("old/a.wav", "old/b.wav", "new/c.wav", "é/d e.flac")
"""Files that lie beside a manifest."""

_HEADER = ("path", "year", "machine", "section", "domain", "split", "label", "attributes")

_CELLS = (
    "", " ", "0", "1", "-1", "1e999", "nan", "NULL", "<NA>", "normal", "ANOMALY", "train",
    "test", "supplemental", "2025", "٢٠٢٥", "00", "9" * 5000, "x" * 200_000, "é" * 300,
    "../../../../etc/passwd", "/etc/passwd", "/dev/zero", "/dev/stdin", "C:\\con\\a.wav", "..",
    ".", "/", "//host/share", "old/../old/a.wav", "old\\a.wav", "a\0b.wav", "old/a.wav\n", "\r",
    "old/a.wav/", "~/a.wav", "$HOME/a.wav", "a" * 5000, "a/" * 3000, "=cmd|' /C calc'!A0",
    "@SUM(1+1)", "+1", "-2+3", '"', '""', "'", ",", ";", "\t", "\ufeff", "\u202e", "\x1b[2J",
    "\x85", "\u2028", "😀", "{}", '{"speed": "2"}', '{"speed": 2, "speed": 3}', "[1]", "{",
    '{"a":' * 3000, "[" * 100_000, "1" * 5000, '{"a": NaN}', '{"\\ud800": "\\udfff"}',
)  # fmt: skip


def _manifest(delimiter: str = ",") -> str:
    rows = [
        (path, "2025", "press", "00", path.split("/")[0], "train", "normal", '{"speed": "2"}')
        for path in RECORDINGS
    ]
    quoted = [[f'"{cell.replace(chr(34), chr(34) * 2)}"' for cell in row] for row in rows]
    return "\n".join(delimiter.join(row) for row in [_HEADER, *quoted]) + "\n"


def _list() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "path": list(RECORDINGS),
        "year": [2025] * 4,
        "label": [0, None, 1, 0],
        "split": ["train", "train", "test", "test"],
        "attributes": [{"speed": "2"}] * 4,
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file)
    return file.getvalue()


def _embeddings() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


def _table(**options: object) -> bytes:
    import tempfile
    from pathlib import Path

    import pyarrow.parquet as pq

    from daco.data.table import EmbeddingTable

    table = EmbeddingTable.from_arrays(
        _embeddings(), machine=["press"] * 12, domain=["old"] * 9 + ["new"] * 3
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        table.write(path)
        if not options:
            return path.read_bytes()
        file = io.BytesIO()
        pq.write_table(pq.read_table(path), file, **options)
        return file.getvalue()


SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "manifest": lambda: [
        _manifest().encode(),
        _manifest(";").encode("utf-8-sig"),
        _manifest("\t").replace("\n", "\r\n").encode(),
        b"path\n" + "\n".join(RECORDINGS).encode(),
    ],
    "list": lambda: [_list()],
    "parquet": lambda: [_table(), _table(compression="none"), _table(compression="gzip")],
}


def mutate_manifest(rng: Random, data: bytes) -> bytes:
    """Other cells, columns, quotes, line ends and encodings."""
    text = data.decode("utf-8-sig")
    lines = text.split("\n")
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(lines))
        action = rng.randrange(8)
        delimiter = next((each for each in ",;\t" if each in lines[0]), ",")
        cells = lines[at].split(delimiter)
        if action <= 3:
            cell = rng.choice(_CELLS)
            quoted = '"' + cell.replace('"', '""') + '"'
            cells[rng.randrange(len(cells))] = rng.choice((cell, quoted, quoted, quoted))
            lines[at] = delimiter.join(cells)
        elif action == 4:
            rng.shuffle(cells)
            lines[at] = delimiter.join(cells)
        elif action == 5:
            lines.insert(at, rng.choice((lines[at], delimiter * 2000, "", '"', "\0")))
        elif action == 6:
            lines[0] = lines[0].replace("label", rng.choice(("path", "lable", "", "LABEL ", "\0")))
        else:
            lines[at] = lines[at].replace(delimiter, rng.choice(",;\t|"))
    joined = rng.choice(("\n", "\n", "\n", "\r\n", "\r", "\0\n")).join(lines)
    encoding = rng.choice(("utf-8",) * 12 + ("utf-8-sig", "utf-16", "latin-1"))
    return joined.encode(encoding, errors="replace")


def mutate_parquet(rng: Random, data: bytes) -> bytes:
    """Damage in the footer, where Parquet says what is where; its length mostly fits."""
    size = int.from_bytes(data[-8:-4], "little")
    body, footer = data[: -8 - size], bytearray(data[-8 - size : -8])
    for _ in range(rng.choice((1, 1, 2, 4))):
        at = rng.randrange(len(footer))
        if rng.random() < 0.5:
            footer[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        else:  # a number of many digits, as Thrift writes it
            footer[at : at + rng.choice((1, 5))] = rng.choice((b"\xff" * 4 + b"\x0f", b"\x80\x01"))
    length = len(footer) if rng.random() < 0.9 else rng.choice(LONG_EXTREMES) % 2**32
    return body + bytes(footer) + struct.pack("<I", length) + b"PAR1"


MUTATIONS: dict[str, Mutation] = {
    "manifest": mutate_manifest,
    "list": mutate_parquet,
    "parquet": mutate_parquet,
}
