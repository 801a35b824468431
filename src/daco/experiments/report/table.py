"""ReportTable: a table of the report, on the page and in the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daco.experiments.tables import Key, to_csv, to_latex, to_markdown
from daco.validation import is_missing

Columns = dict[Key, Sequence[Any]]

CODES = frozenset({"config", "criterion_pick", "guarded_pick", "system"})
"""Columns that hold names of configurations."""

COUNTS = frozenset({"seed", "n_splits", "machines", "count"})
"""Columns of whole numbers; in others a whole number is a float that lost its point in a file."""


@dataclass(frozen=True)
class ReportTable:
    """A table as the page, and the files beside it, show it.

    ``columns`` are equally long lists by key; ``titles`` and ``formats`` are those of
    :func:`daco.experiments.tables.to_markdown`; ``heat`` are the columns whose cells are tinted by
    their distance from chance.
    """

    name: str
    caption: str
    columns: Mapping[Key, Sequence[Any]]
    titles: Mapping[Key, str] = field(default_factory=dict)
    formats: Mapping[Key, str] = field(default_factory=dict)
    heat: frozenset[Key] = frozenset()

    def __bool__(self) -> bool:
        return any(len(values) for values in self.columns.values())

    def cells(self) -> Columns:
        """The columns with plain values: the same whether or not they have been in a file."""
        return {
            key: [_plain(value, whole=key in COUNTS) for value in values]
            for key, values in self.columns.items()
        }

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: what the page is rendered from."""
        cells = self.cells()
        heads = [
            {
                "group": "" if isinstance(key, str) else key[0],
                "title": self.titles.get(key, key if isinstance(key, str) else key[1]),
                "format": self.formats.get(key, ".2f"),
                "numeric": _numeric(cells[key]),
                "heat": key in self.heat,
                "code": key in CODES,
            }
            for key in cells
        ]
        rows = [list(row) for row in zip(*cells.values(), strict=True)]
        return {"name": self.name, "caption": self.caption, "columns": heads, "rows": rows}

    def files(self) -> dict[str, str]:
        """The table's files by the end of their names."""
        cells = self.cells()
        given: dict[str, Any] = {"titles": self.titles, "formats": self.formats}
        label = "tab:" + self.name.replace("_", "-")
        return {
            "md": f"{to_markdown(cells, **given)}\n\n{self.caption}\n",
            "tex": to_latex(cells, self.caption, label, **given) + "\n",
            "csv": to_csv(cells),
        }


def columns_from(rows: Sequence[Sequence[Any]], names: Sequence[Key]) -> Columns:
    """Columns by name from a list of rows; none without rows."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=bool(rows)))


def without_unknown(columns: Columns) -> Columns:
    """The columns that hold anything at all."""
    return {key: values for key, values in columns.items() if not all(map(is_missing, values))}


def _numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) for value in known)


def _plain(value: Any, *, whole: bool) -> float | int | str | None:
    """A number, a text, or None for what is missing or empty."""
    if is_missing(value) or value == "":
        return None
    if isinstance(value, int | float | np.number):
        return int(value) if whole else float(value)
    return str(value)
