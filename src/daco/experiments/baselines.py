"""Systems from outside in E1: scores that others gave to the test clips of a study.

Each clip is found by its name, and the labels are the study's own. Nothing of it reaches a choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco.data.clips import stem_of
from daco.errors import DataError, InputError
from daco.evaluation.metrics import machine_metrics
from daco.experiments.autoencoders.scoretable import places_of, read_score_table
from daco.experiments.inputs import MachineData
from daco.experiments.machine import ORACLE
from daco.files.hashing import sha256_of_file
from daco.text import name_list, quantity

OWN = ("knn1", "sel-maha", "gmm2", ORACLE)
"""What a study calls its own rows of E1."""

Scores = dict[str, float]
Places = dict[tuple[str, str], dict[int | None, Scores]]


def baseline_rows(
    files: Sequence[Path], machines: Sequence[MachineData], years: Mapping[str, int | None]
) -> list[dict[str, Any]]:
    """Rows of E1 for the systems in `files`; machines without labels have none.

    A system may be there for the development machines alone or the evaluation machines alone, but
    for all of them and all their test clips.

    Parameters
    ----------
    files : sequence of Path
        Of :mod:`daco.experiments.autoencoders.scoretable`.
    machines : sequence of MachineData
    years : mapping
        The year of each split's data set, None where it is not known.
    """
    scores = _by_place(files)
    found = []
    for split in dict.fromkeys(machine.split for machine in machines):
        mine = [machine for machine in machines if machine.split == split and len(machine.names)]
        for system, places in scores.items():
            given = {machine.title: _of(places, machine, years.get(split)) for machine in mine}
            absent = [title for title, clips in given.items() if not clips]
            if len(absent) == len(mine):
                continue
            if absent:
                which = f"{quantity(absent, f'{split} machine')} out of {len(mine)}"
                raise DataError(
                    f"{_named(files)}: no score by {system} of {which} ({name_list(absent)}). Run "
                    "'daco baseline' on their recordings."
                )
            found += [(system, machine, _values(files, system, machine, given)) for machine in mine]
    if not found:
        raise DataError(
            f"{_named(files)}: not one score is of a machine of this study. Machines are found by "
            "their names, sections and years."
        )
    return [
        {
            "split": machine.split,
            "machine": machine.title,
            "backend": system,
            **_percent(machine_metrics(values, machine.labels, machine.test_domains)),
        }
        for system, machine, values in found
        if machine.labelled
    ]


def baseline_inputs(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Where those rows come from, for the run's provenance."""
    return [
        {
            "path": file.name,
            "sha256": sha256_of_file(file),
            "systems": list(read_score_table(file).systems),
        }
        for file in files
    ]


def _by_place(files: Sequence[Path]) -> dict[str, Places]:
    """Scores by system, machine and section, year, and the clip's name without its ending."""
    found: dict[str, Places] = {}
    for file in files:
        for (year, machine, section), rows in places_of(read_score_table(file).rows).items():
            for path, system, score in rows[["path", "system", "score"]].itertuples(index=False):
                if system in OWN:
                    raise InputError(
                        f"{file}: a system is called {system!r}, as a scorer of the study itself. "
                        "Give it another name."
                    )
                years = found.setdefault(system, {}).setdefault((machine, section), {})
                clips = years.setdefault(year, {})
                name = stem_of(path)
                if name in clips:
                    raise DataError(
                        f"{file}: {machine} {name} was scored by {system} in a file before. Give "
                        "each score once."
                    )
                clips[name] = float(score)
    return found


def _of(places: Places, machine: MachineData, year: int | None) -> Scores:
    """A machine's scores by clip; those of another year are another machine's."""
    by_year = places.get((machine.machine, machine.section), {})
    fitting = [clips for other, clips in by_year.items() if None in (year, other) or other == year]
    if len(fitting) > 1:
        raise InputError(
            f"There are scores of {machine.machine} of several years, and the study does not tell "
            "its own. Give the scores of one year."
        )
    return fitting[0] if fitting else {}


def _values(
    files: Sequence[Path], system: str, machine: MachineData, given: Mapping[str, Scores]
) -> NDArray[np.float64]:
    clips = given[machine.title]
    names = [stem_of(name) for name in machine.names.tolist()]
    absent = [name for name in names if name not in clips]
    if absent:
        raise DataError(
            f"{_named(files)}: no score by {system} of {quantity(absent, 'test clip')} of the "
            f"{machine.split} machine {machine.title} ({name_list(absent, 3)}). Run 'daco "
            "baseline' on the recordings that were embedded."
        )
    return np.array([clips[name] for name in names])


def _percent(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: 100 * value for name, value in metrics.items()}


def _named(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))
