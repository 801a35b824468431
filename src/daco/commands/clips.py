"""``daco clips``: the content of a folder or manifest, before long work is started on it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from daco.commands import options as shared
from daco.commands.console import Output, progress_bars
from daco.commands.options import Location, location_option, require_folder
from daco.errors import DacoError, DataError
from daco.text import quantity

if TYPE_CHECKING:
    from daco.data.clips import ClipTable

SAMPLE = 5
"""Clips of each row of the printed table that are opened in a remote folder."""

_THREADS = 8
_SHOWN = 20  # clips that cannot be read
_ROW = ["year", "machine", "split", "domain"]
_NUMBERS = {"normal": "normal", "anomaly": "anomaly", "unknown": "no\nlabel"}
_NUMBERS |= {"seconds": "seconds", "rate": "rate", "channels": "ch"}
_HEADER = ["sample_rate", "channels", "seconds", "error"]


def clips(
    source: shared.Clips,
    truth: shared.Truth = None,
    year: shared.Year = None,
    manifest: Annotated[Location | None, location_option("Write a manifest to this file.")] = None,
    machine_level: shared.MachineLevel = None,
    domain_level: shared.DomainLevel = None,
    session_by: shared.SessionBy = None,
) -> None:
    """List the clips of a data set and everything that looks odd."""
    from daco.data.manifest import write_manifest
    from daco.data.sources import read_clips
    from daco.files.remote import is_remote

    console = Output()
    require_folder(manifest)
    table = read_clips(
        source, truth=truth, year=year, machine_level=machine_level, domain_level=domain_level
    )
    table, sessions = _with_sessions(table, session_by)
    frame = _with_headers(table)
    machines = quantity(len(table.by_machine()), "machine")
    console.write(f"{quantity(table.clips, 'clip')} of {machines} in {table.root}", wrap=False)
    texts = _ROW if frame["year"].any() else _ROW[1:]
    sections = {"sections": "sec-\ntions"} if frame["section"].nunique() > 1 else {}
    console.table(_rows(frame), texts, sections | _NUMBERS)
    if is_remote(table.root):
        console.write(f"daco opened {SAMPLE} clips of each row.")
    console.write(*"\n".join([table.understood, *sessions]).splitlines())
    oddities = [*table.oddities, *_oddities(frame)]
    found = f"{quantity(oddities, 'oddity', 'oddities')}:"
    console.write(found if oddities else "Nothing looks odd.")
    console.write(*(f"- {oddity}" for oddity in oddities))
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
    from daco.files.remote import is_remote

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
    if is_remote(table.root):
        opened = frame.groupby(_ROW, dropna=False, observed=True).head(SAMPLE)
    headers = []
    with progress_bars(Output(stderr=True)) as report, ThreadPoolExecutor(_THREADS) as pool:
        for header in pool.map(look, opened["path"]):
            headers.append(header)
            report("opening clips", len(headers), len(opened))
    return frame.join(pd.DataFrame(headers, index=opened.index).reindex(columns=_HEADER))


def _rows(frame: Any) -> list[dict[str, Any]]:
    """What is printed of the clips of each year, machine, split and domain, without zeros."""
    table = frame.groupby(_ROW, dropna=False, observed=True).agg(
        sections=("section", "nunique"),
        normal=("label", lambda labels: (labels == 0).sum()),
        anomaly=("label", lambda labels: (labels == 1).sum()),
        unknown=("label", lambda labels: labels.isna().sum()),
        seconds=("seconds", _span),
        rate=("sample_rate", lambda rates: _one_of(rates / 1000, "k")),
        channels=("channels", _one_of),
    )
    return list(table.reset_index().replace({0: None}).to_dict("records"))


def _span(seconds: Any) -> str | None:
    """Shortest and longest, one number where they are the same."""
    ends = dict.fromkeys(f"{end:.3g}" for end in (seconds.min(), seconds.max()))
    return "-".join(ends) if seconds.notna().any() else None


def _one_of(values: Any, unit: str = "") -> str | None:
    known = values.dropna().unique()
    return "mixed" if len(known) > 1 else f"{known[0]:g}{unit}" if len(known) else None


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
