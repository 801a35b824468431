"""``daco download``: weights of the backbones, and the DCASE data sets."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from daco.commands.console import Output, progress_bars
from daco.commands.options import argument, flag, option, options
from daco.errors import DownloadError, InputError
from daco.text import quantity, suggestion

if TYPE_CHECKING:
    from daco.files.zenodo import Archive


class Split(StrEnum):
    """Parts of a DCASE data set, each a Zenodo record."""

    DEV = "dev"
    TRAIN = "train"
    TEST = "test"


def download(
    what: Annotated[Literal["weights", "dataset"], argument("Fetch weights or a data set.")],
    target: Annotated[str, argument("Name a network, all, or a folder.")],
    year: Annotated[int | None, option("Fetch the data set of this DCASE year.")] = None,
    machine: Annotated[list[str] | None, option("Fetch only this machine. Repeat it.")] = None,
    split: Annotated[
        list[Split] | None,
        options("Fetch only dev, train (additional training) or test (evaluation). Repeat it."),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be fetched, and stop.")] = False,
) -> None:
    """Fetch weights or a DCASE data set, check them, and unpack the data set.

    After an interruption, run the same command again. The weights go to
    DACO_WEIGHTS_DIR, by default the user's cache. DACO_ZENODO_API names a mirror of Zenodo's API.
    """
    console = Output()
    if what == "weights":
        if year is not None or machine or split:
            raise InputError(
                "--year, --machine and --split belong to a data set. For weights, give a name "
                "alone."
            )
        _weights(console, target, dry_run)
    elif year is None:
        raise InputError("Which year? Give --year, for instance --year 2026.")
    else:
        from daco.files.zenodo import plan_dataset

        plan = plan_dataset(year, target, machines=machine or [], splits=split or list(Split))
        _dataset(console, plan, f"DCASE {year} Task 2", dry_run)


def _dataset(console: Output, plan: list[Archive], title: str, dry_run: bool) -> None:
    from daco.files.zenodo import LICENCE, download_dataset

    rows = [vars(each) | {"there": "unpacked" if each.is_unpacked else "-"} for each in plan]
    missing = [row for row in rows if row["there"] == "-"]
    for row in rows:
        row["GB"] = row["size"] / 1e9
    console.table(rows, {"name": "archive", "split": "split"}, ["GB", "there"], title=title)
    left = sum(row["GB"] for row in missing)
    console.write(f"{quantity(plan, 'archive')}, licence {LICENCE}. Still to fetch: {left:.2f} GB.")
    if dry_run:
        return
    with progress_bars(Output(stderr=True), of_bytes=True) as report:
        failed = download_dataset(
            plan, lambda each, done, total: report(f"{each.machine} {each.split}", done, total)
        )
    for name, reason in failed.items():
        console.write(f"{name}: {reason}", style="red", wrap=False)
    if failed:
        raise DownloadError(
            f"{len(failed)} of {quantity(plan, 'archive')} failed, see above. The others "
            "are complete. Run the same command again for the rest."
        )
    there = len(plan) - len(missing)
    console.write(f"Unpacked {quantity(missing, 'archive')}, {there} were already there:")
    console.write(f"  {plan[0].root}", wrap=False)


def _weights(console: Output, name: str, dry_run: bool) -> None:
    from daco.backbones.weights import SOURCES
    from daco.files.download import download_weights, weights_dir

    if name == "logmel":
        raise InputError("'logmel' has no weights: it works without a download.")
    if name != "all" and name not in SOURCES:
        hint = suggestion(name, SOURCES)
        known = ", ".join(SOURCES)
        raise InputError(f"There are no weights {name!r}.{hint} Choose from {known} and all.")
    sources = list(SOURCES.values()) if name == "all" else [SOURCES[name]]
    if dry_run:
        rows = [vars(each) | {"there": "yes" if each.path.is_file() else "-"} for each in sources]
        columns = {"name": "name", "file_name": "file", "licence": "licence", "there": "there"}
        console.table(rows, columns, title="Weights")
        console.write(f"They belong into {weights_dir()}", wrap=False)
        return
    for source in sources:
        with progress_bars(Output(stderr=True), of_bytes=True) as report:
            path = download_weights(source, progress=partial(report, source.name))
        console.write(f"{source.name} is there, checksum verified, licence {source.licence}:")
        console.write(f"  {path}", wrap=False)
