"""Score and decision files of the challenge: ``name.wav,value``, one row per clip, no header.

``anomaly_score_<machine>_section_<n>_test.csv`` has scores, ``decision_result_...`` a 1 for an
anomalous clip and a 0 for any other. Files of 2020 end in ``_id_<n>.csv``; 2021 has one file for
each domain. ``..._train.csv`` has scores of held-out normals. The baseline's names are read, too.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daco.data.clips import ONE_DOMAIN, stem_of
from daco.data.dcase import parse_name
from daco.errors import DataError, InputError
from daco.evaluation.metrics import RULES
from daco.files.atomic import atomic_write, write_error
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

SCORES = "anomaly_score"
DECISIONS = "decision_result"

_COLUMNS = ["kind", "machine", "section", "split", "year", "file", "name", "value"]
_NAME = re.compile(
    rf"({SCORES}|{DECISIONS})_(?:DCASE(20\d\d)T2)?(.+)_section_(\d+)"
    r"(?:_(source|target))?_(train|test)(?:_seed\d+.*)?\.csv"
)
_NAME_OF_2020 = re.compile(rf"({SCORES}|{DECISIONS})_(.+)_id_(\d\d)\.csv")
_NO_NUMBER = "not a number"
_MACHINE = re.compile(r"[^/\\\x00-\x1f]+")


class FileName(NamedTuple):
    """What the name of a file says; ``domain`` is in those of 2021, ``year`` in some."""

    kind: str
    machine: str
    section: str
    split: str = "test"
    year: int | None = None
    domain: str | None = None


def score_file_name(
    machine: str, section: str = "00", kind: str = SCORES, domain: str | None = None
) -> str:
    """The challenge's name of a score or decision file.

    `domain` is in names until 2021: ``all``, and the section is an id of 2020, or that of a file of
    2021.

    >>> score_file_name("fan", "01", DECISIONS), score_file_name("fan", "02", domain="all")
    ('decision_result_fan_section_01_test.csv', 'anomaly_score_fan_id_02.csv')
    """
    if not _MACHINE.fullmatch(machine) or not section.isdecimal():
        raise InputError(
            f"Machine {machine!r}, section {section!r} cannot be in a file's name. A section is "
            "a number such as 00."
        )
    year = 2020 if domain == ONE_DOMAIN else 2021 if domain else max(RULES)
    return RULES[year].files.format(kind=kind, machine=machine, section=section, domain=domain)


def machine_title(machine: str, section: str, alone: bool = True) -> str:
    """A machine's name, and its section unless that is the usual and only one."""
    if alone:
        return machine if section == "00" else f"{machine} section {section}"
    return f"{machine} {section}"


def parse_file_name(name: str) -> FileName | None:
    """What the name of a score or decision file says; None for other files."""
    if match := _NAME_OF_2020.fullmatch(name):
        return FileName(match[1], match[2], match[3], year=2020)
    if match := _NAME.fullmatch(name):
        kind, digits, machine, section, domain, split = match.groups()
        year = int(digits) if digits else 2021 if domain else None
        return FileName(kind, machine, section, split, year, domain)
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
    return _write(folder, (machine, section, SCORES), names, scores)


def write_decisions(
    folder: Path, machine: str, section: str, names: Sequence[str], decisions: ArrayLike
) -> Path:
    """Write a decision file as `write_scores` does; 1 or True is an anomalous clip."""
    return _write(folder, (machine, section, DECISIONS), names, decisions)


def _write(folder: Path, key: tuple[str, str, str], names: Sequence[str], given: ArrayLike) -> Path:
    machine, _, kind = key
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (len(names),) or not len(names):
        raise InputError(
            f"Machine {machine!r} has {quantity(names, 'clip')} and values of shape {values.shape}."
        )
    valid = np.isfinite(values) if kind == SCORES else np.isin(values, [0, 1])
    if not valid.all():
        at = int(np.argmin(valid))
        wanted = "a finite score" if kind == SCORES else "a decision, 1 (anomalous) or 0 (normal)"
        raise InputError(f"Machine {machine!r}: {names[at]} has {values[at]:g}, not {wanted}.")
    if len({stem_of(name) for name in names}) < len(names):
        raise InputError(f"Machine {machine!r} has test clips of the same name.")
    files: dict[Path, list[tuple[str, str]]] = defaultdict(list)
    for name, value in zip(names, values.tolist(), strict=True):
        parsed = parse_name(name)
        of_2020_or_2021 = parsed and (parsed.label is None or parsed.domain == ONE_DOMAIN)
        domain = parsed.domain if parsed and of_2020_or_2021 else None
        text = repr(value) if kind == SCORES else f"{value:.0f}"
        files[Path(folder) / score_file_name(*key, domain)].append((f"{stem_of(name)}.wav", text))
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_error(Path(folder), error) from None
    for path, rows in files.items():
        with atomic_write(path) as part, open(part, "w", encoding="utf-8", newline="") as out:
            csv.writer(out, lineterminator="\n").writerows(rows)
    return next(iter(files))


def read_score_files(folder: Path | str, problems: list[str]) -> pd.DataFrame:
    """Read the score and decision files of a folder into one table; skip other files.

    The result has one row per row of a file: ``kind, machine, section, split, year, file, name,
    value``; names of clips are without ``.wav``. A file with problems is left out, and a sentence
    about each is appended to `problems`.
    """
    import pandas as pd

    folder = Path(folder)
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix == ".csv")
    except OSError as error:
        raise DataError(
            f"{folder} cannot be read as a folder ({error.strerror}). Give a folder of score files."
        ) from None
    usual = score_file_name("<machine>")
    paths = [path for path in paths if path.name.startswith((SCORES, DECISIONS))]
    if not paths:
        raise DataError(f"There is no score file in {folder}. Their names are {usual}.")
    rows: list[tuple[Any, ...]] = []
    read: dict[FileName, str] = {}
    for path in paths:
        name, before = parse_file_name(path.name), len(problems)
        if name is None:
            problems.append(f"{path.name}: the machine is unknown, as the name is not {usual}.")
            continue
        for twin, other in read.items():
            one_domain_each = twin.domain and name.domain and twin.domain != name.domain
            if twin[:4] == name[:4] and not one_domain_each:
                problems.append(f"{path.name}: the same section as in {other}. Keep one of them.")
        try:
            values = _parse_rows(path.read_text("utf-8"), name.kind, path.name, problems)
        except (OSError, UnicodeDecodeError) as error:
            problems.append(f"{path.name} cannot be read: {error}.")
        if len(problems) == before:
            read[name] = path.name
            rows += [(*name[:5], path.name, clip, value) for clip, value in values.items()]
    return pd.DataFrame(rows, columns=_COLUMNS)


def _parse_rows(text: str, kind: str, where: str, problems: list[str]) -> dict[str, float]:
    """The values of a file's text by clip, without ``.wav``; problems are appended."""
    rows: dict[str, float] = {}
    wrong: dict[str, list[str]] = defaultdict(list)
    reader = csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline=""))
    try:
        for row in filter(None, reader):
            fault = _fault(row, kind, rows)
            if fault is None:
                rows[stem_of(row[0].strip())] = float(row[1])
                continue
            if fault == _NO_NUMBER and not rows and not wrong:
                fault += " (these files have no header)"
            wrong[fault].append(f"line {reader.line_num} ({','.join(row)[:60]})")
    except csv.Error as error:
        wrong["unreadable"].append(f"line {reader.line_num} ({error})")
    if not rows and not wrong:
        problems.append(f"{where}: empty.")
    problems += [f"{where}: {what}: {name_list(lines)}." for what, lines in wrong.items()]
    return rows


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
