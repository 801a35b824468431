"""DCASE data sets on disk: unpacked folders and attribute files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from daco.data.clips import Clip, group_clips, machine_title, stem_of
from daco.data.dcase import (
    MACHINES,
    ClipName,
    Placed,
    number_keys,
    parse_name,
    placed_clips,
    read_csv,
)
from daco.errors import DataError
from daco.files.remote import Location, explain_errors
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
    placed = placed_clips(root, paths)
    if placed is None:
        return None
    years = {each.named_year for each in placed} - {None}
    if year is not None and years - {year}:
        if len(years) > 1:
            raise DataError(
                f"{root} holds the years {name_list(map(str, sorted(filter(None, years))))}, and "
                f"year is {year}. Read one year at a time, or leave year out."
            )
        oddities.append(
            f"The folders name the year {years.pop()}, but {year} was given and is used."
        )
    clips, unparsed, moved = [], [], []
    for each in _without_copies(placed, renamed, oddities):
        name, split = each.name, each.split
        if name is None and split == "supplemental":
            name = ClipName("00", "", split=split, kind="unknown")
        elif name is None:
            unparsed.append(each.path)
            if split != "test":
                continue
            name = ClipName("00", "")
        elif name.split and split and name.split != split:
            moved.append(each.path)
        clips.append(each.clip(name, year))
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
    folder_of = {each.path: each.folder for each in placed}
    attributes: dict[str, dict[str, str]] = {}
    for key, members in groups.items():
        folders = dict.fromkeys(folder_of[clip.path] for clip in members)
        attributes |= _listed_attributes(machine_title(*key), members, folders, oddities)
    return [replace(clip, attributes=attributes.get(clip.path, clip.attributes)) for clip in clips]


def _without_copies(placed: Sequence[Placed], renamed: bool, oddities: list[str]) -> list[Placed]:
    """All but the baseline's labelled copies, or but the anonymous clips they were made from."""
    copies, originals = defaultdict(list), defaultdict(list)
    for each in placed:
        if each.split == "test" and each.renamed:
            copies[each.named_year, each.machine].append(each.path)
        elif each.split == "test" and each.name and each.name.label is None:
            originals[each.named_year, each.machine].append(each.path)
    dropped = originals if renamed else copies
    left_out = {path for key in copies if key in originals for path in dropped[key]}
    if left_out:
        preferred = "the labelled copies in test_rename" if renamed else "the originals in test"
        oddities.append(f"{quantity(left_out, 'test clip')} left out in favour of {preferred}.")
    return [each for each in placed if each.path not in left_out]


def _listed_attributes(
    title: str, clips: Sequence[Clip], folders: Iterable[Location], oddities: list[str]
) -> dict[str, dict[str, str]]:
    """Attributes of one machine's clips in ``attributes_00.csv`` and the like, which count."""
    rows: dict[str, list[tuple[str, str]]] = {}
    for folder in folders:
        with explain_errors(folder):
            files: list[Location] = [*folder.glob("attributes_*.csv")]
        for file in sorted(files, key=str):
            if re.fullmatch(r"attributes_\d+\.csv", file.name):
                rows |= _attribute_rows(file, oddities)
    attributes, against = {}, []
    for clip in clips:
        stem = stem_of(clip.path)
        if not (pairs := rows.get(stem)):
            continue
        listed, name = number_keys(pairs), parse_name(clip.path)
        if name is not None and _agree(name.tail, pairs):  # the file says how the name is split
            others = {"supplemental": name.kind} if name.kind else {}
        else:
            known = {key.lower(): value.lower() for key, value in listed.items()}
            own = {key: value for key, value in clip.attributes.items() if key != "raw"}
            others = {key: value for key, value in own.items() if key.lower() not in known}
            if any(known.get(k.lower(), v.lower()) != v.lower() for k, v in own.items()):
                against.append(stem)
        attributes[clip.path] = others | listed
    if against:
        oddities.append(
            f"{title}: the attribute file and {quantity(against, 'name')} disagree, the file "
            f"counts: {name_list(against, 3)}."
        )
    return attributes


def _attribute_rows(file: Location, oddities: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Pairs of name and value by stem; ``file_name`` is a path in some files, a stem in others."""
    header, *lines = read_csv(file) or [[]]
    if not header or header[0].strip() != "file_name":
        oddities.append(f"{file} ignored: its header does not begin with file_name.")
        return {}
    rows: dict[str, list[tuple[str, str]]] = {}
    for line in lines:
        values = [value.strip() for value in line]
        pairs = zip(values[1::2], values[2::2], strict=False)
        rows[stem_of(values[0].replace("\\", "/"))] = [(k, v) for k, v in pairs if k and v]
    return rows


def _agree(tail: str, pairs: Sequence[tuple[str, str]]) -> bool:
    tail = tail.rstrip("_").lower()
    forms = ("_".join(f"{key}{glue}{value}" for key, value in pairs).lower() for glue in ("_", ""))
    return tail in ("", "noattribute", *forms)
