"""Manifests: a clip table as a CSV or Parquet file that people and other programs write.

Only ``path`` is needed, relative to the manifest's folder or a URI. Columns that are missing are
read from DCASE names. Errors name row and column; rows are counted from 1, without the header.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import posixpath
import re
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from daco.data.clips import COLUMNS, Clip, ClipTable
from daco.data.columns import clip_columns
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import (
    Location,
    bucket_of,
    explain_errors,
    is_remote,
    is_url,
    name_of,
    open_location,
    parse_location,
    statuses,
)
from daco.text import name_list, quantity, spreadsheet_safe, suggestion

_NOTHING = ("", "nan", "none", "null", "<na>")  # what spreadsheets and pandas leave in a cell
_ESCAPED = re.compile(r"^'(?='*[=+\-@\t\r])")  # by `spreadsheet_safe`

Cells = dict[str, list[Any]]
"""The values of columns, None where a cell is empty."""


def read_manifest(
    path: Location, *, year: int | None = None, oddities: list[str]
) -> tuple[Location, list[Clip], dict[str, int]]:
    """Read a manifest: the root of its clips, the clips, and the bytes of each.

    Oddities are appended. The root is the manifest's folder, or the bucket of URLs.
    """
    given, ignored = read_cells(path)
    oddities += [
        f"Column {name_list([name])!r} of {path.name} ignored.{suggestion(name, COLUMNS)}"
        for name in filter(None, ignored)
    ]
    n_clips = len(given["path"])
    splits = given.get("split", [None if "label" in given else "train"] * n_clips)
    root, given["path"] = _located(given["path"], path)
    for name, value in (("machine", name_of(root)), ("section", "00"), ("split", "train")):
        if name in given:
            given[name] = [value if cell is None else cell for cell in given[name]]
    if year is not None:
        given["year"] = [cell or year for cell in given.get("year", [None] * n_clips)]
    try:
        columns = clip_columns(given, n_clips, root=root, first=1)
    except InputError as error:
        raise DataError(error.reason, path=path) from None
    rows = zip(*(columns[name].tolist() for name in COLUMNS), strict=True)
    clips = [Clip(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
    first_row: dict[str, int] = {}
    for row, (clip, split) in enumerate(zip(clips, splits, strict=True), 1):
        if clip.label == 1 and split is None:
            raise DataError(
                f"row {row}, column 'split': missing for an anomaly, which would make it a "
                "training clip. Write train or test in every row.",
                path=path,
            )
        if first_row.setdefault(clip.path, row) != row:
            raise DataError(
                f"row {row}, column 'path': {name_list([clip.path])!r} is already in row "
                f"{first_row[clip.path]}. Name every clip once.",
                path=path,
            )
    files = dict(zip(first_row, statuses(root, list(first_row)), strict=True))
    missing = [f"row {first_row[name]} {name!r}" for name, file in files.items() if file is None]
    if missing:
        raise DataError(
            f"{quantity(missing, 'file')} of {path} not found (paths are relative to its folder): "
            f"{name_list(missing)}."
        )
    return root, clips, {name: file.st_size for name, file in files.items()}


def read_cells(
    path: Location, is_used: Callable[[str], bool] = COLUMNS.__contains__
) -> tuple[Cells, list[str]]:
    """Read the used columns of a CSV or Parquet file, and the names of the others.

    There must be a column ``path``. Names of used columns may have capitals and blanks.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is not a manifest. Give a folder, or a .csv or .parquet file.")

    def plain(name: str) -> str:
        return name.strip() if is_used(name.strip()) else name.strip().lower()

    found = readers[path.suffix.lower()](path, lambda name: is_used(plain(name)))
    names = [plain(name) for name, _ in found]
    if "path" not in names:
        listed = name_list(map(repr, names)) or "none"
        raise DataError(
            f"{path} has no column 'path'; its columns are {listed}. Rename the one with the files."
        )
    repeated = [name for name in names if is_used(name) and names.count(name) > 1]
    if repeated:
        raise DataError(f"{path} has the column {repeated[0]!r} more than once.")
    cells = {
        plain(name): list(map(_cell, values)) for name, values in found if is_used(plain(name))
    }
    if not cells["path"]:
        raise DataError(f"{path} has a header but no rows.")
    if None in cells["path"]:
        row = cells["path"].index(None) + 1
        raise DataError(f"row {row}, column 'path': empty. Name the recording.", path=path)
    if "section" in cells:  # a spreadsheet makes a number of "00"
        texts = (None if cell is None else str(cell) for cell in cells["section"])
        cells["section"] = [text and text.removesuffix(".0").zfill(2) for text in texts]
    return cells, [name for name in names if not is_used(name)]


def _cell(value: Any) -> Any:
    """A value as text without blanks around it, None for an empty cell; attributes as they are."""
    if not isinstance(value, str | int | float):
        return value
    text = str(int(value) if isinstance(value, bool) else value).strip()
    return None if text.lower() in _NOTHING else text


Columns = list[tuple[str, Sequence[Any]]]
"""Names and values of columns as they stand in a file; unused ones may have no values."""


def _read_csv(path: Location, _: Callable[[str], bool]) -> Columns:
    try:
        with explain_errors(path):
            text = path.read_bytes().decode("utf-8-sig")
        first = text.partition("\n")[0]
        delimiter = max(",;\t", key=first.count)  # spreadsheets of half of Europe separate with ;
        rows = csv.reader(StringIO(text, newline=""), delimiter=delimiter)
        lines = [row for row in rows if any(map(str.strip, row))]  # spreadsheets leave empty rows
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8 text. Save it as CSV UTF-8.") from None
    except csv.Error as error:
        raise DataError(f"{path} is not a CSV file: {error}.") from None
    if not lines:
        raise DataError(f"{path} is empty. It needs a header with a column 'path'.")
    for row, line in enumerate(lines):
        if len(line) != len(lines[0]):
            raise DataError(
                f"row {row} has {quantity(line, 'value')}, the header has {len(lines[0])}. Quote "
                "values that contain the separator.",
                path=path,
            )
    columns = zip(*lines, strict=True)
    return [(name, [_ESCAPED.sub("", cell) for cell in cells]) for name, *cells in columns]


def _read_parquet(path: Location, is_used: Callable[[str], bool]) -> Columns:
    from daco.data.parquet import naming_file, open_parquet, values_of

    with (
        naming_file(path),
        open_location(path) as source,
        open_parquet(source, path.stat().st_size) as file,
    ):
        names = file.schema_arrow.names
        wanted = [name for name in names if is_used(name) and names.count(name) == 1]
        content = file.read(columns=wanted)
        return [(name, values_of(content[name]) if name in wanted else []) for name in names]


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
    frame = table.to_pandas()
    if frame["session"].isna().all():
        del frame["session"]
    if is_remote(path) and not is_remote(table.root):
        raise InputError(
            f"A manifest in {path.parent} cannot name the local recordings in {table.root}. Write "
            "the manifest to this computer."
        )
    frame["path"] = [_path_from(path.parent, place) or str(place) for place in table.paths()]
    frame["attributes"] = [
        json.dumps(dict(each), ensure_ascii=False) if each else None for each in frame["attributes"]
    ]
    with atomic_write(path) as temporary:
        if path.suffix.lower() == ".csv":
            frame.map(spreadsheet_safe).to_csv(temporary, index=False, lineterminator="\n")
        else:
            texts = frame.columns.difference(["year", "label"])
            frame.astype(dict.fromkeys(texts, "string")).to_parquet(temporary, index=False)


def _located(texts: Sequence[Any], manifest: Location) -> tuple[Location, list[str]]:
    """The root of the clips, and their paths relative to it.

    The root is the manifest's folder, or the bucket of the first recording if that is a URL.
    """
    root, paths = manifest.parent, []
    for row, text in enumerate(map(str, texts), 1):
        try:
            place = parse_location(text) if is_url(text) else root / text.replace("\\", "/")
        except InputError as error:
            raise DataError(f"row {row}, column 'path': {error.reason}", path=manifest) from None
        if row == 1 and is_remote(place) and is_url(text):
            root = bucket_of(place)
        path = _path_from(root, place)
        if path is None:
            raise DataError(
                f"row {row}, column 'path': {str(place)!r} is not in {root}. Name recordings in "
                "other folders of a store by URLs, and write one manifest for each bucket.",
                path=manifest,
            )
        paths.append(path)
    return root, paths


def _path_from(folder: Location, place: Location) -> str | None:
    """The path of a recording from a folder, with slashes; None if it is elsewhere."""
    if isinstance(folder, Path) and isinstance(place, Path):
        path = os.path.normpath(place)
        with contextlib.suppress(ValueError):  # another drive
            path = os.path.relpath(path, folder)
        return path.replace(os.sep, "/")
    if not is_remote(folder) or not is_remote(place) or folder.protocol != place.protocol:
        return None
    here, there = ("/" + each.path.lstrip("/") for each in (folder, place))
    path = posixpath.relpath(there, here)
    return None if path.startswith("..") else path
