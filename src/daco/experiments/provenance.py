"""What a run rests on: its inputs, settings and versions, for ``run.json``."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any

from daco.data.lazy_table import StoredTable
from daco.data.table import EmbeddingTable
from daco.embedding.cost import read_cost
from daco.experiments.inputs import Source, Table
from daco.experiments.machine import Settings
from daco.files.hashing import sha256_of_file
from daco.files.remote import parse_location
from daco.method.config import PAPER_CONFIG
from daco.version import __version__

SCHEMA = 1
_PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pandas", "pyarrow")


def run_facts(
    settings: Settings,
    tables: Mapping[str, Table],
    sources: Mapping[str, Source | None],
) -> dict[str, Any]:
    """Inputs by role, grid, seed and versions of a run."""
    facts = {
        "schema": SCHEMA,
        "daco_version": __version__,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "inputs": [_input_facts(role, table, sources[role]) for role, table in tables.items()],
        "grid": list(settings.configs),
        "default": PAPER_CONFIG,
        "seed": settings.seed,
        "n_splits": settings.n_splits,
        "versions": {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES},
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if settings.detectors:
        facts["scorers"] = {label: repr(each) for label, each in settings.detectors.items()}
    return facts


def embedding_costs(sources: Mapping[str, Source | None]) -> list[dict[str, Any]]:
    """What the embedding of each table took, where it was noted beside the table."""
    found = []
    for role, source in sources.items():
        cost = None if source is None or isinstance(source, EmbeddingTable) else read_cost(source)
        if cost is not None:
            found.append({"role": role, **cost})
    return found


def _input_facts(role: str, table: Table, source: Source | None) -> dict[str, Any]:
    path = None
    if source is not None and not isinstance(source, EmbeddingTable):
        path = parse_location(source)
    if isinstance(table, StoredTable):
        table.require_unchanged()  # or the hash would be of other vectors than the results
    return {
        "role": role,
        "path": path and path.name,
        "sha256": path and sha256_of_file(path),
        "n_clips": len(table),
        "machines": list(table.machines),
        "metadata": dict(table.metadata),
    }
