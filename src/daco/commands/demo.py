"""``daco demo``: a synthetic factory from its sounds to a report."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from daco.commands.console import Output, progress_bars
from daco.commands.options import option
from daco.errors import InputError


def demo(
    out: Annotated[Path, option("Write to this folder.")] = Path("daco-demo"),
    seed: Annotated[int, option("Set the seed. Each seed gives other machines.", min=0)] = 0,
    open_page: Annotated[
        bool | None,
        typer.Option(
            "--open/--no-open",
            help="Open the report in a browser, by default if daco runs in a terminal.",
        ),
    ] = None,
) -> None:
    """Record a synthetic factory, embed it, study 51 configurations and write the report.

    The demo takes about a minute. You can try other commands on its recordings, which stay in OUT.
    """
    from daco.commands.study import show_study
    from daco.experiments.demo import MACHINES, run_demo

    console = Output()
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty. Delete it, or choose another folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    half = len(MACHINES) // 2
    console.print(
        f"[bold]A synthetic factory[/bold]: daco chooses on {', '.join(MACHINES[:half])} and "
        f"evaluates on {', '.join(MACHINES[half:])}."
    )
    started = time.perf_counter()
    with progress_bars(Output(stderr=True)) as report:
        result = run_demo(out, seed=seed, progress=report)
    assert result.folder is not None
    page = result.folder / "report.html"
    show_study(console, result, page)
    console.print(f"The demo took {time.perf_counter() - started:.0f} s.")
    if sys.stdout.isatty() if open_page is None else open_page:
        typer.launch(page.resolve().as_uri())
