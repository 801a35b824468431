"""What the field commands say about a model: its domains, its cautions, names safe to print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape

from daco.text import quantity

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.detector.normals import Skipped

_SHOWN = 20


def printable(text: Any) -> str:
    """Text of a file, without what would steer a terminal."""
    return "".join(char if char.isprintable() else "�" for char in str(text))


def say(console: Console, text: str, *, style: str | None = None, wrap: bool = True) -> None:
    """A line as it is: no markup, no colours for numbers; not wrapped where it holds a path."""
    console.print(printable(text), highlight=False, markup=False, soft_wrap=not wrap, style=style)


def note(console: Console, texts: Iterable[str], word: str = "note") -> None:
    """Sentences a person should read, one line each."""
    for text in texts:
        console.print(f"[yellow]{word}:[/yellow] {escape(printable(text))}", highlight=False)


def show_domains(console: Console, model: MachineModel, before: MachineModel | None = None) -> None:
    """Clips, floor and leave-one-out rate of each domain; with an arrow where there was another."""
    from rich.table import Table

    table = Table()
    table.add_column("domain", overflow="fold")
    for heading in ("normals", "smallest rate", "flagged when left out"):
        table.add_column(heading, justify="right")
    rows = {name: _domain_row(model, name) for name in model.domains}
    for name, row in rows.items():
        old = _domain_row(before, name) if before is not None else row
        cells = [
            new if new == was else f"{was} -> {new}" for was, new in zip(old, row, strict=True)
        ]
        table.add_row(escape(printable(name)), *cells)
    console.print(table)


def _domain_row(model: MachineModel, name: str) -> tuple[str, str, str]:
    size = model.domain_sizes.get(name)
    if size is None:
        return "0", "-", "-"
    rate = model.leave_one_out_rates()[name]
    return str(size), f"{model.floor()[name]:.3g}", f"{rate:.3f} ({round(rate * size)})"


def show_skipped(console: Console, skipped: Skipped) -> None:
    """Recordings that could not be used, and why."""
    if not skipped:
        return
    say(console, f"{quantity(skipped, 'recording')} left out:")
    for path, reason in skipped[:_SHOWN]:
        say(console, f"  {path}: {reason}", wrap=False)
    if len(skipped) > _SHOWN:
        say(console, f"  ... and {len(skipped) - _SHOWN} more.")
