"""Printing of all commands: text, tables, notes, progress bars and interruptions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from daco.text import printable, quantity

_UNLIMITED = 1_000_000
_SHOWN = 20
_UNKNOWN = "-"

MANY = 20
"""Machines from which on commands print one line for each."""

Report = Callable[[str, int, int | None], None]
"""Called with a stage, the number of finished items, and the number of all items."""


class Output(Console):
    """Standard output or standard error, in lines that a terminal can show.

    A pipe or a file gets one line for each paragraph and each row of a table, unless the
    environment variable ``COLUMNS`` sets a width.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False)
        if not (self.file.isatty() or os.environ.get("COLUMNS", "").isdigit()):
            self.width = _UNLIMITED

    def write(self, *texts: str, style: str = "", wrap: bool = True) -> None:
        """Print paragraphs that are no markup; `wrap` is False where they contain paths."""
        for text in texts:
            self.print(Text(printable(text), style), soft_wrap=not wrap)

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, but leave no blanks at the ends of lines in a pipe or a file."""
        if self.is_terminal:
            super().print(*objects, **options)
            return
        with self.capture() as captured:
            super().print(*objects, **options)
        self.file.write(re.sub(r" +$", "", captured.get(), flags=re.MULTILINE))
        self.file.flush()

    def detail(self, *texts: str, style: str = "", indent: int = 4) -> None:
        """Print what belongs to the line above."""
        for text in texts:
            line = Text(printable(text), style)
            self.print(Padding(line, (0, 0, 0, indent), expand=False))

    def notes(self, texts: Iterable[str], label: str = "note") -> None:
        """Print each text after a yellow label."""
        for text in texts:
            lines = "\n".join(map(printable, text.splitlines()))
            self.print(Text.assemble((f"{label}:", "yellow"), f" {lines}"))

    def table(
        self,
        rows: Iterable[Mapping[Any, Any]],
        texts: Iterable[str] | Mapping[str, str],
        numbers: Iterable[str] | Mapping[str, str] = (),
        *,
        title: str = "",
    ) -> None:
        """Print the values of some keys in columns of text and, on the right, of numbers.

        The keys are the headings, unless a mapping says others. Long text is broken; fractions
        have two digits behind the point; values that are not known are dashes.
        """
        left, right = (
            each if isinstance(each, Mapping) else {key: key for key in each}
            for each in (texts, numbers)
        )
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for heading in left.values():
            table.add_column(Text(heading), overflow="fold")
        for heading in right.values():
            table.add_column(Text(heading), justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*(_cell(row.get(key)) for key in (*left, *right)))
        if table.row_count:
            self.print(*([Text(title, "bold")] if title else []), table, "")


def estimate_text(value: Any, low: Any = None, high: Any = None, form: str = ".1f") -> str:
    """A value with its interval, as far as they are known.

    >>> estimate_text(61.24, 40, 80), estimate_text(-0.5, form="+.2f"), estimate_text(None)
    ('61.2 [40.0, 80.0]', '-0.50', '-')
    """
    if _is_unknown(value):
        return _UNKNOWN
    interval = "" if _is_unknown(low) else f" [{low:{form}}, {high:{form}}]"
    return f"{value:{form}}{interval}"


def _is_unknown(value: Any) -> bool:
    return value is None or value != value  # nan


def _cell(value: Any) -> Text:
    if isinstance(value, Text):
        return value
    if _is_unknown(value):
        return Text(_UNKNOWN)
    if isinstance(value, float):
        return Text(f"{value:.2f}")
    return Text(f"{value:,}" if isinstance(value, int) else printable(value))


def print_json(document: Any) -> None:
    """Print a document as indented JSON."""
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


@contextmanager
def progress_bars(console: Console) -> Iterator[Report]:
    """A function that shows one bar per stage; it prints nothing outside a terminal."""
    if not console.is_terminal:
        yield lambda stage, done, total: None
        return
    from rich.progress import Progress

    with Progress(console=console, transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(escape(stage), total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield report


@contextmanager
def interruptible(advice: str | Callable[[], str] = "") -> Iterator[None]:
    """Turn Ctrl-C into one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        text = advice if isinstance(advice, str) else advice()
        Output(stderr=True).write(f"Interrupted. {text}".rstrip())
        raise typer.Exit(130) from None


def show_skipped(console: Output, skipped: Sequence[tuple[str, str]], code: int = 0) -> None:
    """Print which recordings could not be used, and why; with a `code`, exit where there are."""
    if not skipped:
        return
    console.write(f"Left out {quantity(skipped, 'recording')}:")
    console.write(*(f"  {path}: {reason}" for path, reason in skipped[:_SHOWN]), wrap=False)
    if len(skipped) > _SHOWN:
        console.write(f"  ... and {len(skipped) - _SHOWN} more.")
    if code:
        raise typer.Exit(code)
