"""The table that an embedding run writes: where it may be written, and its rows from shards."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from daco.backbones.levels import LEVELS, levels_text
from daco.data.clips import COLUMNS, Clip, ClipTable
from daco.data.parquet import (
    arrow_schema,
    attributes_text,
    column_name,
    own_metadata,
    parquet_writer,
    vector_array,
)
from daco.embedding.shards import Recording, Shard, Span, hash_recording, read_shards
from daco.errors import DataError
from daco.files.atomic import atomic_write
from daco.files.remote import REMOTE_THREADS, Location, open_location, parse_location
from daco.text import name_list, quantity

RECORDINGS = "recordings_sha256"
"""The table's metadata about the paths and contents of all clips it was made of."""

HASHES = "audio_sha256"
"""The column with the SHA-256 of each recording."""

QUALITIES = "quality"
"""The column with the sample rate, length and problems of each recording, as JSON."""


def parquet_file(out: Location | str) -> Location:
    """The output's path, if a table may be written there: nothing else is ever replaced."""
    out = parse_location(out)
    if out.suffix != ".parquet":
        raise DataError(f"{out} must be a file with the extension .parquet.")
    if out.is_dir():
        raise DataError(f"{out} is a folder. Choose the name of a file.")
    if out.exists():
        _require_own(out)
    return out


def _require_own(out: Location) -> None:
    import pyarrow
    import pyarrow.parquet as pq

    try:
        with open_location(out) as source:
            metadata = pq.read_schema(source).metadata or {}
    except (pyarrow.ArrowInvalid, OSError):
        metadata = {}
    if b"daco.backbone" not in metadata:
        raise DataError(
            f"{out} exists and was not written by this command. Move it away, or choose another "
            "name."
        )


def changes_since(
    table: ClipTable, out: Location, origin: Mapping[str, str], *, skip: bool
) -> tuple[list[str], int] | None:
    """What differs between a finished table and what embedding would write, in words.

    Parameters
    ----------
    table : ClipTable
        What would be embedded.
    out : path
        Of the finished table.
    origin : mapping
        Of the vectors that would be made.
    skip : bool
        Whether clips that cannot be embedded may be left out.

    Returns
    -------
    (list of str, int) or None
        The differences, and how many clips the finished table leaves out. None without a table.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if not out.is_file():
        return None
    try:
        with open_location(out) as source, pq.ParquetFile(source) as file:
            stored = own_metadata(file.schema_arrow)
            columns = file.read(columns=list(COLUMNS)).to_pydict()
        left_out = {each["path"] for each in json.loads(stored.get("skipped", "[]"))}
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError):
        return ["a file that cannot be read"], 0
    changes = [
        "the networks of its views"
        if name == "views"
        else f"{name} {stored.get(name) or 'unknown'} (now {origin.get(name) or 'none'})"
        for name in dict.fromkeys((*origin, "views"))
        if stored.get(name) != origin.get(name)
    ]
    changes += _changed_clips(table.clips, columns, left_out)
    if left_out and not skip:
        changes.append(f"{quantity(len(left_out), 'clip')} left out, and --on-error is fail")
    if not changes and stored.get(RECORDINGS) != _recordings_sha256(table):
        changes.append("the content of recordings")
    return changes, len(left_out)


def _changed_clips(
    clips: Sequence[Clip], columns: Mapping[str, list[Any]], left_out: Collection[str]
) -> list[str]:
    before = {*columns.get("path", ()), *left_out}
    now = {clip.path for clip in clips}
    changes = [
        f"{quantity(len(paths), kind)} ({name_list(sorted(paths), 3)})"
        for paths, kind in ((now - before, "new clip"), (before - now, "missing clip"))
        if paths
    ]
    if changes:
        return changes
    remaining = [clip for clip in clips if clip.path not in left_out]
    nothing = [None] * len(remaining)  # a table without sessions has no such column
    changed = [name for name in COLUMNS if _values(remaining, name) != columns.get(name, nothing)]
    return [f"the {' and '.join(changed)} of clips"] if changed else []


def _recordings_sha256(table: ClipTable) -> str:
    threads = min(8, os.cpu_count() or 1) if isinstance(table.root, Path) else REMOTE_THREADS
    digest = hashlib.sha256()
    with ThreadPoolExecutor(threads, thread_name_prefix="daco-hash") as pool:
        recordings = pool.map(hash_recording, table.paths())
        for clip, recording in zip(table.clips, recordings, strict=True):
            digest.update(_line(clip.path, recording))
    return digest.hexdigest()


def _line(path: str, recording: Recording) -> bytes:
    return f"{path}\0{recording.sha256}\n".encode()


def write_table(
    table: ClipTable,
    folder: Location,
    spans: list[Span],
    out: Location,
    origin: dict[str, str],
    settings: str,
) -> tuple[int, list[tuple[int, str, str]]]:
    """Write the table, shard by shard; its number of rows, and row, path and reason of skips."""
    import pyarrow as pa

    skipped: list[tuple[int, str, str]] = []
    digest = hashlib.sha256()
    dims: dict[str, int] = {}
    for span, shard in _own_shards(folder, spans, out, settings):
        shard.vectors.pop(LEVELS, None)
        for path, recording in zip(shard.paths, shard.recordings, strict=True):
            digest.update(_line(path, recording))
        rows = zip(range(*span), shard.paths, shard.reasons, strict=True)
        skipped += [(row, path, reason) for row, path, reason in rows if reason is not None]
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
    facts = {"skipped": json.dumps(listed, ensure_ascii=False), RECORDINGS: digest.hexdigest()}
    sessions = any(clip.session for clip in table)
    schema = arrow_schema(dims, {**origin, **facts}, sessions=sessions)
    for name in (HASHES, QUALITIES, LEVELS):
        schema = schema.append(pa.field(name, pa.string(), nullable=False))
    with atomic_write(out, folder) as temporary, parquet_writer(temporary, schema) as writer:
        for span, shard in _own_shards(folder, spans, out, settings):
            embedded = np.array([reason is None for reason in shard.reasons])
            if not embedded.any():
                continue
            clips = [
                clip for clip, keep in zip(table.clips[slice(*span)], embedded, strict=True) if keep
            ]
            arrays = {
                name: pa.array(_values(clips, name), schema.field(name).type)
                for name in COLUMNS
                if name in schema.names
            }
            hashes = [each.sha256 for each in shard.recordings]
            levels = levels_text(shard.vectors.pop(LEVELS))
            for name, texts in ((HASHES, hashes), (QUALITIES, shard.qualities), (LEVELS, levels)):
                arrays[name] = pa.array(np.array(texts, object)[embedded], pa.string())
            for name, matrix in shard.vectors.items():
                arrays[column_name(name, dims)] = vector_array(matrix[embedded])
            writer.write_table(pa.table(arrays, schema=schema))
    return len(table) - len(skipped), skipped


def _own_shards(
    folder: Location, spans: list[Span], out: Location, settings: str
) -> Iterator[tuple[Span, Shard]]:
    """The shards, unless another run changed them: remote folders have no locks."""
    for span, shard in zip(spans, read_shards(folder, spans), strict=True):
        if shard is None or shard.settings != settings:
            raise DataError(
                f"{out}: another run changed or deleted the finished work of this one. Run one "
                "command at a time, and repeat this one."
            )
        yield span, shard


def _values(clips: Sequence[Clip], name: str) -> list[Any]:
    if name == "attributes":
        return [attributes_text(clip.attributes) for clip in clips]
    return [getattr(clip, name) for clip in clips]
