"""Checked columns of clips, as embedding tables have them in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import COLUMNS, DEFAULT_MACHINE, SPLITS, Clip
from daco.data.dcase import clips_by_name
from daco.errors import InputError
from daco.validation import is_missing, is_utf8

_DEFAULTS: dict[str, Any] = {"machine": DEFAULT_MACHINE, "section": "00", "split": "train"}


def clip_columns(
    given: Mapping[str, Any], n_clips: int, names: Iterable[str] = COLUMNS
) -> dict[str, NDArray[Any]]:
    """Checked columns: the clip columns of those names, and what else is given.

    A column that is given counts, also where it has missing values. One that is not given is read
    from the DCASE names of the clips, where they have such names; else it has a default.
    """
    columns = {}
    named = next((name for name in ("path", "file_name") if name in given), None)
    paths = [str(row) for row in range(n_clips)] if named is None else given[named]
    columns["path"] = as_column(named or "path", paths, n_clips, kind="path")
    missing = [name for name in names if name != "path" and name not in given]
    by_name: dict[str, list[Any]] = {}
    if named and missing:
        paths = columns["path"].tolist()
        clips = clips_by_name(paths, split_known="split" in given)
        if clips is not None:
            named_clips = zip(paths, clips, strict=True)
            filled = [clip or Clip(path, DEFAULT_MACHINE) for path, clip in named_clips]
            by_name = {name: [getattr(clip, name) for clip in filled] for name in COLUMNS}
    for name in names:
        if name != "path":
            values = given.get(name, by_name.get(name, _DEFAULTS.get(name)))
            columns[name] = as_column(name, values, n_clips)
    for name, values in given.items():
        if name not in COLUMNS and np.ndim(values) <= 1:
            columns[name] = as_column(name, values, n_clips)
    return columns


def as_column(name: str, values: Any, n_clips: int, kind: str | None = None) -> NDArray[Any]:
    """One checked value per clip as an object array (None is missing), or an InputError.

    A single value stands for all clips. NaN and pandas' missing values count as None, and whole
    floats as ints, because pandas turns labels with missing values into floats. `kind` is the clip
    column to check for, if it has another name.
    """
    if not is_utf8(name):
        raise InputError(f"the name of the column {name!r} cannot be written as UTF-8. Rename it.")
    alone = isinstance(values, str | int | float | Mapping) or values is None
    if alone or (not isinstance(values, Sequence) and np.ndim(values) == 0):
        single = values.item() if isinstance(values, np.ndarray | np.generic) else values
        values = [single] * n_clips
    listed = values.tolist() if isinstance(values, np.ndarray) else list(values)
    if len(listed) != n_clips:
        raise InputError(f"column {name!r} has {len(listed)} values for {n_clips} clips.")
    check = _CHECKS.get(kind or name)
    column = np.empty(n_clips, dtype=object)
    checked: dict[str, Any] = {}  # most columns repeat a few words; a mapping is never shared
    for row, value in enumerate(listed):
        if isinstance(value, str) and value in checked:
            column[row] = checked[value]
            continue
        plain = value.item() if isinstance(value, np.generic) else value
        try:
            if isinstance(plain, str) and not is_utf8(plain):
                raise _WrongError("must be text that can be written as UTF-8")
            column[row] = plain if check is None else check(plain)
        except _WrongError as wrong:
            raise InputError(f"column {name!r} row {row} {wrong}. Got {plain!r} instead.") from None
        if isinstance(plain, str) and isinstance(column[row], str):
            checked[plain] = column[row]
    return column


class _WrongError(Exception):
    """Says what a value should have been."""


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise _WrongError("must be text")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if is_missing(value) or value == "" else _text(value)


def _split(value: Any) -> str:
    if value not in SPLITS:
        raise _WrongError(f"must be one of {', '.join(SPLITS)}")
    return str(value)


def _whole(value: Any) -> int | None:
    if is_missing(value):
        return None
    small = isinstance(value, int | float) and abs(value) < 2**31
    if not small or value != int(value):
        raise _WrongError("must be a whole number or missing")
    return int(value)


def _label(value: Any) -> int | None:
    label = _whole(value)
    if label not in (0, 1, None):
        raise _WrongError("must be 0 (normal), 1 (anomaly) or missing")
    return label


def _attributes(value: Any) -> dict[str, str]:
    """Attributes from a mapping, JSON text, or the pairs of a Parquet map."""
    if is_missing(value) or value in ("", "{}"):
        return {}
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise _WrongError("must be a JSON object") from None
    if isinstance(value, list) and all(isinstance(p, tuple) and len(p) == 2 for p in value):
        value = dict(value)
    if not isinstance(value, Mapping):
        raise _WrongError("must be a JSON object or a mapping")
    found = {str(key): str(item) for key, item in value.items()}
    if not all(is_utf8(key) and is_utf8(item) for key, item in found.items()):
        raise _WrongError("must be text that can be written as UTF-8")
    return found


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "path": _text,
    "machine": _text,
    "section": _text,
    "domain": _text_or_none,
    "split": _split,
    "year": _whole,
    "label": _label,
    "attributes": _attributes,
}
