"""What a run rests on: its inputs with hashes, versions, and what is missing."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from daco.data.table import EmbeddingTable
from daco.experiments.inputs import Source
from daco.experiments.machine_data import SET_NAMES, MachineData
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.files.remote import parse_location
from daco.text import name_list, quantity

_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow")
_LOST = {
    "dev": "development scores, and with them the veto of broken configurations, are missing.",
    "eval": "evaluation scores are missing. Pass the ground truth when it is published.",
}


def platform_facts() -> dict[str, str]:
    """System and versions."""
    system = f"{platform.system()} {platform.machine()}"
    packages = {name: version(name) for name in _PACKAGES}
    return {"system": system, "python": platform.python_version(), **packages}


def input_facts(
    tables: Mapping[str, EmbeddingTable],
    sources: Mapping[str, Source | None],
    faults: Sequence[Source],
    truth: Path | str | None,
    systems: Mapping[str, Path | str],
) -> list[dict[str, Any]]:
    """Tables by role, with hashes of their files."""
    rows = []
    for role, table in tables.items():
        for vectors in table.stored():
            vectors.require_unchanged()  # or the hash would be of other vectors than the results
        row = _file(role, role, sources[role])
        row |= {"n_clips": len(table), "metadata": dict(table.metadata)}
        rows.append(row)
    rows += [_file("faults", f"faults {at}", each) for at, each in enumerate(faults, 1)]
    if truth is not None:
        rows.append({"role": "truth", "name": "truth", "path": Path(truth).name, "sha256": None})
    rows += [_file("system", name, Path(path).expanduser()) for name, path in systems.items()]
    return rows


def _file(role: str, name: str, source: Source | None) -> dict[str, Any]:
    """Name and hash of a table's file; that of a folder is of its files' hashes."""
    facts: dict[str, Any] = {"role": role, "name": name, "path": None, "sha256": None}
    if source is None or isinstance(source, EmbeddingTable):
        return facts
    path = parse_location(source)
    if isinstance(path, Path) and path.is_dir():
        files = sorted(each for each in path.iterdir() if each.suffix in (".csv", ".parquet"))
        digest = sha256_of_bytes("".join(map(sha256_of_file, files)).encode())
    else:
        digest = sha256_of_file(path)
    return facts | {"path": path.name, "sha256": digest}


def leaked_clips(data: MachineData) -> list[str]:
    """A sentence about test clips whose vector is that of a normal, if there are any."""
    known = {row.tobytes() for row in data.X}
    copies = sum(row.tobytes() in known for row in data.X_test)
    if not copies:
        return []
    return [
        f"{data.where}: {quantity(copies, 'test clip')} with the same vector as a training clip. "
        "Scores of such clips mean nothing: remove them."
    ]


def missing_parts(machines: Sequence[MachineData], has_eval: bool) -> list[str]:
    """Sentences about what could not be computed, and why."""
    sentences = []
    if not any(machine.balanced for machine in machines):
        sentences.append(
            "The machines have one domain: there is no balance criterion, and nothing to choose by "
            "it."
        )
    if not has_eval:
        sentences.append(
            "No evaluation machines were given, so there is no transfer to measure. Pass an eval "
            "table."
        )
    for which, word in SET_NAMES.items():
        mine = [machine for machine in machines if machine.set == which]
        without = [machine.title for machine in mine if not machine.labelled]
        if without:
            others = len(mine) - len(without)
            rest = f"official scores are over the other {others}." if others else _LOST[which]
            named = f"{quantity(without, f'{word} machine')} ({name_list(without, 4)})"
            sentences.append(f"{named} without complete labels: {rest}")
    return sentences
