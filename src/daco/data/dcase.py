"""DCASE Task 2 of 2020 to 2026: machines, and what file names and folders tell about a clip.

The file name decides, and never a folder above that of the machine.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from daco.data.clips import DEFAULT_MACHINE, ONE_DOMAIN, Clip, stem_of
from daco.errors import DataError, InputError
from daco.files.remote import Location, explain_errors
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

_LABELLED = re.compile(
    r"section_(\d+)_(source|target)_(?:(train|test)_)?(normal|anomaly)_(\d+)(?:_(.*))?", re.DOTALL
)
_ANONYMOUS = re.compile(r"section_(\d+)_(?:(source|target)_test_)?(\d+)")
_ID = re.compile(r"(?:(normal|anomaly)_)?id_(\d\d)_(\d{8})")
_SUPPLEMENTAL = re.compile(r"section_(\d+)_([A-Za-z_]+?)_(\d+)(?:_(.*))?", re.DOTALL)
_LABELS = ("normal", "anomaly")
_SPLIT_FOLDERS = {
    "train": "train",
    "test": "test",
    "test_rename": "test",  # the baseline's copy of an evaluation set, with labelled names
    "source_test": "test",  # of 2021
    "target_test": "test",
    "supplemental": "supplemental",
}
_SET_FOLDERS = {"raw", "dev", "eval", "dev_data", "eval_data", "development", "evaluation", "data"}
YEAR = re.compile(r"dcase[-_ ]?(20\d\d)", re.IGNORECASE)
_ARCHIVE = re.compile(r"(?:dev|eval)_(?:data_)?(?:train_|test_)?(.+?)(?:_train|_test)?(?:_r\d+)?")
_BASELINE_NAME = re.compile(r"DCASE20\d\dT2(.+)")


@dataclass(frozen=True)
class ClipName:
    """The fields of a file name; None for what the name does not contain.

    In 2020, `section` is the id of the machine, and there is one domain. Only supplemental clips
    have a `kind`: ``machine`` (clean), ``noise`` or ``unknown``. `tail` mostly has attributes. In
    test names these can reveal the fault, so they are never used as features.
    """

    section: str
    number: str
    domain: str | None = None
    split: str | None = None
    label: int | None = None
    kind: str | None = None
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
    >>> parse_name("section_00_machine_source_0000_noAttribute.wav").kind
    'machine'
    >>> parse_name("anomaly_id_02_00000013.wav").section
    '02'
    """
    stem = stem_of(name)
    if match := _LABELLED.fullmatch(stem):
        section, domain, split, label, number, tail = match.groups()
        return ClipName(section, number, domain, split, _LABELS.index(label), tail=tail or "")
    if match := _ANONYMOUS.fullmatch(stem):
        return ClipName(match[1], match[3], match[2], split="test")
    if match := _ID.fullmatch(stem):
        label, section, number = match.groups()
        known = _LABELS.index(label) if label else None
        return ClipName(section, number, ONE_DOMAIN, None if label else "test", known)
    if match := _SUPPLEMENTAL.fullmatch(stem):
        section, words, number, tail = match.groups()
        tokens = words.split("_")
        if not {"machine", "noise", "supplemental"} & set(tokens):
            return None
        kind = next((token for token in tokens if token in ("machine", "noise")), "unknown")
        domain = next((token for token in tokens if token in ("source", "target")), None)
        return ClipName(section, number, domain, "supplemental", kind=kind, tail=tail or "")
    return None


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


class Placed(NamedTuple):
    """A clip by its path: what its name says, and what the folders above it say."""

    path: str
    name: ClipName | None
    machine: str
    folder: Location
    """Of the machine."""
    split: str | None
    year: int | None
    """Of the folders, or of the form of the name and of those beside it."""
    named_year: int | None
    renamed: bool

    def clip(self, name: ClipName, year: int | None = None) -> Clip:
        """The clip, with this name and year."""
        attributes = parse_attributes(name.tail)
        if name.kind:
            attributes = {"supplemental": name.kind, **attributes}
        # From 2021 on only test names lack the word.
        split = name.split or self.split or "test"
        place = self.path, self.machine, year or self.year
        return Clip(*place, name.section, name.domain, split, name.label, attributes)


def placed_clips(root: Location, paths: Iterable[str]) -> list[Placed] | None:
    """What names and folders say of each clip; None where no clip has a DCASE name."""
    names = {path: parse_name(path) for path in paths}
    if not any(names.values()):
        return None
    place = cache(lambda folder: _folder_meaning(root, folder))
    places = {path: place(path.rpartition("/")[0]) for path in names}
    of_2020 = {path for path, name in names.items() if name and name.domain == ONE_DOMAIN}
    undated = [path for path, (*_, year, _) in places.items() if year is None]
    later = [path for path in undated if names[path] and path not in of_2020]
    form = year_of_names(later or undated)
    placed = []
    for path, (machine, folder, split, named, renamed) in places.items():
        year = named or (2020 if path in of_2020 else form)
        placed.append(Placed(path, names[path], machine, folder, split, year, named, renamed))
    return placed


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
    placed = placed_clips(Path("/", DEFAULT_MACHINE) if root is None else root, slashed)
    if placed is None:
        return None
    found = {each.path: each.clip(each.name) if each.name else None for each in placed}
    clips = [found[path] for path in slashed]
    others = [path for path, clip in zip(paths, clips, strict=True) if clip is None]
    if others and not split_known and any(clip and clip.split != "train" for clip in clips):
        raise InputError(
            "there is no column 'split', and only some names mark test clips as those of DCASE do; "
            f"{quantity(others, 'clip')} with other names: {name_list(others, 3)}. Add a column "
            "'split' with train or test for every clip."
        )
    return clips


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
    keys, values = tokens[::2], tokens[1::2]
    if len(keys) == len(values) and all(key.replace("-", "").isalpha() for key in keys):
        return number_keys(
            zip((key.replace("mic-pos", "mic_pos") for key in keys), values, strict=True)
        )
    glued = [re.fullmatch(r"([A-Za-z]*[a-z])(\d[\d.]*|[A-Z])", token) for token in tokens]
    if all(glued):
        return number_keys((match[1], match[2]) for match in glued if match)
    return {"raw": tail}


def number_keys(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pairs as a dict; a key that comes again is numbered."""
    numbered: dict[str, str] = {}
    times: Counter[str] = Counter()
    for key, value in pairs:
        times[key] += 1
        numbered[key if times[key] == 1 else f"{key}#{times[key]}"] = value
    return numbered


def _folder_meaning(
    root: Location, folder: str
) -> tuple[str, Location, str | None, int | None, bool]:
    """Machine, its folder and split by the nearest folders; the year of any; whether renamed."""
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
    name = _machine_name(parts[machine])
    return name, of_machine, _SPLIT_FOLDERS.get(split or ""), year_of_folders(parts), renamed


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


def read_csv(path: Location) -> list[list[str]]:
    """The lines of a file of the organisers that are not empty."""
    try:
        with explain_errors(path):
            text = path.read_bytes().decode("utf-8-sig")
        return [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} could not be read: {error}.") from None
