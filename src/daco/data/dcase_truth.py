"""The truth of evaluation sets: labels and domains of anonymous test clips.

It is in a user's checkout of the official evaluator, or in the list ``eval_data_list.csv`` that the
organisers publish. It is matched by the clips' names, never by their position, and it must cover
them completely: names return every year.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from daco.data.clips import Clip, machine_title, stem_of
from daco.data.dcase import MACHINES, YEAR, parse_name, read_csv, year_of_names
from daco.errors import DataError
from daco.text import name_list

_DATA, _DOMAIN, _ATTRIBUTES = "ground_truth_data", "ground_truth_domain", "ground_truth_attributes"
_DOMAINS = ("source", "target")
_KINDS = (_DATA, _DOMAIN, _ATTRIBUTES)
_FILE = re.compile(r"ground_truth_(.+)_section_(\d+)_(?:(source|target)_)?test\.csv")
_LIST = re.compile(r"eval_data_list(?:_(20\d\d))?\.csv")


class _Group(NamedTuple):
    """Test clips of one truth file; `domain` is in the names of anonymous clips until 2021."""

    machine: str
    section: str
    domain: str | None

    def file(self, kind: str) -> str:
        middle = f"{self.domain}_" if self.domain else ""
        return f"{kind}/ground_truth_{self.machine}_section_{self.section}_{middle}test.csv"


Files = dict[tuple[str, _Group], dict[str, list[str]]]
"""The values of each clip, by kind and group, and by anonymous name without ending."""


class Truth(NamedTuple):
    """A truth as it was read."""

    place: Path
    year: int | None
    files: Files


def read_truth(truth: Path | str) -> Truth:
    """Read the truth of a checkout or list; its year is in names of folders, files or clips.

    A checkout has the folders ``ground_truth_data``, ``ground_truth_domain`` (from 2022 on) and
    perhaps ``ground_truth_attributes``, with the labelled names of clips.
    """
    place = Path(truth).expanduser()
    folder = place.parent if place.name in _KINDS else place
    lists = [path for path in folder.glob("eval_data_list*.csv") if _LIST.fullmatch(path.name)]
    if place.is_file() or (len(lists) == 1 and not (folder / _DATA).is_dir()):
        place = place if place.is_file() else lists[0]
        files = _read_list(place)
    else:
        place, files = folder, _read_checkout(folder)
    scripts = (path.name for path in place.glob("dcase20*_task2_evaluator.py"))
    parts = (*scripts, *reversed(Path(os.path.abspath(place)).parts))
    matches = (YEAR.match(part) or _LIST.fullmatch(part) for part in parts)
    named = next((int(match[1]) for match in matches if match and match[1]), None)
    return Truth(
        place, named or year_of_names(stem for rows in files.values() for stem in rows), files
    )


def _read_checkout(folder: Path) -> Files:
    of_2021 = any((folder / _DATA).glob("*_source_test.csv"))
    wanted = (_DATA,) if of_2021 else (_DATA, _DOMAIN)
    if absent := [name for name in wanted if not (folder / name).is_dir()]:
        raise DataError(
            f"No folder {' and no folder '.join(absent)} in {folder}. Give a checkout of the "
            "official evaluator, such as dcase2024_task2_evaluator, or its eval_data_list.csv."
        )
    files: Files = {}
    for kind in _KINDS:
        for path in sorted((folder / kind).glob("ground_truth_*.csv")):
            if match := _FILE.fullmatch(path.name):
                rows = files.setdefault((kind, _Group(*match.groups())), {})
                for number, line in enumerate(read_csv(path), 1):
                    _add_row(rows, kind, line, f"{kind}/{path.name}, row {number}")
    return files


def _read_list(path: Path) -> Files:
    """A line of one word begins a machine; others have a clip's two names, in 2020 also a label."""
    files: Files = {}
    machine = ""
    for number, line in enumerate(read_csv(path), 1):
        where = f"{path.name}, row {number}"
        values = [value.strip() for value in line if value.strip()]
        if len(values) == 1:
            machine = values[0]
            continue
        own, name = map(parse_name, [*values, "", ""][:2])
        if not machine or own is None or name is None or name.label is None:
            raise DataError(f"{where}: neither a machine nor a clip's anonymous and labelled name.")
        group = _Group(machine, own.section, own.domain)
        label = values[2] if values[2:] else str(name.label)
        domain = str(int(name.domain == "target"))
        for kind, value in zip(_KINDS, (label, domain, values[1]), strict=True):
            _add_row(files.setdefault((kind, group), {}), kind, [values[0], value], where)
    return files


def _add_row(rows: dict[str, list[str]], kind: str, line: Sequence[str], where: str) -> None:
    values = [value.strip() for value in line]
    if len(values) < 2 or not (kind == _ATTRIBUTES or values[1] in ("0", "1")):
        expected = "a labelled name" if kind == _ATTRIBUTES else "0 or 1"
        raise DataError(f"{where}: not a file name and {expected}.")
    stem = stem_of(values[0])
    if stem in rows:
        raise DataError(f"{where}: {name_list([stem])} is there more than once.")
    rows[stem] = values[1:]


def inject_truth(
    clips: Sequence[Clip], given: Truth | Path | str, *, oddities: list[str]
) -> list[Clip]:
    """Add labels and domains to the test clips that have no label.

    Oddities are appended. A `DataError` says where names or years differ.
    """
    truth = given if isinstance(given, Truth) else read_truth(given)
    groups: dict[_Group, list[int]] = defaultdict(list)
    for index in _unlabelled(clips, truth, oddities):
        clip, name = clips[index], parse_name(clips[index].path)
        # All clips of 2020 are of one domain, which names of files do not say.
        domain = name.domain if name and name.label is None else None
        groups[_Group(clip.machine, clip.section, domain)].append(index)
    result, problems = list(clips), list[str]()
    for group, indices in groups.items():
        stems = [stem_of(clips[index].path) for index in indices]
        has_file = any((kind, group) in truth.files for kind in _KINDS)
        if not has_file and not any(map(parse_name, stems)):
            continue  # strays among labelled clips, no evaluation set
        found = list(_differences(truth, group, stems))
        problems += found
        for index, stem in zip(() if found else indices, stems, strict=False):
            label = int(truth.files[_DATA, group][stem][0])
            domain = group.domain or _DOMAINS[int(truth.files[_DOMAIN, group][stem][0])]
            result[index] = replace(clips[index], label=label, domain=domain)
    if problems:
        raise DataError(
            f"The truth in {truth.place} does not fit the test clips: {name_list(problems, 8)}. "
            "Recordings and evaluator must be of the same year, and all test clips unpacked."
        )
    return result


def _differences(truth: Truth, group: _Group, stems: Sequence[str]) -> Iterator[str]:
    """What differs between the names of clips and those in each file of the truth."""
    times = Counter(stems)
    for kind in _KINDS:
        rows = truth.files.get((kind, group))
        if rows is None:
            if kind == _DATA or (kind == _DOMAIN and not group.domain):
                yield f"there is no {group.file(kind)}"
            continue
        where = truth.place.name if truth.place.is_file() else group.file(kind)
        differences = {
            "without a row for": times.keys() - rows,
            "with rows for missing clips:": rows.keys() - times,
            "of clips that are there twice:": {stem for stem, count in times.items() if count > 1},
        }
        for what, names in differences.items():
            if names:
                yield f"{where} {what} {len(names)} ({name_list(sorted(names), 3)})"


def _unlabelled(clips: Sequence[Clip], truth: Truth, oddities: list[str]) -> list[int]:
    """The test clips without a label that are of the truth's year: names return every year."""
    found = [i for i, clip in enumerate(clips) if clip.split == "test" and clip.label is None]
    if not found:
        oddities.append(f"The truth in {truth.place} was not needed: every test clip has a label.")
    machines = dict.fromkeys((clips[index].year, clips[index].machine) for index in found)
    years = sorted({year for year, _ in machines if year is not None})
    named = name_list(map(str, years))
    if truth.year is None and len(years) > 1:
        raise DataError(
            f"The clips are of the years {named}, and the year of the truth in {truth.place} is "
            "not known. Read one year at a time."
        )
    if truth.year is not None and years and truth.year not in years:
        raise DataError(
            f"The truth in {truth.place} is of {truth.year}, the test clips without a label are "
            f"of {named}. Give the evaluator of that year."
        )
    for year, machine in machines:
        # Names of 2020 and 2021 have other forms.
        among = [str(y) for y, sets in MACHINES.items() if y >= 2022 and machine in sets["eval"]]
        if None not in (year, truth.year):
            if year != truth.year:
                oddities.append(
                    f"{machine_title(year, machine)}: no truth, it is of {truth.year} only."
                )
        elif len(among) > 1:
            oddities.append(
                f"{machine} is a machine of {' and '.join(among)}, and nothing here shows that "
                "the recordings and the truth are of the same year."
            )
    return [i for i in found if None in (clips[i].year, truth.year) or clips[i].year == truth.year]


def truth_clips(truth: Truth, year: int | None = None) -> list[Clip]:
    """The test clips that a truth names, without what it says about them."""
    return [
        Clip(stem, group.machine, year, group.section, split="test")
        for (kind, group), rows in sorted(truth.files.items(), key=str)
        if kind == _DATA
        for stem in rows
    ]


def labelled_names(truth: Truth) -> dict[tuple[str, str, str], set[str]]:
    """The anonymous names of each machine, section and labelled name, all without ending."""
    others: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for (kind, group), rows in truth.files.items():
        for stem, labelled in rows.items() if kind == _ATTRIBUTES else ():
            for name in labelled:
                others[group.machine, group.section, stem_of(name)].add(stem)
    return others
