"""What there is: configurations, families, machines, clips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from daco.paper.artifacts import (
    BACKBONES,
    RELEASED,
    ArtifactError,
    Artifacts,
    clips,
    grid,
    machines,
    read_json,
)
from daco.paper.correlations import families_of
from daco.paper.experiments import DEV, EVAL
from daco.paper.recipe import Recomputed, number, recipe

MANIFEST = "release/manifest.json"

_ENTRIES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "k": lambda entry: entry["k"] if entry["base"] == "knn" else None,
    "m": lambda entry: entry["prior_strength"] if entry["method"] == "conformal" else None,
    "K": lambda entry: entry["density_K"] or None,
}


def manifest(artifacts: Artifacts) -> list[dict[str, Any]]:
    """The authors' list of configurations."""
    entries = read_json(artifacts, MANIFEST)
    fields = {"name", "base", "k", "method", "prior_strength", "density_K"}
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and fields <= entry.keys() for entry in entries
    ):
        raise ArtifactError(MANIFEST, "is not a list of configurations")
    return entries


@recipe
def manifest_values(artifacts: Artifacts, which: str) -> Recomputed:
    """The different values of k, of m or of K over all configurations."""
    found = {_ENTRIES[which](entry) for entry in manifest(artifacts)} - {None}
    return Recomputed(tuple(float(value) for value in sorted(found)))


@recipe
def configurations(artifacts: Artifacts, setting: str, family: str = "") -> Recomputed:
    """Configurations of a grid, or of those the conformal ones."""
    table = grid(artifacts, setting)
    kinds = families_of(table)
    return number(np.sum(np.char.startswith(kinds, "conf")) if family else len(table))


@recipe
def families(artifacts: Artifacts, setting: str) -> Recomputed:
    """Method families of a grid."""
    return number(len(np.unique(families_of(grid(artifacts, setting)))))


@recipe
def backbones(artifacts: Artifacts) -> Recomputed:
    """Backbones with a grid of their own."""
    return number(sum(len(grid(artifacts, setting)) > 0 for setting in BACKBONES))


@recipe
def machines_of(artifacts: Artifacts, setting: str, split: str) -> Recomputed:
    """Machines of a split, or of both."""
    splits = ("dev", "eval") if split == "all" else (split,)
    return number(sum(machines(artifacts, setting, s)["machine"].nunique() for s in splits))


@recipe
def clips_per_machine(artifacts: Artifacts, which: str) -> Recomputed:
    """Test clips of each machine; normal and anomalous ones where the names tell (dev)."""
    counts = set()
    for split, names in (("dev", DEV), ("eval", EVAL)):
        for machine in names:
            found = clips(artifacts, RELEASED[0], split, machine)
            if which == "all":
                counts.add(len(found.names))
            elif split == "dev":
                counts.add(int(np.sum(found.labels == (which == "anomaly"))))
    # one number is printed for all machines
    return Recomputed(tuple(float(count) for count in sorted(counts)))
