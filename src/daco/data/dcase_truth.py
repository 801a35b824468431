"""The truth of evaluation sets: labels and domains of anonymous test clips.

It is in a user's checkout of the official evaluator, or in the list ``eval_data_list.csv`` that the
organisers publish. It is matched by the clips' names, never by their position, and it must cover
them completely: names return every year.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from daco.data.clips import Clip, machine_title, stem_of
from daco.data.dcase import MACHINES, YEAR, parse_name, year_of_names
from daco.errors import DataError
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

_COLUMNS = {
    "ground_truth_data": "label",
    "ground_truth_domain": "domain",
    "ground_truth_attributes": "labelled",
}
"""The column of a truth that each folder of a checkout has."""

_FILE = re.compile(r"ground_truth_(.+)_section_(\d+)_(?:source_|target_)?test\.csv")
_LIST = re.compile(r"eval_data_list(?:_(20\d\d))?\.csv")
_CLIP = ["machine", "section", "clip"]

_Value = tuple[str, str, str, str, Any]
"""Machine, section, name of a clip without ending, column, and value."""


class Truth(NamedTuple):
    """A truth as it was read."""

    place: Path
    year: int | None
    clips: pd.DataFrame
    """``machine, section, clip`` (the anonymous name without ending), ``label, domain`` and
    ``labelled``, the other names of the clip, missing where they are unknown."""


def read_truth(truth: Path | str) -> Truth:
    """Read the truth of a checkout or list; its year is in names of folders, files or clips.

    A checkout has the folders ``ground_truth_data``, ``ground_truth_domain`` (from 2022 on) and
    perhaps ``ground_truth_attributes``, with the labelled names of clips.
    """
    place = Path(truth).expanduser()
    folder = place.parent if place.name in _COLUMNS else place
    lists = [path for path in folder.glob("eval_data_list*.csv") if _LIST.fullmatch(path.name)]
    if place.is_file() or (len(lists) == 1 and not (folder / "ground_truth_data").is_dir()):
        place = place if place.is_file() else lists[0]
        clips = _one_row_per_clip(_values_of_list(place), place)
    else:
        place = folder
        clips = _one_row_per_clip(_values_of_checkout(folder), place)
    scripts = (path.name for path in place.glob("dcase20*_task2_evaluator.py"))
    parts = (*scripts, *reversed(Path(os.path.abspath(place)).parts))
    matches = (YEAR.match(part) or _LIST.fullmatch(part) for part in parts)
    year = next((int(match[1]) for match in matches if match and match[1]), None)
    return Truth(place, year or year_of_names(clips["clip"]), clips)


def _values_of_checkout(folder: Path) -> Iterator[_Value]:
    for kind, column in _COLUMNS.items():
        for path in sorted((folder / kind).glob("ground_truth_*.csv")):
            if match := _FILE.fullmatch(path.name):
                for row, line in _rows(path):
                    if len(line) < 2 or not (column == "labelled" or line[1] in ("0", "1")):
                        raise DataError(f"{path}, row {row}: not a file name and 0 or 1.")
                    values = {
                        "label": line[1],
                        "domain": "target" if line[1] == "1" else "source",
                        "labelled": list(map(stem_of, line[1:])),
                    }
                    yield match[1], match[2], stem_of(line[0]), column, values[column]


def _values_of_list(path: Path) -> Iterator[_Value]:
    """A line of one word begins a machine; others have a clip's two names, in 2020 also a label."""
    machine = ""
    for row, line in _rows(path):
        if len(line) == 1:
            machine = line[0]
            continue
        own, name, labelled = parse_name(line[0]), parse_name(line[1]), [stem_of(line[1])]
        if not machine or own is None or name is None or name.label is None:
            raise DataError(
                f"{path}, row {row}: neither a machine nor a clip's anonymous and labelled name."
            )
        values = {"label": name.label, "domain": name.domain, "labelled": labelled}
        for column, value in values.items():
            yield machine, own.section, stem_of(line[0]), column, value


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The cells of each row of a file of the organisers, counted from 1."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
        for row, line in enumerate(csv.reader(lines), 1):
            if cells := [cell.strip() for cell in line if cell.strip()]:
                yield row, cells
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} could not be read: {error}.") from None


def _one_row_per_clip(values: Iterable[_Value], place: Path) -> pd.DataFrame:
    """The table of a truth, in which every clip has a label and a domain."""
    import pandas as pd

    frame = pd.DataFrame(values, columns=[*_CLIP, "column", "value"])
    if frame.empty:
        raise DataError(
            f"There are no labels of clips in {place}. Give a checkout of the official evaluator, "
            "such as dcase2024_task2_evaluator, or its eval_data_list.csv."
        )
    twice = frame[frame.duplicated([*_CLIP, "column"])]
    if len(twice):
        raise DataError(f"{place} names clips more than once: {_listed(twice)}.")
    table = frame.pivot(index=_CLIP, columns="column", values="value").reset_index()
    table = table.reindex(columns=[*_CLIP, *_COLUMNS.values()])
    names = [parse_name(clip) for clip in table["clip"]]
    in_name = pd.Series([None if name is None else name.domain for name in names], dtype=object)
    table["domain"] = table["domain"].astype(object).where(table["domain"].notna(), in_name)
    incomplete = table[table[["label", "domain"]].isna().any(axis=1)]
    if len(incomplete):
        raise DataError(
            f"{place} has the label or the domain of only some clips: {_listed(incomplete)}. Get "
            "the whole evaluator again."
        )
    return table.astype({"label": int})


def _listed(clips: pd.DataFrame) -> str:
    """The clips of a table in words."""
    return name_list((clips["machine"] + "/" + clips["clip"]).drop_duplicates(), 3)


def inject_truth(
    clips: Sequence[Clip], given: Truth | Path | str, *, oddities: list[str]
) -> list[Clip]:
    """Add labels and domains to the test clips that have no label.

    Oddities are appended. A `DataError` says where names or years differ.
    """
    import pandas as pd

    truth = given if isinstance(given, Truth) else read_truth(given)
    result = list(clips)
    unknown = [at for at, clip in enumerate(clips) if clip.split == "test" and clip.label is None]
    if not unknown:
        oddities.append(f"The truth in {truth.place} was not needed: every test clip has a label.")
    require_year(truth, ((clips[at].year, clips[at].machine) for at in unknown), oddities)
    of_year = [at for at in unknown if _may_be_same(clips[at].year, truth.year)]
    rows = [(clips[at].machine, clips[at].section, stem_of(clips[at].path), at) for at in of_year]
    wanted = pd.DataFrame(rows, columns=[*_CLIP, "at"])
    known = truth.clips.merge(wanted[_CLIP[:2]].drop_duplicates())
    both = wanted.merge(known, how="outer", on=_CLIP, indicator=True)
    differences = {
        "without a row": both[both["_merge"] == "left_only"],
        "only in the truth": both[both["_merge"] == "right_only"],
        "there twice": wanted[wanted.duplicated(_CLIP)],
    }
    problems = [
        f"{quantity(each, 'clip')} {what} ({_listed(each)})"
        for what, each in differences.items()
        if len(each)
    ]
    if problems:
        raise DataError(
            f"The truth in {truth.place} does not fit the test clips: {', '.join(problems)}. "
            "Recordings and evaluator must be of the same year, and all test clips unpacked."
        )
    for at, label, domain in both[["at", "label", "domain"]].itertuples(index=False):
        result[int(at)] = replace(clips[int(at)], label=int(label), domain=domain)
    return result


def _may_be_same(year: int | None, other: int | None) -> bool:
    return None in (year, other) or year == other


def require_year(
    truth: Truth, machines: Iterable[tuple[int | None, str]], oddities: list[str]
) -> None:
    """Raise an error unless machines without labels can be of the year of a truth.

    Names return every year. A sentence is appended to the oddities for each machine of another
    year, and for each whose name does not show that it is of the same year.
    """
    keys = list(dict.fromkeys(machines))
    years = sorted({year for year, _ in keys if year is not None})
    if truth.year is None and len(years) > 1:
        raise DataError(
            f"The clips are of the years {name_list(map(str, years))}, and the year of the truth "
            f"in {truth.place} is not known. Read one year at a time."
        )
    if truth.year is not None and years and truth.year not in years:
        raise DataError(
            f"The truth in {truth.place} is of {truth.year}, the test clips without a label are "
            f"of {name_list(map(str, years))}. Give the evaluator of that year."
        )
    for year, machine in keys:
        among = [str(y) for y, sets in MACHINES.items() if y >= 2022 and machine in sets["eval"]]
        if not _may_be_same(year, truth.year):
            title = machine_title(year, machine)
            oddities.append(f"{title}: no truth, it is of {truth.year} only.")
        elif None in (year, truth.year) and len(among) > 1:
            oddities.append(
                f"{machine} is a machine of {' and '.join(among)}, and nothing here shows that "
                "the recordings and the truth are of the same year."
            )
