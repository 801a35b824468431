"""The table that an embedding run writes, and whether one is finished already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daco.backbones.levels import LEVELS
from daco.data.clips import COLUMNS, ClipTable
from daco.data.parquet import attributes_text, column_name, own_metadata, write_parquet
from daco.embedding.batches import (
    HASHES,
    QUALITIES,
    REASON,
    different_lengths,
    require_embedded,
)
from daco.embedding.parts import Fingerprint, fingerprints
from daco.errors import DataError
from daco.files.hashing import sha256_of_file
from daco.files.remote import Location, is_file, is_folder, open_location, parse_location
from daco.text import name_list, quantity

RECORDINGS = "recordings"
"""The table's metadata about the paths, sizes and times of all clips it was made of."""


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
                metadata = own_metadata(pq.read_schema(source))
        except (OSError, ValueError):  # ArrowInvalid is one
            metadata = {}
        if "backbone" not in metadata:
            raise DataError(
                f"{out} exists and was not written by this command. Move it away, or choose "
                "another name."
            )
    return out


def changes_since(
    table: ClipTable, out: Location, origin: Mapping[str, str], *, skip: bool, verify: bool = False
) -> tuple[list[str], int] | None:
    """What differs between a finished table and what embedding would write, in words.

    `origin` is that of the vectors that would be made, and `skip` says whether clips may be left
    out. With `verify` recordings are read and their contents compared; else sizes and times count.

    Returns
    -------
    changes : list of str
        Empty if nothing differs.
    left_out : int
        Number of clips that the table left out. None instead of both if there is no table.
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
    changes += _changed_clips(table, columns, left_out)
    if left_out and not skip:
        changes.append(f"{quantity(len(left_out), 'clip')} left out, and --on-error is fail")
    if not changes and verify:
        changes += _changed_contents(table, columns)
    elif not changes and stored.get(RECORDINGS) != recordings_text(table, fingerprints(table)):
        changes.append("the size or time of recordings (--verify compares their contents)")
    return changes, len(left_out)


def _changed_clips(
    table: ClipTable, columns: Mapping[str, list[Any]], left_out: Collection[str]
) -> list[str]:
    before, now = {*columns["path"], *left_out}, {clip.path for clip in table}
    changes = [
        f"{quantity(len(paths), kind)} ({name_list(sorted(paths), 3)})"
        for paths, kind in ((now - before, "new clip"), (before - now, "missing clip"))
        if paths
    ]
    if changes:
        return changes
    clips = tuple(clip for clip in table if clip.path not in left_out)
    given = replace(table, clips=clips).columns()
    given["attributes"] = [attributes_text(each) for each in given["attributes"]]
    nothing = [None] * len(given["path"])  # a table without sessions has no such column
    changed = [name for name in COLUMNS if given[name] != columns.get(name, nothing)]
    return [f"the {' and '.join(changed)} of clips"] if changed else []


def _changed_contents(table: ClipTable, columns: Mapping[str, list[Any]]) -> list[str]:
    changed = []
    for path, sha256 in zip(columns["path"], columns[HASHES], strict=True):
        try:
            same = sha256_of_file(table.root / path) == sha256
        except FileNotFoundError:
            same = False
        changed += [] if same else [path]
    return [f"the content of recordings ({name_list(changed, 3)})"] if changed else []


def recordings_text(table: ClipTable, known: Sequence[Fingerprint]) -> str:
    """A hash of the paths and fingerprints of all recordings."""
    text = json.dumps([[clip.path for clip in table], known])
    return hashlib.sha256(text.encode()).hexdigest()


def write_table(
    table: ClipTable,
    known: Sequence[Fingerprint],
    parts: Sequence[pa.Table],
    out: Location,
    origin: Mapping[str, str],
    *,
    skip: bool,
) -> tuple[tuple[str, str], ...]:
    """Write the table from its parts; path and reason of the clips that it leaves out."""
    try:
        content = pa.concat_tables(parts, promote_options="default")
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise different_lengths() from None
    reasons = list(zip(table.clips, content[REASON].to_pylist(), strict=True))
    skipped = tuple((clip.path, reason) for clip, reason in reasons if reason is not None)
    for path, reason in skipped:
        if not skip:
            require_embedded(reason, table.root / path)
        if len(skipped) == len(table):
            raise DataError(
                f"None of the {len(skipped)} clips could be embedded; the first is {path}: {reason}"
            )
    content = content.filter(pa.compute.is_null(content[REASON]))
    left_out = [{"path": path, "reason": reason} for path, reason in skipped]
    metadata = dict(origin) | {
        "skipped": json.dumps(left_out, ensure_ascii=False),
        RECORDINGS: recordings_text(table, known),
    }
    clips = tuple(clip for clip, reason in reasons if reason is None)
    values = replace(table, clips=clips).columns()
    values |= {name: content[name].to_pylist() for name in (HASHES, QUALITIES, LEVELS)}
    columns = {name: np.fromiter(listed, object, len(clips)) for name, listed in values.items()}
    readouts = json.loads(origin["readouts"])
    vectors = {readout: content[column_name(readout, readouts)] for readout in readouts}
    write_parquet(columns, vectors, metadata, out)
    return skipped
