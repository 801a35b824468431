"""What plain folders say about the recordings in them: machine, domain, split and label.

Folders that say split or label are no levels. Of the others, level 1 are those directly in the
folder of all recordings. One level names the machines, and one the domains.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from daco.data.clips import FAULT_WORDS, LABEL_WORDS, ONE_DOMAIN, Clip
from daco.errors import InputError
from daco.files.remote import Location, name_of
from daco.text import name_list, quantity

_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS["supplemental"] = "supplemental"
_NEGATIONS = {"no", "non", "not", "without", "free", "before", "to"}  # run_to_failure

_SHOWN = 20
"""Machines that are listed."""

_DAY = r"(?P<day>0?[1-9]|[12]\d|3[01])"
_MONTH = r"(?P<month>0?[1-9]|1[0-2])"
_DIGITS = r"(?P<month>0[1-9]|1[0-2])(?P=dash)(?P<day>0[1-9]|[12]\d|3[01])"
_MINUTE = r"(?P<hour>[01]\d|2[0-3])(?P<colon>[-_.:h]?)(?P<minute>[0-5]\d)"
_SECOND = r"(?P=colon)(?P<second>[0-5]\d)"
_MAYBE = rf"(?:[T_ -]{{0,3}}{_MINUTE}(?:{_SECOND})?(?!\d))?"
TIMES = [
    re.compile(rf"(?<!\d){pattern}(?!\d)", re.ASCII)
    for pattern in (  # 20260512_083000 or 2026-05-12; 12.05.2026; 260512_083000, with all digits
        rf"(?P<year>(?:19|20)\d\d)(?P<dash>[-_. ]?){_DIGITS}{_MAYBE}",
        rf"{_DAY}(?P<dash>[-_. ]){_MONTH}(?P=dash)(?P<year>(?:19|20)\d\d){_MAYBE}",
        rf"(?P<year>\d\d)(?P<dash>){_DIGITS}[_-]{_MINUTE}{_SECOND}",
    )
]
"""Dates, with or without a time of day, in names of recordings and folders."""

_YEAR = re.compile(r"20[1-4]\d", re.ASCII)
_PART_OF_DATE = re.compile(
    r"(19|20)\d\d[-_. ]?(0[1-9]|1[0-2])|(19|20)\d\d[-_. ]?W[-_. ]?\d\d"
    r"|((19|20)\d\d[-_. ]?)?(?i:week|kw|cw)[-_. ]?\d{1,3}",
    re.ASCII,
)


@dataclass(frozen=True)
class Folders:
    """The folders above recordings: those that say split or label, and the names of levels."""

    names: tuple[str, ...]
    """Of machines and domains, possibly, from level 1; empty where they do not count."""
    split: str | None
    label: int | None
    words: tuple[str, ...]
    """The folders that say split and label."""
    above_split: int
    """Number of names above the folder that says the split."""
    paths: tuple[str, ...] = ()
    """The recordings directly in the last folder."""

    @property
    def clip_split(self) -> str:
        """The split of the recordings."""
        return self.split or ("test" if self.label == 1 else "train")

    def name(self, level: int) -> str:
        """The name of a level, from 1; empty for none."""
        return self.names[level - 1] if 0 < level <= len(self.names) else ""

    def without_dates(self, machine_level: int | None) -> Folders:
        """The same with empty names for dates, also for those in several folders: 2026/05/12."""
        names = list(self.names)
        for at, name in enumerate(self.names):
            # A year alone is no date: it may be a speed.
            for count in (3, 2) if _YEAR.fullmatch(name) else (1,):
                parts = self.names[at : at + count]
                levels = range(at + 1, at + 1 + len(parts))
                if _is_date("-".join(parts)) and machine_level not in levels:
                    names[at : at + len(parts)] = [""] * len(parts)
                    break
        return replace(self, names=tuple(names))

    def depth(self, levels: Sequence[int]) -> int:
        """Number of names of these levels, and one more for a split below all of them."""
        own = [level for level in levels if self.name(level)]
        return len(own) + (0 < max(own, default=0) <= self.above_split)


def meaning_of_folders(path: str) -> Folders:
    """Read the folders of a path.

    >>> found = meaning_of_folders("fan/train/OK/slow/a.wav")
    >>> found.names, found.split, found.label
    (('fan', 'slow'), 'train', 0)
    """
    # Names written by macOS and by others may differ in how an umlaut is stored.
    folders = unicodedata.normalize("NFC", path).split("/")[:-1]
    words = [folder.strip().lower() for folder in folders]
    of_split = next((at for at, word in enumerate(words) if word in _SPLITS), None)
    of_label = next((at for at, word in enumerate(words) if word in LABEL_WORDS), None)
    if of_label is None:  # the last that names a fault
        of_label = max((at for at, name in enumerate(folders) if _names_fault(name)), default=None)
    names = [at for at in range(len(folders)) if at not in (of_split, of_label)]
    return Folders(
        names=tuple(folders[at] for at in names),
        split=None if of_split is None else _SPLITS[words[of_split]],
        label=None if of_label is None else LABEL_WORDS.get(words[of_label], 1),
        words=tuple(folders[at] for at in range(len(folders)) if at not in names),
        above_split=0 if of_split is None else sum(at < of_split for at in names),
    )


def _names_fault(folder: str) -> bool:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", folder)  # AnomalousSound
    words = set(re.findall("[a-z]+", spaced.lower()))
    return bool(words & FAULT_WORDS) and not words & _NEGATIONS


def _is_date(folder: str) -> bool:
    return any(pattern.fullmatch(folder) for pattern in (*TIMES, _PART_OF_DATE))


def _machine_of(root: Location) -> str:
    """The name of a folder, or of the next above that says more than label, split or date."""
    names = [name_of(root)]
    if isinstance(root, Path):
        names += reversed(root.parts[1:-1])
    others = [name for name in names if name.lower() not in LABEL_WORDS | _SPLITS]
    return next((name for name in others if not _is_date(name)), names[0])


def read_folder(
    root: Location,
    paths: Sequence[str],
    year: int | None,
    machine_level: int | None = None,
    domain_level: int | None = None,
) -> tuple[list[Clip], list[str], str]:
    """List the clips of plain folders, with oddities and a note about what was understood."""
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_folder[path.rpartition("/")[0]].append(path)
    places = [
        replace(meaning_of_folders(below[0]), paths=tuple(below)) for below in by_folder.values()
    ]
    deepest = max(len(place.names) for place in places)
    for level in (machine_level, domain_level):
        if level is not None and level > deepest:
            raise InputError(
                f"No recording of {root} lies {quantity(level, 'folder')} deep. Choose another "
                "level, or 0."
            )
    notes: list[str] = []
    if domain_level is None:
        places, dates = _without_dates(places, machine_level)
        notes += dates
    # Files beside folders of normal clips may be anything, and the bank must hold normal clips.
    inside = {"/".join(p.words) + "/" for p in places if p.words and p.clip_split == "train"}
    others = [path for place in places if inside and not place.words for path in place.paths]
    places = [place for place in places if place.words or not inside]
    normals = [place for place in places if place.clip_split == "train"] or places
    machine_level, domain_level = _levels(normals, machine_level, domain_level, notes)
    levels = machine_level, domain_level
    clips, misplaced = _clips(places, normals, *levels, year, _machine_of(root))
    oddities = [
        f"{quantity(outside, 'clip')} left out, not inside {where}: {name_list(sorted(outside))}."
        for where, outside in (
            (name_list(sorted(inside), 3), others),
            ("the folders of the domains", misplaced),
        )
        if outside
    ]
    in_order = [clips[path] for path in paths if path in clips]
    return in_order, oddities, _understood(in_order, *levels, notes)


def _without_dates(
    places: Sequence[Folders], machine_level: int | None
) -> tuple[list[Folders], list[str]]:
    """The places without names of dates, and a sentence about these."""
    kept = [place.without_dates(machine_level) for place in places]
    dates = {
        "/".join(name for name, still in zip(old.names, new.names, strict=True) if not still)
        for old, new in zip(places, kept, strict=True)
        if old != new
    }
    if not dates:
        return kept, []
    return kept, [
        f"Folders named by dates ({name_list(sorted(dates), 3)}) do not count. If they are "
        "operating conditions, use --domain-level."
    ]


def _levels(
    normals: Sequence[Folders],
    machine_level: int | None,
    domain_level: int | None,
    notes: list[str],
) -> tuple[int, int]:
    """The levels of machines and domains, 0 for none; a sentence about levels that do not count.

    Without both, levels of one folder do not count while more than two are left.
    """
    if domain_level is not None:
        return machine_level or 0, domain_level
    named = [place for place in normals if any(place.names)]
    deepest = max((len(place.names) for place in named), default=0)
    folders = {level: {place.name(level) for place in named} for level in range(1, deepest + 1)}
    levels = [level for level, names in folders.items() if names != {""}]
    if machine_level is not None:
        return machine_level, next((level for level in levels if level > machine_level), 0)
    more_than_two = max(0, min((place.depth(levels) for place in named), default=0) - 2)
    shared = [level for level in levels if len(folders[level]) == 1][:more_than_two]
    if shared:
        same = name_list(name for level in shared for name in folders[level])
        notes.append(
            f"Folders that are the same for all recordings ({same}) do not count. If they are "
            "machines or operating conditions, use --machine-level and --domain-level."
        )
    levels = [level for level in levels if level not in shared]
    first, second, *_ = [*levels, 0, 0]
    # All folders of the first level, or several, are machines if there are folders below for
    # domains or splits.
    with_parts = _mostly(normals, first, lambda place: place.depth(levels) > 1)
    n_folders = len({place.name(first) for place in normals} - {""})
    is_plant = len(with_parts) >= min(2, n_folders) > 0
    return (first, second) if is_plant else (0, first)


def _mostly(places: Sequence[Folders], level: int, is_so: Callable[[Folders], bool]) -> set[str]:
    """The folders of a level in which more than half of the recordings are so.

    A stray recording says nothing about the folders.
    """
    surplus = Counter[str]()
    for place in places:
        surplus[place.name(level)] += len(place.paths) if is_so(place) else -len(place.paths)
    return {name for name, count in surplus.items() if count > 0}


def _clips(
    places: Sequence[Folders],
    normals: Sequence[Folders],
    machine_level: int,
    domain_level: int,
    year: int | None,
    unnamed: str,
) -> tuple[dict[str, Clip], list[str]]:
    """The clips by path, and the paths outside of the folders of machines and domains."""
    # A machine without folders for its domains has one domain.
    divided = _mostly(normals, machine_level, lambda place: place.name(domain_level) != "")
    known = {(place.name(machine_level), place.name(domain_level)) for place in normals}
    clips: dict[str, Clip] = {}
    misplaced: list[str] = []
    for place in places:
        machine, domain = place.name(machine_level), place.name(domain_level) or None
        split, label = place.clip_split, place.label
        needed = domain_level if split == "train" and machine in divided else machine_level
        if any(level and not place.name(level) for level in (machine_level, needed)):
            misplaced += place.paths
            continue
        if machine not in divided:
            domain = ONE_DOMAIN
        elif (machine, domain) not in known:  # of a test clip; its folder may name a fault
            domain = None
        for path in place.paths:
            clips[path] = Clip(
                path, machine or unnamed, year, domain=domain, split=split, label=label
            )
    return clips, misplaced


def _understood(
    clips: Sequence[Clip], machine_level: int, domain_level: int, ignored: Sequence[str]
) -> str:
    """Which folders name machines and domains, and how to change that; empty if it is plain."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for clip in clips:
        if clip.split == "train":
            counts[clip.machine][clip.domain or ONE_DOMAIN] += 1
    named = {domain for own in counts.values() for domain in own}
    lines: list[str] = []
    if machine_level:
        conditions = "" if named <= {ONE_DOMAIN} else " with these operating conditions"
        lines.append(f"Read as {quantity(counts, 'machine')}{conditions}:")
        lines += [f"  {machine}: {_sizes(own)}" for machine, own in counts.items()][:_SHOWN]
        if len(counts) > _SHOWN:
            lines.append(f"  and {len(counts) - _SHOWN} more")
        below = f"; if the conditions are machines, --machine-level {domain_level}"
        lines.append(
            f"If these are conditions of one machine, use --domain-level {machine_level}"
            f"{below if conditions else ''}; if they are neither, a manifest."
        )
    elif domain_level and not named <= {"source", "target", ONE_DOMAIN}:
        for machine, own in counts.items():
            lines.append(f"Read as one machine, {machine}, in these operating conditions:")
            lines.append(f"  {_sizes(own)}")
        lines.append(
            f"If these are machines, use --machine-level {domain_level}; if they are neither, "
            "--domain-level 0 or a manifest."
        )
    return "\n".join([*lines, *ignored])


def _sizes(counts: Counter[str]) -> str:
    if list(counts) == [ONE_DOMAIN]:
        return quantity(counts[ONE_DOMAIN], "clip")
    return name_list((f"{name} ({quantity(count, 'clip')})" for name, count in counts.items()), 8)
