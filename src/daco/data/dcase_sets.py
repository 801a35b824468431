"""DCASE data sets on disk: unpacked folders and attribute files.

The file name decides, and never a folder above that of the machine.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from daco.data.clips import DEFAULT_MACHINE, ONE_DOMAIN, Clip, group_clips, stem_of
from daco.data.dcase import (
    MACHINES,
    YEAR,
    ClipName,
    number_keys,
    parse_attributes,
    parse_name,
    read_csv,
    year_of_folders,
    year_of_names,
)
from daco.errors import DataError, InputError
from daco.files.remote import Location, explain_errors
from daco.text import name_list, quantity

_SPLIT_FOLDERS = {
    "train": "train",
    "test": "test",
    "test_rename": "test",  # the baseline's copy of an evaluation set, with labelled names
    "source_test": "test",  # of 2021
    "target_test": "test",
    "supplemental": "supplemental",
}
_SET_FOLDERS = {"raw", "dev", "eval", "dev_data", "eval_data", "development", "evaluation", "data"}
_ARCHIVE = re.compile(r"(?:dev|eval)_(?:data_)?(?:train_|test_)?(.+?)(?:_train|_test)?(?:_r\d+)?")
_BASELINE_NAME = re.compile(r"DCASE20\d\dT2(.+)")


class _Folder(NamedTuple):
    """What the folders above a clip say; the first is the folder of the machine."""

    path: Location
    machine: str
    split: str | None
    year: int | None
    renamed: bool  # holds the baseline's labelled copies


class _Placed(NamedTuple):
    """A clip by its path; without one in the folders, the year is that of the form of names."""

    path: str
    name: ClipName | None
    folder: _Folder
    year: int | None

    def clip(self, name: ClipName, year: int | None) -> Clip:
        """The clip, with this name and year."""
        attributes = parse_attributes(name.tail)
        if name.kind:
            attributes = {"supplemental": name.kind, **attributes}
        split = name.split or self.folder.split or "test"  # from 2021 on only test names lack it
        place = self.path, self.folder.machine, year
        return Clip(*place, name.section, name.domain, split, name.label, attributes)


def clips_by_name(
    paths: Sequence[str], root: Location | None = None, *, split_known: bool = False
) -> list[Clip | None] | None:
    """What DCASE names say about each clip; None where no clip has such a name.

    Folders tell machine and year, and the split where the name does not. A clip with another
    name is None, but without a known split it may not lie beside test clips.

    >>> clips_by_name(["fan/train/section_00_source_train_normal_0001.wav"])[0].machine
    'fan'
    >>> clips_by_name(["a.wav", "b.wav"])
    """
    slashed = [path.replace("\\", "/") for path in paths]
    placed = _placed(Path("/", DEFAULT_MACHINE) if root is None else root, slashed)
    if not placed:
        return None
    clips = [each.clip(each.name, each.year) if each.name else None for each in placed]
    others = [path for path, clip in zip(paths, clips, strict=True) if clip is None]
    if others and not split_known and any(clip and clip.split != "train" for clip in clips):
        raise InputError(
            "there is no column 'split', and only some names mark test clips as those of DCASE do; "
            f"{quantity(others, 'clip')} with other names: {name_list(others, 3)}. Add a column "
            "'split' with train or test for every clip."
        )
    return clips


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
    placed = _placed(root, paths)
    if not placed:
        return None
    years = {each.folder.year for each in placed} - {None}
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
        name, split = each.name, each.folder.split
        if name is None and split == "supplemental":
            name = ClipName("00", "", split=split, kind="unknown")
        elif name is None:
            unparsed.append(each.path)
            if split != "test":
                continue
            name = ClipName("00", "")
        elif name.split and split and name.split != split:
            moved.append(each.path)
        clips.append(each.clip(name, year or each.year))
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
    for of_year, machine in group_clips(clips):
        known = MACHINES.get(of_year or 0)
        if known and machine not in known["dev"] + known["eval"]:
            oddities.append(f"{machine} is not a machine of DCASE {of_year}.")
    folder_of = {each.path: each.folder.path for each in placed}
    listed = {
        folder: _listed_attributes(folder, oddities)
        for folder in dict.fromkeys(folder_of[clip.path] for clip in clips)
    }
    return [_with_attributes(clip, listed[folder_of[clip.path]]) for clip in clips]


def _with_attributes(clip: Clip, listed: Mapping[str, Mapping[str, str]]) -> Clip:
    """The clip with the attributes of a file, which count where the name has others."""
    if not (found := listed.get(stem_of(clip.path))):
        return clip
    known = {"raw", *(key.lower() for key in found)}
    own = {key: value for key, value in clip.attributes.items() if key.lower() not in known}
    return replace(clip, attributes=own | dict(found))


def _placed(root: Location, paths: Iterable[str]) -> list[_Placed]:
    """What names and folders say of each clip; nothing where no clip has a DCASE name."""
    names = [(path, parse_name(path)) for path in paths]
    if not any(name for _, name in names):
        return []
    meaning = cache(lambda folder: _meaning(root, folder))
    placed = [_Placed(path, name, meaning(path.rpartition("/")[0]), None) for path, name in names]
    of_2020 = [bool(name and name.domain == ONE_DOMAIN) for _, name in names]
    undated = [each for each in placed if each.folder.year is None]
    later = [each for each in undated if each.name and each.name.domain != ONE_DOMAIN]
    form = year_of_names(each.path for each in later or undated)
    return [
        each._replace(year=each.folder.year or (2020 if early else form))
        for each, early in zip(placed, of_2020, strict=True)
    ]


def _meaning(root: Location, folder: str) -> _Folder:
    """Machine and split by the nearest folders, the year by any."""
    parts = [*root.parts, *PurePosixPath(folder).parts]
    split = None
    last = len(parts) - 1
    if last > 1 and parts[last] in ("source", "target"):  # the names of clips say it, too
        last -= 1
    if parts[last] in _SPLIT_FOLDERS:
        split, machine = parts[last], last - 1
    elif last > 1 and parts[last - 1] in _SPLIT_FOLDERS:
        # Below one machine's split, or the machine itself where the split comes first.
        split, machine = parts[last - 1], last if _holds_machines(parts[last - 2]) else last - 2
    else:
        machine = last
    if _holds_machines(parts[machine]) and machine > 1 and not _holds_machines(parts[machine - 1]):
        machine -= 1  # <machine>/raw/train
    of_machine = root / folder
    for _ in range(len(parts) - 1 - machine):
        of_machine = of_machine.parent
    renamed = "test_rename" in parts[len(root.parts) :] or split == "test_rename"
    known_split, year = _SPLIT_FOLDERS.get(split or ""), year_of_folders(parts)
    return _Folder(of_machine, _machine_name(parts[machine]), known_split, year, renamed)


def _holds_machines(folder: str) -> bool:
    dataset = YEAR.match(folder) and not _BASELINE_NAME.fullmatch(folder)
    return folder in _SET_FOLDERS or folder in _SPLIT_FOLDERS or bool(dataset)


def _machine_name(folder: str) -> str:
    """The machine of a folder that may bear the name of an archive, or the baseline's."""
    if match := _BASELINE_NAME.fullmatch(folder):
        return match[1]
    match = _ARCHIVE.fullmatch(folder)
    known = {name for sets in MACHINES.values() for names in sets.values() for name in names}
    return match[1] if match and match[1] in known else folder


def _without_copies(placed: Sequence[_Placed], renamed: bool, oddities: list[str]) -> list[_Placed]:
    """All but the baseline's labelled copies, or but the anonymous clips they were made from."""
    copies, originals = defaultdict(set), defaultdict(set)
    for each in placed:
        machine = each.folder.year, each.folder.machine
        if each.folder.split == "test" and each.folder.renamed:
            copies[machine].add(each.path)
        elif each.folder.split == "test" and each.name and each.name.label is None:
            originals[machine].add(each.path)
    dropped = originals if renamed else copies
    left_out = {path for key in copies.keys() & originals for path in dropped[key]}
    if left_out:
        preferred = "the labelled copies in test_rename" if renamed else "the originals in test"
        oddities.append(f"{quantity(left_out, 'test clip')} left out in favour of {preferred}.")
    return [each for each in placed if each.path not in left_out]


def _listed_attributes(folder: Location, oddities: list[str]) -> dict[str, dict[str, str]]:
    """The attributes in ``attributes_00.csv`` and the like of one machine, by stem."""
    with explain_errors(folder):
        files: list[Location] = [*folder.glob("attributes_*.csv")]
    rows: dict[str, dict[str, str]] = {}
    for file in sorted(files, key=str):
        if re.fullmatch(r"attributes_\d+\.csv", file.name):
            rows |= _attribute_rows(file, oddities)
    return rows


def _attribute_rows(file: Location, oddities: list[str]) -> dict[str, dict[str, str]]:
    """Attributes by stem; ``file_name`` is a path in some files, a stem in others."""
    header, *lines = read_csv(file) or [[]]
    if not header or header[0].strip() != "file_name":
        oddities.append(f"{file} ignored: its header does not begin with file_name.")
        return {}
    rows: dict[str, dict[str, str]] = {}
    for line in lines:
        values = [value.strip() for value in line]
        pairs = zip(values[1::2], values[2::2], strict=False)
        stem = stem_of(values[0].replace("\\", "/"))
        rows[stem] = number_keys((key, value) for key, value in pairs if key and value)
    return rows
