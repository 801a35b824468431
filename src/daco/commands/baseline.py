"""``daco baseline``: the challenge's trained autoencoders, to compare with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.console import Output
from daco.commands.options import DomainLevel, Place, as_place
from daco.experiments.autoencoders import EPOCHS, SEED

if TYPE_CHECKING:
    from daco.experiments.autoencoders.run import BaselineRun


def baseline(
    clips: Annotated[
        Place,
        typer.Argument(
            help="Folder of recordings, DCASE data set, or CSV/Parquet manifest.", parser=as_place
        ),
    ],
    out: Annotated[Path, typer.Option(help="The Parquet file of scores; resumes what it finds.")],
    machine: Annotated[
        list[str] | None, typer.Option(help="Only this machine; repeat for more. Default: all.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="The published number is 100.", min=1)] = EPOCHS,
    seed: Annotated[int, typer.Option(help="Seed of weights and batches.", min=0)] = SEED,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    workers: Annotated[int, typer.Option(help="Threads that read files.", min=1)] = 2,
    truth: Annotated[
        Path | None, typer.Option(help="Folder of ground-truth CSVs for test clips.")
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(help="Also write score files here, for daco evaluate.")
    ] = None,
    domain_level: DomainLevel = None,
) -> None:
    """Train the challenge's autoencoder on each machine's normal clips and score its test clips.

    ae-mse is the Simple AE, ae-maha the Selective Mahalanobis AE as published, ae-maha-row the
    same with the distance of the textbook. A finished machine is never trained again: interrupt
    it at will, or work off machines in several processes with one OUT.
    """
    from daco.data.clips import read_clips
    from daco.experiments.autoencoders.run import require_torch, run_baselines
    from daco.experiments.autoencoders.scoretable import write_score_files

    console, errors = Output(), Output(stderr=True)
    require_torch()
    table = read_clips(clips, truth=truth, domain_level=domain_level)
    for oddity in table.remarks:
        errors.print(f"[yellow]note:[/yellow] {escape(oddity)}", highlight=False)
    try:
        with _bars(errors) as progress:
            run = run_baselines(
                table,
                out,
                machines=machine,
                epochs=epochs,
                seed=seed,
                device=device,
                workers=workers,
                progress=progress,
            )
    except KeyboardInterrupt:
        errors.print("Interrupted. Finished machines are kept; the same command goes on.")
        raise typer.Exit(130) from None
    for note in run.notes:
        errors.print(f"[yellow]note:[/yellow] {escape(note)}", highlight=False)
    _show(console, run)
    if scores is not None:
        files = write_score_files(run.table.rows, scores)
        console.print(
            f"{scores}: {len(files)} score files", highlight=False, markup=False, soft_wrap=True
        )


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """Two bars: the machines, and what is being done with the present one."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:>24}"), BarColumn(), MofNCompleteColumn())
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bars:
        tasks = [bars.add_task("machines", total=None), bars.add_task("", total=None)]

        def progress(stage: str, done: int, total: int) -> None:
            task = tasks[0] if stage == "machines" else tasks[1]
            bars.update(task, description=escape(stage[-24:]), completed=done, total=total)

        yield progress


def _show(console: Console, run: BaselineRun) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from daco.data.clips import titled
    from daco.evaluation.metrics import official_score
    from daco.evaluation.scorefiles import machine_title
    from daco.experiments.autoencoders.scoretable import places_of, system_metrics
    from daco.experiments.autoencoders.scoring import SYSTEMS
    from daco.text import quantity

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("machine", overflow="fold")
    for heading in ("test clips", "loss", *SYSTEMS):
        table.add_column(heading, justify="right", no_wrap=True)
    labelled = []
    places = places_of(run.table.rows)
    for (year, machine, section), rows in places.items():
        title = titled(year, machine)
        metrics = system_metrics(rows)
        table.add_row(
            Text(machine_title(title, section)),
            str(rows["path"].nunique()),
            f"{run.table.about['machines'][title]['loss'][-1]:.2f}",
            *(_percent(metrics[system]) for system in SYSTEMS),
        )
        known = {name: values for name, values in metrics.items() if values is not None}
        if len(known) == len(metrics):
            labelled.append(known)
    if labelled:
        table.add_section()
        scores = [100 * official_score([each[system] for each in labelled]) for system in SYSTEMS]
        table.add_row("official score", "", "", *(f"{score:.2f}" for score in scores))
    console.print(table)
    rest = len(places) - len(labelled)
    console.print(
        "In percent: the harmonic mean of a machine's AUCs and pAUC, and of those of all machines. "
        "The loss is that of the last epoch.",
        highlight=False,
    )
    if rest:
        console.print(
            f"{quantity(rest, 'machine')} without complete labels, in no score.", highlight=False
        )
    reused = f", {len(run.reused)} found finished" if run.reused else ""
    console.print(
        f"{run.out}: {quantity(run.trained, 'machine')} trained{reused}, {run.seconds:.0f} s.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )


def _percent(metrics: dict[str, float] | None) -> str:
    from daco.evaluation.metrics import harmonic_mean

    return "-" if metrics is None else f"{100 * harmonic_mean(list(metrics.values())):.2f}"
