"""The truth of evaluation sets: labels, domains and attributes of anonymous test clips.

It is in a user's checkout of the official evaluator, or in the list ``eval_data_list.csv`` that the
organisers publish. It is matched by the clips' names, never by their position, and it must cover
them completely: names return every year.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from daco.data.clips import Clip, machine_title, stem_of
from daco.data.dcase import MACHINES, YEAR, parse_attributes, parse_name, read_csv, year_of_names
from daco.errors import DataError
from daco.text import name_list, quantity

_TRUTH_FOLDERS = ("ground_truth_data", "ground_truth_domain", "ground_truth_attributes")
_TRUTH_FILE = re.compile(r"ground_truth_(.+)_section_(\d+)_(?:(?:source|target)_)?test\.csv")
_LIST = re.compile(r"eval_data_list(?:_(20\d\d))?\.csv")


class _Group(NamedTuple):
    """Test clips of one truth file; those of 2021 have their domain in the name."""

    year: int | None
    machine: str
    section: str
    domain: str | None


class _Row(NamedTuple):
    """The truth about a clip; ``names`` are its other names, with label and attributes."""

    label: int
    domain: str
    names: list[str]


def inject_truth(clips: Sequence[Clip], truth: Path | str, *, oddities: list[str]) -> list[Clip]:
    """The clips, with labels, domains and attributes for the test clips that have no label.

    `truth` is a checkout of the official evaluator, with ``ground_truth_data``,
    ``ground_truth_domain`` (from 2022 on) and, if wanted, ``ground_truth_attributes``; or a list
    ``eval_data_list.csv``, or the folder that holds it. Oddities are appended; a `DataError` says
    where names or years differ.
    """
    place = _truth_place(truth)
    listed = _read_list(place) if place.is_file() else None
    waiting: dict[_Group, list[int]] = defaultdict(list)
    for index, clip in enumerate(clips):
        if clip.split == "test" and clip.label is None:
            waiting[_Group(clip.year, clip.machine, clip.section, _own_domain(clip))].append(index)
    if not waiting:
        oddities.append(f"The truth in {place} was not needed: every test clip has its label.")
    _of_one_year(waiting, place, oddities)
    result = list(clips)
    problems: list[str] = []
    conflicts: list[str] = []
    for group, indices in waiting.items():
        stems = [stem_of(clips[index].path) for index in indices]
        if listed is None:
            rows = _rows_in_files(place, group, stems, problems, oddities)
        else:
            rows = _rows_in_list(listed, group, stems, problems)
        if problems or not rows:
            continue
        for index, stem in zip(indices, stems, strict=True):
            label, domain, others = rows[stem]
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
    place = _truth_place(truth)
    if place.is_file():
        named = [(machine, stem) for machine, rows in _read_list(place).items() for stem in rows]
    else:
        named = [
            (match[1], row[0].strip())
            for path in sorted((place / _TRUTH_FOLDERS[0]).glob("ground_truth_*.csv"))
            if (match := _TRUTH_FILE.fullmatch(path.name))
            for row in read_csv(path)
        ]
    parsed = ((machine, name, parse_name(name)) for machine, name in named)
    return [
        Clip(name, machine, year, fields.section if fields else "00", split="test")
        for machine, name, fields in parsed
    ]


def truth_year(truth: Path | str) -> int | None:
    """The year of a truth by the names of its folders and files, or by those of its clips."""
    place = _truth_place(truth)
    scripts = (path.name for path in place.glob("dcase20*_task2_evaluator.py"))
    parts = (*scripts, *reversed(Path(os.path.abspath(place)).parts))
    matches = (YEAR.match(part) or _LIST.fullmatch(part) for part in parts)
    found = next((int(match[1]) for match in matches if match and match[1]), None)
    return found or year_of_names(clip.path for clip in truth_clips(place))


def labelled_names(truth: Path | str, machine: str, section: str) -> dict[str, set[str]]:
    """The anonymous names that each name with label and attributes stands for, without ending."""
    place = _truth_place(truth)
    path = place / _TRUTH_FOLDERS[2] / f"ground_truth_{machine}_section_{section}_test.csv"
    others: dict[str, set[str]] = defaultdict(set)
    if place.is_file():
        listed = _read_list(place).get(machine, {})
        rows = [[stem, *row.names] for stem, row in listed.items()]
    else:
        rows = read_csv(path) if path.is_file() else []
    for name, *labelled in rows:
        for other in labelled:
            others[stem_of(other.strip())].add(stem_of(name.strip()))
    return others


def _truth_place(truth: Path | str) -> Path:
    """The folder of the evaluator, or the list."""
    place = Path(truth).expanduser()
    if place.is_file():
        return place
    folder = place.parent if place.name in _TRUTH_FOLDERS else place
    data = folder / _TRUTH_FOLDERS[0]
    lists = [path for path in folder.glob("eval_data_list*.csv") if _LIST.fullmatch(path.name)]
    if not data.is_dir() and len(lists) == 1:
        return lists[0]
    wanted = _TRUTH_FOLDERS[: 1 if any(data.glob("*_source_test.csv")) else 2]
    absent = [name for name in wanted if not (folder / name).is_dir()]
    if absent:
        raise DataError(
            f"No folder {' and no folder '.join(absent)} in {folder}. Give a checkout of the "
            "official evaluator, such as dcase2024_task2_evaluator, or its eval_data_list.csv."
        )
    return folder


def _own_domain(clip: Clip) -> str | None:
    name = parse_name(clip.path)
    return name.domain if name and name.label is None else None


def _rows_in_files(
    folder: Path, group: _Group, stems: Sequence[str], problems: list[str], oddities: list[str]
) -> dict[str, _Row]:
    """The rows of an evaluator's files; empty where they say nothing about these clips."""
    title, middle = machine_title(group.year, group.machine), f"{group.domain or ''}_"
    file = f"ground_truth_{group.machine}_section_{group.section}_{middle.lstrip('_')}test.csv"
    known = any((folder / kind / file).is_file() for kind in _TRUTH_FOLDERS)
    if not known and all(parse_name(stem) is None for stem in stems):
        return {}  # strays among labelled clips, no evaluation set
    tables: dict[str, dict[str, list[str]]] = {}
    for kind in _TRUTH_FOLDERS:
        path = folder / kind / file
        if path.is_file():
            tables[kind] = _file_rows(path, stems, problems)
        elif kind == "ground_truth_attributes":
            # The evaluator of 2022 has attributes_03.csv and the like for each machine.
            if path.parent.is_dir() and not (path.parent / group.machine).is_dir():
                oddities.append(f"{title}: no {kind}/{file}, so no attributes.")
        elif kind == "ground_truth_data" or not group.domain:
            problems.append(f"there is no {kind}/{file}")
    if problems:
        return {}
    labels, domains, names = (tables.get(kind, {}) for kind in _TRUTH_FOLDERS)
    return {
        stem: _Row(
            int(labels[stem][0]),
            group.domain or ("source", "target")[int(domains[stem][0])],
            names.get(stem, []),
        )
        for stem in stems
    }


def _rows_in_list(
    listed: Mapping[str, Mapping[str, _Row]],
    group: _Group,
    stems: Sequence[str],
    problems: list[str],
) -> dict[str, _Row]:
    if all(parse_name(stem) is None for stem in stems):
        return {}
    rows = {}
    for stem, row in listed.get(group.machine, {}).items():
        name = parse_name(stem)
        if name and (name.section, name.domain) == (group.section, group.domain):
            rows[stem] = row
    where = f"the list of {group.machine}, section {group.section},"
    _compare(rows, stems, [], where, problems)
    return rows


def _read_list(path: Path) -> dict[str, dict[str, _Row]]:
    """Rows by machine and stem: a line of one word begins a machine, others are of its clips.

    A clip has its anonymous and its labelled name, in 2020 also the label.
    """
    machines: dict[str, dict[str, _Row]] = {}
    rows: dict[str, _Row] | None = None
    for number, line in enumerate(read_csv(path), 1):
        values = [value.strip() for value in line if value.strip()]
        if len(values) == 1:
            rows = machines.setdefault(values[0], {})
            continue
        parsed = [name for name in map(parse_name, values[:2]) if name]
        labels = [int(word) for word in values[2:3] if word in ("0", "1")]
        label = next(iter(labels or [n.label for n in parsed if n.label is not None]), None)
        domain = next((name.domain for name in parsed if name.domain), None)
        if rows is None or label is None or domain is None:
            raise DataError(
                f"{path}, row {number}: neither a machine nor a clip's anonymous and labelled name."
            )
        rows[stem_of(values[0])] = _Row(label, domain, [values[1]])
    return machines


def _of_one_year(waiting: dict[_Group, list[int]], place: Path, oddities: list[str]) -> None:
    """Drop clips of other years: names of clips, even of machines, are the same every year."""
    of_truth = truth_year(place)
    years = {group.year for group in waiting} - {None}
    if of_truth is None and len(years) > 1:
        raise DataError(
            f"The clips are of the years {name_list(map(str, sorted(filter(None, years))))}, and "
            f"the year of the truth in {place} is not known. Read one year at a time."
        )
    if of_truth is not None and years and of_truth not in years:
        raise DataError(
            f"The truth in {place} is of {of_truth}, the test clips without a label are of "
            f"{name_list(map(str, sorted(filter(None, years))))}. Give the evaluator of that year."
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


def _file_rows(path: Path, stems: Sequence[str], problems: list[str]) -> dict[str, list[str]]:
    """What a truth file says by stem; a difference to the clips' names is added to `problems`."""
    rows: dict[str, list[str]] = {}
    doubled: list[str] = []
    is_name = path.parent.name == "ground_truth_attributes"
    for number, line in enumerate(read_csv(path), 1):
        values = [value.strip() for value in line]
        if len(values) < 2 or not (is_name or values[1] in ("0", "1")):
            expected = "a labelled name" if is_name else "0 or 1"
            raise DataError(f"{path}, row {number}: not a file name and {expected}.")
        stem = stem_of(values[0])
        if stem in rows:
            doubled.append(f"row {stem}")
        rows[stem] = values[1:]
    _compare(rows, stems, doubled, f"{path.parent.name}/{path.name}", problems)
    return rows


def _compare(
    rows: Mapping[str, object],
    stems: Sequence[str],
    doubled: list[str],
    where: str,
    problems: list[str],
) -> None:
    """Add the differences between a truth's names and those of the clips to `problems`."""
    times = Counter(stems)
    doubled = [f"clip {stem}" for stem, count in times.items() if count > 1] + doubled
    absent = [stem for stem in times if stem not in rows]
    extra = [stem for stem in rows if stem not in times]
    for names, what in (
        (absent, "without a row for"),
        (extra, "with rows for clips that are not there:"),
        (doubled, "more than once:"),
    ):
        if names:
            problems.append(f"{where} {what} {len(names)} ({name_list(names, 3)})")
