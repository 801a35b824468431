"""Manifests: a clip table as a CSV or Parquet file that people and other programs write.

Only ``path`` is needed, relative to the manifest's folder or a URI. Columns that are missing are
read from DCASE names. Errors name row and column; rows are counted from 1, without the header.
"""

from __future__ import annotations

import csv
import io
import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from daco.data.clips import COLUMNS, ONE_DOMAIN, Clip, ClipTable
from daco.data.columns import read_value
from daco.data.dcase import clips_by_name
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import Location, file_sizes, is_url, open_location, parse_location
from daco.text import name_list, quantity, suggestion

_NOTHING = {"", "nan", "none", "null", "<na>"}  # what spreadsheets and pandas leave in a cell


def read_manifest(
    path: Location, *, year: int | None = None, oddities: list[str]
) -> tuple[Location, list[Clip], dict[str, int]]:
    """Read a manifest: the root of its clips, the clips, and the bytes of each.

    Oddities are appended. The root is the manifest's folder, or the bucket of URIs.
    """
    header, rows = read_rows(path)
    oddities += [
        f"Column {name_list([name])!r} of {path.name} ignored.{suggestion(name, COLUMNS)}"
        for name in header
        if name not in COLUMNS
    ]
    root = _root_of(path, rows)
    defaults = {"machine": root.name, "year": year}
    if "domain" not in header:
        defaults["domain"] = ONE_DOMAIN
    clips: list[Clip] = []
    first_row: dict[str, int] = {}
    for number, row in enumerate(rows, 1):
        where = f"{path}, row {number}, column"
        clip = _clip(row, where, root, defaults)
        if first_row.setdefault(clip.path, number) != number:
            raise DataError(
                f"{where} 'path': {name_list([clip.path])!r} is already in row "
                f"{first_row[clip.path]}. Name every clip once."
            )
        clips.append(clip)
    clips = _with_names(clips, [*header, *(["year"] if year else [])], path, root)
    sizes = dict(zip(first_row, file_sizes(root, first_row), strict=True))
    missing = [f"row {first_row[name]} {name!r}" for name, size in sizes.items() if size is None]
    if missing:
        raise DataError(
            f"{quantity(missing, 'file')} of {path} not found (paths are relative to its folder): "
            f"{name_list(missing)}."
        )
    return root, clips, {name: size or 0 for name, size in sizes.items()}


def read_rows(
    path: Location, is_used: Callable[[str], bool] = COLUMNS.__contains__
) -> tuple[list[str], list[dict[str, str | None]]]:
    """The columns of a CSV or Parquet file, and the texts of each row; unused ones may be None."""
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise DataError(f"{path} is not a manifest. Give a folder, or a .csv or .parquet file.")
    lines = _csv_lines(path) if path.suffix.lower() == ".csv" else _parquet_lines(path, is_used)
    names = (str(name).strip() for name in next(lines))
    header = [name.lower() if is_used(name.lower()) > is_used(name) else name for name in names]
    if "path" not in header:
        listed = name_list(map(repr, header)) or "none"
        raise DataError(
            f"{path} has no column 'path'; its columns are {listed}. Rename the one with the files."
        )
    repeated = [name for name in header if is_used(name) and header.count(name) > 1]
    if repeated:
        raise DataError(f"{path} has the column {repeated[0]!r} more than once.")
    rows = [dict(zip(header, line, strict=True)) for line in lines]
    if not rows:
        raise DataError(f"{path} has a header but no rows.")
    return header, rows


def write_manifest(table: ClipTable, path: Location | str) -> None:
    """Write a manifest that `read_clips` reads back, as CSV or Parquet by its extension.

    Paths in it are relative to its own folder, so both can be moved together. They are URLs if the
    recordings are on a remote file system and the manifest is not.

    Parameters
    ----------
    table : ClipTable
    path : path or URL
    """
    path = parse_location(path)
    if isinstance(path, Path):
        path = Path(os.path.abspath(path))
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(f"A manifest ends in .csv or .parquet. Got {path.name!r} instead.")
    columns = table.columns()
    if not any(columns["session"]):
        del columns["session"]
    columns["path"] = _paths_from(path.parent, table)
    columns["attributes"] = [
        json.dumps(dict(each), ensure_ascii=False) if each else None
        for each in columns["attributes"]
    ]
    with atomic_write(path) as temporary:
        if path.suffix.lower() == ".csv":
            with temporary.open("w", encoding="utf-8", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerows([tuple(columns), *zip(*columns.values(), strict=True)])
            return
        import pyarrow as pa
        import pyarrow.parquet as pq

        numbers = ("year", "label")
        schema = pa.schema([(n, pa.int64() if n in numbers else pa.string()) for n in columns])
        pq.write_table(pa.table(columns, schema=schema), temporary)


def _paths_from(folder: Location, table: ClipTable) -> list[str]:
    """The clips' paths as a manifest in this folder names them."""
    if isinstance(table.root, Path):
        if not isinstance(folder, Path):
            raise InputError(
                f"A manifest in {folder} cannot name the local recordings in {table.root}. Write "
                "the manifest to this computer."
            )
        root, here = os.path.abspath(table.root), os.fspath(folder)
        return [_relative_to(os.path.normpath(os.path.join(root, c.path)), here) for c in table]
    places = [table.root / clip.path for clip in table]
    if not isinstance(folder, Path) and folder.bucket == table.root.bucket:
        return [posixpath.relpath(f"/{each.key}", f"/{folder.key}") for each in places]
    # Credentials are not for files; options of S3 are no secret, and say where the store is.
    options = table.root.storage_options["query"] if table.root.protocol == "s3" else ""
    return [f"{each}{options}" for each in places]


def _csv_lines(path: Location) -> Iterator[Sequence[str]]:
    """The header of a CSV file, and its rows."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        first = text.partition("\n")[0]
        # Spreadsheets of half of Europe separate with semicolons.
        delimiter = max(",;\t", key=first.count) if first else ","
        lines = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text. Save it as CSV UTF-8.") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}.") from None
    if not lines:
        raise DataError(f"{path} is empty. It needs a header with a column 'path'.")
    yield lines[0]
    for number, values in enumerate(filter(None, lines[1:]), 1):
        if len(values) != len(lines[0]):
            raise DataError(
                f"{path}, row {number} has {quantity(values, 'value')}, the header has "
                f"{len(lines[0])}. Quote values that contain the separator."
            )
        yield values


def _parquet_lines(
    path: Location, is_used: Callable[[str], bool]
) -> Iterator[Sequence[str | None]]:
    """The header of a Parquet file, and its rows as text; other columns are not read."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with open_location(path) as source, pq.ParquetFile(source) as file:
            names = file.schema_arrow.names
            wanted = [name for name in names if is_used(name.strip().lower())]
            unique = list(dict.fromkeys(wanted))
            columns = file.read(columns=unique).to_pydict() if unique == wanted else {}
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} could not be read as Parquet: {reason}") from None
    yield names
    nothing = [None] * len(next(iter(columns.values()), ()))
    for values in zip(*(columns.get(name, nothing) for name in names), strict=True):
        yield [_text(value) for value in values]


def _text(value: Any) -> str | None:
    if isinstance(value, list | dict):  # a map arrives as pairs
        try:
            return json.dumps(dict(value))
        except (TypeError, ValueError):
            return str(value)  # refused where a JSON object is needed
    if isinstance(value, bool):
        value = int(value)
    return None if value is None else str(value)


def read_cells(row: Mapping[str, str | None], where: str) -> dict[str, Any]:
    """What the texts of a row say about a clip; `where` is the beginning of an error."""
    values: dict[str, Any] = {}
    for name in COLUMNS:
        text = (row.get(name) or "").strip()
        try:
            if text.lower() not in _NOTHING:
                values[name] = read_value(name, text)
        except ValueError as expected:
            raise DataError(f"{where} {name!r}: {name_list([text])!r} is not {expected}.") from None
    if "path" not in values:
        raise DataError(f"{where} 'path': empty. Name the recording.")
    if values.get("label") == 1 and "split" not in values:
        raise DataError(
            f"{where} 'split': missing for an anomaly, which would make it a training clip. Write "
            "train or test in every row."
        )
    if "section" in values:  # a spreadsheet makes a number of "00"
        values["section"] = values["section"].removesuffix(".0").zfill(2)
    return values


def _clip(row: Mapping[str, str | None], where: str, root: Location, defaults: Any) -> Clip:
    values = read_cells(row, where)
    try:
        values["path"] = _path_below(root, str(row["path"]))
    except InputError as error:
        raise DataError(f"{where} 'path': {error}") from None
    return Clip(**{**defaults, **values})


def _with_names(
    clips: list[Clip], known: Sequence[str], path: Location, root: Location
) -> list[Clip]:
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


def _root_of(path: Location, rows: Sequence[Mapping[str, str | None]]) -> Location:
    """Where the clips are; recordings named by URIs are all in the bucket of the first."""
    first = next((text for row in rows if (text := (row.get("path") or "").strip())), "")
    location = parse_location(first) if is_url(first) else path
    return path.parent if isinstance(location, Path) or location is path else location.bucket


def _path_below(root: Location, text: str) -> str:
    """The path of a clip, relative to the root where possible and with slashes."""
    if not isinstance(root, Path):
        text = text.strip()
        whole = parse_location(text) if is_url(text) else root / text.replace("\\", "/")
        if isinstance(whole, Path) or whole.bucket != root.bucket:
            raise InputError(
                f"{str(whole)!r} is not in {root.bucket}. Write one manifest for each bucket."
            )
        return posixpath.relpath(f"/{whole.key}", f"/{root.key}")
    if is_url(text):
        shown = str(parse_location(text))  # without what is secret
        raise InputError(f"{shown!r} is remote, but other paths are local. Write two manifests.")
    if "\\" in text and not os.path.exists(os.path.join(root, text)):  # written under Windows
        text = text.replace("\\", "/")
    local = os.path.normpath(os.path.join(root, text))
    within = local.startswith(os.path.join(root, ""))
    if os.path.isabs(text) and not within:
        return local.replace(os.sep, "/")
    return _relative_to(local, os.fspath(root))


def _relative_to(path: str, folder: str) -> str:
    start = os.path.join(folder, "")
    try:
        relative = path[len(start) :] if path.startswith(start) else os.path.relpath(path, folder)
    except ValueError:  # another drive
        relative = path
    return relative.replace(os.sep, "/")
