"""``daco clips``: the content of a folder or manifest, before long work is started on it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.table import Table
from rich.text import Text

from daco.commands import options as shared
from daco.commands.console import Output, new_table, progress_bars
from daco.commands.options import Location, flag, location_option, require_folder
from daco.errors import DacoError, DataError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    from daco.data.clips import ClipTable

SAMPLE = 5  # remote clips of each row of the table that are fetched without --probe
ROW = ["year", "machine", "split", "domain"]


def clips(
    source: shared.Clips,
    truth: shared.Truth = None,
    year: shared.Year = None,
    probe: Annotated[
        bool, flag("--probe", "Open every clip of a remote folder, and not only a few.")
    ] = False,
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
    frame, unreadable = _with_headers(table, everything=probe)
    machines = quantity(len(table.by_machine()), "machine")
    console.write(f"{quantity(table.clips, 'clip')} of {machines} in {table.root}", wrap=False)
    for of_year, rows in frame.groupby("year", dropna=False):
        console.print(_year_table(None if of_year < 0 else int(of_year), rows))
    if frame["seconds"].isna().sum() > len(unreadable):
        console.write(f"daco opened {SAMPLE} clips of each row. --probe opens all clips.")
    console.print()
    for line in "\n".join([table.understood, *sessions]).splitlines():
        console.write(line)
    listed = [f"{quantity(unreadable, 'clip')} cannot be read: {name_list(unreadable, 3)}"]
    oddities = [*table.oddities, *(listed if unreadable else []), *_mixtures(frame)]
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


def _with_headers(table: ClipTable, *, everything: bool) -> tuple[Any, list[str]]:
    """The clips in the order of the table that is printed, with what their headers say.

    Clips that were not opened have missing values. The list has an error for each that cannot be
    read.
    """
    import pandas as pd

    from daco.audio.decode import probe
    from daco.data.clips import SPLITS
    from daco.files.remote import REMOTE_THREADS

    def look(path: str) -> dict[str, Any]:
        try:
            if (table.root / path).stat().st_size:  # an empty file is an oddity already
                return asdict(probe(table.root / path, to_end=True))
        except (DacoError, OSError) as error:
            return {"error": str(error)}
        return {"error": None}

    frame: Any = table.to_pandas()
    frame["year"] = frame["year"].fillna(-1).astype(int)
    frame["split"] = pd.Categorical(frame["split"], SPLITS, ordered=True)
    frame = frame.sort_values(ROW, kind="stable", na_position="first").reset_index(drop=True)
    is_local = isinstance(table.root, Path)
    opened = frame
    if not (is_local or everything):
        rows = frame.groupby(ROW, dropna=False, observed=True, group_keys=False)
        opened = rows.apply(lambda each: each[:: -(-len(each) // SAMPLE)])
    threads = min(8, 2 * (os.cpu_count() or 1)) if is_local else REMOTE_THREADS
    headers = []
    with progress_bars(Output(stderr=True)) as report, ThreadPoolExecutor(threads) as pool:
        for header in pool.map(look, opened["path"]):
            headers.append(header)
            report("opening clips", len(headers), len(opened))
    names = ["sample_rate", "channels", "seconds", "error"]
    frame = frame.join(pd.DataFrame(headers, index=opened.index).reindex(columns=names))
    return frame, frame["error"].dropna().tolist()


def _year_table(year: int | None, rows: Any) -> Table:
    texts, headings = ["machine", "split", "domain"], ["normal", "anomaly", "no\nlabel"]
    if several := rows["section"].nunique() > 1:
        texts.append("ids" if year == 2020 else "sections")
    title = None if year is None else str(year)
    table = new_table(texts, [*headings, "seconds", "rate", "ch"], title=title)
    table.columns[1].no_wrap, table.columns[2].overflow = True, "fold"
    above = ("", "")
    for (_, machine, split, domain), members in rows.groupby(ROW, dropna=False, observed=True):
        if above[0] not in ("", machine):
            table.add_section()
        labels = members["label"]
        counts = ((labels == 0).sum(), (labels == 1).sum(), labels.isna().sum())
        headers = members.dropna(subset="seconds")
        table.add_row(
            Text("" if above[0] == machine else machine),
            "" if above == (machine, split) else split,
            Text(domain if isinstance(domain, str) else "-"),
            *([_range_of(sorted(set(members["section"])))] if several else []),
            *(str(count or "-") for count in counts),
            _span(headers["seconds"].tolist()),
            _one_of([f"{rate / 1000:g}k" for rate in headers["sample_rate"]]),
            _one_of([f"{channels:g}" for channels in headers["channels"]]),
        )
        above = machine, split
    return table


def _range_of(names: Sequence[str]) -> Text:
    """Sections such as 00-05, or 00 02 04 06 where there are gaps."""
    ends = [name for name in (names[0], names[-1]) if name.isdecimal()]
    whole = len(names) > 2 and len(ends) == 2 and int(ends[1]) - int(ends[0]) == len(names) - 1
    return Text(f"{names[0]}-{names[-1]}" if whole else " ".join(names))


def _span(seconds: Sequence[float]) -> str:
    """Shortest and longest, one number where they are the same."""
    ends = dict.fromkeys(f"{end:.3g}" for end in (min(seconds), max(seconds))) if seconds else ()
    return "-".join(ends)


def _one_of(values: Sequence[str]) -> str:
    return "mixed" if len(set(values)) > 1 else values[0] if values else ""


def _mixtures(frame: Any) -> list[str]:
    """Machines whose clips are not all of one rate, length and number of channels."""
    from daco.data.clips import machine_title

    oddities = []
    for (year, machine), rows in frame.dropna(subset="seconds").groupby(["year", "machine"]):
        title = machine_title(None if year < 0 else int(year), machine)
        for name, words in (("sample_rate", "of {} Hz"), ("channels", "with {} channels")):
            values = sorted(set(rows[name]))
            if len(values) > 1:
                listed = " and ".join(f"{value:g}" for value in values)
                oddities.append(f"{title} has clips {words.format(listed)}.")
        if rows["seconds"].round(2).nunique() > 1:
            span = _span(rows["seconds"].tolist())
            oddities.append(f"{title} has clips of different lengths, {span} s.")
    return oddities
