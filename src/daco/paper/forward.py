"""After the paper: the frozen forward test of 2026, and what was frozen."""

from __future__ import annotations

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.grid_table import pivot_machines
from daco.paper.artifacts import Artifacts, frozen_grid, grid, machines
from daco.paper.artifacts import sha256 as hash_of
from daco.paper.choices import config_of
from daco.paper.recipe import Recomputed, named, number, recipe
from daco.paper.scores import rounding_error


@recipe
def frozen_pick(artifacts: Artifacts, policy: str) -> Recomputed:
    """Guarded selection from the frozen table, which has no evaluation scores."""
    return named(config_of(artifacts, policy, "frozen-pick"))


@recipe
def frozen_value(artifacts: Artifacts, policy: str, column: str) -> Recomputed:
    """Dev score or criterion of the frozen pick, from the frozen table of machines."""
    pick = config_of(artifacts, policy, "frozen-pick")
    table = machines(artifacts, policy, "dev")
    _, _, values = pivot_machines(table, [*QUANTITIES, "balance_ks"], configs=[pick])
    metrics, balance = values[:, 0, :3], values[:, 0, 3]
    if column == "crit_dev":
        return number(balance.mean(), 0.00005)  # each has four decimals
    return number(harmonic_mean(metrics), rounding_error(metrics))


@recipe
def sha256(artifacts: Artifacts, file: str) -> Recomputed:
    """The hash of a frozen file as it is now."""
    return named(hash_of(artifacts, f"results/{file}"))


@recipe
def changed_after_freezing(artifacts: Artifacts) -> Recomputed:
    """Dev scores and criteria that the 2026 grid has otherwise than the frozen one."""
    changed = 0
    for policy in ("ch0", "mix"):
        columns = ["dev_omega", "crit_dev"]
        frozen = frozen_grid(artifacts, policy).set_index("config")[columns]
        later = grid(artifacts, policy).set_index("config")[columns]
        changed += int(np.sum(frozen.sort_index().to_numpy() != later.sort_index().to_numpy()))
    return number(changed)
