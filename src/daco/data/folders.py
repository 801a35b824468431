"""What plain folders say about the recordings in them: machine, domain, split and label."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daco.data.clips import ONE_DOMAIN, Clip
from daco.errors import InputError
from daco.files.remote import Location, name_of
from daco.text import name_list, quantity

_NORMAL = ("normal", "normals", "healthy", "good", "ok")
_ANOMALY = ("anomaly", "anomalies", "anomalous", "abnormal", "faulty", "fault", "faults")
_DEFECT = ("defect", "defects", "defective", "bad", "nok", "ng")
_LABELS = dict.fromkeys(_NORMAL, 0) | dict.fromkeys((*_ANOMALY, *_DEFECT), 1)
_FAULTS = {*_ANOMALY, "defect", "defects", "defective"}
"""Words that make any name that of anomalies, such as "Inner Race Fault"."""
_NEGATIONS = {"no", "non", "not", "without", "free"}
_SPLITS = {"train": "train", "training": "train", "test": "test", "testing": "test"}
_SPLITS["supplemental"] = "supplemental"

_SHOWN = 20
"""Machines that are listed."""

_YMD = r"(19|20)\d\d([-_. ]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01]))?"
_DMY = r"(0?[1-9]|[12]\d|3[01])([-_. ])(0?[1-9]|1[0-2])\7(19|20)\d\d"
_WEEK = r"(19|20)\d\d[-_. ]?(W|KW|CW)[-_. ]?[0-5]\d"
_DATE = re.compile(rf"(?:{_YMD}|{_DMY})([T_ -]?\d\d([-_.:h]?\d\d){{0,2}})?|{_WEEK}", re.ASCII)
_NESTED = re.compile(  # 2026/05 and 2026/05/12
    r"(?<![^/])20[1-4]\d/(?:0[1-9]|1[0-2])/(?:(?:0[1-9]|[12]\d|3[01])/)?", re.ASCII
)


@dataclass(frozen=True)
class _Place:
    """Recordings of one folder, what it says, and the names of machine and domain by level."""

    paths: Sequence[str]
    folders: tuple[tuple[int, str], ...]
    split: str | None
    label: int | None

    @property
    def depth(self) -> int:
        return len(self.folders)

    @property
    def says_anything(self) -> bool:
        """Whether folders say split or label."""
        return self.split is not None or self.label is not None

    @property
    def clip_split(self) -> str:
        return self.split or ("test" if self.label == 1 else "train")

    def name(self, position: int) -> str:
        """The folder at a position from 1; empty for none."""
        return self.folders[position - 1][1] if 0 < position <= self.depth else ""

    def without(self, levels: set[int]) -> _Place:
        kept = tuple(folder for folder in self.folders if folder[0] not in levels)
        return replace(self, folders=kept)


def meaning_of_folders(path: str) -> tuple[list[str], str | None, int | None]:
    """Folders of a path that may name domains, and the split and label that others name.

    >>> meaning_of_folders("fan/train/OK/slow/a.wav")
    (['fan', 'slow'], 'train', 0)
    """
    split = label = None
    rest = []
    for folder in path.split("/")[:-1]:
        word = folder.lower()
        if word in _LABELS and label is None:
            label = _LABELS[word]
        elif word in _SPLITS and split is None:
            split = _SPLITS[word]
        else:
            rest.append(folder)
    faults = [folder for folder in rest if _names_faults(folder)]
    if faults and label is None:
        rest.remove(faults[-1])
        label = 1
    return rest, split, label


def _names_faults(folder: str) -> bool:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", folder)  # AnomalousSound
    words = set(re.findall("[a-z]+", spaced.lower()))
    return bool(words & _FAULTS) and not words & _NEGATIONS


def _machine_of(root: Location) -> str:
    """The name of a folder, or of the next above that says more than label, split or date."""
    names = [name_of(root)]
    if isinstance(root, Path):
        names += reversed(root.parts[1:-1])
    others = [name for name in names if name.lower() not in _LABELS | _SPLITS]
    return next((name for name in others if not _DATE.fullmatch(name)), names[0])


def read_folder(
    root: Location,
    paths: Sequence[str],
    year: int | None,
    machine_level: int | None = None,
    domain_level: int | None = None,
) -> tuple[list[Clip], list[str], str]:
    """List the clips of plain folders, with oddities and a note about what was understood.

    Without levels, folders named by dates and levels at which all recordings have one folder do
    not count.
    """
    places = _places(paths)
    deepest = max(place.depth for place in places)
    for level in (machine_level, domain_level):
        if level is not None and level > deepest:
            raise InputError(
                f"No recording of {root} lies {quantity(level, 'folder')} deep. Choose another "
                "level, or 0."
            )
    ignored: list[str] = []
    if domain_level is None:
        places, ignored = _without_dates(places, machine_level)
    if machine_level is None and domain_level is None:
        places, shared = _without_shared_levels(places)
        ignored += shared
    outside: list[str] = []
    has_normal = any(place.label == 0 and place.split != "test" for place in places)
    if has_normal:  # files elsewhere may be anything, and the bank must hold normal clips only
        outside = [path for place in places if not place.says_anything for path in place.paths]
        places = [place for place in places if place.says_anything]
    normals = [place for place in places if place.clip_split == "train"] or places
    machines, domains = _positions(normals, machine_level, domain_level)
    clips, deep, misplaced = _clips(root, places, year, machines, domains)
    outside = sorted([*outside, *misplaced])
    order = {path: position for position, path in enumerate(paths)}
    clips.sort(key=lambda clip: order[clip.path])
    oddities = []
    if outside:
        inside = "normal/" if has_normal else "the folders of the domains"
        oddities.append(
            f"{quantity(outside, 'clip')} left out, not inside {inside}: {name_list(outside)}."
        )
    if deep:
        oddities.append(
            f"{quantity(deep, 'clip')} in subfolders of a domain, read as clips of that domain: "
            f"{name_list(sorted(deep))}."
        )
    at = machines or domains
    level = next((p.folders[at - 1][0] for p in normals if at and p.depth >= at), 0)
    return clips, oddities, _understood(clips, bool(machines), bool(domains), level, ignored)


def _places(paths: Sequence[str]) -> list[_Place]:
    by_folder: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        by_folder[path.rpartition("/")[0]].append(path)
    places = []
    for together in by_folder.values():
        names, split, label = meaning_of_folders(together[0])
        places.append(_Place(together, tuple(enumerate(names, 1)), split, label))
    return places


def _positions(
    normals: Sequence[_Place], machine_level: int | None, domain_level: int | None
) -> tuple[int, int]:
    """Which of the folders that count name machines and domains, 0 for none."""
    deepest = max(place.depth for place in normals)
    if domain_level is not None:
        return machine_level or 0, domain_level
    if machine_level is None:
        return (1, 2) if _are_machines(normals) else (0, min(1, deepest))
    machines = min(1, machine_level)  # the folders above the machine were dropped with the dates
    return machines, machines + 1 if machines < deepest else 0


def _are_machines(normals: Sequence[_Place]) -> bool:
    """Whether all folders of the first level, or several, have most recordings in subfolders.

    A stray recording says nothing about the folders.
    """
    sizes, deeper = Counter[str](), Counter[str]()
    for place in normals:
        sizes[place.name(1)] += len(place.paths) if place.depth else 0
        deeper[place.name(1)] += len(place.paths) if place.depth > 1 else 0
    divided = [name for name, count in deeper.items() if 2 * count > sizes[name]]
    return bool(divided) and len(divided) >= min(2, len(+sizes))


def _clips(
    root: Location, places: Sequence[_Place], year: int | None, machines: int, domains: int
) -> tuple[list[Clip], list[str], list[str]]:
    """The clips, and the paths that are deeper than their domain or outside of all domains."""
    deepest = max(machines, domains)
    # A machine without folders for its domains has one domain.
    divided = {place.name(machines) for place in places if domains and place.depth >= deepest}
    known = {
        (place.name(machines), place.name(domains))
        for place in places
        if place.clip_split == "train" and place.depth >= deepest
    }
    clips, deep, outside = list[Clip](), list[str](), list[str]()
    for place in places:
        is_divided = place.name(machines) in divided
        missing = place.depth < (deepest if is_divided else machines)
        if missing and (place.clip_split == "train" or place.depth < machines):
            outside += place.paths
            continue
        machine = place.name(machines) or _machine_of(root)
        domain: str | None = place.name(domains) if is_divided else ONE_DOMAIN
        if is_divided and (place.name(machines), domain) not in known:
            domain = None  # of a test clip; its folder may name a fault
        if place.depth > deepest > 0:
            deep += place.paths
        facts: Any = {"domain": domain, "split": place.clip_split, "label": place.label}
        clips += [Clip(path, machine, year, **facts) for path in place.paths]
    return clips, deep, outside


def _without_dates(
    places: Sequence[_Place], machine_level: int | None
) -> tuple[list[_Place], list[str]]:
    """The places without folders named by dates, or above the machine; a sentence about dates."""
    kept, dates = [], set()
    for place in places:
        dropped = set(range(1, machine_level or 0))
        for level, name in place.folders:
            if _DATE.fullmatch(name) and level != machine_level:
                dropped.add(level)
                dates.add(name)
        joined = "".join(f"{name}/" for _, name in place.folders)
        for match in _NESTED.finditer(joined):
            first = joined.count("/", 0, match.start()) + 1
            levels = set(range(first, first + match[0].count("/")))
            if machine_level not in levels:
                dropped |= levels
                dates.add(match[0].rstrip("/"))
        kept.append(place.without(dropped))
    if not dates:
        return kept, []
    return kept, [
        f"Folders named by dates ({name_list(sorted(dates), 3)}) do not count. If they are "
        "operating conditions, use --domain-level."
    ]


def _without_shared_levels(places: list[_Place]) -> tuple[list[_Place], list[str]]:
    """The places without levels of one folder, as of an export, while more than two are left."""
    shared = []
    while True:
        normals = [place for place in places if place.clip_split == "train" and place.depth]
        least = min((place.depth for place in normals), default=0)
        if least <= 2:
            break
        levels = [{place.folders[index] for place in normals} for index in range(least)]
        alone = next((folders.pop() for folders in levels if len(folders) == 1), None)
        if alone is None:
            break
        shared.append(alone[1])
        places = [p.without({alone[0]}) if alone in p.folders else p for p in places]
    if not shared:
        return places, []
    return places, [
        f"Folders that are the same for all recordings ({name_list(shared)}) do not count. If they "
        "are machines or operating conditions, use --machine-level and --domain-level."
    ]


def _understood(
    clips: Sequence[Clip], machines: bool, domains: bool, level: int, ignored: Sequence[str]
) -> str:
    """Which folders name machines and domains, and how to change that; empty if it is plain."""
    counts: dict[str, Counter[str]] = {}
    for clip in clips:
        if clip.split == "train":
            counts.setdefault(clip.machine, Counter())[clip.domain or ONE_DOMAIN] += 1
    named = {domain for own in counts.values() for domain in own}
    lines: list[str] = []
    if machines:
        listed = [f"{machine}: {_sizes(own)}" for machine, own in counts.items()]
        more = len(listed) - _SHOWN
        lines.append(f"Read as {quantity(counts, 'machine')} with these operating conditions:")
        lines += [f"  {line}" for line in listed[:_SHOWN]]
        lines += [f"  and {more} more"] if more > 0 else []
        lines.append(
            f"If these are conditions of one machine, use --domain-level {level}; if they "
            "are neither, a manifest."
        )
    elif domains and not named <= {"source", "target"}:
        for machine, own in counts.items():
            lines.append(f"Read as one machine, {machine}, in these operating conditions:")
            lines.append(f"  {_sizes(own)}")
        lines.append(
            f"If these are machines, use --machine-level {level}; if they are neither, "
            "--domain-level 0 or a manifest."
        )
    return "\n".join([*lines, *ignored])


def _sizes(counts: Counter[str]) -> str:
    return name_list((f"{name} ({quantity(count, 'clip')})" for name, count in counts.items()), 8)
