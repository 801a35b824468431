"""The table that an embedding run leaves: where it may be written, and its rows from shards."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from daco.atomic import atomic_write
from daco.clips import COLUMNS, Clip, ClipTable
from daco.errors import DataError
from daco.places import Place, opened, place
from daco.shards import Shard, Span, read_shards
from daco.tablefile import arrow_schema, attributes_text, column_name, parquet_writer, vector_array

HASHES = "audio_sha256"
"""The column with the SHA-256 of each recording."""


def parquet_file(out: Place | str) -> Place:
    """The output's path, if a table may be written there: nothing else is ever replaced."""
    out = place(out)
    if out.suffix != ".parquet":
        raise DataError(f"{out} must be a file with the extension .parquet.")
    if out.is_dir():
        raise DataError(f"{out} is a folder. Choose the name of a file.")
    if out.exists():
        _require_own(out)
    return out


def _require_own(out: Place) -> None:
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with opened(out) as source:
            metadata = pq.read_schema(source).metadata or {}
    except (pyarrow.ArrowInvalid, OSError):
        metadata = {}
    if b"daco.backbone" not in metadata:
        raise DataError(
            f"{out} is there already and was not made by this command. Move it away, or choose "
            "another name."
        )


def write_table(
    table: ClipTable,
    folder: Place,
    spans: list[Span],
    out: Place,
    origin: dict[str, str],
    settings: str,
) -> tuple[int, list[tuple[int, str, str]]]:
    """Write the table, shard by shard; its number of rows, and row, path and reason of skips."""
    import pyarrow as pa

    skipped: list[tuple[int, str, str]] = []
    dims: dict[str, int] = {}
    for span, shard in _own_shards(folder, spans, out, settings):
        found = zip(range(*span), shard.paths, shard.reasons, strict=True)
        skipped += [(row, path, reason) for row, path, reason in found if reason is not None]
        for name, matrix in shard.vectors.items():
            if dims.setdefault(name, matrix.shape[1]) != matrix.shape[1]:
                raise DataError(
                    f"Readout {name!r} has {dims[name]} values for some clips and "
                    f"{matrix.shape[1]} for {shard.paths[0]} and others. Embed clips of "
                    "different lengths separately."
                )
    if len(skipped) == len(table):
        raise DataError(
            f"None of the {len(skipped)} clips could be embedded; "
            f"the first is {skipped[0][1]}: {skipped[0][2]}"
        )
    listed = [{"path": path, "reason": reason} for _, path, reason in skipped]
    schema = arrow_schema(dims, {**origin, "skipped": json.dumps(listed, ensure_ascii=False)})
    schema = schema.append(pa.field(HASHES, pa.string(), nullable=False))
    with (
        atomic_write(out, folder) as temporary,
        parquet_writer(temporary, schema) as writer,
    ):
        for span, shard in _own_shards(folder, spans, out, settings):
            kept = np.array([reason is None for reason in shard.reasons])
            if not kept.any():
                continue
            clips = [
                clip for clip, keep in zip(table.clips[slice(*span)], kept, strict=True) if keep
            ]
            arrays = {
                name: pa.array(_values(clips, name), schema.field(name).type) for name in COLUMNS
            }
            hashes = [each.sha256 for each in shard.recordings]
            arrays[HASHES] = pa.array(np.array(hashes, object)[kept], pa.string())
            for name, matrix in shard.vectors.items():
                arrays[column_name(name, dims)] = vector_array(matrix[kept])
            writer.write_table(pa.table(arrays, schema=schema))
    return len(table) - len(skipped), skipped


def _own_shards(
    folder: Place, spans: list[Span], out: Place, settings: str
) -> Iterator[tuple[Span, Shard]]:
    """The shards, unless somebody else has been at them, whom no lock keeps from remote folders."""
    for span, shard in zip(spans, read_shards(folder, spans), strict=True):
        if shard is None or shard.settings != settings:
            raise DataError(
                f"{out}: another run has changed or removed what this one had finished. Run one at "
                "a time, and this one again."
            )
        yield span, shard


def _values(clips: list[Clip], name: str) -> list[Any]:
    if name == "attributes":
        return [attributes_text(clip.attributes) for clip in clips]
    return [getattr(clip, name) for clip in clips]
