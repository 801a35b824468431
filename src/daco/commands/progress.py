"""Progress of work in stages, on the terminal's error stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console


@contextmanager
def stages(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """One bar per stage, which appears when the stage is first reported."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:>14}"), BarColumn(), MofNCompleteColumn())
    quiet = not console.is_terminal  # a log would get an empty line
    with Progress(*columns, console=console, transient=True, disable=quiet) as bars:
        tasks: dict[str, Any] = {}

        def progress(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done)

        yield progress
