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
from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from daco.data.clips import COLUMNS, Clip, ClipTable
from daco.data.columns import clip_columns
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write
from daco.files.remote import (
    Location,
    bucket_of,
    explain_errors,
    is_url,
    name_of,
    open_location,
    parse_location,
    statuses,
)
from daco.text import name_list, quantity, spreadsheet_safe, suggestion

_NOTHING = ("", "nan", "none", "null", "<na>")  # what spreadsheets and pandas leave in a cell
_ESCAPED = r"^'(?='*[=+\-@\t\r])"  # by `spreadsheet_safe`


def read_manifest(
    path: Location, *, year: int | None = None, oddities: list[str]
) -> tuple[Location, list[Clip], dict[str, int]]:
    """Read a manifest: the root of its clips, the clips, and the bytes of each.

    Oddities are appended. The root is the manifest's folder, or the bucket of URIs.
    """
    frame = read_texts(path)
    oddities += [
        f"Column {name_list([name])!r} of {path.name} ignored.{suggestion(name, COLUMNS)}"
        for name in filter(None, frame.attrs["ignored"])
    ]
    given = {name: frame[name].tolist() for name in frame}
    root, given["path"] = _located(given["path"], path)
    for name, value in (("machine", name_of(root)), ("section", "00"), ("split", "train")):
        if name in given:
            given[name] = [value if cell is None else cell for cell in given[name]]
    if year is not None:
        given["year"] = [cell or year for cell in given.get("year", [None] * len(frame))]
    try:
        columns = clip_columns(given, len(frame), root=root, first=1)
    except InputError as error:
        raise DataError(error.reason, path=path) from None
    unsplit = frame["split"].isna() if "split" in frame else np.full(len(frame), "label" in frame)
    anomalies = (columns["label"] == 1) & unsplit
    if anomalies.any():
        raise DataError(
            f"row {int(np.argmax(anomalies)) + 1}, column 'split': missing for an anomaly, which "
            "would make it a training clip. Write train or test in every row.",
            path=path,
        )
    rows = zip(*(columns[name].tolist() for name in COLUMNS), strict=True)
    clips = [Clip(**dict(zip(COLUMNS, row, strict=True))) for row in rows]
    first_row: dict[str, int] = {}
    for row, clip in enumerate(clips, 1):
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


def read_texts(path: Location, is_used: Callable[[str], bool] = COLUMNS.__contains__) -> Any:
    """Read the used columns of a CSV or Parquet file as text, None where a cell is empty.

    There must be a column ``path``. ``attrs["ignored"]`` has the names of the other columns.
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is not a manifest. Give a folder, or a .csv or .parquet file.")
    frame = readers[path.suffix.lower()](path, is_used)
    names = [str(name).strip() for name in frame.columns]
    names = [name.lower() if is_used(name.lower()) > is_used(name) else name for name in names]
    frame.columns = names
    if "path" not in names:
        listed = name_list(map(repr, names)) or "none"
        raise DataError(
            f"{path} has no column 'path'; its columns are {listed}. Rename the one with the files."
        )
    repeated = [name for name in names if is_used(name) and names.count(name) > 1]
    if repeated:
        raise DataError(f"{path} has the column {repeated[0]!r} more than once.")
    if frame.empty:
        raise DataError(f"{path} has a header but no rows.")
    used = frame[[name for name in names if is_used(name)]].apply(lambda cells: cells.str.strip())
    used = used.mask(used.apply(lambda cells: cells.isna() | cells.str.lower().isin(_NOTHING)))
    if "section" in used:  # a spreadsheet makes a number of "00"
        used["section"] = used["section"].str.removesuffix(".0").str.zfill(2)
    used = used.astype(object).where(used.notna(), None)
    if used["path"].isna().any():
        row = int(used["path"].isna().argmax()) + 1
        raise DataError(f"row {row}, column 'path': empty. Name the recording.", path=path)
    used.attrs["ignored"] = [name for name in names if not is_used(name)]
    return used


def _read_csv(path: Location, is_used: Callable[[str], bool]) -> Any:
    import pandas as pd

    from daco.data.parquet import LARGE

    with explain_errors(path):
        size = path.stat().st_size
    if size > LARGE:
        raise DataError(f"{path} is larger than {LARGE:,} bytes. Split it, or write Parquet.")
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
    frame = pd.DataFrame(lines[1:], columns=lines[0], dtype=object)
    return frame.replace(_ESCAPED, "", regex=True)


def _read_parquet(path: Location, is_used: Callable[[str], bool]) -> Any:
    """The used columns as text; the others have no values."""
    import pandas as pd

    from daco.data.parquet import naming_file, open_parquet, values_of

    with (
        naming_file(path),
        open_location(path) as source,
        open_parquet(source, path.stat().st_size) as file,
    ):
        names = file.schema_arrow.names
        wanted = [name for name in dict.fromkeys(names) if is_used(name.strip().lower())]
        if any(names.count(name) > 1 for name in wanted):
            return pd.DataFrame(columns=names)
        content = file.read(columns=wanted)
        texts = {name: list(map(_text, values_of(content[name]))) for name in wanted}
    return pd.DataFrame(texts, columns=names, dtype=object)


def _text(value: Any) -> str | None:
    if isinstance(value, list | dict):  # a map arrives as pairs
        try:
            return json.dumps(dict(value))
        except (TypeError, ValueError):
            return str(value)  # refused where a JSON object is needed
    if isinstance(value, bool):
        value = int(value)
    return None if value is None else str(value)


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
    frame["path"] = _paths_from(path.parent, table)
    frame["attributes"] = [
        json.dumps(dict(each), ensure_ascii=False) if each else None for each in frame["attributes"]
    ]
    with atomic_write(path) as temporary:
        if path.suffix.lower() == ".csv":
            frame.map(spreadsheet_safe).to_csv(temporary, index=False, lineterminator="\n")
        else:
            texts = frame.columns.difference(["year", "label"])
            frame.astype(dict.fromkeys(texts, "string")).to_parquet(temporary, index=False)


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
    if not isinstance(folder, Path) and bucket_of(folder) == bucket_of(table.root):
        return [posixpath.relpath(each.path, folder.path) for each in places]
    return list(map(str, places))


def _located(texts: Sequence[str], manifest: Location) -> tuple[Location, list[str]]:
    """The root of the clips, and their paths relative to it where possible, with slashes.

    The root is the manifest's folder. It is the bucket where recordings are named by URIs, or
    elsewhere in a store, which does not understand ``..``.
    """
    root: Location = manifest.parent
    if is_url(texts[0]) and not isinstance(first := parse_location(texts[0]), Path):
        root = bucket_of(first)
    paths = []
    for row, text in enumerate(texts, 1):
        try:
            paths.append(
                _in_folder(root, text) if isinstance(root, Path) else _in_store(root, text)
            )
        except InputError as error:
            raise DataError(f"row {row}, column 'path': {error.reason}", path=manifest) from None
    if not isinstance(root, Path) and any(path.startswith("../") for path in paths):
        bucket = bucket_of(root)
        return bucket, [
            posixpath.relpath(f"/{(root / path).path}", f"/{bucket.path}") for path in paths
        ]
    return root, paths


def _in_store(root: Any, text: str) -> str:
    bucket = bucket_of(root)
    whole = parse_location(text) if is_url(text) else root / text.replace("\\", "/")
    inside = not isinstance(whole, Path) and posixpath.normpath(f"/{whole.path}")
    if not inside or not inside.startswith(f"/{bucket.path}"):
        raise InputError(f"{text!r} is not in {bucket}. Write one manifest for each bucket.")
    return posixpath.relpath(inside, f"/{root.path}")


def _in_folder(root: Path, text: str) -> str:
    if is_url(text):
        shown = str(parse_location(text))  # without what is secret
        raise InputError(f"{shown!r} is remote, but other paths are local. Write two manifests.")
    if "\\" in text and not os.path.exists(os.path.join(root, text)):  # written under Windows
        text = text.replace("\\", "/")
    local = os.path.normpath(os.path.join(root, text))
    if os.path.isabs(text) and not local.startswith(os.path.join(root, "")):
        return local.replace(os.sep, "/")
    return _relative_to(local, os.fspath(root))


def _relative_to(path: str, folder: str) -> str:
    with contextlib.suppress(ValueError):  # another drive
        path = os.path.relpath(path, folder)
    return path.replace(os.sep, "/")
