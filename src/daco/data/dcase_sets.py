"""DCASE data sets on disk: unpacked folders, attribute files, and the truth of evaluation sets.

The truth is in a user's checkout of the official evaluator. It is matched by the clips' names,
never by their position, and it must cover them completely: names return every year.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from daco.data.clips import Clip, group_clips, machine_title, stem_of
from daco.data.dcase import (
    MACHINES,
    YEAR,
    ClipName,
    FolderMeaning,
    folder_meaning,
    named_clip,
    number_keys,
    parse_attributes,
    parse_name,
    read_csv,
)
from daco.errors import DataError
from daco.files.remote import Location
from daco.text import name_list, quantity

_TRUTH_FOLDERS = ("ground_truth_data", "ground_truth_domain", "ground_truth_attributes")


def read_tree(
    root: Location,
    paths: Iterable[str],
    *,
    year: int | None = None,
    renamed: bool = True,
    oddities: list[str],
) -> list[Clip] | None:
    """The clips of a data set at any level; None where no file has a DCASE name.

    `paths` are relative to `root`. Folders such as ``dcase2024t2`` say the year, too. Where the
    baseline's labelled copy ``test_rename`` is beside an anonymous ``test``, `renamed` says
    whether to read the copy or the original. Oddities are appended.
    """
    names = {path: parse_name(path) for path in paths}
    if not any(names.values()):
        return None
    place = cache(lambda folder: folder_meaning(root, folder))
    places = {path: place(path.rpartition("/")[0]) for path in names}
    years = {each.year for each in places.values() if each.year is not None}
    if year is not None and years - {year}:
        if len(years) > 1:
            raise DataError(
                f"{root} holds the years {name_list(map(str, sorted(years)))}, and year is {year}. "
                "Read one year at a time, or leave year out."
            )
        oddities.append(f"The folders name the year {years.pop()}; read as {year}, as asked.")
    _leave_out_copies(names, places, renamed, oddities)
    clips, unparsed, moved = [], [], []
    for path, name in names.items():
        where = places[path]
        if name is None and where.split == "supplemental":
            name = ClipName("00", "", split="supplemental", kind="unknown")
        if name is not None:
            clips.append(named_clip(path, name, where, year or where.year))
            if name.split and where.split and name.split != where.split:
                moved.append(path)
        else:
            unparsed.append(path)
            if where.split == "test":
                clips.append(Clip(path, where.machine, year or where.year, split="test"))
    if unparsed:
        oddities.append(
            f"{quantity(unparsed, 'name')} not of DCASE's form, kept without a label in test "
            f"folders and left out elsewhere: {name_list(unparsed)}."
        )
    if moved:
        oddities.append(
            f"{quantity(moved, 'clip')} in a folder of another split than in the name, which "
            f"counts: {name_list(moved)}."
        )
    groups = group_clips(clips)
    for of_year, machine in groups:
        known = MACHINES.get(of_year or 0)
        if known and machine not in known["dev"] + known["eval"]:
            oddities.append(f"{machine} is not a machine of DCASE {of_year}.")
    listed: dict[str, dict[str, str]] = {}
    for key, members in groups.items():
        folders = dict.fromkeys(places[clip.path].folder for clip in members)
        listed |= _listed_attributes(machine_title(*key), members, folders, oddities)
    return [
        replace(clip, attributes=listed[clip.path]) if clip.path in listed else clip
        for clip in clips
    ]


def _leave_out_copies(
    names: dict[str, ClipName | None],
    places: Mapping[str, FolderMeaning],
    renamed: bool,
    oddities: list[str],
) -> None:
    """Drop either the baseline's labelled copies or the anonymous clips they were made from."""
    copies: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    originals: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    for path, place in places.items():
        name = names[path]
        if place.split == "test" and place.renamed:
            copies[place.year, place.machine].append(path)
        elif place.split == "test" and name is not None and name.label is None:
            originals[place.year, place.machine].append(path)
    dropped = originals if renamed else copies
    left_out = [path for key in copies if key in originals for path in dropped[key]]
    for path in left_out:
        del names[path]
    if left_out:
        preferred = "the labelled copies in test_rename" if renamed else "the originals in test"
        oddities.append(f"{quantity(left_out, 'test clip')} left out in favour of {preferred}.")


def _listed_attributes(
    title: str, clips: Sequence[Clip], folders: Iterable[Location], oddities: list[str]
) -> dict[str, dict[str, str]]:
    """Attributes of one machine's clips that ``attributes_00.csv`` and the like add to."""
    files: list[Location] = []
    for folder in folders:
        candidates: list[Location] = [*folder.glob("attributes_*.csv")]
        files += sorted(candidates, key=str)
    files = [file for file in files if re.fullmatch(r"attributes_\d+\.csv", file.name)]
    rows = {
        stem: (file.name, pairs)
        for file in files
        for stem, pairs in _attribute_rows(file, oddities).items()
    }
    unused, without, against = dict(rows), [], defaultdict(list)
    attributes = {}
    for clip in clips:
        stem = stem_of(clip.path)
        if stem in rows:
            unused.pop(stem, None)
            file_name, pairs = rows[stem]
            attributes[clip.path], agree = _with_pairs(clip, pairs)
            if not agree:
                against[file_name].append(stem)
        elif files and clip.label is not None:
            without.append(stem)
    for file_name, stems in against.items():
        oddities.append(
            f"{title}: {file_name} and {quantity(stems, 'name')} disagree, the file counts: "
            f"{name_list(stems, 3)}."
        )
    if without:
        names = name_list(dict.fromkeys(file.name for file in files))
        oddities.append(
            f"{title}: {quantity(without, 'clip')} not in {names}: {name_list(without, 3)}."
        )
    for file_name, count in Counter(name for name, _ in unused.values()).items():
        oddities.append(
            f"{title}: {quantity(count, 'row')} of {file_name} for clips that are not here."
        )
    return attributes


def _with_pairs(clip: Clip, pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, str], bool]:
    """The attributes of a clip's name and of its file, which counts; whether the two agree."""
    listed = number_keys(pairs)
    name = parse_name(clip.path)
    if name is not None and listed and _agree(name.tail, pairs):
        # The file says how the name is to be split.
        kind = {"supplemental": name.kind} if name.kind else {}
        return {**kind, **listed}, True
    values = {key.lower(): value.lower() for key, value in listed.items()}
    own = clip.attributes.items()
    same = all(values.get(key.lower(), value.lower()) == value.lower() for key, value in own)
    others = {key: value for key, value in own if key.lower() not in values}
    return {**others, **listed}, same and not (listed and "raw" in others)


def _attribute_rows(file: Location, oddities: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Pairs of name and value by stem; ``file_name`` is a path in some files, a stem in others."""
    lines = read_csv(file)
    header = lines[0] if lines else []
    if not header or header[0].strip() != "file_name":
        oddities.append(f"{file} ignored: its header does not begin with file_name.")
        return {}
    rows: dict[str, list[tuple[str, str]]] = {}
    for line in lines[1:]:
        values = [value.strip() for value in line]
        pairs = zip(values[1::2], values[2::2], strict=False)
        rows[stem_of(values[0].replace("\\", "/"))] = [(k, v) for k, v in pairs if k and v]
    if len(rows) < len(lines) - 1:
        oddities.append(f"{file} names {quantity(len(lines) - 1 - len(rows), 'clip')} twice.")
    return rows


def _agree(tail: str, pairs: Sequence[tuple[str, str]]) -> bool:
    tail = tail.rstrip("_").lower()
    forms = ("_".join(f"{key}{glue}{value}" for key, value in pairs).lower() for glue in ("_", ""))
    return tail in ("", "noattribute", *forms)


def inject_truth(clips: Sequence[Clip], truth: Path | str, *, oddities: list[str]) -> list[Clip]:
    """The clips, with labels, domains and attributes for the test clips that have no label.

    `truth` is a checkout of the official evaluator, with ``ground_truth_data``,
    ``ground_truth_domain`` and, if wanted, ``ground_truth_attributes``. Oddities are appended; a
    `DataError` says where names or years differ.
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
            result[index] = replace(clips[index], label=label, domain=domain)
            if names:
                hidden = parse_attributes(names[-1].tail)
                result[index] = replace(result[index], attributes=hidden)
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
