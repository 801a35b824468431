"""DCASE data sets on disk: what names and folders say about each clip.

The file name decides, and never a folder above that of the machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from daco.data.clips import DEFAULT_MACHINE, ONE_DOMAIN, Clip
from daco.data.dcase import (
    YEAR,
    ClipName,
    parse_attributes,
    parse_name,
    year_of_folders,
    year_of_names,
)
from daco.errors import DataError
from daco.files.remote import Location
from daco.text import name_list, quantity

_COPIES = "test_rename"
"""The folder of the baseline's copies of an evaluation set, with labelled names."""

_SPLITS = {
    "train": "train",
    "test": "test",
    _COPIES: "test",
    "source_test": "test",  # of 2021
    "target_test": "test",
    "supplemental": "supplemental",
}
_SETS = {"raw", "dev", "eval", "dev_data", "eval_data", "development", "evaluation", "data"}
_SETS |= {"source", "target"}
_ARCHIVE = re.compile(r"(?:dev|eval)_(?:data_)?(.+?)(?:_train|_test)?(?:_r\d+)?")


class _Folder(NamedTuple):
    """What the folders above a clip say."""

    machine: str
    split: str | None
    year: int | None


def clips_by_name(paths: Sequence[str], root: Location | None = None) -> list[Clip | None] | None:
    """What DCASE names say about each clip; None where no clip has such a name.

    Folders tell machine and year, and the split where the name does not. Without a year in the
    folders, it is that of the form of the names. A clip with another name is None.

    >>> clips_by_name(["fan/train/section_00_source_train_normal_0001.wav"])[0].machine
    'fan'
    >>> clips_by_name(["a.wav", "b.wav"])
    """
    top = Path("/", DEFAULT_MACHINE) if root is None else root
    slashed = [path.replace("\\", "/") for path in paths]
    names = [parse_name(path) for path in slashed]
    if not any(names):
        return None
    meaning = cache(lambda folder: _meaning([*top.parts, *PurePosixPath(folder).parts]))
    folders = [meaning(path.rpartition("/")[0]) for path in slashed]
    placed = list(zip(slashed, names, folders, strict=True))
    undated = [
        path
        for path, name, folder in placed
        if folder.year is None and name is not None and name.domain != ONE_DOMAIN
    ]
    later = year_of_names(undated)
    return [
        None if name is None else _clip(path, name, folder, later) for path, name, folder in placed
    ]


def _clip(path: str, name: ClipName, folder: _Folder, later: int | None) -> Clip:
    """The clip of a name; without a year in the folders, names of 2020 tell it, others `later`."""
    year = folder.year or (2020 if name.domain == ONE_DOMAIN else later)
    split = name.split or folder.split or "test"  # from 2021 on only test names lack it
    attributes, section = parse_attributes(name.tail), name.section
    return Clip(path, folder.machine, year, section, name.domain, split, name.label, attributes)


def _meaning(folders: list[str]) -> _Folder:
    """The machine is the nearest folder that names neither a split nor a data set."""
    year, split = year_of_folders(folders), None
    while len(folders) > 2 and _is_above_or_below_a_machine(folders[-1]):
        split = split or _SPLITS.get(folders[-1])
        folders = folders[:-1]
    archive = _ARCHIVE.fullmatch(folders[-1])
    return _Folder(archive[1] if archive else folders[-1], split, year)


def _is_above_or_below_a_machine(folder: str) -> bool:
    return folder in _SETS or folder in _SPLITS or YEAR.match(folder) is not None


def read_tree(
    root: Location, paths: Sequence[str], *, year: int | None = None, oddities: list[str]
) -> list[Clip] | None:
    """The clips of a data set at any level; None where no file has a DCASE name.

    `paths` are relative to `root`. Where the baseline's labelled copies are beside the anonymous
    test clips of a machine, the copies are read. Oddities are appended.
    """
    found = clips_by_name(paths, root)
    if found is None:
        return None
    clips = [clip for clip in found if clip is not None]
    if others := [path for path, clip in zip(paths, found, strict=True) if clip is None]:
        oddities.append(
            f"{quantity(others, 'clip')} left out, with a name not of DCASE's form: "
            f"{name_list(others)}."
        )
    years = {clip.year for clip in clips if clip.year is not None} - {year}
    if year is not None and years:
        raise DataError(
            f"Folders or names of {root} say the year {name_list(map(str, sorted(years)))}, not "
            f"{year}. Leave the year out, or give the folder of that year."
        )
    return [replace(clip, year=year or clip.year) for clip in _without_doubles(clips, oddities)]


def _without_doubles(clips: Sequence[Clip], oddities: list[str]) -> list[Clip]:
    """The clips without the anonymous ones of machines that have labelled copies of them."""
    copied = {(clip.year, clip.machine) for clip in clips if _COPIES in clip.path.split("/")}
    kept = [
        clip
        for clip in clips
        if (clip.year, clip.machine) not in copied or clip.split != "test" or clip.label is not None
    ]
    if left_out := len(clips) - len(kept):
        oddities.append(
            f"{quantity(left_out, 'test clip')} left out in favour of the labelled copies in "
            f"{_COPIES}."
        )
    return kept
