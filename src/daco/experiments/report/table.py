"""ReportTable: a table of the report, on the page and in the files beside it."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
import pandas as pd

from daco.experiments.tables import Key, is_numeric, to_csv, to_latex, to_markdown
from daco.validation import is_missing

TEXTS: Mapping[str, Any] = tomllib.loads(
    resources.files("daco.experiments.report").joinpath("templates/texts.toml").read_text("utf-8")
)
"""Captions, titles and formats of all tables."""

_CODES = {"config", "system"}  # names of configurations
# In other columns a whole number is a float that lost its point in a file.
_COUNTS = {"seed", "n_splits", "machines", "count"}


@dataclass(frozen=True)
class ReportTable:
    """A table as the page, and the files beside it, show it.

    Its caption, titles and formats are in ``templates/texts.toml``; ``note``, ``titles`` and
    ``formats`` add what only this study has. The cells of the columns in ``heat`` are tinted by
    their distance from chance.
    """

    name: str
    frame: pd.DataFrame
    note: str = ""
    titles: Mapping[Any, str] = field(default_factory=dict)
    formats: Mapping[Any, str] = field(default_factory=dict)
    heat: frozenset[Key] = frozenset()

    @property
    def caption(self) -> str:
        """What the table shows."""
        return f"{TEXTS[self.name]['caption']} {self.note}".rstrip()

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: what the page is rendered from."""
        cells, options = self._cells(), self._options()
        heads = [
            {
                "group": "" if isinstance(key, str) else key[0],
                "title": options["titles"].get(key, key if isinstance(key, str) else key[1]),
                "format": options["formats"].get(key, ".2f"),
                "numeric": is_numeric(values),
                "heat": key in self.heat,
                "code": key in _CODES,
            }
            for key, values in cells.items()
        ]
        rows = [list(row) for row in zip(*cells.values(), strict=True)]
        return {"name": self.name, "caption": self.caption, "columns": heads, "rows": rows}

    def files(self) -> dict[str, str]:
        """The contents of the table's files by their extension."""
        cells, options = self._cells(), self._options()
        label = "tab:" + self.name.replace("_", "-")
        return {
            "md": f"{to_markdown(cells, **options)}\n\n{self.caption}\n",
            "tex": to_latex(cells, self.caption, label, **options) + "\n",
            "csv": to_csv(cells),
        }

    def _options(self) -> dict[str, Any]:
        shared, own = TEXTS["shared"], TEXTS[self.name]
        return {
            "titles": {**shared["titles"], **own.get("titles", {}), **self.titles},
            "formats": {**shared["formats"], **own.get("formats", {}), **self.formats},
        }

    def _cells(self) -> dict[Key, list[Any]]:
        """The columns with plain values: the same whether or not they have been in a file."""
        keys: list[Any] = list(self.frame)
        return {
            key: [_plain(value, whole=key in _COUNTS) for value in self.frame[key]] for key in keys
        }


def known_columns(frame: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Those of the columns that exist and hold anything."""
    return frame[[name for name in names if name in frame]].dropna(axis=1, how="all")


def _plain(value: Any, *, whole: bool) -> float | int | str | None:
    """A number, a text, or None for what is missing or empty."""
    if is_missing(value) or value == "":
        return None
    if isinstance(value, int | float | np.number):
        return int(value) if whole else float(value)
    return str(value)
