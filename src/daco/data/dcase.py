"""DCASE Task 2 of 2023 to 2026: machines, folders, file names and attributes.

What a clip is stands in its file name, never in the path above its machine's folder. The truth
of evaluation sets is another matter, see `daco.data.dcase_truth`.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

from daco.data.clips import DEFAULT_MACHINE, Clip, stem_of, titled
from daco.errors import DataError, InputError
from daco.files.remote import Location
from daco.text import name_list, quantity

_SEVEN = ("ToyCar", "ToyTrain", "bearing", "fan", "gearbox", "slider", "valve")

MACHINES: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    2023: {
        "dev": _SEVEN,
        "eval": ("ToyDrone", "ToyNscale", "ToyTank", "Vacuum", "bandsaw", "grinder", "shaker"),
    },
    2024: {
        "dev": _SEVEN,
        "eval": (
            *("3DPrinter", "AirCompressor", "BrushlessMotor", "HairDryer", "HoveringDrone"),
            *("RoboticArm", "Scanner", "ToothBrush", "ToyCircuit"),
        ),
    },
    2025: {
        "dev": _SEVEN,
        "eval": (
            *("AutoTrash", "BandSealer", "CoffeeGrinder", "HomeCamera"),
            *("Polisher", "ScrewFeeder", "ToyPet", "ToyRCCar"),
        ),
    },
    2026: {
        "dev": ("ToyCar", "ToyCarEmu", "bearingEmu", "fan", "gearboxEmu", "sliderEmu", "valveEmu"),
        "eval": ("BlowerDustCollector", "Sander", "SewingMachine", "ToothBrush", "ToyDrone"),
    },
}
"""The machines of each year's development and evaluation sets."""

_LABELLED = re.compile(
    r"section_(\d+)_(source|target)_(?:(train|test)_)?(normal|anomaly)_(\d+)(?:_(.*))?", re.DOTALL
)
_ANONYMOUS = re.compile(r"section_(\d+)_(\d+)")
_SUPPLEMENTAL = re.compile(r"section_(\d+)_([A-Za-z_]+?)_(\d+)(?:_(.*))?", re.DOTALL)
_LABELS = ("normal", "anomaly")
_SPLIT_FOLDERS = {
    "train": "train",
    "test": "test",
    "test_rename": "test",  # the baseline's copy of an evaluation set, with labelled names
    "supplemental": "supplemental",
}
_SET_FOLDERS = {"raw", "dev", "eval", "dev_data", "eval_data", "development", "evaluation", "data"}
YEAR = re.compile(r"dcase[-_ ]?(20\d\d)", re.IGNORECASE)
_ARCHIVE = re.compile(r"(?:dev|eval)_(?:data_)?(.+?)(?:_train|_test)?(?:_r\d+)?")
_BASELINE_NAME = re.compile(r"DCASE20\d\dT2(.+)")


@dataclass(frozen=True)
class ClipName:
    """The fields of a file name; None for what the name does not say.

    `kind` is of supplemental clips only: ``machine`` (clean), ``noise``, or ``unknown``. `tail`
    is what follows the number, attributes mostly: in test names they can give the fault away,
    so they are never to be used as features.
    """

    section: str
    number: str
    domain: str | None = None
    split: str | None = None
    label: int | None = None
    kind: str | None = None
    tail: str = ""

    @property
    def stem(self) -> str:
        """The name without its ending.

        >>> ClipName("00", "0007", "target", "train", 0, tail="vel_8").stem
        'section_00_target_train_normal_0007_vel_8'
        """
        label = None if self.label is None else _LABELS[self.label]
        split = None if self.split == "supplemental" or label is None else self.split
        kind = "supplemental" if self.kind == "unknown" else self.kind
        fields = (kind, self.domain, split, label, self.number, self.tail)
        return "_".join(("section", self.section, *filter(None, fields)))


def parse_name(name: str) -> ClipName | None:
    """The fields of a DCASE file name, or None where it is no such name.

    >>> parse_name("section_00_source_normal_0035_weight15_BckgF.wav").domain
    'source'
    >>> parse_name("section_00_0199.wav").split
    'test'
    >>> parse_name("section_00_machine_source_0000_noAttribute.wav").kind
    'machine'
    """
    stem = stem_of(name)
    if match := _LABELLED.fullmatch(stem):
        section, domain, split, label, number, tail = match.groups()
        return ClipName(section, number, domain, split, _LABELS.index(label), tail=tail or "")
    if match := _ANONYMOUS.fullmatch(stem):
        return ClipName(match[1], match[2], split="test")
    if match := _SUPPLEMENTAL.fullmatch(stem):
        section, words, number, tail = match.groups()
        tokens = words.split("_")
        if not {"machine", "noise", "supplemental"} & set(tokens):
            return None
        kind = next((token for token in tokens if token in ("machine", "noise")), "unknown")
        domain = next((token for token in tokens if token in ("source", "target")), None)
        return ClipName(section, number, domain, "supplemental", kind=kind, tail=tail or "")
    return None


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
    names = [parse_name(path) for path in slashed]
    if not any(names):
        return None
    above = Path("/", DEFAULT_MACHINE) if root is None else root
    place = cache(lambda folder: _place(above, folder))
    clips: list[Clip | None] = []
    for path, name in zip(slashed, names, strict=True):
        where = place(path.rpartition("/")[0])
        clips.append(None if name is None else _clip(path, name, where, where.year))
    others = [path for path, clip in zip(paths, clips, strict=True) if clip is None]
    if others and not split_known and any(clip and clip.split != "train" for clip in clips):
        raise InputError(
            f"there is no column 'split', and {quantity(others, 'clip')} without a DCASE name "
            f"({name_list(others, 3)}) beside clips whose names say test. Add a column 'split' "
            "with train or test for every clip."
        )
    return clips


def named_anomalies(paths: Iterable[str]) -> list[str]:
    """The paths whose DCASE names say anomaly."""
    return [path for path in paths if "anomaly" in path and _by_name(path, "label") == 1]


def named_test_clips(paths: Iterable[str]) -> list[str]:
    """The paths whose DCASE names say test."""
    return [path for path in paths if "section_" in path and _by_name(path, "split") == "test"]


def require_normal_names(paths: Sequence[str]) -> list[str]:
    """An error if clips to be used as normals are anomalies by name; a sentence about test clips.

    The columns of a table or manifest count. But an anomaly among the normals hides all like it,
    and a name says so for a reason.
    """
    if faulty := named_anomalies(paths):
        raise DataError(
            f"{quantity(faulty, 'clip')} normal by the columns 'split' and 'label', but anomalies "
            f"by name: {name_list(faulty)}. Correct the columns, or rename the clips."
        )
    if tests := named_test_clips(paths):
        return [
            f"{quantity(tests, 'clip')} for training by the column 'split', which counts, but test "
            f"clips by name: {name_list(tests)}."
        ]
    return []


def _by_name(path: str, field: str) -> Any:
    return getattr(parse_name(path.replace("\\", "/")), field, None)


def parse_attributes(tail: str) -> dict[str, str]:
    """Attributes of a file name; a string that cannot be told apart is kept whole as ``raw``.

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
        return _numbered(
            zip((key.replace("mic-pos", "mic_pos") for key in keys), values, strict=True)
        )
    glued = [re.fullmatch(r"([A-Za-z]*[a-z])(\d[\d.]*|[A-Z])", token) for token in tokens]
    if all(glued):
        return _numbered((match[1], match[2]) for match in glued if match)
    return {"raw": tail}


def _numbered(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Pairs as a dict; a key that comes again is numbered."""
    pairs = list(pairs)
    found: dict[str, str] = dict(pairs)
    if len(found) < len(pairs):
        times: Counter[str] = Counter()
        found = {}
        for key, value in pairs:
            times[key] += 1
            found[key if times[key] == 1 else f"{key}#{times[key]}"] = value
    return found


@dataclass(frozen=True)
class _Place:
    """What the folders above a clip say."""

    machine: str
    folder: Location
    split: str | None
    year: int | None
    renamed: bool


def read_tree(
    root: Location,
    paths: Iterable[str],
    *,
    year: int | None = None,
    renamed: bool = True,
    oddities: list[str],
) -> list[Clip] | None:
    """The clips of a data set at any level; None where no file has a DCASE name.

    Parameters
    ----------
    root : path
    paths : iterable of str
        Of recordings, relative to `root`.
    year : int, optional
        Of the data set; folders such as ``dcase2024t2`` say it too.
    renamed : bool, default=True
        Where the baseline's labelled copy ``test_rename`` lies beside an anonymous ``test``:
        whether to read the copy or the original.
    oddities : list of str
        What is odd is appended.
    """
    names = {path: parse_name(path) for path in paths}
    if not any(names.values()):
        return None
    place = cache(lambda folder: _place(root, folder))
    places = {path: place(path.rpartition("/")[0]) for path in names}
    years = {each.year for each in places.values()} - {None}
    if year is not None and years - {year}:
        if len(years) > 1:
            raise DataError(
                f"{root} holds the years {name_list(map(str, sorted(filter(None, years))))}, and "
                f"year is {year}. Read one year at a time, or leave year out."
            )
        oddities.append(f"The folders name the year {years.pop()}; read as {year}, as asked.")
    _leave_out_copies(names, places, renamed, oddities)
    clips, unparsed, moved = [], [], []
    for path, name in names.items():
        where = places[path]
        if name is None and where.split == "supplemental":
            name = ClipName("00", "", split="supplemental", kind="unknown")
        if name is None:
            unparsed.append(path)
            if where.split == "test":
                clips.append(Clip(path, where.machine, year or where.year, split="test"))
            continue
        if name.split and where.split and name.split != where.split:
            moved.append(path)
        clips.append(_clip(path, name, where, year or where.year))
    if unparsed:
        oddities.append(
            f"{quantity(unparsed, 'name')} not of DCASE's form, kept without a label in test "
            f"folders and left out elsewhere: {name_list(unparsed)}."
        )
    if moved:
        oddities.append(
            f"{quantity(moved, 'clip')} in a folder of another split than in the name, which "
            f"counts: {name_list(moved)}."
        )
    for key in dict.fromkeys((clip.year, clip.machine) for clip in clips):
        known = MACHINES.get(key[0] or 0)
        if known and key[1] not in known["dev"] + known["eval"]:
            oddities.append(f"{key[1]} is not a machine of DCASE {key[0]}.")
    return _with_attribute_files(clips, places, oddities)


def _clip(path: str, name: ClipName, where: _Place, year: int | None) -> Clip:
    attributes = parse_attributes(name.tail)
    if name.kind:
        attributes = {"supplemental": name.kind, **attributes}
    split = name.split or where.split or "test"  # only test names lack the word
    return Clip(path, where.machine, year, name.section, name.domain, split, name.label, attributes)


def _place(root: Location, folder: str) -> _Place:
    """Split and machine by the nearest folders, the year by any above."""
    parts = [*root.parts, *PurePosixPath(folder).parts]
    year = next((int(match[1]) for part in reversed(parts) if (match := YEAR.match(part))), None)
    split = machine = None
    last = len(parts) - 1
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
    for _ in range(last - machine):
        of_machine = of_machine.parent
    return _Place(
        machine=_machine_name(parts[machine]),
        folder=of_machine,
        split=_SPLIT_FOLDERS[split] if split else None,
        year=year,
        renamed="test_rename" in parts[len(root.parts) :] or split == "test_rename",
    )


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


def _leave_out_copies(
    names: dict[str, ClipName | None],
    places: Mapping[str, _Place],
    renamed: bool,
    oddities: list[str],
) -> None:
    """Drop either the baseline's labelled copies or the anonymous clips they were made from."""
    copies: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    originals: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    for path, place in places.items():
        name = names[path]
        if place.split == "test" and place.renamed:
            copies[place.year, place.machine].append(path)
        elif place.split == "test" and name is not None and name.label is None:
            originals[place.year, place.machine].append(path)
    both = [key for key in copies if key in originals]
    left_out = [path for key in both for path in (originals if renamed else copies)[key]]
    for path in left_out:
        del names[path]
    if left_out:
        kept = "the labelled copies in test_rename" if renamed else "the originals in test"
        oddities.append(f"{quantity(left_out, 'test clip')} left out in favour of {kept}.")


def _with_attribute_files(
    clips: Sequence[Clip], places: Mapping[str, _Place], oddities: list[str]
) -> list[Clip]:
    """The clips with what files such as ``attributes_00.csv`` add to the attributes of names."""
    rows: dict[tuple[int | None, str], dict[str, tuple[str, list[tuple[str, str]]]]] = {}
    names: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    for folder, year, machine in dict.fromkeys(
        (places[clip.path].folder, clip.year, clip.machine) for clip in clips
    ):
        files: list[Location] = [*folder.glob("attributes_*.csv")]
        for file in sorted(files, key=str):
            if re.fullmatch(r"attributes_\d+\.csv", file.name):
                found = _attribute_rows(file, oddities)
                mine = rows.setdefault((year, machine), {})
                mine.update({stem: (file.name, pairs) for stem, pairs in found.items()})
                names[year, machine].append(file.name)
    if not rows:
        return list(clips)
    unused = {key: dict.fromkeys(found) for key, found in rows.items()}
    without: dict[tuple[int | None, str], list[str]] = defaultdict(list)
    against: dict[tuple[tuple[int | None, str], str], list[str]] = defaultdict(list)
    result = []
    for clip in clips:
        key, stem = (clip.year, clip.machine), stem_of(clip.path)
        if key in rows and stem in rows[key]:
            unused[key].pop(stem, None)
            file_name, pairs = rows[key][stem]
            attributes, agree = _with_pairs(clip, pairs)
            if not agree:
                against[key, file_name].append(stem)
            clip = replace(clip, attributes=attributes)
        elif key in rows and clip.label is not None:
            without[key].append(stem)
        result.append(clip)
    for key in rows:
        title = titled(*key)
        for file_name in dict.fromkeys(names[key]):
            if stems := against[key, file_name]:
                oddities.append(
                    f"{title}: {file_name} and {quantity(stems, 'name')} disagree, the file "
                    f"counts: {name_list(stems, 3)}."
                )
        if without[key]:
            oddities.append(
                f"{title}: {quantity(without[key], 'clip')} not in "
                f"{name_list(dict.fromkeys(names[key]))}: {name_list(without[key], 3)}."
            )
        left = Counter(rows[key][stem][0] for stem in unused[key])
        for file_name, count in left.items():
            oddities.append(
                f"{title}: {quantity(count, 'row')} of {file_name} for clips that are not here."
            )
    return result


def _with_pairs(clip: Clip, pairs: Sequence[tuple[str, str]]) -> tuple[dict[str, str], bool]:
    """The attributes of a clip's name and of its file, which counts; whether the two agree."""
    listed = _numbered(pairs)
    name = parse_name(clip.path)
    if name is not None and listed and _agree(name.tail, pairs):
        # The file says how the name is to be split.
        kind = {"supplemental": name.kind} if name.kind else {}
        return {**kind, **listed}, True
    values = {key.lower(): value.lower() for key, value in listed.items()}
    own = clip.attributes.items()
    same = all(values.get(key.lower(), value.lower()) == value.lower() for key, value in own)
    kept = {key: value for key, value in own if key.lower() not in values}
    return {**kept, **listed}, same and not (listed and "raw" in kept)


def _attribute_rows(file: Location, oddities: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Pairs of name and value by stem; ``file_name`` is a path in some files, a stem in others."""
    lines = read_csv(file)
    header = lines[0] if lines else []
    if not header or header[0].strip() != "file_name":
        oddities.append(f"{file} ignored: its header does not begin with file_name.")
        return {}
    rows: dict[str, list[tuple[str, str]]] = {}
    for line in lines[1:]:
        values = [value.strip() for value in line]
        pairs = zip(values[1::2], values[2::2], strict=False)
        rows[stem_of(values[0].replace("\\", "/"))] = [(k, v) for k, v in pairs if k and v]
    if len(rows) < len(lines) - 1:
        oddities.append(f"{file} names {quantity(len(lines) - 1 - len(rows), 'clip')} twice.")
    return rows


def _agree(tail: str, pairs: Sequence[tuple[str, str]]) -> bool:
    tail = tail.rstrip("_").lower()
    forms = ("_".join(f"{key}{glue}{value}" for key, value in pairs).lower() for glue in ("_", ""))
    return tail in ("", "noattribute", *forms)


def read_csv(path: Location) -> list[list[str]]:
    """The lines of a file of the organisers that are not empty."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
        return [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path} could not be read: {error}.") from None
