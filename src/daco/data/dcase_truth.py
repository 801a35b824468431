"""The truth of evaluation sets: labels, domains and attributes of anonymous test clips.

It is in a user's checkout of the official evaluator, or in the list ``eval_data_list.csv`` that the
organisers publish. It is matched by the clips' names, never by their position, and it must cover
them completely: names return every year.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from daco.data.clips import Clip, machine_title, stem_of
from daco.data.dcase import MACHINES, YEAR, parse_attributes, parse_name, read_csv, year_of_names
from daco.errors import DataError
from daco.text import name_list, quantity

_DATA, _DOMAIN, _ATTRIBUTES = "ground_truth_data", "ground_truth_domain", "ground_truth_attributes"
_KINDS = (_DATA, _DOMAIN, _ATTRIBUTES)
_TRUTH_FILE = re.compile(r"ground_truth_(.+)_section_(\d+)_(?:(?:source|target|all)_)?test\.csv")
_LIST = re.compile(r"eval_data_list(?:_(20\d\d))?\.csv")


class _Group(NamedTuple):
    """Test clips of one truth file; `domain` is in the names of anonymous clips until 2021."""

    year: int | None
    machine: str
    section: str
    domain: str | None

    @property
    def file(self) -> str:
        middle = f"{self.domain}_" if self.domain else ""
        return f"ground_truth_{self.machine}_section_{self.section}_{middle}test.csv"


Files = Mapping[tuple[str, str], list[list[str]]]
"""The lines of every truth file, by its folder and name."""


def inject_truth(clips: Sequence[Clip], truth: Path | str, *, oddities: list[str]) -> list[Clip]:
    """Add labels, domains and attributes to the test clips that have no label.

    `truth` is a checkout of the official evaluator, with ``ground_truth_data``,
    ``ground_truth_domain`` (from 2022 on) and, if wanted, ``ground_truth_attributes``; or a list
    ``eval_data_list.csv``, or the folder that holds it. Oddities are appended; a `DataError` says
    where names or years differ.
    """
    place, files = _open_truth(truth)
    waiting: dict[_Group, list[int]] = defaultdict(list)
    for index, clip in enumerate(clips):
        if clip.split == "test" and clip.label is None:
            name = parse_name(clip.path)
            domain = name.domain if name and name.label is None else None
            waiting[_Group(clip.year, clip.machine, clip.section, domain)].append(index)
    if not waiting:
        oddities.append(f"The truth in {place} was not needed: every test clip has its label.")
    _of_one_year(waiting, place, _year_of(place, files), oddities)
    result = list(clips)
    problems: list[str] = []
    conflicts: list[str] = []
    for group, indices in waiting.items():
        stems = [stem_of(clips[index].path) for index in indices]
        tables = _tables(place, files, group, stems, problems, oddities)
        if problems or not tables:
            continue
        for index, stem in zip(indices, stems, strict=True):
            label, domain = int(tables[_DATA][stem][0]), group.domain
            domain = domain or ("source", "target")[int(tables[_DOMAIN][stem][0])]
            others = tables.get(_ATTRIBUTES, {}).get(stem, [])
            names = [name for name in map(parse_name, others) if name]
            if any((name.label, name.domain) != (label, domain) for name in names):
                conflicts.append(f"{machine_title(group.year, group.machine)} {stem}")
            result[index] = replace(clips[index], label=label, domain=domain)
            if names:
                hidden = parse_attributes(names[-1].tail)
                result[index] = replace(result[index], attributes=hidden)
    if problems:
        raise DataError(
            f"The truth in {place} does not fit the test clips: {name_list(problems, 8)}. "
            "Recordings and evaluator must be of the same year, and all test clips unpacked."
        )
    if conflicts:
        oddities.append(
            f"ground_truth_attributes contradicts the other truth files for "
            f"{quantity(conflicts, 'clip')}, the others count: {name_list(conflicts)}."
        )
    return result


def truth_clips(truth: Path | str, year: int | None = None) -> list[Clip]:
    """The test clips that a truth names, without what it says about them."""
    return [
        Clip(line[0].strip(), machine, year, section, split="test")
        for machine, section, line in _all_lines(_open_truth(truth)[1], _DATA)
    ]


def truth_year(truth: Path | str) -> int | None:
    """The year of a truth by the names of its folders and files, or by those of its clips."""
    return _year_of(*_open_truth(truth))


def _year_of(place: Path, files: Files) -> int | None:
    scripts = (path.name for path in place.glob("dcase20*_task2_evaluator.py"))
    parts = (*scripts, *reversed(Path(os.path.abspath(place)).parts))
    matches = (YEAR.match(part) or _LIST.fullmatch(part) for part in parts)
    found = next((int(match[1]) for match in matches if match and match[1]), None)
    return found or year_of_names(line[0] for _, _, line in _all_lines(files, _DATA))


def labelled_names(truth: Path | str) -> dict[tuple[str, str, str], set[str]]:
    """The anonymous names of each machine, section and labelled name, all without ending."""
    others: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for machine, section, (name, *labelled) in _all_lines(_open_truth(truth)[1], _ATTRIBUTES):
        for other in labelled:
            others[machine, section, stem_of(other.strip())].add(stem_of(name.strip()))
    return others


def _all_lines(files: Files, kind: str) -> Iterator[tuple[str, str, list[str]]]:
    """Machine, section and line of all files of a kind."""
    for (each, file), lines in sorted(files.items()):
        match = _TRUTH_FILE.fullmatch(file)
        if match and each == kind:
            yield from ((match[1], match[2], line) for line in lines)


def _open_truth(truth: Path | str) -> tuple[Path, Files]:
    """The folder of an evaluator or the file of a list, and its lines."""
    place = Path(truth).expanduser()
    folder = place.parent if place.name in _KINDS else place
    lists = [path for path in folder.glob("eval_data_list*.csv") if _LIST.fullmatch(path.name)]
    if place.is_file() or (len(lists) == 1 and not (folder / _DATA).is_dir()):
        file = place if place.is_file() else lists[0]
        return file, _read_list(file)
    of_2021 = any((folder / _DATA).glob("*_source_test.csv"))
    wanted = (_DATA,) if of_2021 else (_DATA, _DOMAIN)
    if absent := [name for name in wanted if not (folder / name).is_dir()]:
        raise DataError(
            f"No folder {' and no folder '.join(absent)} in {folder}. Give a checkout of the "
            "official evaluator, such as dcase2024_task2_evaluator, or its eval_data_list.csv."
        )
    paths = (path for kind in _KINDS for path in (folder / kind).glob("ground_truth_*.csv"))
    return folder, {(path.parent.name, path.name): read_csv(path) for path in paths}


def _read_list(path: Path) -> dict[tuple[str, str], list[list[str]]]:
    """The lines of a list, as those of an evaluator's files.

    A line of one word begins a machine, others have a clip's anonymous and labelled name, in 2020
    also the label.
    """
    files: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
    machine = ""
    for number, line in enumerate(read_csv(path), 1):
        values = [value.strip() for value in line if value.strip()]
        if len(values) == 1:
            machine = values[0]
            continue
        own, name = map(parse_name, [*values, "", ""][:2])
        if not machine or own is None or name is None or name.label is None:
            raise DataError(
                f"{path}, row {number}: neither a machine nor a clip's anonymous and labelled name."
            )
        file = _Group(None, machine, own.section, own.domain).file
        label = values[2] if values[2:] else str(name.label)
        domain = str(int(name.domain == "target"))
        for kind, value in zip(_KINDS, (label, domain, values[1]), strict=True):
            files[kind, file].append([values[0], value])
    return files


def _tables(
    place: Path,
    files: Files,
    group: _Group,
    stems: Sequence[str],
    problems: list[str],
    oddities: list[str],
) -> dict[str, dict[str, list[str]]]:
    """What each kind of file says by stem; empty where none is about these clips."""
    found = [kind for kind in _KINDS if (kind, group.file) in files]
    if not found and all(parse_name(stem) is None for stem in stems):
        return {}  # strays among labelled clips, no evaluation set
    tables: dict[str, dict[str, list[str]]] = {}
    for kind in _KINDS:
        file = f"{kind}/{group.file}"
        if kind in found:
            where = place.name if place.is_file() else file
            tables[kind] = _checked_rows(where, kind, files[kind, group.file], stems, problems)
        elif kind == _DATA or (kind == _DOMAIN and not group.domain):
            problems.append(f"there is no {file}")
        elif kind == _ATTRIBUTES and any(each == kind for each, _ in files):  # not so in 2022
            title = machine_title(group.year, group.machine)
            oddities.append(f"{title}: no {file}, so no attributes.")
    return tables


def _of_one_year(
    waiting: dict[_Group, list[int]], place: Path, of_truth: int | None, oddities: list[str]
) -> None:
    """Drop clips of other years: names of clips, even of machines, are the same every year."""
    years = sorted({group.year for group in waiting if group.year is not None})
    named = name_list(map(str, years))
    if of_truth is None and len(years) > 1:
        raise DataError(
            f"The clips are of the years {named}, and the year of the truth in {place} is not "
            "known. Read one year at a time."
        )
    if of_truth is not None and years and of_truth not in years:
        raise DataError(
            f"The truth in {place} is of {of_truth}, the test clips without a label are of "
            f"{named}. Give the evaluator of that year."
        )
    for key in [key for key in waiting if of_truth and key.year not in (None, of_truth)]:
        oddities.append(f"{machine_title(key[0], key[1])}: no truth, it is of {of_truth} only.")
        del waiting[key]
    for year, machine in dict.fromkeys((group.year, group.machine) for group in waiting):
        # Names of 2020 and 2021 have other forms.
        later = {each: sets["eval"] for each, sets in MACHINES.items() if each >= 2022}
        among = [str(each) for each, machines in later.items() if machine in machines]
        if (year is None or of_truth is None) and len(among) > 1:
            oddities.append(
                f"{machine} is a machine of {' and '.join(among)}, and nothing here shows that "
                "the recordings and the truth are of the same year."
            )


def _checked_rows(
    where: str, kind: str, lines: list[list[str]], stems: Sequence[str], problems: list[str]
) -> dict[str, list[str]]:
    """The lines by stem; a difference to the clips' names is added to `problems`."""
    rows: dict[str, list[str]] = {}
    times = Counter(stems)
    doubled = [f"clip {stem}" for stem, count in times.items() if count > 1]
    for number, line in enumerate(lines, 1):
        values = [value.strip() for value in line]
        if len(values) < 2 or not (kind == _ATTRIBUTES or values[1] in ("0", "1")):
            expected = "a labelled name" if kind == _ATTRIBUTES else "0 or 1"
            raise DataError(f"{where}, row {number}: not a file name and {expected}.")
        stem = stem_of(values[0])
        if stem in rows:
            doubled.append(f"row {stem}")
        rows[stem] = values[1:]
    absent = [stem for stem in times if stem not in rows]
    extra = [stem for stem in rows if stem not in times]
    for names, what in (
        (absent, "without a row for"),
        (extra, "with rows for clips that are not there:"),
        (doubled, "more than once:"),
    ):
        if names:
            problems.append(f"{where} {what} {len(names)} ({name_list(names, 3)})")
    return rows
