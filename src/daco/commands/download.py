"""``daco download``: weights of the backbones, and the DCASE data sets."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.table import Table

from daco.commands.console import Output, progress_bars
from daco.commands.options import argument, flag, option
from daco.errors import DownloadError, InputError
from daco.text import quantity, suggestion

if TYPE_CHECKING:
    from daco.files.zenodo import Archive


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
    what: Annotated[
        What, argument("Fetch weights of networks (weights) or a DCASE data set (dataset).")
    ],
    target: Annotated[
        str, argument("Name the network, or all networks (all), or the folder for the data set.")
    ],
    year: Annotated[int | None, option("Fetch the data set of this DCASE year.")] = None,
    machine: Annotated[
        list[str] | None, option("Fetch only this machine of a data set. Repeat it for more.")
    ] = None,
    split: Annotated[
        list[Split] | None,
        option(
            "Fetch only the development set (dev), additional training set (train) or evaluation "
            "set (test). Repeat it for more."
        ),
    ] = None,
    keep_archives: Annotated[bool, flag("--keep-archives", "Keep the zip files.")] = False,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be fetched, and stop.")] = False,
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Install this file as weights instead of fetching one."),
    ] = None,
) -> None:
    """Fetch weights or a DCASE data set, check them, and unpack the data set.

    After an interruption, run the same command again. The weights go to
    DACO_WEIGHTS_DIR, by default the user's cache. DACO_ZENODO_API names a mirror of Zenodo's API.
    """
    if what is What.WEIGHTS:
        if year is not None or machine or split or keep_archives:
            raise InputError(
                "--year, --machine, --split and --keep-archives belong to a data set. For "
                "weights, give a name alone."
            )
        _weights(target, weights, dry_run)
        return
    if weights is not None:
        raise InputError("Use --weights FILE with daco download weights NAME.")
    if year is None:
        raise InputError("Which year? Give --year, for instance --year 2026.")
    from daco.files.zenodo import LICENCE, download_dataset, plan_dataset

    console = Output()
    plan = plan_dataset(year, target, machines=machine or [], splits=list(map(str, split or Split)))
    present = [archive.is_unpacked for archive in plan]
    left = sum(each.size for each, there in zip(plan, present, strict=True) if not there)
    rows = [
        (each.name, each.split, f"{each.size / 1e9:.2f}", "unpacked" if there else "-")
        for each, there in zip(plan, present, strict=True)
    ]
    _show(console, f"DCASE {year} Task 2", ("archive", "split", "GB", "there"), rows)
    console.write(
        f"{quantity(plan, 'archive')}, licence {LICENCE}. Still to fetch: {left / 1e9:.2f} GB."
    )
    if dry_run:
        return
    with progress_bars(Output(stderr=True), of_bytes=True) as report:

        def show(archive: Archive, done: int, total: int | None) -> None:
            report(f"{archive.machine} {archive.split}", done, total)

        failed = download_dataset(plan, keep_archives, show)
    for name, reason in failed.items():
        console.print(f"[red]{name}[/red]: {escape(reason)}", soft_wrap=True)
    if failed:
        raise DownloadError(
            f"{len(failed)} of {quantity(plan, 'archive')} failed, see above. The others "
            "are complete. Run the same command again for the rest."
        )
    done = quantity(present.count(False), "archive")
    console.write(f"Unpacked {done}, {sum(present)} were already there:")
    console.write(f"  {plan[0].root}", wrap=False)


def _weights(name: str, file: Path | None, dry_run: bool) -> None:
    from daco.backbones.weights import SOURCES
    from daco.files.download import download_weights, install_weights, weights_dir

    if name == "logmel":
        raise InputError("'logmel' has no weights: it works without a download.")
    if name != "all" and name not in SOURCES:
        hint = suggestion(name, SOURCES)
        known = ", ".join(SOURCES)
        raise InputError(f"There are no weights {name!r}.{hint} Choose from {known} and all.")
    if name == "all" and file is not None:
        raise InputError("--weights FILE is one file. Give the name of its backbone, not 'all'.")
    sources = list(SOURCES.values()) if name == "all" else [SOURCES[name]]
    console = Output()
    if dry_run:
        rows = [
            (each.name, each.file_name, each.licence, "yes" if each.path.is_file() else "-")
            for each in sources
        ]
        _show(console, "Weights", ("name", "file", "licence", "there"), rows)
        console.write(f"They belong into {weights_dir()}", wrap=False)
        return
    for source in sources:
        done = "was already there" if source.matches(source.path) else "fetched"
        if file is not None:
            path, done = install_weights(source, file), "installed"
        else:
            with progress_bars(Output(stderr=True), of_bytes=True) as report:
                path = download_weights(source, progress=partial(report, source.name))
        console.write(f"{source.name} {done}, checksum verified, licence {source.licence}:")
        console.write(f"  {path}", wrap=False)


def _show(
    console: Output, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]
) -> None:
    table = Table(*headings, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)
