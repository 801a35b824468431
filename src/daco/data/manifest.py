"""Manifests: a clip table as a CSV or Parquet file that people and other programs write.

Only ``path`` is needed, relative to the manifest's folder or a URI. Columns that are missing are
read from DCASE names. Errors name row and column; rows are counted from 1, without the header.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import posixpath
import stat
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daco.data.clips import COLUMNS, ONE_DOMAIN, SPLITS, Clip, ClipTable
from daco.data.dcase import clips_by_name
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import (
    Location,
    file_sizes,
    is_url,
    open_location,
    parse_location,
)
from daco.text import name_list, quantity, suggestion

if TYPE_CHECKING:
    from daco.files.stores import RemotePath


_NOTHING = {"", "nan", "none", "null", "<na>"}  # what spreadsheets and pandas leave in a cell
_LABELS = {"0": 0, "0.0": 0, "normal": 0, "1": 1, "1.0": 1, "anomaly": 1}

Row = Mapping[str, str | None]


def read_manifest(
    path: Location, *, year: int | None = None, oddities: list[str]
) -> tuple[Location, list[Clip], dict[str, int]]:
    """The root of a manifest's clips, the clips in its order, and the bytes of each.

    Oddities are appended. The root is the manifest's folder, or the bucket of URIs.
    """
    suffix = path.suffix.lower()
    if suffix == ".csv":
        header, rows = _csv_rows(path)
    elif suffix == ".parquet":
        header, rows = _parquet_rows(path)
    else:
        raise DataError(f"{path} is no manifest: give a folder, or a .csv or .parquet file.")
    if "path" not in header:
        found = name_list(map(repr, header)) or "none"
        raise DataError(f"{path} has no column 'path'; its columns are {found}.")
    if not rows:
        raise DataError(f"{path} has a header but no rows.")
    for name in header:
        if name not in COLUMNS:
            oddities.append(
                f"Column {name_list([name])!r} of {path.name} ignored.{suggestion(name, COLUMNS)}"
            )
    root = _root_of(path, rows)
    inside = (
        _local_path_reader(os.fspath(root)) if isinstance(root, Path) else _remote_path_reader(root)
    )
    clips: list[Clip] = []
    first_row: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        clip = _clip(row, f"{path}, row {number}", root.name, inside, header, year)
        if clip.path in first_row:
            raise DataError(
                f"{path}, row {number}, column 'path': {name_list([clip.path])!r} is row "
                f"{first_row[clip.path]} already. Name every clip once."
            )
        first_row[clip.path] = number
        clips.append(clip)
    clips = _with_names(clips, [*header, *(["year"] if year else [])], path, root)
    sizes: dict[str, int] = {}
    missing: list[str] = []
    paths = [clip.path for clip in clips]
    found_sizes = (
        (_size(os.path.join(root, path)) for path in paths)
        if isinstance(root, Path)
        else file_sizes(root, paths)
    )
    for clip, size in zip(clips, found_sizes, strict=True):
        if size is None:
            missing.append(f"row {first_row[clip.path]} {clip.path!r}")
        else:
            sizes[clip.path] = size
    if missing:
        raise DataError(
            f"{quantity(missing, 'file')} of {path} not found (paths are relative to its folder): "
            f"{name_list(missing)}."
        )
    return root, clips, sizes


def write_manifest(table: ClipTable, path: Location | str) -> None:
    """Write a manifest, CSV or Parquet by its extension, that `read_clips` reads back.

    Paths in it are relative to its own folder, so both can be moved together; they are URIs where
    the recordings are on a remote file system and the manifest is not.
    """
    path = parse_location(path)
    if isinstance(path, Path):
        path = Path(os.path.abspath(path))
    columns = table.columns()
    columns["path"] = _paths_from(path.parent, table)
    columns["attributes"] = [
        json.dumps(dict(each), ensure_ascii=False) if each else None
        for each in columns["attributes"]
    ]
    if path.suffix.lower() == ".csv":
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(zip(*columns.values(), strict=True))
        content = text.getvalue().encode()
    elif path.suffix.lower() == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = ("year", "label")
        schema = pa.schema([(n, pa.int64() if n in numbers else pa.string()) for n in COLUMNS])
        buffer = io.BytesIO()
        pq.write_table(pa.table(columns, schema=schema), buffer)
        content = buffer.getvalue()
    else:
        raise InputError(f"A manifest ends in .csv or .parquet. Got {path.name!r} instead.")
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _paths_from(folder: Location, table: ClipTable) -> list[str]:
    """The clips' paths as a manifest in this folder names them."""
    if isinstance(table.root, Path):
        if not isinstance(folder, Path):
            raise InputError(
                f"{folder} cannot name recordings of this computer, which are in {table.root}. "
                "Write the manifest here."
            )
        root, here = os.path.abspath(table.root), os.fspath(folder)
        whole = (os.path.normpath(os.path.join(root, clip.path)) for clip in table)
        return [_relative_to(each, here) for each in whole]
    places = [table.root / clip.path for clip in table]
    if not isinstance(folder, Path) and folder.bucket == table.root.bucket:
        return [posixpath.relpath(f"/{each.key}", f"/{folder.key}") for each in places]
    # Credentials are not for files; options of S3 are no secret, and say where the store is.
    options = table.root.storage_options["query"] if table.root.protocol == "s3" else ""
    return [f"{each}{options}" for each in places]


def _csv_rows(path: Location) -> tuple[list[str], list[Row]]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
        first = text.split("\n", 1)[0]
        # Spreadsheets of half of Europe separate with semicolons.
        delimiter = max(",;\t", key=first.count) if first else ","
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text. Save it as CSV UTF-8.") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}.") from None
    if not lines:
        raise DataError(f"{path} is empty. A manifest needs a header with a column 'path'.")
    header = _header(lines[0], path)
    rows: list[Row] = []
    for number, values in enumerate((line for line in lines[1:] if line), 1):
        if len(values) != len(header):
            raise DataError(
                f"{path}, row {number} has {quantity(values, 'value')}, the header has "
                f"{len(header)}. Quote values that contain the separator."
            )
        rows.append(dict(zip(header, values, strict=True)))
    return header, rows


def _parquet_rows(path: Location) -> tuple[list[str], list[Row]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_location(path) as source, pq.ParquetFile(source) as file:
            original = file.schema_arrow.names
            header = _header(original, path)
            wanted = [
                name for name, clean in zip(original, header, strict=True) if clean in COLUMNS
            ]
            columns = file.read(columns=wanted).to_pydict()
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} could not be read as Parquet: {reason}") from None
    texts = {
        name.strip().lower(): [_text(value) for value in values] for name, values in columns.items()
    }
    rows: list[Row] = [
        dict(zip(texts, values, strict=True)) for values in zip(*texts.values(), strict=True)
    ]
    return header, rows


def _text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, list | dict):  # a map arrives as pairs
        with contextlib.suppress(TypeError, ValueError):
            return json.dumps(dict(value))
    return str(value)  # refused where a JSON object is needed


def _header(names: list[str], path: Location) -> list[str]:
    header = [name.strip().lower() for name in names]
    repeated = [name for name in COLUMNS if header.count(name) > 1]
    if repeated:
        raise DataError(f"{path} has the column {repeated[0]!r} more than once.")
    return header


def _clip(
    row: Row,
    where: str,
    machine: str,
    inside: Callable[[str], str],
    header: list[str],
    year: int | None,
) -> Clip:
    def cell(name: str) -> str | None:
        value = (row.get(name) or "").strip()
        return None if value.lower() in _NOTHING else value

    def refuse(name: str, expected: str) -> DataError:
        return DataError(
            f"{where}, column {name!r}: {name_list([str(row[name])])!r} is not {expected}."
        )

    if cell("path") is None:
        raise DataError(f"{where}, column 'path': empty. Name the recording.")
    label = cell("label")
    if label is not None and label.lower() not in _LABELS:
        raise refuse("label", "0, 1, normal, anomaly or empty")
    number = None if label is None else _LABELS[label.lower()]
    split = cell("split")
    if split is None:
        if number == 1:
            raise DataError(
                f"{where}, column 'split': missing for an anomaly, and without it a clip is for "
                "training. Say train or test in every row."
            )
        split = "train"
    if split.lower() not in SPLITS:
        raise refuse("split", " or ".join(SPLITS))
    found = _year(cell("year"))
    if found == -1:
        raise refuse("year", "a year")
    section = cell("section") or "00"
    try:
        path = inside(str(row["path"]))
    except InputError as error:
        raise DataError(f"{where}, column 'path': {error}") from None
    return Clip(
        path=path,
        machine=cell("machine") or machine,
        year=year if found is None else found,
        section=section.removesuffix(".0").zfill(2),  # a spreadsheet makes a number of "00"
        domain=cell("domain") if "domain" in header else ONE_DOMAIN,
        split=split.lower(),
        label=number,
        attributes=_attributes(cell("attributes"), where),
    )


def _with_names(clips: list[Clip], known: list[str], path: Location, root: Location) -> list[Clip]:
    """The clips, with what their DCASE names say in place of columns that are not there."""
    missing = [name for name in COLUMNS if name not in known]
    try:
        named = clips_by_name([clip.path for clip in clips], root, split_known="split" in known)
    except InputError as error:
        raise DataError(f"{path}: {error}") from None
    return [
        clip if other is None else replace(clip, **{name: getattr(other, name) for name in missing})
        for clip, other in zip(clips, named or [None] * len(clips), strict=True)
    ]


def _year(text: str | None) -> int | None:
    if text is None:
        return None
    digits = text.removesuffix(".0")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) == 4 else -1


def _attributes(text: str | None, where: str) -> dict[str, str]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise DataError(
            f"{where}, column 'attributes': {name_list([text])!r} is not a JSON object such as "
            '{"speed": "2"}.'
        )
    return {str(key): str(each) for key, each in value.items()}


def _root_of(path: Location, rows: list[Row]) -> Location:
    """Where the clips are; recordings named by URIs are all in the bucket of the first."""
    first = next((text for row in rows if (text := (row.get("path") or "").strip())), "")
    found = parse_location(first) if is_url(first) else path
    return path.parent if isinstance(found, Path) or found is path else found.bucket


def _local_path_reader(root: str) -> Callable[[str], str]:
    """Makes of a path in a manifest the one of a clip: relative and with slashes."""

    def inside(text: str) -> str:
        if is_url(text):
            shown = str(parse_location(text))  # without what is secret
            raise InputError(f"{shown!r} among paths of this computer. Keep them in two manifests.")
        if "\\" in text and not os.path.exists(os.path.join(root, text)):  # written under Windows
            text = text.replace("\\", "/")
        whole = os.path.normpath(os.path.join(root, text))
        within = whole.startswith(os.path.join(root, ""))
        return _slashed(whole) if os.path.isabs(text) and not within else _relative_to(whole, root)

    return inside


def _remote_path_reader(root: RemotePath) -> Callable[[str], str]:
    def inside(text: str) -> str:
        whole = (
            parse_location(text.strip()) if is_url(text.strip()) else root / text.replace("\\", "/")
        )
        if isinstance(whole, Path) or whole.bucket != root.bucket:
            raise InputError(
                f"{str(whole)!r} is elsewhere than {root.bucket}. Name the recordings of "
                "one bucket in one manifest."
            )
        return posixpath.relpath(f"/{whole.key}", f"/{root.key}")

    return inside


def _relative_to(path: str, folder: str) -> str:
    start = os.path.join(folder, "")
    if path.startswith(start):
        return _slashed(path[len(start) :])
    try:
        return _slashed(os.path.relpath(path, folder))
    except ValueError:  # another drive
        return _slashed(path)


def _slashed(path: str) -> str:
    return path.replace(os.sep, "/")


def _size(path: str) -> int | None:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
