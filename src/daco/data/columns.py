"""Checked columns of clips, as embedding tables have them in memory."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import COLUMNS, DEFAULT_MACHINE, LABEL_WORDS, ONE_DOMAIN, SPLITS, Clip
from daco.data.dcase import clips_by_name
from daco.errors import InputError
from daco.files.remote import Location, name_of
from daco.text import name_list, printable, quantity
from daco.validation import is_missing, is_utf8

_DEFAULTS = {"machine": DEFAULT_MACHINE, "section": "00", "split": "train"}


def parse_json(text: str) -> Any:
    """The value of a JSON text; None where it is no JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def clip_columns(
    given: Mapping[str, Any],
    n_clips: int,
    names: Iterable[str] = COLUMNS,
    *,
    root: Location | None = None,
    first: int = 0,
) -> dict[str, NDArray[Any]]:
    """Checked columns: the clip columns of those names, and what else is given.

    A given column counts, also where it has missing values. Others are read from the DCASE names
    of the clips, where they have such names; else they have a default. Below a `root`, the folders
    of names count, and its name is the machine of other clips. Rows are counted from `first`.
    """
    named = next((name for name in ("path", "file_name") if name in given), None)
    paths = given[named] if named else [str(row) for row in range(n_clips)]
    columns = {"path": as_column(named or "path", paths, n_clips, kind="path", first=first)}
    values: dict[str, Any] = dict(_DEFAULTS)
    if root is not None:
        values |= {"machine": name_of(root), "domain": ONE_DOMAIN}
    if named and not set(names) <= {"path", "session", *given}:  # no name says the session
        paths = columns["path"].tolist()
        if clips := clips_by_name(paths, root):
            if "split" not in given:
                _require_splits(paths, clips)
            filled = [c or Clip(p, **values) for p, c in zip(paths, clips, strict=True)]
            values = {name: [getattr(clip, name) for clip in filled] for name in COLUMNS}
    for name in (*names, *(name for name in given if name not in COLUMNS)):
        if name != "path":
            value = given.get(name, values.get(name))
            columns[name] = as_column(name, value, n_clips, first=first)
    return columns


def _require_splits(paths: Sequence[str], clips: Sequence[Clip | None]) -> None:
    """An error where clips without a DCASE name, which may be test clips, lie beside such ones."""
    others = [path for path, clip in zip(paths, clips, strict=True) if clip is None]
    if others and any(clip is not None and clip.split != "train" for clip in clips):
        raise InputError(
            "there is no column 'split', and only some names mark test clips as those of DCASE do; "
            f"{quantity(others, 'clip')} would count as training clips: {name_list(others, 3)}. "
            "Add a column 'split' with train or test."
        )


def as_column(
    name: str, values: Any, n_clips: int, kind: str | None = None, first: int = 0
) -> NDArray[Any]:
    """One checked value per clip as an object array (None is missing), or an InputError.

    A single value stands for all clips. NaN and pandas' missing values count as None, and whole
    floats as ints, because pandas turns labels with missing values into floats. `kind` is the clip
    column to check for, if it has another name.
    """
    if not is_utf8(name):
        raise InputError(f"the name of the column {name!r} cannot be written as UTF-8. Rename it.")
    if isinstance(values, np.ndarray | np.generic):
        values = values.tolist()
    if isinstance(values, str | Mapping) or not isinstance(values, Iterable):
        values = [values] * n_clips
    values = list(values)
    if len(values) != n_clips:
        raise InputError(f"column {name!r} has {len(values)} values for {n_clips} clips.")
    column = np.empty(n_clips, dtype=object)
    checked: dict[Any, Any] = {}  # most columns repeat a few words or numbers
    for row, value in enumerate(values):
        plain = value.item() if isinstance(value, np.generic) else value
        is_plain = type(plain) in (str, int) and name != "attributes"  # a mapping is never shared
        if is_plain and plain in checked:
            column[row] = checked[plain]
            continue
        try:
            column[row] = _read_value(kind or name, plain)
        except ValueError as expected:
            shown = printable(plain) if isinstance(plain, str) else plain
            raise InputError(
                f"row {row + first}, column {name!r}: must be {expected}. Got {shown!r} instead."
            ) from None
        if is_plain:
            checked[plain] = column[row]
    return column


def _read_value(name: str, value: Any) -> Any:
    """A value of a clip column, also from its text; a ValueError says what it should have been."""
    if name in _OPTIONAL and (is_missing(value) or value == ""):
        return {} if name == "attributes" else None
    if isinstance(value, str) and not is_utf8(value):
        raise ValueError("text that can be written as UTF-8")
    read, expected = _READERS.get(name, (None, ""))
    result = value if read is None else read(value)
    if read is not None and result is None:
        raise ValueError(expected)
    return result


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _split(value: Any) -> str | None:
    word = str(value).lower()
    return word if word in SPLITS else None


def _label(value: Any) -> int | None:
    return (_NUMBERS | LABEL_WORDS).get(str(value).lower())


def _whole(value: Any) -> int | None:
    if isinstance(value, str):
        digits = value.removesuffix(".0")
        return int(digits) if re.fullmatch("[0-9]{4}", digits) else None
    small = isinstance(value, int | float) and abs(value) < 2**31
    return int(value) if small and value == int(value) else None


def _attributes(value: Any) -> dict[str, str] | None:
    """Attributes from a mapping, JSON text, or the pairs of a Parquet map."""
    if isinstance(value, str):
        value = parse_json(value)
    elif isinstance(value, list) and all(isinstance(p, tuple) and len(p) == 2 for p in value):
        value = dict(value)
    if not isinstance(value, Mapping):
        return None
    attributes = {str(key): str(item) for key, item in value.items()}
    return attributes if all(is_utf8(key + item) for key, item in attributes.items()) else None


_OPTIONAL = ("domain", "year", "label", "session", "attributes")
_NUMBERS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1, "false": 0, "true": 1}
_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    **dict.fromkeys(("path", "machine", "section", "domain"), (_text, "text")),
    "session": (lambda value: _text(value) or str(value).removesuffix(".0"), "text"),
    "split": (_split, f"one of {', '.join(SPLITS)}"),
    "year": (_whole, "a whole number or missing"),
    "label": (_label, "0 (normal), 1 (anomaly) or missing"),
    "attributes": (_attributes, 'a JSON object of text such as {"speed": "2"}'),
}
"""How a value is read, None where it is wrong, and what is expected."""
