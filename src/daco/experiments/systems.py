"""Scores of other systems as candidates of a study: base scores ``ext-<label>``.

Their tables have held-out scores of the normals and scores of the test clips, matched by names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from daco.evaluation.score_tables import ScoreTable, match_names, read_score_table
from daco.experiments.inputs import MachineData
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.validation import Float64s

Systems = Mapping[str, Path | str]
"""Tables as :func:`daco.evaluation.score_tables.read_score_table` reads them, by label."""


def with_systems(machines: Sequence[MachineData], systems: Systems) -> list[MachineData]:
    """The machines with their scores by each system; a missing score is an error."""
    tables = {label: read_score_table(path) for label, path in systems.items()}
    return [
        replace(each, systems={label: _scores_of(table, each) for label, table in tables.items()})
        for each in machines
    ]


def _scores_of(table: ScoreTable, machine: MachineData) -> tuple[Float64s, Float64s]:
    """Scores of the normals and of the test clips, in the order of the machine's."""
    parts = table.machine(machine.machine, machine.section)
    where = f"{table.path}, {machine.split} machine {machine.title}: the table"
    own, test = (
        part["score"].to_numpy(float)[match_names(names, part["path"], where) if names else []]
        for names, part in zip((machine.normals, machine.names.tolist()), parts, strict=True)
    )
    return own, test


def system_inputs(systems: Systems) -> list[dict[str, Any]]:
    """Tables with their hashes, for the provenance of a run."""
    rows = []
    for label, path in systems.items():
        file = Path(path).expanduser()
        hashes = [sha256_of_file(each) for each in sorted(file.glob("*.csv")) or [file]]
        digest = sha256_of_bytes("".join(hashes).encode())
        rows.append({"system": label, "files": len(hashes), "sha256": digest})
    return rows
