"""Printing of all commands: text, tables, notes, progress bars and interruptions."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from daco.text import printable, quantity

if TYPE_CHECKING:
    from daco.embedding.normals import Skipped

_UNLIMITED = 1_000_000
_SHOWN = 20

MANY = 20
"""Machines from which on commands print one line for each."""
_WORD = re.compile(r"\s*\S+\s*")

Report = Callable[[str, int, int | None], None]
"""Called with a stage, the number of finished items, and the number of all items."""


class Output(Console):
    """Standard output or standard error, without line breaks inside words.

    In a terminal, text is wrapped between words, and a table is as wide as its longest words
    need; only columns whose overflow is ``fold`` break names that do not fit. A pipe or a file
    gets one line for each paragraph and each row of a table, unless the environment variable
    ``COLUMNS`` sets a width.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False)
        if not (self.file.isatty() or os.environ.get("COLUMNS", "").isdigit()):
            self.width = _UNLIMITED

    def print(self, *objects: Any, **options: Any) -> None:
        """Print each object on lines of its own, and leave words whole that exceed a line."""
        parts: list[Any] = []
        for each in objects:
            if isinstance(each, Table):
                parts += _lines(self, each)
            elif isinstance(each, str | Text) and not options.get("soft_wrap"):
                parts += _wrap(self.render_str(each) if isinstance(each, str) else each, self.width)
            else:
                parts.append(each)
        super().print(*parts, **{"sep": "\n", "soft_wrap": True, **options})

    def write(self, text: str, *, style: str = "", wrap: bool = True) -> None:
        """Print text that is no markup; `wrap` is False where it contains a path."""
        self.print(Text(printable(text), style), soft_wrap=not wrap)

    def notes(self, texts: Iterable[str], label: str = "note") -> None:
        """Print each text after a yellow label."""
        for text in texts:
            first, *rest = (escape(printable(line)) for line in text.splitlines() or [""])
            self.print(f"[yellow]{label}:[/yellow] {first}", *rest)


def print_json(document: Any) -> None:
    """Print a document as indented JSON."""
    typer.echo(json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False))


def new_table(texts: Sequence[str], numbers: Sequence[str] = (), **options: Any) -> Table:
    """A table with columns of text, whose first one folds long names, and columns of numbers."""
    defaults: dict[str, Any] = {"box": box.SIMPLE_HEAD, "padding": (0, 1, 0, 0), "show_edge": False}
    table = Table(**(defaults | options))
    for position, heading in enumerate(texts):
        table.add_column(heading, overflow="fold" if position == 0 else "ellipsis")
    for heading in numbers:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


@contextmanager
def progress_bars(console: Console, *, of_bytes: bool = False) -> Iterator[Report]:
    """A function that shows one bar per stage; it prints nothing outside a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    counts = [DownloadColumn(), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns = (TextColumn("{task.description:>14}"), BarColumn(16), *counts, TimeRemainingColumn())
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bars:
        tasks: dict[str, Any] = {}

        def report(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(escape(stage), total=total, completed=done)
            bars.update(tasks[stage], completed=done, total=total)

        yield report


@contextmanager
def interruptible(advice: str | Callable[[], str] = "") -> Iterator[None]:
    """Turn Ctrl-C into one line and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        text = advice if isinstance(advice, str) else advice()
        Output(stderr=True).print(f"Interrupted. {text}".rstrip())
        raise typer.Exit(130) from None


def show_skipped(console: Output, skipped: Skipped, rest: str = "", code: int = 0) -> None:
    """Print which recordings could not be used, and why; with a `code`, exit where there are."""
    if skipped:
        console.write(f"Left out {quantity(skipped, 'recording')}:")
    for path, reason in skipped[:_SHOWN]:
        console.write(f"  {path}: {reason}", wrap=False)
    if len(skipped) > _SHOWN:
        console.write(f"  ... and {len(skipped) - _SHOWN} more{rest}.")
    if skipped and code:
        raise typer.Exit(code)


def _wrap(text: Text, width: int) -> Iterator[Text]:
    """The lines of a text, broken before words that do not fit."""
    for line in text.split(allow_blank=True):
        breaks, used = [], 0
        for word in _WORD.finditer(line.plain):
            if used and used + cell_len(word[0].rstrip()) > width:
                breaks.append(word.start())
                used = 0
            used += cell_len(word[0])
        for part in line.divide(breaks):
            part.rstrip()
            yield part


def _lines(console: Output, table: Table) -> Iterator[Text]:
    """The lines of a table without blanks at their ends, which a terminal might wrap."""
    unlimited = console.options.update(max_width=_UNLIMITED)
    for column in table.columns:
        _protect(console, unlimited, column)
    least = 0
    if Measurement.get(console, unlimited, table).minimum > console.width:
        gap = min(1, table.padding[1])
        table.box, table.padding, table.pad_edge = None, (0, gap, 0, 0), False
        # rich would drop a column, such as the decision, where the others leave it no room.
        least = sum((column.min_width or 0) + gap for column in table.columns) - gap
    options = console.options.update(max_width=max(console.width, least))
    for line in Segment.split_lines(console.render(table, options)):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in line))
        text.rstrip()
        yield text


def _protect(console: Output, unlimited: ConsoleOptions, column: Column) -> None:
    """Keep numbers, which are aligned on the right, and words whole.

    Only columns whose overflow is ``fold`` break words, into parts of eight letters at least.
    """
    header, *cells = (
        Measurement.get(console, unlimited, cell) for cell in (column.header, *column.cells)
    )
    word = max((cell.minimum for cell in cells), default=0)
    line = max((cell.maximum for cell in cells), default=0)
    least = line if column.justify == "right" else word
    if column.overflow == "fold":
        least = min(max(least, header.minimum), max(8, line if column.justify == "right" else 0))
    else:
        least = max(least, header.minimum)
        column.no_wrap = column.no_wrap or least >= max(line, header.maximum)
    column.min_width = max(least, line, header.maximum) if column.no_wrap else least
