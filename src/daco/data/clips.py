"""One table of clips, whatever lies on disk: a manifest, a DCASE data set or plain folders.

A reader never opens a recording: what a clip is follows from folders, names and manifests.
What looks wrong but can be lived with is an oddity, one sentence each; the rest is an error.
"""

from __future__ import annotations

import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from daco.audio.formats import FORMATS, READABLE, is_readable, is_unreadable
from daco.errors import DataError, InputError
from daco.files.remote import Location, missing_message, parse_location
from daco.text import name_list, quantity, suggestion
from daco.validation import is_utf8

if TYPE_CHECKING:
    import pandas as pd

    from daco.files.stores import RemotePath

COLUMNS = ("path", "year", "machine", "section", "domain", "split", "label", "attributes")
"""The columns of a clip table, in the order of a manifest."""

SPLITS = ("train", "test", "supplemental")

DEFAULT_MACHINE = "machine"
"""The machine of clips whose source names none."""

ONE_DOMAIN = "all"
"""The domain of clips whose source tells no domains apart."""

_DOTS = {"", ".", ".."}
_FEW = 4  # operating conditions of one machine; more folders may be machines
_YMD = r"(19|20)\d\d([-_. ]?)(0[1-9]|1[0-2])(\2(0[1-9]|[12]\d|3[01]))?"
_DMY = r"(0?[1-9]|[12]\d|3[01])([-_. ])(0?[1-9]|1[0-2])\7(19|20)\d\d"
_DATE = re.compile(rf"(?:{_YMD}|{_DMY})([T_ -]?\d\d([-_.:h]?\d\d){{0,2}})?", re.ASCII)
_LABEL_FOLDERS = {"normal": 0, "anomaly": 1, "anomalous": 1, "abnormal": 1}


@dataclass(frozen=True, slots=True)
class Clip:
    """A recording and what is known about it; `path` is relative to its table's root."""

    path: str
    machine: str
    year: int | None = None
    section: str = "00"
    domain: str | None = None
    split: str = "train"
    label: int | None = None
    attributes: Mapping[str, str] = field(default_factory=dict, hash=False)

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
    """Clips below one folder, and a sentence for everything odd about them.

    Examples
    --------
    >>> clips = (Clip("a.wav", "fan", domain="source"), Clip("b.wav", "fan", split="test"))
    >>> table = ClipTable(Path("recordings"), clips)
    >>> len(table), table.machines, table.select(split="test").columns()["path"]
    (2, ('fan',), ['b.wav'])
    """

    root: Location
    clips: tuple[Clip, ...]
    oddities: tuple[str, ...] = ()
    domain_note: str = ""
    """Which folders were taken for domains, where nothing but their place says so."""

    def __len__(self) -> int:
        return len(self.clips)

    def __iter__(self) -> Iterator[Clip]:
        return iter(self.clips)

    @property
    def remarks(self) -> tuple[str, ...]:
        """All that a person should read: where the domains come from, and the oddities."""
        return (self.domain_note, *self.oddities) if self.domain_note else self.oddities

    @property
    def machines(self) -> tuple[str, ...]:
        """Names of the machines, as they come; of several years, see :meth:`by_machine`."""
        return tuple(dict.fromkeys(clip.machine for clip in self.clips))

    def by_machine(self) -> dict[tuple[int | None, str], ClipTable]:
        """One table per year and machine: a name that returns in another year is other data."""
        groups: dict[tuple[int | None, str], list[Clip]] = defaultdict(list)
        for clip in self.clips:
            groups[clip.year, clip.machine].append(clip)
        return {key: ClipTable(self.root, tuple(clips)) for key, clips in groups.items()}

    def paths(self) -> list[Location]:
        """Where the recordings are."""
        return [self.root / clip.path for clip in self.clips]

    def columns(self) -> dict[str, list[Any]]:
        """The table as one list per column of :data:`COLUMNS`."""
        return {name: [getattr(clip, name) for clip in self.clips] for name in COLUMNS}

    def select(self, **equal: Any) -> ClipTable:
        """The clips whose columns have these values, such as ``select(machine="fan")``."""
        for name in equal:
            if name not in COLUMNS:
                raise InputError(f"A clip has no column {name!r}.{suggestion(name, COLUMNS)}")
        chosen = (
            clip
            for clip in self.clips
            if all(getattr(clip, name) == value for name, value in equal.items())
        )
        return ClipTable(self.root, tuple(chosen))

    def to_pandas(self) -> pd.DataFrame:
        """The table as a DataFrame; unknown years and labels are ``<NA>``."""
        import pandas as pd

        return pd.DataFrame(self.columns()).astype({"year": "Int64", "label": "Int64"})

    def write_manifest(self, path: Location | str) -> None:
        """Write a manifest, CSV or Parquet by its ending, that :func:`read_clips` reads back.

        Paths in it are relative to its own folder, so both can be moved together; whole where
        the recordings are on a remote file system and the manifest is not.
        """
        from daco.data.manifest import write_manifest

        write_manifest(self, parse_location(path))


def read_clips(
    source: Location | str,
    *,
    truth: Path | str | None = None,
    year: int | None = None,
    domain_level: int | None = None,
) -> ClipTable:
    """The clips of a manifest or a folder, whichever `source` is.

    Parameters
    ----------
    source : path
        A manifest (CSV or Parquet) with at least a column ``path``; a DCASE Task 2 data set of
        2023 to 2026 at any level, from the folder of all years to one machine; or a plain folder:
        ``normal/<domain>/*.wav``, ``<domain>/*.wav``, or all in one folder for one domain.
        Recordings have the extensions of `daco.audio.formats.FORMATS`; those of other audio formats
        are named as an oddity.
        All of them may lie on a remote file system: ``s3://plant/clips``.
    truth : path, optional
        A checkout of the official evaluator of that year. Its labels, domains and attributes are
        given to the anonymous test clips by name, and must cover them completely.
    year : int, optional
        Of the data set, where folders and manifest do not say.
    domain_level : int, optional
        Which folders of a plain folder name the domains: 1 for those directly in it, 2 for those
        one level below, 0 for one domain. Folders such as ``normal`` and ``test``, which say label
        and split, do not count. By default 1, but 0 where all of these folders have dates for
        names.

    Returns
    -------
    ClipTable
        Sorted by path, or in the order of the manifest.
    """
    from daco.data.dcase import read_tree
    from daco.data.dcase_truth import inject_truth
    from daco.data.manifest import read_manifest

    source = parse_location(source)
    if isinstance(source, Path):
        source = Path(os.path.abspath(source.expanduser()))
        if not is_utf8(str(source)):
            raise DataError(
                f"The name of {name_list([str(source)])} is not UTF-8. Rename the file or folder."
            )
    root: Location
    note = ""
    if domain_level is not None and domain_level < 0:
        raise InputError(f"The domain level must be 0 or more. Got {domain_level} instead.")
    if source.is_dir():
        root = source
        sizes, oddities = list_audio(root)
        if not sizes:
            raise DataError(_nothing_in(root, oddities))
        clips = read_tree(root, sizes, year=year, renamed=truth is None, oddities=oddities)
        if clips is None:
            clips, note = _read_folder(root, sizes, year, domain_level, oddities)
        elif domain_level is not None:
            raise _names_domains(f"the DCASE clips in {root}")
    elif source.is_file():
        if domain_level is not None:
            raise _names_domains(f"the manifest {source}")
        oddities = []
        root, clips, sizes = read_manifest(source, year=year, oddities=oddities)
        oddities += not_read([clip.path for clip in clips if is_unreadable(clip.path)])
    else:
        raise DataError(f"{missing_message(source)} Give a folder of recordings or a manifest.")
    if truth is not None:
        clips = inject_truth(clips, truth, oddities=oddities)
    empty = [clip.path for clip in clips if not sizes[clip.path]]
    if empty:
        oddities.append(f"{quantity(empty, 'clip')} of zero bytes: {name_list(empty)}.")
    return ClipTable(root, tuple(clips), (*oddities, *_find_oddities(clips)), note)


def list_audio(root: Location) -> tuple[dict[str, int], list[str]]:
    """Recordings below a folder as {path relative to it: bytes}, sorted, and the oddities.

    Hidden files and what macOS adds to archives are passed over; links are followed once.
    """
    if not isinstance(root, Path):
        return _list_remote(root)
    files: dict[str, int] = {}
    closed: list[str] = []
    broken: list[str] = []
    unreadable: list[str] = []
    seen: set[tuple[int, int]] = set()
    pending = [("", os.fspath(root))]
    while pending:
        prefix, folder = pending.pop()
        below = []
        try:
            status = os.stat(folder)
            if (status.st_dev, status.st_ino) in seen:
                continue
            seen.add((status.st_dev, status.st_ino))
            with os.scandir(folder) as entries:
                for entry in entries:
                    path = prefix + entry.name
                    if entry.name.startswith(".") or entry.name == "__MACOSX":
                        continue
                    if entry.is_dir():
                        below.append((path + "/", entry.path))
                    elif is_unreadable(entry.name):
                        unreadable.append(path)
                    elif is_readable(entry.name):
                        try:
                            size = entry.stat().st_size
                        except OSError:
                            size = None
                        if size is None or not is_utf8(path):
                            broken.append(path)
                        else:
                            files[path] = size
        except OSError:
            closed.append(prefix or os.fspath(root))
        # In the order of names: of two links to one folder, the same is followed everywhere.
        pending.extend(sorted(below, reverse=True))
    oddities = []
    if closed:
        oddities.append(f"{quantity(closed, 'folder')} could not be opened: {name_list(closed)}.")
    if broken:
        oddities.append(
            f"{quantity(broken, 'file')} left out, a broken link or a name that is not UTF-8: "
            f"{name_list(broken)}."
        )
    return dict(sorted(files.items())), [*oddities, *not_read(sorted(unreadable))]


def not_read(paths: Sequence[str]) -> list[str]:
    """The sentence about recordings whose format is not read, if there are any."""
    if not paths:
        return []
    return [
        f"{quantity(paths, 'file')} that daco cannot read: {name_list(paths)}. Convert "
        f"to {READABLE}."
    ]


def _list_remote(root: RemotePath) -> tuple[dict[str, int], list[str]]:
    files: dict[str, int] = {}
    strange: list[str] = []
    unreadable: list[str] = []
    for path, size in root.files():
        names = path.split("/")
        if any(name.startswith(".") or name == "__MACOSX" for name in names if name not in _DOTS):
            continue
        if is_unreadable(path):
            unreadable.append(path)
        elif is_readable(path):
            if _DOTS.intersection(names):  # two names of one file elsewhere, two objects here
                strange.append(path)
            else:
                files[path] = size
    oddities = []
    if strange:
        oddities.append(
            f"{quantity(strange, 'object')} left out, named with an empty part, . or ..: "
            f"{name_list(strange)}."
        )
    return dict(sorted(files.items())), [*oddities, *not_read(sorted(unreadable))]


def stem_of(path: str) -> str:
    """The name of a recording without folders and its ending; other dots belong to the name.

    >>> stem_of("fan/train/section_00_source_train_normal_0001_ac_0.03.wav")
    'section_00_source_train_normal_0001_ac_0.03'
    """
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return stem if stem and dot + ending.lower() in FORMATS else name


def titled(year: int | None, machine: str) -> str:
    """A machine's name, with its year where that is known."""
    return machine if year is None else f"{machine} ({year})"


def _read_folder(
    root: Location,
    sizes: Mapping[str, int],
    year: int | None,
    domain_level: int | None,
    oddities: list[str],
) -> tuple[list[Clip], str]:
    """Plain folders: words for split and label where there are any, then the domain."""
    placed = {path: _place_in_folder(path) for path in sizes}
    beside, deep, clips = [], [], []
    has_normal = any(label == 0 for _, _, label in placed.values())
    if has_normal:
        # What lies elsewhere may be anything, and the bank must hold normal clips only.
        beside = [path for path, (_, *said) in placed.items() if said == [None, None]]
        for path in beside:
            del placed[path]
    first = {folders[0] for folders, *_ in placed.values() if folders}
    dated = domain_level is None and bool(first) and all(map(_DATE.fullmatch, first))
    level = (0 if dated else 1) if domain_level is None else domain_level
    has_domains = 0 < level <= max(len(folders) for folders, *_ in placed.values())
    if level > 0 and not has_domains and domain_level is not None:
        raise InputError(
            f"No recording of {root} lies {quantity(level, 'folder')} deep. Choose another domain "
            "level, or 0 for one domain."
        )
    for path, (folders, named_split, label) in placed.items():
        split = named_split or ("test" if label == 1 else "train")
        domain = folders[level - 1] if 0 < level <= len(folders) else None
        if has_domains and domain is None and split == "train":
            beside.append(path)
            continue
        if len(folders) > level > 0:
            deep.append(path)
        if not has_domains:
            domain = ONE_DOMAIN
        clips.append(Clip(path, root.name, year, domain=domain, split=split, label=label))
    if beside:
        inside = "normal/" if has_normal else "the folders of the domains"
        oddities.append(
            f"{quantity(beside, 'clip')} left out, not inside {inside}: {name_list(beside)}."
        )
    if deep:
        oddities.append(
            f"{quantity(deep, 'clip')} deeper than <domain>/ taken for clips of that domain: "
            f"{name_list(deep)}."
        )
    return clips, _domain_note(
        clips, level * has_domains, sorted(first) if dated else [], asked=domain_level is not None
    )


def _domain_note(clips: Sequence[Clip], level: int, dates: Sequence[str], *, asked: bool) -> str:
    """Which folders were taken for domains, and how to say otherwise."""
    if dates:
        return (
            f"Folder level 1 has dates ({name_list(dates, 3)}), so all clips are one domain. If "
            "the dates are operating conditions, use --domain-level 1; if folders "
            "inside them are, 2."
        )
    counts = Counter(clip.domain for clip in clips if clip.domain and clip.split == "train")
    if not level or set(counts) <= {"source", "target"}:
        return ""
    listed = name_list((f"{name} ({quantity(count, 'clip')})" for name, count in counts.items()), 8)
    if asked:
        return f"Domains come from folder level {level}: {listed}."
    others = " Folders of machines are to be read one by one." if len(counts) > _FEW else ""
    return (
        f"Domains come from folder level {level}: {listed}. If these are not operating conditions, "
        f"use --domain-level 0 (one domain) or a manifest.{others}"
    )


def _names_domains(what: str) -> InputError:
    return InputError(
        f"A domain level is for plain folders; the domains of {what} are given. Leave it out."
    )


def _place_in_folder(path: str) -> tuple[list[str], str | None, int | None]:
    """Folders of a path that may name domains, and the split and label that others name."""
    split = label = None
    rest = []
    for folder in path.split("/")[:-1]:
        word = folder.lower()
        if word in _LABEL_FOLDERS and label is None:
            label = _LABEL_FOLDERS[word]
        elif word in SPLITS and split is None:
            split = word
        else:
            rest.append(folder)
    return rest, split, label


def _nothing_in(root: Location, oddities: Sequence[str]) -> str:
    archives = sorted(each.name for each in root.glob("*.zip"))
    if archives:
        return f"{root} holds {quantity(archives, 'archive')} but no recording: unzip them first."
    hint = f" {' '.join(oddities)}" if oddities else ""
    return f"No recording ({READABLE}) in {root} or below.{hint}"


def _find_oddities(clips: Sequence[Clip]) -> list[str]:
    """What any table can have wrong, machine by machine."""
    oddities = []
    years: dict[str, set[int | None]] = defaultdict(set)
    groups: dict[tuple[int | None, str], list[Clip]] = defaultdict(list)
    for clip in clips:
        years[clip.machine].add(clip.year)
        groups[clip.year, clip.machine].append(clip)
    for machine, found in years.items():
        if len(found) > 1:
            named = " and ".join(sorted("an unknown year" if y is None else str(y) for y in found))
            oddities.append(f"{machine} is there of {named}: other data under the same name.")
    for (year, machine), members in groups.items():
        title = titled(year, machine)
        oddities += without_training(members)
        oddities += [f"{title}: {oddity}" for oddity in _machine_oddities(members)]
    unlabelled = [clip for clip in clips if clip.split == "test" and clip.label is None]
    if unlabelled:
        machines = dict.fromkeys(titled(clip.year, clip.machine) for clip in unlabelled)
        oddities.append(
            f"{quantity(unlabelled, 'test clip')} without a label ({name_list(machines)}): they "
            "can be scored, not evaluated."
        )
    return oddities


def without_training(clips: Iterable[Clip]) -> list[str]:
    """The oddities of machines that have no training clip."""
    trained: dict[str, bool] = {}
    for clip in clips:
        title = titled(clip.year, clip.machine)
        trained[title] = trained.get(title, False) or clip.split == "train"
    return [f"{title}: no training clip." for title, found in trained.items() if not found]


def _machine_oddities(clips: Sequence[Clip]) -> Iterator[str]:
    train = [clip for clip in clips if clip.split == "train"]
    domains = Counter(clip.domain for clip in train)
    if set(domains) == {"source"}:
        yield "no target clip among the training clips."
    for domain, count in domains.items():
        if domain is not None and count < 2:
            yield f"only {count} training clip in the domain {name_list([domain])}."
    nowhere = [clip.path for clip in train if clip.domain is None]
    if nowhere:
        yield f"{quantity(nowhere, 'training clip')} without a domain: {name_list(nowhere)}."
    faulty = [clip.path for clip in train if clip.label == 1]
    if faulty:
        yield f"{quantity(faulty, 'training clip')} labelled anomaly: {name_list(faulty)}."
    names: dict[tuple[str, str | None, str], list[str]] = defaultdict(list)
    for clip in clips:
        names[clip.split, clip.domain, stem_of(clip.path)].append(clip.path)
    twice = [" = ".join(paths) for paths in names.values() if len(paths) > 1]
    if twice:
        yield f"{quantity(twice, 'name')} more than once: {name_list(twice, 3)}."
