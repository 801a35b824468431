"""``daco demo``: a synthetic factory from its sounds to a report."""

from __future__ import annotations

import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from daco.commands.console import Output, Report, progress_bars
from daco.commands.options import option
from daco.errors import InputError

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

SIZE: dict[str, Any] = {"n_source": 90, "n_target": 10, "n_test": 100, "seconds": 5.0}
"""Clips per machine, and their length."""


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

    The demo takes half a minute. You can try other commands on its recordings, which stay in OUT.
    """
    from daco.commands.study import show_study

    console, started = Output(), time.perf_counter()
    if out.exists() and any(out.iterdir()):
        raise InputError(f"{out} is not empty. Delete it, or choose another folder with --out.")
    console.print(
        "[bold]A synthetic factory[/bold]: daco chooses on bearing and fan, and evaluates on motor "
        "and valve."
    )
    with progress_bars(Output(stderr=True)) as report:
        result = run_demo(out, seed, report, **SIZE)
        report("drawing", 0, 1)
        page = result.report()
    show_study(console, result)
    console.write(f"report: {page}", wrap=False)
    console.print(f"The demo took {time.perf_counter() - started:.0f} s.")
    if sys.stdout.isatty() if open_page is None else open_page:
        typer.launch(page.resolve().as_uri())


def run_demo(folder: Path, seed: int, report: Report, **size: Any) -> StudyResult:
    """Record a factory, embed it with ``logmel``, and study the paper's grid.

    Labels of evaluation clips come from truth tables, as those of a challenge do.
    """
    from daco.backbones import load
    from daco.data.sources import read_clips
    from daco.embedding.embed import embed_clips
    from daco.experiments.study import study
    from daco.synthetic.factory import synth_factory

    clips, net = folder / "recordings", load("logmel")
    synth_factory(clips, split="both", seed=seed, progress=partial(report, "recording"), **size)
    for part in ("dev", "eval"):
        progress = partial(report, f"embedding {part}")
        table = folder / f"{part}.parquet"
        embed_clips(read_clips(clips / f"{part}_data"), net, table, progress=progress)
    return study(
        folder / "dev.parquet",
        folder / "eval.parquet",
        truth=clips / "ground_truth",
        baselines=True,
        out=folder / "study",
        progress=report,
    )
