"""``daco clips``: what a folder or manifest holds, before anything long is started on it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from daco.commands.options import DomainLevel
from daco.commands.output import Output
from daco.commands.placetype import Place, as_place
from daco.files.remote import REMOTE_THREADS

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from daco.audio.decode import AudioInfo
    from daco.data.clips import Clip, ClipTable

SAMPLE = 5
"""How many clips of each row of the table are looked into unless all are."""

Group = tuple[int | None, str, str, str | None]


def clips(
    source: Annotated[
        Place,
        typer.Argument(
            help="A DCASE data set, a manifest (CSV, Parquet) or a folder of clips.",
            parser=as_place,
        ),
    ],
    truth: Annotated[
        Path | None,
        typer.Option(help="Your checkout of the official evaluator: labels for evaluation sets."),
    ] = None,
    year: Annotated[
        int | None, typer.Option(help="Year of the data set. Default: from its folders.", min=2000)
    ] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Look into every clip, not a few of each kind.")
    ] = False,
    manifest: Annotated[
        Place | None,
        typer.Option(help="Write the table here too (.csv or .parquet).", parser=as_place),
    ] = None,
    domain_level: DomainLevel = None,
) -> None:
    """List the clips of a data set, and everything odd about them."""
    from daco.data.clips import read_clips
    from daco.text import quantity

    console = Output()
    table = read_clips(source, truth=truth, year=year, domain_level=domain_level)
    groups = _grouped(table)
    measured, unreadable = _measure(table, groups, everything=probe)
    console.print(
        f"{quantity(table.clips, 'clip')} of {quantity(len(table.by_machine()), 'machine')} in "
        f"{table.root}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    for of_year in dict.fromkeys(year for year, *_ in groups):
        console.print(_rendered(of_year, groups, measured))
    if not probe and len(measured) + len(unreadable) < len(table):
        console.print(
            f"Length, rate and channels: of {SAMPLE} clips of each row; --probe looks into all.",
            highlight=False,
        )
    console.print()
    if table.domain_note:
        console.print(table.domain_note, markup=False, highlight=False)
    oddities = [*table.oddities, *unreadable, *_mixed(groups, measured)]
    _print_oddities(console, oddities)
    if manifest is not None:
        table.write_manifest(manifest)
        console.print(f"Written: {manifest}", markup=False, highlight=False, soft_wrap=True)


def _grouped(table: ClipTable) -> dict[Group, list[Clip]]:
    groups: dict[Group, list[Clip]] = defaultdict(list)
    for clip in table:
        groups[clip.year, clip.machine, clip.split, clip.domain].append(clip)
    order = ("train", "test", "supplemental")
    return dict(
        sorted(
            groups.items(),
            key=lambda item: (
                item[0][0] or 0,
                item[0][1],
                order.index(item[0][2]),
                item[0][3] or "",
            ),
        )
    )


def _measure(
    table: ClipTable, groups: Mapping[Group, Sequence[Clip]], *, everything: bool
) -> tuple[dict[str, AudioInfo], list[str]]:
    """What the headers say, by path, and a sentence for those that say nothing."""
    from rich.progress import Progress

    from daco.audio.decode import probe
    from daco.errors import DacoError
    from daco.text import name_list, quantity

    def look(clip: Clip) -> AudioInfo | str | None:
        where = table.root / clip.path
        try:
            # An empty file is an oddity of the table already.
            return probe(where) if where.stat().st_size else None
        except (DacoError, OSError) as error:
            return str(error)

    chosen = [
        clip
        for members in groups.values()
        for clip in (members if everything else members[:: -(-len(members) // SAMPLE)])
    ]
    found: dict[str, AudioInfo] = {}
    failed: list[str] = []
    console = Output(stderr=True)
    with (
        Progress(console=console, transient=True, disable=not console.is_terminal) as progress,
        ThreadPoolExecutor(_threads(table.root)) as pool,
    ):
        bar = progress.add_task("looking into clips", total=len(chosen))
        for clip, info in zip(chosen, pool.map(look, chosen), strict=True):
            progress.advance(bar)
            if isinstance(info, str):
                failed.append(info)
            elif info is not None:
                found[clip.path] = info
    if not failed:
        return found, []
    return found, [f"{quantity(failed, 'clip')} cannot be read: {name_list(failed, 3)}"]


def _threads(root: Place) -> int:
    return min(8, 2 * (os.cpu_count() or 1)) if isinstance(root, Path) else REMOTE_THREADS


def _rendered(
    year: int | None, groups: Mapping[Group, Sequence[Clip]], measured: Mapping[str, AudioInfo]
) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title = None if year is None else str(year)
    rendered = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
    for heading in ("machine", "split", "domain"):
        rendered.add_column(heading, overflow="fold", no_wrap=heading == "split")
    for heading in ("normal", "anomaly", "no\nlabel", "seconds", "rate", "ch"):
        rendered.add_column(heading, justify="right", no_wrap=True)
    above: tuple[str, str] | None = None
    for (of_year, machine, split, domain), members in groups.items():
        if of_year != year:
            continue
        if above and above[0] != machine:
            rendered.add_section()
        labels = [clip.label for clip in members]
        infos = [measured[clip.path] for clip in members if clip.path in measured]
        rendered.add_row(
            Text("" if above and above[0] == machine else machine),
            "" if above == (machine, split) else split,
            Text(domain or "-"),
            *(str(labels.count(label) or "-") for label in (0, 1, None)),
            _span([info.seconds for info in infos]),
            _one_of([f"{info.sample_rate / 1000:g}k" for info in infos]),
            _one_of([str(info.channels) for info in infos]),
        )
        above = machine, split
    return rendered


def _span(seconds: Sequence[float]) -> str:
    """Shortest and longest, one number where they are the same."""
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(seconds), max(seconds))) if seconds else ()
    return "-".join(ends)


def _one_of(values: Sequence[str]) -> str:
    return "mixed" if len(set(values)) > 1 else values[0] if values else ""


def _mixed(groups: Mapping[Group, Sequence[Clip]], measured: Mapping[str, AudioInfo]) -> list[str]:
    """Machines whose clips are not all of one rate, length and number of channels."""
    from daco.data.clips import titled

    of_machine: dict[tuple[int | None, str], list[AudioInfo]] = defaultdict(list)
    for (year, machine, _, _), members in groups.items():
        of_machine[year, machine] += [measured[c.path] for c in members if c.path in measured]
    oddities = []
    for key, infos in of_machine.items():
        rates = sorted({info.sample_rate for info in infos})
        channels = sorted({info.channels for info in infos})
        if len(rates) > 1:
            oddities.append(f"{titled(*key)}: rates of {' and '.join(map(str, rates))} Hz mixed.")
        if len(channels) > 1:
            told = " and ".join(map(str, channels))
            oddities.append(f"{titled(*key)}: clips with {told} channels mixed.")
        if len({round(info.seconds, 2) for info in infos}) > 1:
            span = _span([info.seconds for info in infos])
            oddities.append(f"{titled(*key)}: lengths mixed, {span} s.")
    return oddities


def _print_oddities(console: Console, oddities: Sequence[str]) -> None:
    from rich.text import Text

    if not oddities:
        console.print("Nothing odd.")
        return
    ending = "y" if len(oddities) == 1 else "ies"
    console.print(f"{len(oddities)} oddit{ending}:")
    for oddity in oddities:
        console.print(Text(f"- {oddity}"))
