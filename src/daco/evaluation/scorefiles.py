"""Score and decision files of the challenge: ``name.wav,value``, one row per clip, no header.

``anomaly_score_<machine>_section_<n>_test.csv`` has scores, ``decision_result_...`` a 1 for an
anomalous clip and a 0 for any other. Files of 2020 end in ``_id_<n>.csv``; 2021 has one file for
each domain. The longer names of the baseline are read, too. Errors name the file and the line.
Rows are matched to clips by name: the anonymous one, or that with label and attributes.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.data.clips import ONE_DOMAIN, stem_of
from daco.data.dcase import parse_name
from daco.data.dcase_truth import inject_truth, labelled_names, truth_clips
from daco.errors import DataError, InputError
from daco.files.atomic import atomic_write, write_error
from daco.text import name_list, quantity

SCORES = "anomaly_score"
DECISIONS = "decision_result"

HELD_OUT = re.compile(r"(_section_\d+(?:_source|_target)?)_train")
"""In names of files with scores of held-out normals, which are calibrated by and not evaluated."""

Key = tuple[str, str]  # a machine and a section

_SHOWN = 5  # rows of a kind that are named before the rest is counted
_NAME = re.compile(
    rf"({SCORES}|{DECISIONS})_(?:DCASE(20\d\d)T2)?(.+)_section_(\d+)"
    r"(?:_(source|target))?_test(?:_seed\d+.*)?\.csv"
)
_NAME_OF_2020 = re.compile(rf"({SCORES}|{DECISIONS})_(.+)_id_(\d\d)\.csv")
_NO_NUMBER = "not a number"
_MACHINE = re.compile(r"[^/\\\x00-\x1f]+")


@dataclass(frozen=True, eq=False)
class ScoreFile:
    """The content of a score or decision file; names of clips are without ``.wav``.

    ``kind`` is ``anomaly_score`` or ``decision_result``. ``year`` is known if the name of the file
    has the form of the baseline, of 2020 or of 2021. The two files of a section of 2021 are
    one, with the path of the first.
    """

    path: Path
    kind: str
    machine: str
    section: str
    year: int | None
    names: tuple[str, ...]
    values: NDArray[np.float64]


def score_file_name(
    machine: str, section: str = "00", kind: str = SCORES, domain: str | None = None
) -> str:
    """The challenge's name of a score or decision file.

    `domain` is in names until 2021: ``all``, and the section is an id of 2020, or that of a file of
    2021.

    >>> score_file_name("fan"), score_file_name("fan", "01", DECISIONS)
    ('anomaly_score_fan_section_00_test.csv', 'decision_result_fan_section_01_test.csv')
    >>> score_file_name("fan", "02", domain="all")
    'anomaly_score_fan_id_02.csv'
    >>> score_file_name("fan", "03", domain="target")
    'anomaly_score_fan_section_03_target_test.csv'
    """
    if not _MACHINE.fullmatch(machine) or not section.isdecimal():
        raise InputError(
            f"Machine {machine!r}, section {section!r} cannot be in a file's name. A section is "
            "a number such as 00."
        )
    if domain == ONE_DOMAIN:
        return f"{kind}_{machine}_id_{section}.csv"
    return f"{kind}_{machine}_section_{section}_{f'{domain}_' if domain else ''}test.csv"


def machine_title(machine: str, section: str) -> str:
    """The title of a machine: its name, and its section unless that is the usual one.

    >>> machine_title("fan", "00"), machine_title("fan", "01")
    ('fan', 'fan section 01')
    """
    return machine if section == "00" else f"{machine} section {section}"


def parse_file_name(name: str) -> tuple[str, str, str, int | None] | None:
    """Kind, machine, section and year of a score or decision file; None for other files.

    >>> parse_file_name("anomaly_score_DCASE2024T2fan_section_00_test_seed13711_id(0_)_Eval.csv")
    ('anomaly_score', 'fan', '00', 2024)
    >>> parse_file_name("anomaly_score_fan_id_02.csv")
    ('anomaly_score', 'fan', '02', 2020)
    """
    parsed = _parse(name)
    return parsed and parsed[:4]


def _parse(name: str) -> tuple[str, str, str, int | None, str | None] | None:
    """Kind, machine, section and year; and the domain of a file of 2021."""
    if match := _NAME_OF_2020.fullmatch(name):
        return match[1], match[2], match[3], 2020, None
    if match := _NAME.fullmatch(name):
        kind, year, machine, section, domain = match.groups()
        return kind, machine, section, int(year) if year else 2021 if domain else None, domain
    return None


def write_scores(
    folder: Path, machine: str, section: str, names: Sequence[str], scores: ArrayLike
) -> Path:
    """Write a score file with all digits, in the given order, and return its path.

    The names of the clips decide whether the file is named as in 2020 or 2021. In 2021 there are
    two files, one for each domain; the path is that of the first.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> path = write_scores(folder, "fan", "00", ["section_00_0000.wav"], [0.1])
    >>> print(path.name, path.read_text(), sep=": ", end="")
    anomaly_score_fan_section_00_test.csv: section_00_0000.wav,0.1
    """
    values = np.asarray(scores, dtype=np.float64)
    _require_clips(machine, names, values)
    if not np.isfinite(values).all():
        at = int(np.argmin(np.isfinite(values)))
        raise InputError(f"Machine {machine!r}: the score of {names[at]} is {values[at]}.")
    return _write(folder, (machine, section, SCORES), names, map(repr, values.tolist()))


def write_decisions(
    folder: Path, machine: str, section: str, names: Sequence[str], decisions: ArrayLike
) -> Path:
    """Write a decision file as `write_scores` does; 1 or True is an anomalous clip."""
    values = np.asarray(decisions)
    _require_clips(machine, names, values)
    if not ((values == 0) | (values == 1)).all():
        raise InputError(f"Machine {machine!r}: a decision must be 1 (anomalous) or 0 (normal).")
    texts = (str(int(value)) for value in values)
    return _write(folder, (machine, section, DECISIONS), names, texts)


def read_score_files(folder: Path | str, problems: list[str] | None = None) -> list[ScoreFile]:
    """Read the score and decision files of a folder, sorted by name; skip other files.

    Parameters
    ----------
    folder : path
    problems : list of str, optional
        Problems are appended to it, one sentence each, and the files that have them are left out.
        Without it, all problems are raised together as a `DataError`.

    Returns
    -------
    list of ScoreFile
    """
    folder = Path(folder)
    wrong: list[str] = []
    files: dict[tuple[str, str, str, str | None], ScoreFile] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(".csv"))
    except OSError as error:
        raise DataError(
            f"{folder} cannot be read as a folder ({error.strerror}). Give a folder of score files."
        ) from None
    paths = [path for path in paths if path.name.startswith((SCORES, DECISIONS))]
    paths = [path for path in paths if not HELD_OUT.search(path.name)]
    if not paths:
        raise DataError(
            f"There is no score file in {folder}. Their names are {SCORES}_<machine>_section_00_"
            "test.csv."
        )
    for path in paths:
        before, parsed = len(wrong), _parse(path.name)
        if parsed is None:
            usual = score_file_name("<machine>")
            wrong.append(f"{path.name}: the machine is unknown, because the name is not {usual}.")
            continue
        kind, machine, section, year, domain = parsed
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            wrong.append(f"{path.name} cannot be read: {error}.")
            continue
        names, values = parse_rows(text, kind, path.name, wrong)
        domains = (domain, None) if domain else ("source", "target", None)
        twins = (files.get((kind, machine, section, each)) for each in domains)
        if twin := next(filter(None, twins), None):
            wrong.append(
                f"{path.name}: the same machine and section as in {twin.path.name}. Keep one of "
                "them."
            )
        if len(wrong) == before:
            file = ScoreFile(path, kind, machine, section, year, names, values)
            files[kind, machine, section, domain] = file
    if problems is not None:
        problems += wrong
    elif wrong:
        raise DataError(f"{folder}: {name_list(wrong, 20)}")
    for first in [file for key, file in files.items() if key[3] == "source"]:
        key = first.kind, first.machine, first.section
        if second := files.pop((*key, "target"), None):
            both = np.concatenate([first.values, second.values])
            files[*key, "source"] = replace(first, names=first.names + second.names, values=both)
    return list(files.values())


def parse_rows(
    text: str, kind: str, where: str, problems: list[str]
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Names without ``.wav`` and values of a file's text; problems are appended to `problems`."""
    rows: dict[str, float] = {}
    wrong: dict[str, list[str]] = defaultdict(list)
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    try:
        for row in filter(None, reader):
            fault = _fault(row, kind, rows)
            if fault is None:
                rows[stem_of(row[0].strip())] = float(row[1])
            else:
                first = not rows and not wrong and fault == _NO_NUMBER
                what = f"{fault} (these files have no header)" if first else fault
                wrong[what].append(f"line {reader.line_num} ({','.join(row)[:60]})")
    except csv.Error as error:
        wrong["unreadable"].append(f"line {reader.line_num} ({error})")
    if not rows and not wrong:
        problems.append(f"{where}: empty.")
    problems += [f"{where}: {what}: {name_list(lines, _SHOWN)}." for what, lines in wrong.items()]
    return tuple(rows), np.array(list(rows.values()), dtype=np.float64)


def _fault(row: Sequence[str], kind: str, before: Mapping[str, float]) -> str | None:
    """The problem of a row, or None."""
    if len(row) != 2:
        return "not a file name and a value"
    try:
        value = float(row[1])
    except ValueError:
        return _NO_NUMBER
    if not math.isfinite(value):
        return "not finite"
    if kind == DECISIONS and value not in (0, 1):
        return "neither 0 nor 1"
    return "a repeated clip" if stem_of(row[0].strip()) in before else None


def _require_clips(machine: str, names: Sequence[str], values: NDArray[np.generic]) -> None:
    if values.shape != (len(names),):
        raise InputError(
            f"Machine {machine!r} has {quantity(names, 'clip')} and values of shape {values.shape}."
        )
    if not len(names):
        raise InputError(f"Machine {machine!r} has no test clip to write scores of.")
    if len({stem_of(name) for name in names}) < len(names):
        raise InputError(f"Machine {machine!r} has test clips of the same name.")


def _write(
    folder: Path, key: tuple[str, str, str], names: Sequence[str], values: Iterable[str]
) -> Path:
    files: dict[Path, list[tuple[str, str]]] = defaultdict(list)
    for name, text in zip(names, values, strict=True):
        parsed = parse_name(name)
        of_2020_or_2021 = parsed and (parsed.label is None or parsed.domain == ONE_DOMAIN)
        domain = parsed.domain if parsed and of_2020_or_2021 else None
        path = Path(folder) / score_file_name(*key, domain)
        files[path].append((f"{stem_of(name)}.wav", text))
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(Path(folder), error) from None
    for path, rows in files.items():
        with atomic_write(path) as part, open(part, "w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)
    return next(iter(files))


@dataclass(frozen=True)
class MachineTruth:
    """Label and domain of one machine's test clips, by name without ending.

    ``others`` leads from the other names of a clip (those with label and attributes) to the
    one in ``clips``.
    """

    clips: Mapping[str, tuple[int, str]]
    others: Mapping[str, str]


def read_truth(
    truth: Path | str, *, year: int | None = None, oddities: list[str]
) -> dict[Key, MachineTruth]:
    """Labels and domains of all machines in a checkout of the official evaluator, or its list.

    Oddities are appended.
    """
    # The truth is given to the very clips it names: that checks its files against each other.
    known = inject_truth(truth_clips(truth, year), truth, oddities=oddities)
    if not known:
        raise DataError(f"{truth} has no ground_truth_<machine>_... file.")
    by_machine: dict[Key, dict[str, tuple[int, str]]] = defaultdict(dict)
    for clip in known:
        label_and_domain = cast(tuple[int, str], (clip.label, clip.domain))  # the truth has both
        by_machine[clip.machine, clip.section][stem_of(clip.path)] = label_and_domain
    others: dict[Key, dict[str, str]] = defaultdict(dict)
    for (machine, section, other), stems in labelled_names(truth).items():
        if other not in by_machine.get((machine, section), ()) and len(stems) == 1:
            others[machine, section][other] = next(iter(stems))
    return {key: MachineTruth(clips, others[key]) for key, clips in by_machine.items()}


def truth_in_names(names: Iterable[str]) -> MachineTruth | None:
    """Label and domain from the names of labelled clips; None where a name has none.

    >>> truth_in_names(["section_00_source_test_normal_0000_vel_8"]).clips
    {'section_00_source_test_normal_0000_vel_8': (0, 'source')}
    >>> truth_in_names(["section_00_0000"]) is None
    True
    """
    clips: dict[str, tuple[int, str]] = {}
    for name in names:
        parsed = parse_name(name)
        if parsed is None or parsed.label is None or parsed.domain is None:
            return None
        clips[name] = parsed.label, parsed.domain
    return MachineTruth(clips, {})


def values_by_clip(
    file: ScoreFile, truth: MachineTruth, problems: list[str]
) -> NDArray[np.float64] | None:
    """The values in the order of the truth's clips, by name; None where names do not fit."""
    rows: dict[str, int] = {}
    wrong: list[str] = []
    twice: list[str] = []
    for row, name in enumerate(file.names):
        stem = name if name in truth.clips else truth.others.get(name)
        if stem is None:
            wrong.append(name)
        elif stem in rows:
            twice.append(f"{file.names[rows[stem]]} = {name}")
        else:
            rows[stem] = row
    absent = [stem for stem in truth.clips if stem not in rows]
    for names, noun, what in (
        (wrong, "row", "with an unknown name"),
        (twice, "row", "of a clip that has another row"),
        (absent, "clip", "without a row"),
    ):
        if names:
            listed = name_list(names, _SHOWN)
            problems.append(f"{file.path.name}: {quantity(names, noun)} {what}: {listed}.")
    if wrong or twice or absent:
        return None
    return file.values[[rows[stem] for stem in truth.clips]]
