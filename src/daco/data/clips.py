"""Clip and ClipTable: recordings and what is known about them, whatever they were read from.

Listing clips opens no recording: folders, names and manifests describe them. An oddity is a
sentence about something that looks wrong but is no error.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from daco.audio.formats import FORMATS
from daco.errors import InputError
from daco.files.remote import Location
from daco.text import name_list, quantity, suggestion

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("path", "year", "machine", "section", "domain", "split", "label", "attributes"),
    "session",
)
"""The columns of a clip table, in the order of a manifest; files without sessions lack the last."""

SPLITS = ("train", "test", "supplemental")

DEFAULT_MACHINE = "machine"
"""The machine of clips whose source names none."""

ONE_DOMAIN = "all"
"""The domain of clips whose source names no domains."""

FAULT_WORDS = frozenset(
    [
        *("anomaly", "anomalies", "anomalous", "abnormal", "fault", "faults", "faulty"),
        *("defect", "defects", "defective", "failure", "failures", "broken", "damaged"),
    ]
)
"""Words for anomalies, also as part of a name such as "Inner Race Fault"."""

LABEL_WORDS = {
    **dict.fromkeys(("normal", "normals", "healthy", "good", "ok", "okay"), 0),
    **dict.fromkeys((*FAULT_WORDS, "bad", "nok", "ng"), 1),
}
"""The label, 0 normal and 1 anomaly, of a folder or value of one word."""

_DCASE = re.compile(r"section_\d|((normal|anomaly)_)?id_\d")


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and what is known about it.

    Attributes
    ----------
    path : str
        The recording, relative to the root of its table.
    machine : str
    year : int or None
        The year of the data set.
    section : str
    domain : str or None
    split : {"train", "test", "supplemental"}
    label : int or None
        0 normal, 1 anomaly, None unknown.
    attributes : dict of str
    session : str or None
        Clips that were recorded together have the same session.
    """

    path: str
    machine: str
    year: int | None = None
    section: str = "00"
    domain: str | None = None
    split: str = "train"
    label: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)
    session: str | None = None

    def __post_init__(self) -> None:
        if self.split not in SPLITS:
            raise InputError(
                f"The 'split' of a clip must be one of {', '.join(SPLITS)}. "
                f"Got {self.split!r} instead, for {self.path}."
            )
        if self.label not in (None, 0, 1):
            raise InputError(
                "The 'label' of a clip must be 0 (normal), 1 (anomaly) or None. "
                f"Got {self.label!r} instead, for {self.path}."
            )


@dataclass(frozen=True)
class ClipTable:
    """Clips below one folder, and a sentence for every oddity.

    Examples
    --------
    >>> from pathlib import Path
    >>> clips = (Clip("a.wav", "fan", domain="source"), Clip("b.wav", "fan", split="test"))
    >>> table = ClipTable(Path("recordings"), clips)
    >>> len(table), table.machines, table.select(split="test").columns()["path"]
    (2, ('fan',), ['b.wav'])
    """

    root: Location
    clips: tuple[Clip, ...]
    oddities: tuple[str, ...] = ()
    understood: str = ""
    """Which folders name machines and domains, if this follows from their position only."""

    def __len__(self) -> int:
        return len(self.clips)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.clips)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was understood of the folders, and the oddities."""
        return (self.understood, *self.oddities) if self.understood else self.oddities

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines in order of appearance; for several years, see `by_machine`."""
        return tuple(dict.fromkeys(clip.machine for clip in self.clips))

    def by_machine(self) -> dict[tuple[int | None, str], ClipTable]:
        """Return one table for each pair of year and machine."""
        return {key: ClipTable(self.root, clips) for key, clips in group_clips(self).items()}

    def paths(self) -> list[Location]:
        """List the paths of the recordings."""
        return [self.root / clip.path for clip in self.clips]

    def columns(self) -> dict[str, list[Any]]:
        """Return one list for each column of :data:`COLUMNS`."""
        return {name: [getattr(clip, name) for clip in self.clips] for name in COLUMNS}

    def select(self, **equal: Any) -> ClipTable:
        """Return the clips with these values of columns, such as ``select(machine="fan")``."""
        for name in equal:
            if name not in COLUMNS:
                raise InputError(f"A clip has no column {name!r}.{suggestion(name, COLUMNS)}")
        wanted = equal.items()
        chosen = (c for c in self.clips if all(getattr(c, name) == value for name, value in wanted))
        return ClipTable(self.root, tuple(chosen))

    def to_pandas(self) -> pd.DataFrame:
        """Return the table as a DataFrame; unknown years and labels are ``<NA>``."""
        import pandas as pd

        return pd.DataFrame(self.columns()).astype({"year": "Int64", "label": "Int64"})


def group_clips(clips: Iterable[Clip]) -> dict[tuple[int | None, str], tuple[Clip, ...]]:
    """The clips of each year and machine."""
    groups: dict[tuple[int | None, str], list[Clip]] = defaultdict(list)
    for clip in clips:
        groups[clip.year, clip.machine].append(clip)
    return {key: tuple(members) for key, members in groups.items()}


def stem_of(path: str) -> str:
    """The name of a recording without folders and extension; other dots belong to the name.

    >>> stem_of("fan/train/section_00_source_train_normal_0001_ac_0.03.wav")
    'section_00_source_train_normal_0001_ac_0.03'
    """
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return stem if stem and dot + ending.lower() in FORMATS else name


def machine_title(year: int | None, machine: str) -> str:
    """A machine's name, with its year where that is known."""
    return machine if year is None else f"{machine} ({year})"


def find_oddities(clips: Sequence[Clip]) -> list[str]:
    """Describe what looks wrong with clips, in sentences, machine by machine.

    Parameters
    ----------
    clips : sequence of Clip

    Returns
    -------
    list of str
    """
    oddities: list[str] = []
    for key, members in group_clips(clips).items():
        oddities += without_training(members)
        oddities += [f"{machine_title(*key)}: {oddity}" for oddity in _machine_oddities(members)]
    unlabelled = [clip for clip in clips if clip.split == "test" and clip.label is None]
    if unlabelled:
        machines = dict.fromkeys(machine_title(clip.year, clip.machine) for clip in unlabelled)
        oddities.append(
            f"{quantity(unlabelled, 'test clip')} without a label ({name_list(machines)}): they "
            "can be scored, not evaluated."
        )
    return oddities


def without_training(clips: Iterable[Clip]) -> list[str]:
    """A sentence for each machine that has no training clip."""
    return [
        f"{machine_title(*key)}: no training clip."
        for key, members in group_clips(clips).items()
        if all(clip.split != "train" for clip in members)
    ]


def _machine_oddities(clips: Sequence[Clip]) -> Iterator[str]:
    train = [clip for clip in clips if clip.split == "train"]
    domains = Counter(clip.domain for clip in train)
    if set(domains) == {"source"}:
        yield "no target clip among the training clips."
    for domain, count in domains.items():
        if domain is not None and count < 2:
            yield f"only {count} training clip in the domain {name_list([domain])}."
    unplaced = [clip.path for clip in train if clip.domain is None]
    if unplaced:
        yield f"{quantity(unplaced, 'training clip')} without a domain: {name_list(unplaced)}."
    faulty = [clip.path for clip in train if clip.label == 1]
    if faulty:
        yield f"{quantity(faulty, 'training clip')} labelled anomaly: {name_list(faulty)}."
    names: dict[tuple[str, str | None, str], list[str]] = defaultdict(list)
    for clip in clips:
        stem = stem_of(clip.path)
        if not _DCASE.match(stem):  # recorders number the clips of every folder from 1
            stem = f"{clip.path.rpartition('/')[0]}/{stem}"
        names[clip.split, clip.domain, stem].append(clip.path)
    repeated = [" = ".join(paths) for paths in names.values() if len(paths) > 1]
    if repeated:
        yield f"{quantity(repeated, 'name')} used more than once: {name_list(repeated, 3)}."
