"""DCASE Task 2 of 2020 to 2026: machines, and what names and folders tell about a clip.

The file name decides, and never a folder above that of the machine.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from daco.data.clips import DEFAULT_MACHINE, ONE_DOMAIN, Clip, stem_of
from daco.errors import DataError
from daco.files.remote import Location
from daco.text import name_list, quantity

_TABLE = """
2020 dev  01,02,03,04 ToyCar
2020 dev  01,02,03    ToyConveyor
2020 dev  00,02,04,06 fan pump slider valve
2020 eval 05,06,07    ToyCar
2020 eval 04,05,06    ToyConveyor
2020 eval 01,03,05    fan pump slider valve
2021 dev  00,01,02    ToyCar ToyTrain fan gearbox pump slider valve
2021 eval 03,04,05    ToyCar ToyTrain fan gearbox pump slider valve
2022 dev  00,01,02    ToyCar ToyTrain bearing fan gearbox slider valve
2022 eval 03,04,05    ToyCar ToyTrain bearing fan gearbox slider valve
2023 dev  00          ToyCar ToyTrain bearing fan gearbox slider valve
2023 eval 00          ToyDrone ToyNscale ToyTank Vacuum bandsaw grinder shaker
2024 dev  00          ToyCar ToyTrain bearing fan gearbox slider valve
2024 eval 00          3DPrinter AirCompressor BrushlessMotor HairDryer HoveringDrone
2024 eval 00          RoboticArm Scanner ToothBrush ToyCircuit
2025 dev  00          ToyCar ToyTrain bearing fan gearbox slider valve
2025 eval 00          AutoTrash BandSealer CoffeeGrinder HomeCamera
2025 eval 00          Polisher ScrewFeeder ToyPet ToyRCCar
2026 dev  00          ToyCar ToyCarEmu bearingEmu fan gearboxEmu sliderEmu valveEmu
2026 eval 00          BlowerDustCollector Sander SewingMachine ToothBrush ToyDrone
"""
"""Year, set, sections (in 2020 ids) and machines."""


def _read_table() -> dict[int, dict[str, dict[str, tuple[str, ...]]]]:
    """The sections of every machine, by year and set."""
    years: dict[int, dict[str, dict[str, tuple[str, ...]]]] = {}
    for line in _TABLE.strip().splitlines():
        year, part, sections, *machines = line.split()
        known = years.setdefault(int(year), {}).setdefault(part, {})
        known |= dict.fromkeys(machines, tuple(sections.split(",")))
    return years


_SECTIONS = _read_table()
MACHINES: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    year: {part: tuple(machines) for part, machines in sets.items()}
    for year, sets in _SECTIONS.items()
}
"""The machines of each year's development and evaluation sets; see `machine_sections`."""

_TAIL = r"(?P<number>\d+)(?:_(?P<tail>.*))?"
_NAMES = [
    re.compile(form, re.DOTALL)
    for form in (
        # 2020: normal_id_01_00000349; without a label in evaluation sets
        r"(?:(?P<label>normal|anomaly)_)?id_(?P<section>\d\d)_(?P<number>\d{8})",
        # evaluation sets: section_03_source_test_0199 in 2021, section_00_0199 later
        r"section_(?P<section>\d+)_(?:(?P<domain>source|target)_test_)?(?P<number>\d+)",
        # from 2021 on; not all test names have the word
        r"section_(?P<section>\d+)_(?P<domain>source|target)_(?:(?P<split>train|test)_)?"
        rf"(?P<label>normal|anomaly)_{_TAIL}",
        # supplemental clips: section_00_noise_0003, section_00_machine_source_0000_noAttribute
        r"section_(?P<section>\d+)_(?:machine|noise|supplemental)(?:_(?P<domain>source|target))?"
        rf"(?:_[A-Za-z]+)*_{_TAIL}",
    )
]
_LABELS = ("normal", "anomaly")
YEAR = re.compile(r"dcase[-_ ]?(20\d\d)", re.IGNORECASE)

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


@dataclass(frozen=True)
class ClipName:
    """The fields of a file name; None for what the name does not contain.

    In 2020, `section` is the id of the machine, and there is one domain. `tail` mostly has
    attributes. In test names these can reveal the fault, so they are never used as features.
    """

    section: str
    number: str
    domain: str | None = None
    split: str | None = None
    label: int | None = None
    tail: str = ""


def machine_sections(year: int) -> dict[str, set[tuple[str, str]]]:
    """List the pairs of machine and section, or id, under ``"dev"`` and ``"eval"``.

    >>> sorted(machine_sections(2020)["eval"])[:4]
    [('ToyCar', '05'), ('ToyCar', '06'), ('ToyCar', '07'), ('ToyConveyor', '04')]
    """
    return {
        part: {(machine, each) for machine, sections in known.items() for each in sections}
        for part, known in _SECTIONS[year].items()
    }


def parse_name(name: str) -> ClipName | None:
    """Parse a DCASE file name into a `ClipName`; return None for any other name.

    Examples
    --------
    >>> parse_name("section_00_source_normal_0035_weight15_BckgF.wav").domain
    'source'
    >>> parse_name("section_00_0199.wav").split
    'test'
    >>> parse_name("section_00_machine_source_0000_noAttribute.wav").split
    'supplemental'
    >>> parse_name("anomaly_id_02_00000013.wav").section
    '02'
    """
    stem = stem_of(name)
    match = next(filter(None, (form.fullmatch(stem) for form in _NAMES)), None)
    if match is None:
        return None
    found = match.groupdict()
    domain, split = found.get("domain"), found.get("split")
    label = _LABELS.index(found["label"]) if found.get("label") else None
    if match.re is _NAMES[0]:
        domain = ONE_DOMAIN
    if match.re is _NAMES[-1]:
        split = "supplemental"
    elif label is None:
        split = "test"
    tail = found.get("tail") or ""
    return ClipName(found["section"], found["number"], domain, split, label, tail)


def year_of_names(paths: Iterable[str]) -> int | None:
    """The year that alone has names or folders of this form, 2020 or 2021; otherwise None.

    >>> year_of_names(["normal_id_00_00000000.wav"]), year_of_names(["section_00_0001.wav"])
    (2020, None)
    >>> year_of_names(["fan/target_test/section_00_target_test_normal_0000.wav"])
    2021
    """
    for path in paths:
        name, folder = parse_name(path), path.rpartition("/")[0].rpartition("/")[2]
        if name is None or name.domain is None or name.split not in (None, "test"):
            continue
        if name.domain == ONE_DOMAIN:
            return 2020
        if name.label is None or folder in ("source_test", "target_test"):
            return 2021
    return None


def year_of_folders(parts: Sequence[str]) -> int | None:
    """The year of the nearest folder that names one; the last part is the nearest.

    >>> year_of_folders(("data", "dcase2021", "dev_data", "fan"))
    2021
    """
    return next((int(match[1]) for part in reversed(parts) if (match := YEAR.match(part))), None)


def require_normal_names(paths: Sequence[str]) -> list[str]:
    """Raise if clips to be used as normals are anomalies by name; sentences about test clips.

    The columns of a table or manifest count, but an anomaly among the normals would hide all
    anomalies like it.
    """
    named = [path for path in paths if "section_" in path or "_id_" in path]
    parsed = [(path, parse_name(path.replace("\\", "/"))) for path in named]
    if faulty := [path for path, name in parsed if name and name.label == 1]:
        raise DataError(
            f"{quantity(faulty, 'clip')} with the name of an anomaly would be used as normal: "
            f"{name_list(faulty)}. Correct the columns 'split' and 'label', or rename the clips."
        )
    tests = [path for path, name in parsed if name and name.split == "test"]
    what = f"{quantity(tests, 'clip')} with the name of a test clip used as normal"
    return [f"{what}: {name_list(tests, 3)}."] if tests else []


def parse_attributes(tail: str) -> dict[str, str]:
    """Attributes of a file name; a string that cannot be split is kept whole as ``raw``.

    >>> parse_attributes("vel_8_loc_B"), parse_attributes("weight15_BckgF")
    ({'vel': '8', 'loc': 'B'}, {'weight': '15', 'Bckg': 'F'})
    >>> parse_attributes("car_A2_spd_1_mic_2_mic_1")
    {'car': 'A2', 'spd': '1', 'mic': '2', 'mic#2': '1'}
    >>> parse_attributes("noAttribute"), parse_attributes("wt_200_damage1")
    ({}, {'raw': 'wt_200_damage1'})
    """
    tail = tail.rstrip("_")
    if tail in ("", "noAttribute"):
        return {}
    # The one key known to have an underscore of its own.
    tokens = tail.replace("mic_pos_", "mic-pos_").split("_")
    pairs = list(zip(tokens[::2], tokens[1::2], strict=False))
    if len(tokens) % 2 or not all(key.replace("-", "").isalpha() for key, _ in pairs):
        glued = [re.fullmatch(r"([A-Za-z]*[a-z])(\d[\d.]*|[A-Z])", token) for token in tokens]
        if not all(glued):
            return {"raw": tail}
        pairs = [(match[1], match[2]) for match in glued if match]
    attributes: dict[str, str] = {}
    times: Counter[str] = Counter()
    for key, value in pairs:
        name = key.replace("mic-pos", "mic_pos")
        times[name] += 1
        attributes[name if times[name] == 1 else f"{name}#{times[name]}"] = value
    return attributes


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
    undated = [
        path
        for path, name, folder in zip(slashed, names, folders, strict=True)
        if folder.year is None and name is not None and name.domain != ONE_DOMAIN
    ]
    later = year_of_names(undated)
    return [
        None if name is None else _clip(path, name, folder, later)
        for path, name, folder in zip(paths, names, folders, strict=True)
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
    while len(folders) > 2 and _names_no_machine(folders[-1]):
        split = split or _SPLITS.get(folders[-1])
        folders = folders[:-1]
    archive = _ARCHIVE.fullmatch(folders[-1])
    return _Folder(archive[1] if archive else folders[-1], split, year)


def _names_no_machine(folder: str) -> bool:
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
