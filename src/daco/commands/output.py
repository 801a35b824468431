"""The console of all commands: names, paths and numbers are never broken."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

_UNLIMITED = 1_000_000
_FOLDED = 8  # columns that a name gets at least
_WORD = re.compile(r"\s*\S+\s*")


class Output(Console):
    """Standard output or standard error, without line breaks inside words.

    In a terminal, text is wrapped between words, and a table is as wide as its longest words
    need; only columns whose overflow is ``fold`` break names that do not fit. A pipe or a file
    gets one line for each paragraph and each row of a table, unless the environment variable
    ``COLUMNS`` sets a width.
    """

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False)
        self.wraps = self.file.isatty() or os.environ.get("COLUMNS", "").isdigit()
        if not self.wraps:
            self.width = _UNLIMITED

    def print(self, *objects: Any, **options: Any) -> None:
        """Print as rich does, but leave words whole that are longer than a line."""
        if objects and isinstance(objects[0], Table):
            _set_widths(self, objects[0])
            objects = (_Trimmed(objects[0]),)
            options = {"end": "", **options}
        words = all(isinstance(each, str | Text) for each in objects)
        if words and objects and self.wraps and not options.get("soft_wrap"):
            markup = options.pop("markup", None)
            parts = [
                self.render_str(each, markup=markup) if isinstance(each, str) else each
                for each in objects
            ]
            objects = tuple(_wrapped(Text(" ").join(parts), self.width))
            options = {"sep": "\n", **options}
        super().print(*objects, **{"soft_wrap": True, **options})


def _wrapped(text: Text, width: int) -> Iterator[Text]:
    for line in text.split(allow_blank=True):
        for piece in line.divide(_breaks(line.plain, width)):
            piece.rstrip()
            yield piece


def _breaks(line: str, width: int) -> list[int]:
    """Where a line is broken: before words that do not fit, unless they begin it.

    >>> _breaks("a long-word or two", 8)
    [2, 12]
    """
    breaks, used = [], 0
    for word in _WORD.finditer(line):
        if used and used + cell_len(word[0].rstrip()) > width:
            breaks.append(word.start())
            used = 0
        used += cell_len(word[0])
    return breaks


class _Trimmed:
    """A table without the blanks that would follow its lines."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in Segment.split_lines(console.render(self.table, options)):
            while line and not line[-1].text.strip():
                line.pop()
            if line:
                line[-1] = Segment(line[-1].text.rstrip(), line[-1].style)
            yield from line
            yield Segment.line()


def _set_widths(console: Output, table: Table) -> None:
    """Make a table fit: wrap its cells, else leave out its lines, else fold its names."""
    sizes = [_sizes(console, column) for column in table.columns]
    widths = [size[-1] for size in sizes]
    for column, width in zip(table.columns, widths, strict=True):
        column.width, column.max_width = width, None
    folded, whole, _ = zip(*sizes, strict=True)
    _narrow(console, table, widths, whole)
    if _width(console, table) > console.width:
        between = min(1, table.padding[1])
        table.box, table.padding, table.pad_edge = None, (0, between, 0, 0), False
    _narrow(console, table, widths, folded)
    table.width = _width(console, table)


def _narrow(console: Output, table: Table, widths: list[int], least: Sequence[int]) -> None:
    """Take what does not fit from the widest columns that have more than they need."""
    for _ in range(_width(console, table) - console.width):
        loose = [i for i, width in enumerate(widths) if width > least[i]]
        if not loose:
            return
        widest = max(loose, key=widths.__getitem__)
        widths[widest] -= 1
        table.columns[widest].width = widths[widest]


def _width(console: Output, table: Table) -> int:
    options = console.options.update(max_width=_UNLIMITED)
    return Measurement.get(console, options, table).maximum


def _sizes(console: Output, column: Column) -> tuple[int, int, int]:
    """The width of a column with words folded, with words whole, and in one line.

    Only columns whose overflow is ``fold`` are folded. Numbers, which stand on the right, stay
    whole.
    """
    options = console.options.update(max_width=_UNLIMITED)
    header = Measurement.get(console, options, column.header)
    cells = [Measurement.get(console, options, cell) for cell in column.cells]
    lines = max((cell.maximum for cell in cells), default=0)
    natural = max(header.maximum, lines)
    if column.no_wrap:
        natural = max(natural, column.width or 0)
        return natural, natural, natural
    words = max((cell.minimum for cell in cells), default=0)
    kept = lines if column.justify == "right" else words
    whole = max(header.minimum, kept)
    least = max(_FOLDED, kept if column.justify == "right" else 0)
    folded = min(whole, least) if column.overflow == "fold" else whole
    if console.wraps and column.width is not None:
        natural = column.width
    elif console.wraps and column.max_width is not None:
        natural = min(natural, column.max_width)
    return folded, whole, max(whole, natural)
