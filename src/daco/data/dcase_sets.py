"""DCASE data sets on disk: unpacked folders and attribute files."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from daco.data.clips import Clip, group_clips, machine_title, stem_of
from daco.data.dcase import (
    MACHINES,
    ClipName,
    FolderMeaning,
    clip_years,
    folder_meaning,
    named_clip,
    number_keys,
    parse_name,
    read_csv,
)
from daco.errors import DataError
from daco.files.remote import Location
from daco.text import name_list, quantity


def read_tree(
    root: Location,
    paths: Iterable[str],
    *,
    year: int | None = None,
    renamed: bool = True,
    oddities: list[str],
) -> list[Clip] | None:
    """The clips of a data set at any level; None where no file has a DCASE name.

    `paths` are relative to `root`. Folders such as ``dcase2024t2`` say the year, too, and names
    and folders of 2020 and 2021 by their form. Where the baseline's labelled copy ``test_rename``
    is beside an anonymous ``test``, `renamed` says whether to read the copy or the original.
    Oddities are appended.
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
        oddities.append(
            f"The folders name the year {years.pop()}, but {year} was given and is used."
        )
    dated = clip_years([*names], [*names.values()], [*places.values()])
    years_of = dict(zip(names, dated, strict=True))
    _leave_out_copies(names, places, renamed, oddities)
    clips, unparsed, moved = [], [], []
    for path, name in names.items():
        where = places[path]
        if name is None and where.split == "supplemental":
            name = ClipName("00", "", split="supplemental", kind="unknown")
        if name is not None:
            clips.append(named_clip(path, name, where, year or years_of[path]))
            if name.split and where.split and name.split != where.split:
                moved.append(path)
        else:
            unparsed.append(path)
            if where.split == "test":
                clips.append(Clip(path, where.machine, year or years_of[path], split="test"))
    if unparsed:
        oddities.append(
            f"{quantity(unparsed, 'name')} not of DCASE's form, kept without a label in test "
            f"folders and left out elsewhere: {name_list(unparsed)}."
        )
    if moved:
        oddities.append(
            f"{quantity(moved, 'clip')} whose folder and name disagree about the split; the name "
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
