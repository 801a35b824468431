"""``daco download``: weights of the backbones, and the DCASE data sets."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

from daco.commands.console import Output, progress_bars
from daco.commands.options import argument, option
from daco.errors import DownloadError, InputError
from daco.text import quantity, suggestion

if TYPE_CHECKING:
    from daco.files.zenodo import Archive

Split = StrEnum("Split", ["DEV", "TRAIN", "TEST"])
"""Parts of a DCASE data set, each a Zenodo record."""


def download(
    what: Annotated[Literal["weights", "dataset"], argument("Fetch weights or a data set.")],
    target: Annotated[str, argument("Name a network, all, or a folder.")],
    year: Annotated[int | None, option("Fetch the data set of this DCASE year.")] = None,
    machine: Annotated[list[str] | None, option("Fetch only this machine. Repeat it.")] = None,
    split: Annotated[
        list[Split] | None,
        option("Fetch dev, train (additional) or test (evaluation). Repeat it.", metavar="SPLIT"),
    ] = None,
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
        _weights(console, target)
    elif year is None:
        raise InputError("Which year? Give --year, for instance --year 2026.")
    else:
        from daco.files.zenodo import plan_dataset

        plan = plan_dataset(year, target, machines=machine or [], splits=split or list(Split))
        _dataset(console, plan, f"DCASE {year} Task 2")


def _dataset(console: Output, plan: list[Archive], title: str) -> None:
    from daco.files.zenodo import LICENCE, download_dataset

    rows = [vars(each) | {"there": "unpacked" if each.is_unpacked else "-"} for each in plan]
    missing = [row for row in rows if row["there"] == "-"]
    for row in rows:
        row["GB"] = row["size"] / 1e9
    console.table(rows, {"name": "archive", "split": "split"}, ["GB", "there"], title=title)
    left = sum(row["GB"] for row in missing)
    console.write(f"{quantity(plan, 'archive')}, licence {LICENCE}. Still to fetch: {left:.2f} GB.")
    with progress_bars(Output(stderr=True)) as report:
        failed = download_dataset(
            plan, lambda each, done, total: report(f"{each.machine} {each.split}", done, total)
        )
    if failed:
        reasons = "\n".join(f"{name}: {reason}" for name, reason in failed.items())
        raise DownloadError(
            f"{len(failed)} of {quantity(plan, 'archive')} failed. The others are complete. Run "
            f"the same command again for the rest.\n{reasons}"
        )
    there = len(plan) - len(missing)
    console.write(f"Unpacked {quantity(missing, 'archive')}, {there} were already there:")
    console.write(f"  {plan[0].root}", wrap=False)


def _weights(console: Output, name: str) -> None:
    from daco.backbones.weights import SOURCES
    from daco.files.download import download_weights

    if name == "logmel":
        raise InputError("'logmel' has no weights: it works without a download.")
    if name != "all" and name not in SOURCES:
        hint = suggestion(name, SOURCES)
        known = ", ".join(SOURCES)
        raise InputError(f"There are no weights {name!r}.{hint} Choose from {known} and all.")
    sources = list(SOURCES.values()) if name == "all" else [SOURCES[name]]
    for source in sources:
        with progress_bars(Output(stderr=True)) as report:
            path = download_weights(source, progress=partial(report, source.name))
        console.write(f"{source.name} is there, checksum verified, licence {source.licence}:")
        console.write(f"  {path}", wrap=False)
