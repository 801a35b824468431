"""``daco embed``: recordings to an embedding table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape

from daco.commands.options import DomainLevel
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.errors import InputError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.data.clips import ClipTable
    from daco.embedding.embed import EmbedReport

SKIPPED_EXIT = 4
"""Exit code when the table was written, but without some of the clips."""

_SHOWN = 20


class OnError(StrEnum):
    """What a recording that cannot be embedded does to the run."""

    fail = "fail"
    skip = "skip"


def embed(
    clips: Annotated[
        Place,
        typer.Argument(
            help="Folder of recordings, DCASE data set, or CSV/Parquet manifest.", parser=as_place
        ),
    ],
    out: Annotated[Place, typer.Option(help="The Parquet file to write.", parser=as_place)],
    backbone: Annotated[str, typer.Option(help="Frozen network, such as beats.")] = "logmel",
    weights: Annotated[Path | None, typer.Option(help="Checkpoint, if not downloaded.")] = None,
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    precision: Annotated[str, typer.Option(help="fp32, tf32 or bf16.")] = "fp32",
    readout: Annotated[
        list[str] | None,
        typer.Option(
            help="How frames become a vector, such as mean, band or rdp-g4; repeat for more. "
            "Default: the network's."
        ),
    ] = None,
    channel: Annotated[
        str,
        typer.Option(
            help="0 or near, 1 or far, mix; lsq, specsub, residual-c0.5 or residual-proj "
            "subtract the far microphone (1) from the near one (0)."
        ),
    ] = "0",
    batch_size: Annotated[int, typer.Option(help="Clips per forward pass.", min=1)] = 32,
    workers: Annotated[
        int | None,
        typer.Option(help="Threads that read files. Default: one per core, 16 for s3://.", min=1),
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="At a file that cannot be used: stop, or leave it out.")
    ] = OnError.fail,
    truth: Annotated[
        Path | None, typer.Option(help="Folder of ground-truth CSVs for test clips.")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Where clips are embedded: local, or ray for a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster: auto, host:6379 or ray://host:10001.")
    ] = None,
    domain_level: DomainLevel = None,
    force: Annotated[
        bool, typer.Option("--force", help="Embed again, and replace a finished table.")
    ] = False,
) -> None:
    """Embed recordings: one row per clip, with its vectors and where they came from.

    Interrupted work is kept beside OUT; the same command goes on from there. A finished table of
    the same recordings and settings is left as it is.

    Exit codes: 0 all clips embedded, 4 some skipped, 2 a mistake in the call or the data.
    """
    from daco.audio.microphones import parse_channel
    from daco.backbones import load
    from daco.compute import require_engine
    from daco.data.clips import read_clips
    from daco.embedding.cost import write_cost
    from daco.embedding.embed import embed_clips
    from daco.embedding.provenance import checked_readouts, origin_of

    console, errors = Output(), Output(stderr=True)
    require_engine(engine, address)
    policy = parse_channel(channel)
    if isinstance(out, Path) and not out.parent.is_dir():
        raise InputError(f"{out.parent} is not a folder. Create it, or choose another --out.")
    table = read_clips(clips, truth=truth, domain_level=domain_level)
    for oddity in table.remarks:
        errors.print(f"[yellow]note:[/yellow] {escape(oddity)}", highlight=False)
    with errors.status(f"loading {backbone}..."):
        # Workers of a cluster load it themselves; here it only tells what it is.
        here = device if engine == "local" else "cpu"
        net = load(backbone, weights=weights, device=here, precision=precision)
    place = None
    if engine == "ray":
        from daco.embedding.cluster import RayEmbedding

        place = RayEmbedding(net, weights=weights, device=device, address=address, threads=workers)
    readouts = checked_readouts(net, readout)
    origin = origin_of(net, readouts, policy, None if place is None else place.device)
    if not force and _is_finished(console, errors, table, out, origin, on_error):
        return
    try:
        with _bar(errors) as progress:
            report = embed_clips(
                table,
                net,
                out,
                readouts=readouts,
                channel=policy,
                batch_size=batch_size,
                workers=workers,
                on_error=on_error.value,
                progress=progress,
                engine=place,
            )
    except KeyboardInterrupt:
        errors.print("Interrupted. Finished work is kept; the same command goes on from there.")
        raise typer.Exit(130) from None
    if place is None:  # the time of many workers is no cost per clip
        write_cost(report, net)
    _show(console, report)
    if report.skipped:
        raise typer.Exit(SKIPPED_EXIT)


def _is_finished(
    console: Console,
    errors: Console,
    table: ClipTable,
    out: Place,
    origin: dict[str, str],
    on_error: OnError,
) -> bool:
    """Whether OUT is what embedding would write; an error where it is something else."""
    from daco.embedding.output import changes_since, parquet_file
    from daco.text import quantity

    with errors.status(f"comparing {out.name} with the recordings..."):
        parquet_file(out)
        found = changes_since(table, out, origin, skip=on_error is OnError.skip)
    if found is None:
        return False
    differences, left_out = found
    if differences:
        raise InputError(
            f"{out} was made of something else: {'; '.join(differences)}. Choose another --out, "
            "or replace the table with --force."
        )
    less = f", {left_out} of them left out" if left_out else ""
    console.print(
        f"{out} is finished: {quantity(table.clips, 'clip')}{less}, the same recordings and "
        "settings. Nothing to do; --force embeds them again.",
        highlight=False,
        markup=False,
        soft_wrap=True,
    )
    if left_out:
        raise typer.Exit(SKIPPED_EXIT)
    return True


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[int, int], None]]:
    """A progress bar whose rate counts the clips of this run only."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.1f} clips/s")

    columns = (
        TextColumn("embedding"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )
    quiet = not console.file.isatty()  # a log would get an empty line
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:

        def progress(done: int, total: int) -> None:
            if not bar.tasks:
                bar.add_task("embed", completed=done, total=total)
            else:
                bar.update(bar.tasks[0].id, completed=done)

        yield progress


def _show(console: Console, report: EmbedReport) -> None:
    rate = f", {report.embedded / report.seconds:.1f} clips/s" if report.embedded else ""
    reused = f" ({report.reused} of an interrupted run)" if report.reused else ""
    # Not wrapped: a path broken over two lines can be neither copied nor searched for.
    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    say(f"{report.out}: {quantity(report.clips, 'clip')}{reused} in {report.seconds:.1f} s{rate}.")
    if not report.skipped:
        return
    say(f"{quantity(report.skipped, 'clip')} skipped:")
    for path, reason in report.skipped[:_SHOWN]:
        say(f"  {path}: {reason}")
    more = len(report.skipped) - _SHOWN
    if more > 0:
        say(f"  ... and {more} more; the table's metadata daco.skipped lists all.")
