"""ReportTable: a table of the report, on the page and in the files beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from daco.experiments.tables import Key, to_csv, to_latex, to_markdown
from daco.validation import is_missing

Columns = Mapping[Any, Sequence[Any]]

SPLIT_WORDS = {"dev": "development", "eval": "evaluation"}

_TITLES: Mapping[Key, str] = {
    "config": "configuration",
    "dev_omega": "dev score",
    "eval_omega": "eval score",
    "crit_dev": "criterion, dev",
    "crit_eval": "criterion, eval",
    "mean_auc_source": "AUC source",
    "mean_auc_target": "AUC target",
    "auc_source": "AUC source",
    "auc_target": "AUC target",
    "pauc": "pAUC",
}
_FORMATS: Mapping[Key, str] = {"crit_dev": ".3f", "crit_eval": ".3f"}
_CODES = {"config", "criterion_pick", "guarded_pick", "system"}  # names of configurations
# In other columns a whole number is a float that lost its point in a file.
_COUNTS = {"seed", "n_splits", "machines", "count"}


@dataclass(frozen=True)
class ReportTable:
    """A table as the page, and the files beside it, show it.

    ``columns`` are equally long lists by key; ``titles`` and ``formats`` are those of
    :func:`daco.experiments.tables.to_markdown`, beside those that all tables share; the cells of
    the columns in ``heat`` are tinted by their distance from chance.
    """

    name: str
    caption: str
    columns: Columns
    titles: Mapping[Any, str] = field(default_factory=dict)
    formats: Mapping[Any, str] = field(default_factory=dict)
    heat: frozenset[Key] = frozenset()

    def __bool__(self) -> bool:
        return any(len(values) for values in self.columns.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON: what the page is rendered from."""
        cells, options = self._cells(), self._options()
        heads = [
            {
                "group": "" if isinstance(key, str) else key[0],
                "title": options["titles"].get(key, key if isinstance(key, str) else key[1]),
                "format": options["formats"].get(key, ".2f"),
                "numeric": _is_numeric(values),
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
        return {
            "titles": {**_TITLES, **self.titles},
            "formats": {**_FORMATS, **self.formats},
        }

    def _cells(self) -> dict[Key, list[Any]]:
        """The columns with plain values: the same whether or not they have been in a file."""
        return {
            key: [_plain(value, whole=key in _COUNTS) for value in values]
            for key, values in self.columns.items()
        }


def columns_from(rows: Sequence[Sequence[Any]], names: Sequence[str]) -> Columns:
    """Columns by name from a list of rows; none without rows."""
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=bool(rows)))


def columns_of(table: Any, names: Sequence[str]) -> Columns:
    """Those columns of a data frame that exist and hold anything."""
    if table.empty:
        return {}
    return without_missing({name: table[name].tolist() for name in names if name in table})


def without_missing(columns: Columns) -> Columns:
    """The columns that hold anything."""
    return {key: values for key, values in columns.items() if not all(map(is_missing, values))}


def _is_numeric(values: Sequence[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(value, int | float) for value in known)


def _plain(value: Any, *, whole: bool) -> float | int | str | None:
    """A number, a text, or None for what is missing or empty."""
    if is_missing(value) or value == "":
        return None
    if isinstance(value, int | float | np.number):
        return int(value) if whole else float(value)
    return str(value)
