"""``daco download``: weights of the backbones, and the DCASE data sets."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from daco.commands.output import Output
from daco.errors import DownloadError, InputError
from daco.text import suggestion

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.progress import Progress, TaskID

    from daco.files.download import PlannedFile
    from daco.files.download.checkpoints import WeightSource
    from daco.files.download.transfer import Fetched


class What(StrEnum):
    """What can be downloaded."""

    WEIGHTS = "weights"
    DATASET = "dataset"


class Split(StrEnum):
    """Parts of a DCASE data set, each a Zenodo record."""

    DEV = "dev"
    TRAIN = "train"
    TEST = "test"


def download(
    what: Annotated[What, typer.Argument(help="What to fetch.")],
    target: Annotated[
        str, typer.Argument(help="weights: a backbone, or 'all'. dataset: the folder to fill.")
    ],
    year: Annotated[int | None, typer.Option(help="dataset: the DCASE year.")] = None,
    machine: Annotated[
        list[str] | None, typer.Option(help="dataset: only this machine (repeatable).")
    ] = None,
    split: Annotated[
        list[Split] | None,
        typer.Option(
            help="dataset: only dev (development), train (additional training) or test "
            "(evaluation); repeatable."
        ),
    ] = None,
    keep_archives: Annotated[
        bool, typer.Option("--keep-archives", help="dataset: keep the zip files.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="dataset: replace files with other content.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be fetched, and stop.")
    ] = False,
    weights: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="weights: install this file, carried here by hand, instead of fetching it.",
        ),
    ] = None,
) -> None:
    """Fetch weights or a data set: verified, resumed where it broke off, unpacked safely.

    Run it again after an interruption. Weights go to DACO_WEIGHTS_DIR, by default the user's
    cache; DACO_ZENODO_API names a mirror of Zenodo's API.
    """
    if what is What.WEIGHTS:
        if year is not None or machine or split or keep_archives or overwrite:
            raise InputError(
                "--year, --machine, --split, --keep-archives and --overwrite belong to a data "
                "set. For weights, give a name alone."
            )
        _weights(target, weights, dry_run)
        return
    if weights is not None:
        raise InputError("--weights FILE belongs to `daco download weights NAME`.")
    if year is None:
        raise InputError("Which year? Give --year, for instance --year 2026.")
    _dataset(year, target, machine or [], split or list(Split), keep_archives, overwrite, dry_run)


def _weights(name: str, file: Path | None, dry_run: bool) -> None:
    from daco.backbones.weights import SOURCES
    from daco.files.download import download_weights, install_weights
    from daco.files.download.checkpoints import weights_dir

    if name == "logmel":
        raise InputError("'logmel' has no weights: it works without a download.")
    if name != "all" and name not in SOURCES:
        raise InputError(
            f"There are no weights {name!r}.{suggestion(name, SOURCES)} "
            f"There are {', '.join(SOURCES)}."
        )
    if name == "all" and file is not None:
        raise InputError("--weights FILE is one file. Give the name of its backbone, not 'all'.")
    sources = list(SOURCES.values()) if name == "all" else [SOURCES[name]]
    console = Output()
    if dry_run:
        _show_sources(console, sources, weights_dir())
        return
    for source in sources:
        if file is not None:
            fetched = install_weights(source, file)
        else:
            with _progress() as bars:
                task = bars.add_task(source.name, total=source.size)
                fetched = download_weights(source, progress=_reporter(bars, task))
                bars.update(task, visible=fetched.status != "present")
        _show_fetched(console, source, fetched)


def _show_sources(console: Console, sources: Sequence[WeightSource], folder: Path) -> None:
    console.print(f"Weights, to come into {folder}", markup=False)
    table = Table()
    for heading in ("name", "file", "licence", "there"):
        table.add_column(heading)
    for source in sources:
        there = (folder / source.name / source.file_name).is_file()
        table.add_row(source.name, source.file_name, source.licence, "yes" if there else "no")
    console.print(table)


def _show_fetched(console: Console, source: WeightSource, fetched: Fetched) -> None:
    how = {
        "present": "was there",
        "fetched": "fetched",
        "resumed": "fetched (continued)",
        "installed": "installed",
    }[fetched.status]
    state = "checksum verified" if fetched.verified else "[yellow]no pin to verify it by[/yellow]"
    console.print(
        f"[bold]{source.name}[/bold] {how}, {fetched.size / 1e6:.1f} MB, {state}, "
        f"licence {source.licence}",
        highlight=False,
    )
    console.print(f"  {escape(str(fetched.path))}", highlight=False, soft_wrap=True)
    console.print(f"  {fetched.checksum}", highlight=False, soft_wrap=True)
    if fetched.note:
        console.print(f"  [yellow]{escape(fetched.note)}[/yellow]", highlight=False)


def _dataset(
    year: int,
    folder: str,
    machines: Sequence[str],
    splits: Sequence[Split],
    keep_archives: bool,
    overwrite: bool,
    dry_run: bool,
) -> None:
    from daco.files.download import download_dataset, plan_dataset

    console = Output()
    plan = plan_dataset(year, folder, machines=machines, splits=[str(each) for each in splits])
    _show_plan(console, year, plan)
    if dry_run:
        return
    with _progress() as bars:
        tasks = {}

        def show(planned: PlannedFile, phase: str, have: int, total: int | None) -> None:
            key = planned.file.name, phase
            if key not in tasks:
                tasks[key] = bars.add_task(f"{phase} {planned.file.machine} {planned.file.split}")
            bars.update(tasks[key], completed=have, total=total)

        report = download_dataset(
            plan, keep_archives=keep_archives, overwrite=overwrite, progress=show
        )
    for name, reason in report.failed:
        console.print(f"[red]{name}[/red]: {escape(reason)}", highlight=False, soft_wrap=True)
    if report.failed:
        raise DownloadError(
            f"{len(report.failed)} of {_archives(len(plan))} failed, see above. What is complete "
            "stays: run the same command again for the rest."
        )
    console.print(
        f"{_archives(len(report.done))} unpacked now, {len(report.present)} there before:",
        highlight=False,
    )
    console.print(f"  {escape(str(plan[0].root))}", highlight=False, soft_wrap=True)


def _show_plan(console: Console, year: int, plan: Sequence[PlannedFile]) -> None:
    from daco.files.download.zenodo import LICENCE

    table = Table(title=f"DCASE {year} Task 2")
    table.add_column("archive")
    table.add_column("split")
    table.add_column("GB", justify="right")
    table.add_column("there")
    for planned in plan:
        share = planned.bytes_here / planned.file.size if planned.file.size else 0.0
        there = {
            "complete": "unpacked",
            "archive": "the archive",
            "part": f"{100 * share:.0f} %",
            "missing": "-",
        }[planned.state]
        size = f"{planned.file.size / 1e9:.2f}"
        table.add_row(planned.file.name, planned.file.split, size, there)
    console.print(table)
    todo = [planned for planned in plan if planned.state != "complete"]
    left = sum(planned.file.size - min(planned.bytes_here, planned.file.size) for planned in todo)
    console.print(
        f"{_archives(len(plan))}, {sum(each.file.size for each in plan) / 1e9:.2f} GB, licence "
        f"{LICENCE}; to do: {_archives(len(todo))}, {left / 1e9:.2f} GB to be fetched.",
        highlight=False,
    )


def _archives(count: int) -> str:
    return f"{count} archive{'' if count == 1 else 's'}"


def _reporter(bars: Progress, task: TaskID) -> Callable[[int, int | None], None]:
    return lambda have, total: bars.update(task, completed=have, total=total)


def _progress() -> Progress:
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    errors = Output(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=16),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    )
