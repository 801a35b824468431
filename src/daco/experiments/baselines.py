"""Scores of other systems in E1 of a study: score files of the challenge, or a Parquet table.

Clips are matched by name, the labels are the study's own, and no choice depends on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import stem_of
from daco.errors import DataError, InputError
from daco.evaluation.evaluate import find_systems
from daco.evaluation.metrics import machine_metrics
from daco.evaluation.scorefiles import SCORES, read_score_files
from daco.experiments.inputs import MachineData
from daco.experiments.machine import ORACLE
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

OWN = ("knn1", "sel-maha", "gmm2", ORACLE)
"""Names of the study's own scorers in E1."""

Scores = dict[str, float]
ByMachine = dict[tuple[str, str], dict[int | None, Scores]]

_COLUMNS = ("path", "machine", "system", "score")


def baseline_rows(
    sources: Sequence[Path], machines: Sequence[MachineData], years: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    """Rows of E1 for the systems in `sources`; machines without labels have none.

    A system must have scored all test clips of all development machines, of all evaluation
    machines, or both.

    Parameters
    ----------
    sources : sequence of Path
        Folders with the challenge's score files, one folder per system, or Parquet tables with
        the columns ``path``, ``machine``, ``system`` and ``score`` (and ``section``, ``year``).
    machines : sequence of MachineData
    years : mapping
        The year of each split's data set, None where it is not known.

    Returns
    -------
    list of dict
    """
    where = ", ".join(map(str, sources))
    by_system = _scores_by_system(sources)
    rows = []
    matched = False
    for split in dict.fromkeys(machine.split for machine in machines):
        own = [machine for machine in machines if machine.split == split and len(machine.names)]
        for system, by_machine in by_system.items():
            scores = {m.title: _scores_of(by_machine, m, years.get(split)) for m in own}
            absent = [title for title, clips in scores.items() if not clips]
            if len(absent) == len(own):
                continue
            if absent:
                raise DataError(
                    f"{where}: no score by {system} of {quantity(absent, f'{split} machine')} out "
                    f"of {len(own)} ({name_list(absent)}). Score all of them."
                )
            matched = True
            for machine in own:
                values = _values(where, system, machine, scores[machine.title])
                if machine.labelled:
                    metrics = machine_metrics(values, machine.labels, machine.test_domains)
                    percent = {name: 100 * value for name, value in metrics.items()}
                    place = {"split": split, "machine": machine.title, "backend": system}
                    rows.append({**place, **percent})
    if not matched:
        raise DataError(
            f"{where}: not one score is of a machine of this study. Machines are matched by name, "
            "section and year."
        )
    return rows


def baseline_inputs(sources: Sequence[Path]) -> list[dict[str, Any]]:
    """Name, hash and systems of each source, for the provenance of a run."""
    return [
        {
            "path": source.name,
            "sha256": _hash_of(source),
            "systems": list(dict.fromkeys(system for system, *_ in _read_source(source))),
        }
        for source in sources
    ]


def _hash_of(source: Path) -> str:
    """SHA-256 of a file, or of the names and hashes of a folder's score files."""
    if source.is_file():
        return sha256_of_file(source)
    files = sorted(source.rglob(f"{SCORES}_*.csv"))
    lines = [f"{file.relative_to(source).as_posix()} {sha256_of_file(file)}\n" for file in files]
    return sha256_of_bytes("".join(lines).encode())


def _scores_by_system(sources: Sequence[Path]) -> dict[str, ByMachine]:
    """Scores by system, machine and section, year, and the clip's name without its ending."""
    by_system: dict[str, ByMachine] = {}
    for source in sources:
        for system, machine, section, year, scores in _read_source(source):
            if system in OWN:
                raise InputError(
                    f"{source}: a system is called {system!r}, as a scorer of the study itself. "
                    "Give it another name."
                )
            by_year = by_system.setdefault(system, {}).setdefault((machine, section), {})
            clips = by_year.setdefault(year, {})
            twice = next((name for name in scores if name in clips), None)
            if twice is not None:
                raise DataError(
                    f"{source}: {machine} {twice} was scored by {system} before. Give each score "
                    "once."
                )
            clips.update(scores)
    return by_system


def _read_source(source: Path) -> Iterator[tuple[str, str, str, int | None, Scores]]:
    """System, machine, section, year and scores by clip, one machine after the other."""
    if not source.is_dir():
        yield from _read_table(source)
        return
    folders = find_systems(source)
    if not folders:
        raise DataError(
            f"{source} has no score file. Their names are {SCORES}_<machine>_section_00_test.csv, "
            "in one folder per system."
        )
    for folder in folders:
        for file in read_score_files(folder):
            if file.kind == SCORES:
                scores = dict(zip(file.names, file.values.tolist(), strict=True))
                yield folder.resolve().name, file.machine, file.section, file.year, scores


def _read_table(path: Path) -> Iterator[tuple[str, str, str, int | None, Scores]]:
    import pandas as pd

    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's errors are ValueErrors
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} is neither a folder nor a Parquet table: {reason}") from None
    absent = [name for name in _COLUMNS if name not in table]
    if absent:
        raise DataError(f"{path} is no table of scores: no column {name_list(map(repr, absent))}.")
    table = table.assign(section=table.get("section", "00"), year=table.get("year", None))
    _require_scores(table, path)
    table["clip"] = table["path"].map(stem_of)
    keys = ["system", "machine", "section", "year"]
    for key, part in table.groupby(keys, sort=False, dropna=False):
        system, machine, section, year = cast(tuple[str, str, str, Any], key)
        if part["clip"].duplicated().any():
            clips = part.loc[part["clip"].duplicated(), "path"]
            raise DataError(f"{path}: clips more than once by {system}: {name_list(clips, 3)}.")
        scores = dict(zip(part["clip"], part["score"].astype(float), strict=True))
        yield system, machine, section, None if pd.isna(year) else int(year), scores


def _require_scores(table: pd.DataFrame, path: Path) -> None:
    import pandas as pd

    for name in ("path", "machine", "system", "section"):
        if not table[name].map(lambda value: isinstance(value, str)).all():
            raise DataError(f"{path}: column {name!r} must hold text.")
    finite = np.isfinite(pd.to_numeric(table["score"], errors="coerce").to_numpy(dtype=float))
    if not finite.all():
        clips = table.loc[~finite, "path"]
        raise DataError(
            f"{path}: {quantity(len(clips), 'score')} missing or not finite: {name_list(clips, 3)}."
        )


def _scores_of(by_machine: ByMachine, machine: MachineData, year: int | None) -> Scores:
    """A machine's scores by clip; scores of another year belong to another machine."""
    by_year = by_machine.get((machine.machine, machine.section), {})
    fitting = [clips for other, clips in by_year.items() if None in (year, other) or other == year]
    if len(fitting) > 1:
        raise InputError(
            f"There are scores of {machine.machine} of several years, and the study does not state "
            "its own. Give the scores of one year."
        )
    return fitting[0] if fitting else {}


def _values(
    where: str, system: str, machine: MachineData, clips: Mapping[str, float]
) -> NDArray[np.float64]:
    names = [stem_of(name) for name in machine.names.tolist()]
    absent = [name for name in names if name not in clips]
    if absent:
        raise DataError(
            f"{where}: no score by {system} of {quantity(absent, 'test clip')} of the "
            f"{machine.split} machine {machine.title} ({name_list(absent, 3)})."
        )
    return np.array([clips[name] for name in names])
