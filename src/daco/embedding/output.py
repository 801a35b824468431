"""The table that an embedding run writes, and whether one is finished already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daco.backbones.levels import LEVELS
from daco.data.clips import COLUMNS, Clip, ClipTable
from daco.data.parquet import (
    attributes_text,
    column_name,
    own_metadata,
    write_parquet,
)
from daco.embedding.parts import Part, fingerprints, read_part
from daco.errors import AudioError, DataError
from daco.files.hashing import sha256_of_file
from daco.files.remote import Location, is_file, is_folder, open_location, parse_location
from daco.text import name_list, quantity

RECORDINGS = "recordings"
"""The table's metadata about the paths, sizes and times of all clips it was made of."""

HASHES = "audio_sha256"
"""The column with the SHA-256 of each recording."""

QUALITIES = "quality"
"""The column with the sample rate, length and problems of each recording, as JSON."""

REASON = "reason"
"""The column of a part that says why a clip was skipped."""


def parquet_file(out: Location | str) -> Location:
    """The output's path, if a table may be written there: nothing else is ever replaced."""
    out = parse_location(out)
    if out.suffix != ".parquet":
        raise DataError(f"{out} must be a file with the extension .parquet.")
    if is_folder(out):
        raise DataError(f"{out} is a folder. Choose the name of a file.")
    if is_file(out):
        try:
            with open_location(out) as source:
                metadata = pq.read_schema(source).metadata or {}
        except (pa.ArrowInvalid, OSError):
            metadata = {}
        if b"daco.backbone" not in metadata:
            raise DataError(
                f"{out} exists and was not written by this command. Move it away, or choose "
                "another name."
            )
    return out


def changes_since(
    table: ClipTable, out: Location, origin: Mapping[str, str], *, skip: bool, verify: bool = False
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
    verify : bool
        Whether to compare the contents of recordings instead of their sizes and times.

    Returns
    -------
    (list of str, int) or None
        The differences, and how many clips the finished table leaves out. None without a table.
    """
    if not is_file(out):
        return None
    try:
        with open_location(out) as source, pq.ParquetFile(source) as file:
            stored = own_metadata(file.schema_arrow)
            columns = file.read(columns=[*COLUMNS, HASHES]).to_pydict()
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
    if not changes and verify:
        hashes = dict(zip(columns["path"], columns[HASHES], strict=True))
        changes += _changed_contents(table, hashes)
    elif not changes and stored.get(RECORDINGS) != recordings_text(table, fingerprints(table)):
        changes.append("the size or time of recordings (--verify compares their contents)")
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


def _changed_contents(table: ClipTable, known: Mapping[str, str]) -> list[str]:
    changed = []
    for path, sha256 in known.items():
        try:
            same = sha256_of_file(table.root / path) == sha256
        except FileNotFoundError:
            same = False
        changed += [] if same else [path]
    return [f"the content of recordings ({name_list(changed, 3)})"] if changed else []


def recordings_text(table: ClipTable, known: Sequence[str]) -> str:
    """A hash of the paths and fingerprints of all recordings."""
    lines = (f"{clip.path}\0{each}\n" for clip, each in zip(table.clips, known, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def write_table(
    table: ClipTable,
    known: Sequence[str],
    folder: Path,
    parts: Sequence[Part],
    out: Location,
    origin: dict[str, str],
    *,
    skip: bool,
) -> list[tuple[int, str, str]]:
    """Write the table from its parts; row, path and reason of the clips that it leaves out."""
    try:
        contents = [read_part(folder / part.name) for part in parts]
        content = pa.concat_tables(contents, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise DataError(
            "The vectors of clips have different lengths. Embed clips of different lengths "
            "separately."
        ) from None
    reasons = content[REASON].to_pylist()
    pairs = zip(table.clips, reasons, strict=True)
    skipped = [(row, clip.path, why) for row, (clip, why) in enumerate(pairs) if why is not None]
    if skipped and not skip:
        _, path, reason = skipped[0]
        advice = "Pass --on-error skip to leave such recordings out."
        raise AudioError(f"{reason} {advice}", path=table.root / path)
    if len(skipped) == len(table):
        raise DataError(
            f"None of the {len(skipped)} clips could be embedded; "
            f"the first is {skipped[0][1]}: {skipped[0][2]}"
        )
    if skipped:
        content = content.filter(pa.compute.is_null(content[REASON]))
    listed = [{"path": path, "reason": reason} for _, path, reason in skipped]
    metadata = origin | {
        "skipped": json.dumps(listed, ensure_ascii=False),
        RECORDINGS: recordings_text(table, known),
    }
    left_out = {row for row, _, _ in skipped}
    clips = [clip for row, clip in enumerate(table.clips) if row not in left_out]
    values = ClipTable(table.root, tuple(clips)).columns()
    values |= {name: content[name].to_pylist() for name in (HASHES, QUALITIES, LEVELS)}
    columns = {}
    for name, listed_values in values.items():
        columns[name] = np.empty(len(clips), dtype=object)
        columns[name][:] = listed_values
    readouts = json.loads(origin["readouts"])
    vectors = {readout: content[column_name(readout, readouts)] for readout in readouts}
    write_parquet(columns, vectors, metadata, out)
    return skipped


def _values(clips: Sequence[Clip], name: str) -> list[Any]:
    if name == "attributes":
        return [attributes_text(clip.attributes) for clip in clips]
    return [getattr(clip, name) for clip in clips]
