"""What plain folders say about the recordings in them: machine, domain, split and label."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
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

_YMD = r"(19|20)\d\d([-_. ]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01]))?"
_DMY = r"(0?[1-9]|[12]\d|3[01])([-_. ])(0?[1-9]|1[0-2])\7(19|20)\d\d"
_WEEK = r"(19|20)\d\d[-_. ]?(W|KW|CW)[-_. ]?[0-5]\d"
_NUMBERED = r"(?i:week|KW)[-_. ]?\d{1,3}"
_DATE = re.compile(
    rf"(?:{_YMD}|{_DMY})([T_ -]?\d\d([-_.:h]?\d\d){{0,2}})?|{_WEEK}|{_NUMBERED}", re.ASCII
)
_YEAR = re.compile(r"20[1-4]\d", re.ASCII)


@dataclass(frozen=True)
class Folders:
    """The folders above recordings: those that say split or label, and names by level from 1."""

    names: dict[int, str]
    """Of machines and domains, possibly."""
    split: str | None = None
    label: int | None = None
    words: tuple[str, ...] = ()
    """The folders that say split and label."""
    above_split: int = 0
    """Names above the folder that says the split."""
    paths: tuple[str, ...] = ()
    """The recordings directly in the last folder."""

    @property
    def clip_split(self) -> str:
        """The split of the recordings."""
        return self.split or ("test" if self.label == 1 else "train")

    @property
    def depth(self) -> int:
        """Number of names, and one more for a split below all of them."""
        return len(self.names) + (0 < max(self.names, default=0) <= self.above_split)

    def name(self, position: int) -> str:
        """The name at a position from 1; empty for none."""
        return ["", *self.names.values()][position] if position <= len(self.names) else ""

    def without(self, levels: Collection[int]) -> Folders:
        """The same without the names of these levels."""
        names = {level: name for level, name in self.names.items() if level not in levels}
        return replace(self, names=names)


def meaning_of_folders(path: str) -> Folders:
    """Read the folders of a path.

    >>> found = meaning_of_folders("fan/train/OK/slow/a.wav")
    >>> found.names, found.split, found.label
    ({1: 'fan', 2: 'slow'}, 'train', 0)
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
        names={level: folders[at] for level, at in enumerate(names, 1)},
        split=None if of_split is None else _SPLITS[words[of_split]],
        label=None if of_label is None else LABEL_WORDS.get(words[of_label], 1),
        words=tuple(folders[at] for at in range(len(folders)) if at not in names),
        above_split=0 if of_split is None else sum(at < of_split for at in names),
    )


def _names_fault(folder: str) -> bool:
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", folder)  # AnomalousSound
    words = set(re.findall("[a-z]+", spaced.lower()))
    return bool(words & FAULT_WORDS) and not words & _NEGATIONS


def _machine_of(root: Location) -> str:
    """The name of a folder, or of the next above that says more than label, split or date."""
    names = [name_of(root)]
    if isinstance(root, Path):
        names += reversed(root.parts[1:-1])
    others = [name for name in names if name.lower() not in LABEL_WORDS | _SPLITS]
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
    ignored: list[str] = []
    if domain_level is None:
        places, ignored = _without_dates(places, machine_level)
    if machine_level is None and domain_level is None:
        places, shared = _without_shared_levels(places)
        ignored += shared
    # Files beside folders of normal clips may be anything, and the bank must hold normal clips.
    inside = {"/".join(p.words) + "/" for p in places if p.words and p.clip_split == "train"}
    others = [place for place in places if inside and not place.words]
    places = [place for place in places if place.words or not inside]
    normals = [place for place in places if place.clip_split == "train"] or places
    machines, domains = _positions(normals, machine_level, domain_level)
    clips, deep, misplaced = _clips(root, places, normals, year, machines, domains, domain_level)
    order = {path: position for position, path in enumerate(paths)}
    clips.sort(key=lambda clip: order[clip.path])
    left_out = {
        name_list(sorted(inside), 3): [path for place in others for path in place.paths],
        "the folders of the domains": misplaced,
    }
    oddities = [
        f"{quantity(outside, 'clip')} left out, not inside {where}: {name_list(sorted(outside))}."
        for where, outside in left_out.items()
        if outside
    ]
    if deep:
        oddities.append(
            f"{quantity(deep, 'clip')} in subfolders of a domain, read as clips of that domain: "
            f"{name_list(sorted(deep))}."
        )
    named = [
        next((list(p.names)[at - 1] for p in normals if 0 < at <= len(p.names)), 0)
        for at in (machines, domains)
    ]
    return clips, oddities, _understood(clips, named[0], named[1], ignored)


def _positions(
    normals: Sequence[Folders], machine_level: int | None, domain_level: int | None
) -> tuple[int, int]:
    """Which of the names that count are those of machines and domains, 0 for none."""
    deepest = max(len(place.names) for place in normals)
    if domain_level is not None:
        return machine_level or 0, domain_level
    machines = min(1, machine_level or 0)  # the folders above it were dropped with the dates
    if machine_level is None:
        # All folders of the first level, or several, are machines if there are folders below for
        # domains or splits.
        with_parts = _mostly(normals, 1, lambda place: place.depth > 1)
        folders = {place.name(1) for place in normals if place.names}
        machines = int(len(with_parts) >= min(2, len(folders)) > 0)
    return machines, machines + 1 if machines < deepest else 0


def _mostly(
    places: Sequence[Folders], position: int, is_so: Callable[[Folders], bool], share: float = 0.5
) -> set[str]:
    """The names at a position for which more than a share of the recordings are so.

    A stray recording says nothing about the folders.
    """
    sizes, count = Counter[str](), Counter[str]()
    for place in places:
        sizes[place.name(position)] += len(place.paths)
        count[place.name(position)] += len(place.paths) if is_so(place) else 0
    return {name for name in count if count[name] > share * sizes[name]}


def _clips(
    root: Location,
    places: Sequence[Folders],
    normals: Sequence[Folders],
    year: int | None,
    machines: int,
    domains: int,
    domain_level: int | None,
) -> tuple[list[Clip], list[str], list[str]]:
    """The clips, and the paths that are deeper than their domain or outside of all domains."""
    # A machine without folders for its domains has one domain. Where their level was chosen, one
    # recording in such a folder is enough.
    share = 0.5 if domain_level is None else 0.0
    divided = _mostly(normals, machines, lambda place: len(place.names) >= domains > 0, share)
    known = {(place.name(machines), place.name(domains)) for place in normals}
    clips, deep, outside = list[Clip](), list[str](), list[str]()
    for place in places:
        machine, domain = place.name(machines), place.name(domains) or None
        is_normal, depth = place.clip_split == "train", len(place.names)
        wanted = domains if machine in divided else machines
        if depth < (wanted if is_normal else machines):
            outside += place.paths
            continue
        if is_normal and depth > wanted and machines + domains:
            deep += place.paths
        if machine not in divided:
            domain = ONE_DOMAIN
        elif (machine, domain) not in known:  # of a test clip; its folder may name a fault
            domain = None
        name, split, label = machine or _machine_of(root), place.clip_split, place.label
        clips += [
            Clip(path, name, year, domain=domain, split=split, label=label) for path in place.paths
        ]
    return clips, deep, outside


def _without_dates(
    places: Sequence[Folders], machine_level: int | None
) -> tuple[list[Folders], list[str]]:
    """The places without folders named by dates, or above the machine; a sentence about dates."""
    kept, dates = [], set()
    for place in places:
        dropped = set(range(1, machine_level or 0))
        levels, names = list(place.names), list(place.names.values())
        for at, name in enumerate(names):
            for end in (at + 3, at + 2) if _YEAR.fullmatch(name) else (at + 1,):  # 2026/05/12
                inside = machine_level in levels[at:end]
                if _DATE.fullmatch("-".join(names[at:end])) and not inside:
                    dropped |= {*levels[at:end]}
                    dates.add("/".join(names[at:end]))
                    break
        kept.append(place.without(dropped))
    if not dates:
        return kept, []
    return kept, [
        f"Folders named by dates ({name_list(sorted(dates), 3)}) do not count. If they are "
        "operating conditions, use --domain-level."
    ]


def _without_shared_levels(places: list[Folders]) -> tuple[list[Folders], list[str]]:
    """The places without levels of one folder, as of an export, while more than two are left."""
    shared = []
    while True:
        normals = [place for place in places if place.clip_split == "train" and place.names]
        if min((place.depth for place in normals), default=0) <= 2:
            break
        at_position = [set(each) for each in zip(*(p.names.items() for p in normals), strict=False)]
        alone = next((folders.pop() for folders in at_position if len(folders) == 1), None)
        if alone is None:
            break
        shared.append(alone[1])
        places = [p.without({alone[0]}) if alone in p.names.items() else p for p in places]
    if not shared:
        return places, []
    return places, [
        f"Folders that are the same for all recordings ({name_list(shared)}) do not count. If they "
        "are machines or operating conditions, use --machine-level and --domain-level."
    ]


def _understood(
    clips: Sequence[Clip], machine_level: int, domain_level: int, ignored: Sequence[str]
) -> str:
    """Which folders name machines and domains, and how to change that; empty if it is plain."""
    counts: dict[str, Counter[str]] = {}
    for clip in clips:
        if clip.split == "train":
            counts.setdefault(clip.machine, Counter())[clip.domain or ONE_DOMAIN] += 1
    named = {domain for own in counts.values() for domain in own}
    lines: list[str] = []
    if machine_level:
        listed = [f"  {machine}: {_sizes(own)}" for machine, own in counts.items()]
        more = len(listed) - _SHOWN
        conditions = "" if named <= {ONE_DOMAIN} else " with these operating conditions"
        lines += [f"Read as {quantity(counts, 'machine')}{conditions}:", *listed[:_SHOWN]]
        lines += [f"  and {more} more"] if more > 0 else []
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
