"""The table that an embedding run writes, and what a finished one was made from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from daco.backbones.levels import LEVELS
from daco.data.clips import ClipTable
from daco.data.parquet import (
    attributes_text,
    column_name,
    own_metadata,
    vector_array,
    write_parquet,
)
from daco.embedding.parts import (
    HASHES,
    QUALITIES,
    REASON,
    Fingerprint,
    fingerprints,
)
from daco.errors import DataError, InputError
from daco.files.hashing import sha256_of_file
from daco.files.remote import Location, is_file, is_folder, open_location

Skipped = tuple[tuple[str, str], ...]
"""Path and reason of each recording that was left out."""

RECORDINGS = "recordings"
"""The table's metadata with the hash of all clips it was made of, their sizes and times."""

CONTENTS = "contents"
"""The same of the clips that it has, and of the contents of their recordings."""


def replaceable(out: Location) -> dict[str, str]:
    """The metadata of the table at `out`, empty without one: nothing else is ever replaced."""
    if out.suffix != ".parquet":
        raise DataError(f"{out} must be a file with the extension .parquet.")
    if is_folder(out):
        raise DataError(f"{out} is a folder. Choose the name of a file.")
    if not is_file(out):
        return {}
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
    return metadata


def skipped_before(
    table: ClipTable,
    out: Location,
    stored: Mapping[str, str],
    origin: Mapping[str, str],
    *,
    verify: bool,
) -> Skipped:
    """Path and reason of the clips that a finished table left out.

    An `InputError` names what differs between its metadata, `stored`, and the `origin` of the
    vectors that would be made, or the recordings. With `verify` recordings are read and their
    contents count; else their sizes and times.
    """
    changes = [
        "the networks of its views"
        if name == "views"
        else f"{name} {stored.get(name) or 'unknown'} (now {origin.get(name) or 'none'})"
        for name in dict.fromkeys((*origin, "views"))
        if stored.get(name) != origin.get(name)
    ]
    listed = [] if changes else json.loads(stored.get("skipped", "[]"))
    skipped = tuple((each["path"], each["reason"]) for each in listed)
    if not changes and verify:
        left_out = dict(skipped)
        used = replace(table, clips=tuple(clip for clip in table if clip.path not in left_out))
        contents = [sha256_of_file(table.root / clip.path) for clip in used]
        if stored.get(CONTENTS) != recordings_hash(used, contents):
            changes.append("other recordings (their names, domains, labels or contents)")
    elif not changes and stored.get(RECORDINGS) != recordings_hash(table, fingerprints(table)):
        changes.append(
            "other recordings (their names, domains, labels, sizes or times; --verify compares "
            "contents)"
        )
    if changes:
        raise InputError(
            f"{out} was made from something else: {'; '.join(changes)}. Choose another --out, or "
            "replace the table with --force."
        )
    return skipped


def recordings_hash(table: ClipTable, known: Sequence[Fingerprint | str]) -> str:
    """A hash of all that is known of the recordings, and of their fingerprints or contents."""
    columns = table.columns()
    columns["attributes"] = [attributes_text(each) for each in columns["attributes"]]
    return hashlib.sha256(json.dumps([columns, known]).encode()).hexdigest()


def write_table(
    table: ClipTable,
    known: Sequence[Fingerprint],
    parts: Sequence[pa.Table],
    out: Location,
    origin: Mapping[str, str],
) -> Skipped:
    """Write the table from its parts; path and reason of the clips that it leaves out."""
    content = pa.concat_tables(parts)
    reasons = list(zip(table.clips, content[REASON].to_pylist(), strict=True))
    skipped = tuple((clip.path, reason) for clip, reason in reasons if reason is not None)
    if len(skipped) == len(table):
        path, reason = skipped[0]
        raise DataError(
            f"None of the {len(skipped)} clips could be embedded; the first is {path}: {reason}"
        )
    content = content.filter(pa.compute.is_null(content[REASON]))
    left_out = [{"path": path, "reason": reason} for path, reason in skipped]
    used = replace(table, clips=tuple(clip for clip, reason in reasons if reason is None))
    metadata = dict(origin) | {
        "skipped": json.dumps(left_out, ensure_ascii=False),
        RECORDINGS: recordings_hash(table, known),
        CONTENTS: recordings_hash(used, content[HASHES].to_pylist()),
    }
    values = used.columns()
    values |= {name: content[name].to_pylist() for name in (HASHES, QUALITIES, LEVELS)}
    columns = {name: np.fromiter(listed, object, len(used)) for name, listed in values.items()}
    readouts = json.loads(origin["readouts"])
    vectors = {each: _fixed_size(content[column_name(each, readouts)]) for each in readouts}
    write_parquet(columns, vectors, metadata, out)
    return skipped


def _fixed_size(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of lists, which must have one length, as vectors; nothing is copied."""
    sizes = pa.compute.list_value_length(column).unique().to_pylist()
    if len(sizes) > 1:
        raise DataError(
            "The vectors of clips have different lengths. Embed clips of different lengths "
            "separately."
        )
    chunks = [chunk.flatten().to_numpy().reshape(-1, *sizes) for chunk in column.chunks]
    return pa.chunked_array([vector_array(chunk) for chunk in chunks])
