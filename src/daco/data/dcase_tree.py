"""DCASE data sets as they are unpacked: split folders, labelled copies, attribute files."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from daco.data.clips import Clip, machine_title, stem_of
from daco.data.dcase import (
    MACHINES,
    ClipName,
    FolderMeaning,
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

    Parameters
    ----------
    root : path
    paths : iterable of str
        Of recordings, relative to `root`.
    year : int, optional
        Of the data set; folders such as ``dcase2024t2`` say it too.
    renamed : bool, default=True
        Where the baseline's labelled copy ``test_rename`` is beside an anonymous ``test``:
        whether to read the copy or the original.
    oddities : list of str
        What is odd is appended.
    """
    names = {path: parse_name(path) for path in paths}
    if not any(names.values()):
        return None
    place = cache(lambda folder: folder_meaning(root, folder))
    places = {path: place(path.rpartition("/")[0]) for path in names}
    years = {each.year for each in places.values()} - {None}
    if year is not None and years - {year}:
        if len(years) > 1:
            raise DataError(
                f"{root} holds the years {name_list(map(str, sorted(filter(None, years))))}, and "
                f"year is {year}. Read one year at a time, or leave year out."
            )
        oddities.append(f"The folders name the year {years.pop()}; read as {year}, as asked.")
    _leave_out_copies(names, places, renamed, oddities)
    clips, unparsed, moved = [], [], []
    for path, name in names.items():
        where = places[path]
        if name is None and where.split == "supplemental":
            name = ClipName("00", "", split="supplemental", kind="unknown")
        if name is None:
            unparsed.append(path)
            if where.split == "test":
                clips.append(Clip(path, where.machine, year or where.year, split="test"))
            continue
        if name.split and where.split and name.split != where.split:
            moved.append(path)
        clips.append(named_clip(path, name, where, year or where.year))
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
    for key in dict.fromkeys((clip.year, clip.machine) for clip in clips):
        known = MACHINES.get(key[0] or 0)
        if known and key[1] not in known["dev"] + known["eval"]:
            oddities.append(f"{key[1]} is not a machine of DCASE {key[0]}.")
    return _with_attribute_files(clips, places, oddities)


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
    both = [key for key in copies if key in originals]
    left_out = [path for key in both for path in (originals if renamed else copies)[key]]
    for path in left_out:
        del names[path]
    if left_out:
        kept = "the labelled copies in test_rename" if renamed else "the originals in test"
        oddities.append(f"{quantity(left_out, 'test clip')} left out in favour of {kept}.")


def _with_attribute_files(
    clips: Sequence[Clip], places: Mapping[str, FolderMeaning], oddities: list[str]
) -> list[Clip]:
    """The clips with what files such as ``attributes_00.csv`` add to the attributes of names."""
    rows: dict[tuple[int | None, str], dict[str, tuple[str, list[tuple[str, str]]]]] = {}
    names: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    for folder, year, machine in dict.fromkeys(
        (places[clip.path].folder, clip.year, clip.machine) for clip in clips
    ):
        files: list[Location] = [*folder.glob("attributes_*.csv")]
        for file in sorted(files, key=str):
            if re.fullmatch(r"attributes_\d+\.csv", file.name):
                found = _attribute_rows(file, oddities)
                mine = rows.setdefault((year, machine), {})
                mine.update({stem: (file.name, pairs) for stem, pairs in found.items()})
                names[year, machine].append(file.name)
    if not rows:
        return list(clips)
    unused = {key: dict.fromkeys(found) for key, found in rows.items()}
    without: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    against: dict[tuple[tuple[int | None, str], str], list[str]] = defaultdict(list)
    result = []
    for clip in clips:
        key, stem = (clip.year, clip.machine), stem_of(clip.path)
        if key in rows and stem in rows[key]:
            unused[key].pop(stem, None)
            file_name, pairs = rows[key][stem]
            attributes, agree = _with_pairs(clip, pairs)
            if not agree:
                against[key, file_name].append(stem)
            clip = replace(clip, attributes=attributes)
        elif key in rows and clip.label is not None:
            without[key].append(stem)
        result.append(clip)
    for key in rows:
        title = machine_title(*key)
        for file_name in dict.fromkeys(names[key]):
            if stems := against[key, file_name]:
                oddities.append(
                    f"{title}: {file_name} and {quantity(stems, 'name')} disagree, the file "
                    f"counts: {name_list(stems, 3)}."
                )
        if without[key]:
            oddities.append(
                f"{title}: {quantity(without[key], 'clip')} not in "
                f"{name_list(dict.fromkeys(names[key]))}: {name_list(without[key], 3)}."
            )
        left = Counter(rows[key][stem][0] for stem in unused[key])
        for file_name, count in left.items():
            oddities.append(
                f"{title}: {quantity(count, 'row')} of {file_name} for clips that are not here."
            )
    return result


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
    kept = {key: value for key, value in own if key.lower() not in values}
    return {**kept, **listed}, same and not (listed and "raw" in kept)


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
