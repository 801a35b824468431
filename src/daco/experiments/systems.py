"""Scores of other systems as columns of a study, matched by the names of clips.

A system with held-out scores of the normals becomes candidates ``ext-<name>``, as a detector does.
One without is compared only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.errors import DataError
from daco.evaluation.system_scores import match_names, read_system
from daco.experiments.grids import system_base
from daco.experiments.machine_data import MachineData
from daco.text import name_list
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

Systems = Mapping[str, Path | str]
"""What :func:`daco.evaluation.system_scores.read_system` reads, by name."""


def read_systems(systems: Systems) -> dict[str, pd.DataFrame]:
    """Read the scores of each system; errors name its file."""
    for name in systems:
        system_base(name)
    return {name: read_system(path) for name, path in systems.items()}


def has_normals(table: pd.DataFrame) -> bool:
    """Whether a system has scores of normals, so that it can be calibrated."""
    return bool((table["split"] == "train").any())


def with_systems(
    machines: Sequence[MachineData], tables: Mapping[str, pd.DataFrame], notes: list[str]
) -> list[MachineData]:
    """The machines with their scores by each system.

    A system that is compared only may have no scores of one of the sets, which `notes` tells. Any
    other missing score is an error.
    """
    found: list[dict[str, tuple[Float64s | None, Float64s]]] = [{} for _ in machines]
    if any(map(has_normals, tables.values())):
        notes.append(
            "The label-free veto does not judge other systems, which have no scores of "
            "pseudo-anomalies."
        )
    for name, table in tables.items():
        groups = dict(list(table.groupby(["machine", "section", "split"])))
        absent = [each for each in machines if (each.machine, each.section, "test") not in groups]
        absent = [each for each in absent if len(each.clips)]
        sets = {each.set for each in absent}
        in_part = any(each.set in sets and each not in absent for each in machines)
        if absent and (in_part or has_normals(table) or len(absent) == len(machines)):
            raise DataError(
                f"System {name!r} has no scores of {name_list(each.where for each in absent)}. "
                "Machines are matched by name and section."
            )
        notes += [f"System {name!r} has no scores of the {each} machines." for each in sets]
        for data, systems in zip(machines, found, strict=True):
            where = f"System {name!r}, {data.where}: the table"
            if data in absent:
                systems[name] = None, np.full(len(data.clips), np.nan)
                continue
            normals = _scores(groups, data, "train", where) if has_normals(table) else None
            systems[name] = normals, _scores(groups, data, "test", where)
    return [replace(each, systems=own) for each, own in zip(machines, found, strict=True)]


def _scores(groups: Mapping[Any, Any], data: MachineData, split: str, where: str) -> Float64s:
    """Scores of a machine's clips of a split, in their order."""
    names = (data.normals if split == "train" else data.clips).tolist()
    rows = groups.get((data.machine, data.section, split))
    if not names:
        return np.empty(0)
    if rows is None:
        raise DataError(f"{where} has no scores of its normals.")
    return np.asarray(rows["score"].to_numpy(float)[match_names(names, rows["clip"], where)])
