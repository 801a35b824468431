"""``daco clips``: the content of a folder or manifest, before long work is started on it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars
from daco.commands.options import Location, location_option, require_folder
from daco.commands.records import show_records
from daco.errors import DacoError, DataError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.data.clips import ClipTable

SAMPLE = 5
"""Clips of each row of the printed table that are opened in a remote folder."""

_THREADS = 8
_SHOWN = 20  # clips that cannot be read
_ROW = ["year", "machine", "split", "domain"]
_LABELS = {"normal": 0, "anomaly": 1}
_HEADER = ["sample_rate", "channels", "seconds", "error"]


def clips(
    source: shared.Clips,
    truth: shared.Truth = None,
    year: shared.Year = None,
    manifest: Annotated[
        Location | None,
        location_option("Write a manifest of the clips to this .csv or .parquet file."),
    ] = None,
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
) -> None:
    """List the clips of a data set and everything that looks odd."""
    from daco.data.manifest import write_manifest
    from daco.data.sources import read_clips

    console = Output()
    require_folder(manifest)
    table = read_clips(
        source, truth=truth, year=year, machine_level=machine_level, domain_level=domain_level
    )
    table, sessions = _with_sessions(table, session_by)
    frame = _with_headers(table)
    machines = quantity(len(table.by_machine()), "machine")
    console.write(f"{quantity(table.clips, 'clip')} of {machines} in {table.root}", wrap=False)
    texts = {name: name for name in _ROW if name != "year" or frame["year"].any()}
    numbers = {name: name for name in _LABELS} | {"no label": "no\nlabel"}
    numbers |= {name: name for name in ("seconds", "rate", "ch")}
    sections = {"sections": "sec-\ntions"} if frame["section"].nunique() > 1 else {}
    show_records(console, _rows(frame), texts, sections | numbers)
    if not isinstance(table.root, Path):
        console.write(f"daco opened {SAMPLE} clips of each row.")
    for line in "\n".join([table.understood, *sessions]).splitlines():
        console.write(line)
    oddities = [*table.oddities, *_oddities(frame)]
    ending = "y" if len(oddities) == 1 else "ies"
    console.write(f"{len(oddities)} oddit{ending}:" if oddities else "Nothing looks odd.")
    for oddity in oddities:
        console.write(f"- {oddity}")
    if manifest is not None:
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


def _with_headers(table: ClipTable) -> Any:
    """The clips by machine, split and domain, with what their headers say, or why they do not."""
    import pandas as pd

    from daco.audio.decode import probe
    from daco.data.clips import SPLITS

    def look(path: str) -> dict[str, Any]:
        try:
            if (table.root / path).stat().st_size:  # an empty file is an oddity already
                return asdict(probe(table.root / path, to_end=True))
        except (DacoError, OSError) as error:
            return {"error": f"{path}: {getattr(error, 'reason', error)}"}
        return {}

    frame: Any = table.to_pandas()
    frame["year"] = ["" if clip.year is None else str(clip.year) for clip in table]
    frame["split"] = pd.Categorical(frame["split"], SPLITS, ordered=True)
    frame = frame.sort_values(_ROW, kind="stable", na_position="first")
    opened = frame
    if not isinstance(table.root, Path):
        opened = frame.groupby(_ROW, dropna=False, observed=True).head(SAMPLE)
    headers = []
    with progress_bars(Output(stderr=True)) as report, ThreadPoolExecutor(_THREADS) as pool:
        for header in pool.map(look, opened["path"]):
            headers.append(header)
            report("opening clips", len(headers), len(opened))
    return frame.join(pd.DataFrame(headers, index=opened.index).reindex(columns=_HEADER))


def _rows(frame: Any) -> Iterator[dict[str, Any]]:
    """What is printed of the clips of each machine, split and domain; zeros are left out."""
    for key, clips in frame.groupby(_ROW, dropna=False, observed=True):
        row = dict(zip(_ROW, key, strict=True))
        counts = {name: int((clips["label"] == label).sum()) for name, label in _LABELS.items()}
        counts["no label"] = int(clips["label"].isna().sum())
        opened = clips.dropna(subset="seconds")
        yield (
            row
            | {name: count for name, count in counts.items() if count}
            | {
                "sections": clips["section"].nunique(),
                "seconds": _span(opened["seconds"]),
                "rate": _one_of(f"{rate / 1000:g}k" for rate in opened["sample_rate"]),
                "ch": _one_of(f"{channels:g}" for channels in opened["channels"]),
            }
        )


def _span(seconds: Any) -> str | None:
    """Shortest and longest, one number where they are the same."""
    ends = dict.fromkeys(f"{end:.3g}" for end in (seconds.min(), seconds.max()))
    return "-".join(ends) if len(seconds) else None


def _one_of(values: Iterable[str]) -> str | None:
    known = set(values)
    return "mixed" if len(known) > 1 else next(iter(known), None)


def _oddities(frame: Any) -> Iterator[str]:
    """Clips that cannot be read, and machines whose clips differ in rate, channels or length."""
    unreadable = frame["error"].dropna().tolist()
    yield from unreadable[:_SHOWN]
    if len(unreadable) > _SHOWN:
        yield f"{len(unreadable) - _SHOWN:,} more clips cannot be read."
    for (year, name), clips in frame.dropna(subset="seconds").groupby(["year", "machine"]):
        machine = f"{name} ({year})" if year else name
        for column, words in (("sample_rate", "of {} Hz"), ("channels", "with {} channels")):
            values = sorted(set(clips[column]))
            if len(values) > 1:
                listed = " and ".join(f"{value:g}" for value in values)
                yield f"{machine} has clips {words.format(listed)}."
        if clips["seconds"].round(2).nunique() > 1:
            yield f"{machine} has clips of different lengths, {_span(clips['seconds'])} s."
