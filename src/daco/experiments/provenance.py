"""Provenance of a run: its inputs, settings and versions, with hashes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from daco.data.lazy_table import StoredTable
from daco.data.table import EmbeddingTable
from daco.embedding.cost import read_cost
from daco.experiments.inputs import DomainNames, Source, Table
from daco.experiments.machine import Settings
from daco.experiments.study_tables import DOCUMENTS, OPTIONAL_TABLES, REQUIRED_TABLES
from daco.files.hashing import sha256_of_file
from daco.files.remote import parse_location
from daco.method.config import DEFAULT_CONFIG
from daco.version import __version__

SCHEMA = 1
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow")


def embedding_costs(sources: Mapping[str, Source | None]) -> list[dict[str, Any]]:
    """What the embedding of each table took, where it was noted beside the table."""
    found = []
    for role, source in sources.items():
        cost = None if source is None or isinstance(source, EmbeddingTable) else read_cost(source)
        if cost is not None:
            found.append({"role": role, **cost})
    return found


def provenance_of(
    tables: Mapping[str, Table],
    sources: Mapping[str, Source | None],
    names: DomainNames,
    settings: Settings,
    readout: str | None,
    false_alarm_rate: float,
    veto: str = "dev",
) -> dict[str, Any]:
    """Where a study's numbers come from: inputs and their hashes, settings, versions."""
    inputs = []
    for role, table in tables.items():
        source = sources[role]
        path = (
            None if source is None or isinstance(source, EmbeddingTable) else parse_location(source)
        )
        if isinstance(table, StoredTable):
            table.require_unchanged()  # or the hash would be of other vectors than the results
        inputs.append(
            {
                "role": role,
                "path": None if path is None else path.name,
                "sha256": None if path is None else sha256_of_file(path),
                "n_clips": len(table),
                "machines": list(table.machines),
                "metadata": dict(table.metadata),
            }
        )
    return {
        "schema": SCHEMA,
        "daco_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": inputs,
        "grid": list(settings.configs),
        "default": DEFAULT_CONFIG,
        "readout": readout or tables["dev"].readouts[0],
        "seed": settings.seed,
        "n_splits": settings.n_splits,
        "false_alarm_rate": false_alarm_rate,
        "veto": veto,
        "domains": {"source": names.source, "target": names.target},
        "versions": {"python": platform.python_version(), **_versions()},
        "platform": f"{platform.system()} {platform.machine()}",
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def artifact_hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of the tables and documents that results rest on."""
    files = [*REQUIRED_TABLES.values(), *OPTIONAL_TABLES.values()]
    files += [DOCUMENTS["selection"], DOCUMENTS["stats"]]
    return {name: sha256_of_file(folder / name) for name in files if (folder / name).is_file()}
