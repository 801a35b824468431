"""``daco clips``: the content of a folder or manifest, before long work is started on it."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.table import Table
from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output, new_table, progress_bars
from daco.commands.options import Location, flag, location_option, require_folder
from daco.errors import DacoError, DataError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.audio.decode import AudioInfo
    from daco.data.clips import Clip, ClipTable

SAMPLE = 5  # clips of each row of the table that are opened without --probe
_SPLITS = ("train", "test", "supplemental")

Group = tuple[int | None, str, str, str | None]
"""Year, machine, split and domain: a row of the table, with clips of all sections."""


def clips(
    source: shared.Clips,
    truth: shared.Truth = None,
    year: shared.Year = None,
    probe: Annotated[bool, flag("--probe", "Open every clip instead of a few.")] = False,
    manifest: Annotated[
        Location | None,
        location_option("Write a manifest of the clips to this .csv or .parquet file."),
    ] = None,
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
) -> None:
    """List the clips of a data set and everything that looks odd."""
    from daco.data.sources import read_clips

    console = Output()
    require_folder(manifest)
    table = read_clips(
        source, truth=truth, year=year, machine_level=machine_level, domain_level=domain_level
    )
    table, sessions = _with_sessions(table, session_by)
    groups = _group(table)
    infos, unreadable = _measure(table, groups, everything=probe)
    machines = quantity(len(table.by_machine()), "machine")
    console.write(f"{quantity(table.clips, 'clip')} of {machines} in {table.root}", wrap=False)
    for each in dict.fromkeys(year for year, *_ in groups):
        console.print(_year_table(each, groups, infos))
    if not probe and len(infos) + len(unreadable) < len(table):
        console.write(f"daco opened {SAMPLE} clips of each row. --probe opens all clips.")
    console.print()
    for note in (table.understood, *sessions):
        if note:
            console.write(note)
    oddities = [*table.oddities, *unreadable, *_mixtures(groups, infos)]
    ending = "y" if len(oddities) == 1 else "ies"
    console.write(f"{len(oddities)} oddit{ending}:" if oddities else "Nothing looks odd.")
    for oddity in oddities:
        console.write(f"- {oddity}")
    if manifest is not None:
        from daco.data.manifest import write_manifest

        write_manifest(table, manifest)
        console.write(f"Written: {manifest}", wrap=False)


def _with_sessions(table: ClipTable, rule: str | None) -> tuple[ClipTable, list[str]]:
    """The table, its training clips with their sessions, and notes about these."""
    from daco.data.clips import machine_title
    from daco.data.sessions import find_sessions

    training = table.select(split="train").by_machine()
    machines = {machine_title(*key): mine.clips for key, mine in training.items()}
    try:
        found, notes = find_sessions(machines, rule, table.root)
    except DataError as error:
        if rule is not None:
            raise
        return replace(table, oddities=(*table.oddities, str(error))), []
    by_path = {clip.path: clip for clips in found.values() for clip in clips}
    return replace(table, clips=tuple(by_path.get(each.path, each) for each in table)), notes


def _group(table: ClipTable) -> dict[Group, list[Clip]]:
    def order(clip: Clip) -> tuple[int, str, int, str]:
        return clip.year or 0, clip.machine, _SPLITS.index(clip.split), clip.domain or ""

    groups: dict[Group, list[Clip]] = defaultdict(list)
    for clip in sorted(table, key=order):
        groups[clip.year, clip.machine, clip.split, clip.domain].append(clip)
    return groups


def _measure(
    table: ClipTable, groups: Mapping[Group, Sequence[Clip]], *, everything: bool
) -> tuple[dict[str, AudioInfo], list[str]]:
    """The headers of recordings by path, and a sentence about those that cannot be read."""
    from daco.audio.decode import probe
    from daco.files.remote import REMOTE_THREADS

    def look(clip: Clip) -> AudioInfo | str | None:
        path = table.root / clip.path
        try:
            # An empty file is an oddity of the table already.
            return probe(path) if path.stat().st_size else None
        except (DacoError, OSError) as error:
            return str(error)

    chosen = [
        clip
        for members in groups.values()
        for clip in (members if everything else members[:: -(-len(members) // SAMPLE)])
    ]
    infos: dict[str, AudioInfo] = {}
    failures: list[str] = []
    is_local = isinstance(table.root, Path)
    threads = min(8, 2 * (os.cpu_count() or 1)) if is_local else REMOTE_THREADS
    with progress_bars(Output(stderr=True)) as report, ThreadPoolExecutor(threads) as pool:
        for done, (clip, info) in enumerate(zip(chosen, pool.map(look, chosen), strict=True), 1):
            report("opening clips", done, len(chosen))
            if isinstance(info, str):
                failures.append(info)
            elif info is not None:
                infos[clip.path] = info
    if not failures:
        return infos, []
    return infos, [f"{quantity(failures, 'clip')} cannot be read: {name_list(failures, 3)}"]


def _year_table(
    year: int | None, groups: Mapping[Group, Sequence[Clip]], infos: Mapping[str, AudioInfo]
) -> Table:
    headings = ["normal", "anomaly", "no\nlabel", "seconds", "rate", "ch"]
    texts = ["machine", "split", "domain"]
    sections = {each.section for key, clips in groups.items() if key[0] == year for each in clips}
    if len(sections) > 1:
        texts.append("ids" if year == 2020 else "sections")
    table = new_table(texts, headings, title=None if year is None else str(year))
    table.columns[1].no_wrap, table.columns[2].overflow = True, "fold"
    above: tuple[str, str] | None = None
    for (of_year, machine, split, domain), members in groups.items():
        if of_year != year:
            continue
        if above and above[0] != machine:
            table.add_section()
        labels = [clip.label for clip in members]
        headers = [infos[clip.path] for clip in members if clip.path in infos]
        table.add_row(
            Text("" if above and above[0] == machine else machine),
            "" if above == (machine, split) else split,
            Text(domain or "-"),
            *([_range_of({clip.section for clip in members})] if len(sections) > 1 else []),
            *(str(labels.count(label) or "-") for label in (0, 1, None)),
            _span([info.seconds for info in headers]),
            _one_of([f"{info.sample_rate / 1000:g}k" for info in headers]),
            _one_of([str(info.channels) for info in headers]),
        )
        above = machine, split
    return table


def _range_of(sections: set[str]) -> Text:
    """Sections such as 00-05, or 00 02 04 06 where there are gaps."""
    names = sorted(sections)
    ends = [name for name in (names[0], names[-1]) if name.isdecimal()]
    whole = len(names) > 2 and len(ends) == 2 and int(ends[1]) - int(ends[0]) == len(names) - 1
    return Text(f"{names[0]}-{names[-1]}" if whole else " ".join(names))


def _span(seconds: Sequence[float]) -> str:
    """Shortest and longest, one number where they are the same."""
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(seconds), max(seconds))) if seconds else ()
    return "-".join(ends)


def _one_of(values: Sequence[str]) -> str:
    return "mixed" if len(set(values)) > 1 else values[0] if values else ""


def _mixtures(groups: Mapping[Group, Sequence[Clip]], infos: Mapping[str, AudioInfo]) -> list[str]:
    """Machines whose clips are not all of one rate, length and number of channels."""
    from daco.data.clips import machine_title

    of_machine: dict[str, list[AudioInfo]] = defaultdict(list)
    for (year, machine, _, _), members in groups.items():
        headers = [infos[clip.path] for clip in members if clip.path in infos]
        of_machine[machine_title(year, machine)] += headers
    oddities = []
    for title, headers in of_machine.items():
        rates = " and ".join(map(str, sorted({info.sample_rate for info in headers})))
        channels = " and ".join(map(str, sorted({info.channels for info in headers})))
        if "and" in rates:
            oddities.append(f"{title} has clips of {rates} Hz.")
        if "and" in channels:
            oddities.append(f"{title} has clips with {channels} channels.")
        if len({round(info.seconds, 2) for info in headers}) > 1:
            span = _span([info.seconds for info in headers])
            oddities.append(f"{title} has clips of different lengths, {span} s.")
    return oddities
