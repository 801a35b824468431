"""Tables of records, and estimates with their intervals."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.markup import escape
from rich.text import Text

from daco.commands.console import Output, new_table
from daco.text import printable

UNKNOWN = "-"


def show_records(
    console: Output,
    rows: Iterable[Mapping[Any, Any]],
    texts: Mapping[str, str],
    numbers: Mapping[str, str] | None = None,
    *,
    title: str = "",
) -> None:
    """Print the values of some keys below their headings, numbers on the right.

    Fractions have two digits behind the point; values that are not known are dashes.
    """
    columns = {**texts, **(numbers or {})}
    headings = [escape(heading) for heading in columns.values()]
    table = new_table(headings[: len(texts)], headings[len(texts) :])
    for row in rows:
        table.add_row(*(Text(_cell(row.get(key))) for key in columns))
    if table.row_count:
        console.print(*([f"[bold]{escape(title)}[/bold]"] if title else []), table, "")


def estimate_text(value: Any, low: Any = None, high: Any = None, form: str = ".1f") -> str:
    """A value with its interval, as far as they are known.

    >>> estimate_text(61.24, 40, 80), estimate_text(-0.5, form="+.2f"), estimate_text(None)
    ('61.2 [40.0, 80.0]', '-0.50', '-')
    """
    if _is_unknown(value):
        return UNKNOWN
    interval = "" if _is_unknown(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{value:{form}}{interval}"


def _is_unknown(value: Any) -> bool:
    return value is None or value != value  # nan


def _cell(value: Any) -> str:
    if _is_unknown(value):
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else printable(value)
