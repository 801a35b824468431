"""Ground truth of DCASE evaluation sets, from a user's checkout of the official evaluator.

The truth belongs to the organisers and is never copied. It is matched by the clips' names, never
by their position, and it must cover them completely: names of clips, even of machines, return
every year, so half a match may be a wrong one.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from daco.data.clips import Clip, machine_title, stem_of
from daco.data.dcase import MACHINES, YEAR, parse_attributes, parse_name, read_csv
from daco.errors import DataError
from daco.text import name_list, quantity

_TRUTH_FOLDERS = ("ground_truth_data", "ground_truth_domain", "ground_truth_attributes")


def inject_truth(clips: Sequence[Clip], truth: Path | str, *, oddities: list[str]) -> list[Clip]:
    """The clips, with labels, domains and attributes for the test clips that have no label.

    Parameters
    ----------
    clips : sequence of Clip
    truth : path
        A checkout of the official evaluator, with ``ground_truth_data``, ``ground_truth_domain``
        and, if wanted, ``ground_truth_attributes``.
    oddities : list of str
        What is odd is appended.

    Raises
    ------
    DataError
        The names in the truth are not exactly those of the clips, or the years differ.
    """
    folder = _truth_folder(Path(truth).expanduser())
    waiting: dict[tuple[int | None, str, str], list[int]] = defaultdict(list)
    for index, clip in enumerate(clips):
        if clip.split == "test" and clip.label is None:
            waiting[clip.year, clip.machine, clip.section].append(index)
    if not waiting:
        oddities.append(f"The truth in {folder} was not needed: every test clip has its label.")
    _of_one_year(waiting, folder, oddities)
    result = list(clips)
    problems: list[str] = []
    conflicts: list[str] = []
    for (year, machine, section), indices in waiting.items():
        file = f"ground_truth_{machine}_section_{section}_test.csv"
        stems = [stem_of(clips[index].path) for index in indices]
        known = any((folder / kind / file).is_file() for kind in _TRUTH_FOLDERS)
        if not known and all(parse_name(stem) is None for stem in stems):
            continue  # strays among labelled clips, no evaluation set
        tables = {}
        for kind in _TRUTH_FOLDERS:
            path = folder / kind / file
            if path.is_file():
                tables[kind] = _truth_rows(path, stems, problems)
            elif kind != "ground_truth_attributes":
                problems.append(f"there is no {kind}/{file}")
            elif path.parent.is_dir():
                oddities.append(
                    f"{machine_title(year, machine)}: no {kind}/{file}, so no attributes."
                )
        if problems:
            continue
        labels, domains, attributes = (tables.get(kind, {}) for kind in _TRUTH_FOLDERS)
        for index, stem in zip(indices, stems, strict=True):
            label = int(labels[stem][0])
            domain = ("source", "target")[int(domains[stem][0])]
            names = [name for name in map(parse_name, attributes.get(stem, [])) if name]
            if any((name.label, name.domain) != (label, domain) for name in names):
                conflicts.append(f"{machine_title(year, machine)} {stem}")
            found = parse_attributes(names[-1].tail) if names else clips[index].attributes
            result[index] = replace(clips[index], label=label, domain=domain, attributes=found)
    if problems:
        raise DataError(
            f"The truth in {folder} does not fit the test clips: {name_list(problems, 8)}. "
            "Recordings and evaluator must be of the same year, and all test clips unpacked."
        )
    if conflicts:
        oddities.append(
            f"ground_truth_attributes contradicts the other truth files for "
            f"{quantity(conflicts, 'clip')}, the others count: {name_list(conflicts)}."
        )
    return result


def _truth_folder(truth: Path) -> Path:
    folder = truth.parent if truth.name in _TRUTH_FOLDERS else truth
    absent = [name for name in _TRUTH_FOLDERS[:2] if not (folder / name).is_dir()]
    if absent:
        raise DataError(
            f"No folder {' and no folder '.join(absent)} in {folder}. Give a checkout of the "
            "official evaluator, such as dcase2024_task2_evaluator."
        )
    return folder


def _of_one_year(
    waiting: dict[tuple[int | None, str, str], list[int]], folder: Path, oddities: list[str]
) -> None:
    """Drop clips of other years: names of clips, even of machines, are the same every year."""
    scripts = [path.name for path in folder.glob("dcase20*_task2_evaluator.py")]
    names = (*scripts, *reversed(Path(os.path.abspath(folder)).parts))
    truth_year = next((int(match[1]) for name in names if (match := YEAR.match(name))), None)
    years = {year for year, _, _ in waiting} - {None}
    if truth_year is None and len(years) > 1:
        raise DataError(
            f"The clips are of the years {name_list(map(str, sorted(filter(None, years))))}, and "
            f"the year of the truth in {folder} is not known. Read one year at a time."
        )
    if truth_year is not None and years and truth_year not in years:
        raise DataError(
            f"The truth in {folder} is of {truth_year}, the test clips without a label are of "
            f"{name_list(map(str, sorted(filter(None, years))))}. Give the evaluator of that year."
        )
    for key in [key for key in waiting if truth_year and key[0] not in (None, truth_year)]:
        oddities.append(f"{machine_title(key[0], key[1])}: no truth, it is of {truth_year} only.")
        del waiting[key]
    for year, machine, _ in waiting:
        among = [str(each) for each, sets in MACHINES.items() if machine in sets["eval"]]
        if (year is None or truth_year is None) and len(among) > 1:
            oddities.append(
                f"{machine} is a machine of {' and '.join(among)}, and nothing here shows that "
                "the recordings and the truth are of the same year."
            )


def _truth_rows(path: Path, stems: Sequence[str], problems: list[str]) -> dict[str, list[str]]:
    """What a truth file says by stem; a difference to the clips' names is added to `problems`."""
    rows: dict[str, list[str]] = {}
    times = Counter(stems)
    doubled = [f"clip {stem}" for stem, count in times.items() if count > 1]
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
    where = f"{path.parent.name}/{path.name}"
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
