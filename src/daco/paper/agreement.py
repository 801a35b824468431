"""Whether the artifacts agree with each other: counts of values that contradict a lower level.

Clip scores make metrics, metrics make scores, scores and criteria make the grid. A value that
was changed in one file does not follow from the next one any more, whether or not the paper
prints a figure that rests on it.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.grid_table import pivot_machines
from daco.paper.artifacts import (
    BACKBONES,
    RELEASED,
    SETTINGS,
    Artifacts,
    grid,
    machines,
    read_table,
    whole,
)
from daco.paper.choices import config_of
from daco.paper.counts import manifest
from daco.paper.experiments import (
    BACKENDS,
    DEV,
    clip_rates,
    published_rates,
)
from daco.paper.recipe import Recomputed, contradictions, recipe
from daco.paper.scores import HALF_DIGIT, clip_metrics, rounding_error
from daco.validation import Float64s

_SLACK = 1e-9  # decimals are not binary
_VARIANTS = {
    "raw": "raw-k1",
    **{f"daco-m{m}": f"conf-soft-m{m}-k1" for m in (0, 10, 30, 100, 300)},
    "ratio-soft": "ratio-soft-k1",
}
_ORACLE = "daco-m30-orc"  # reads the true domains: in no grid


def _far(ours: Float64s, theirs: Float64s) -> bool:
    """Whether metrics of two decimals cannot be the rounded ones."""
    return bool((np.abs(ours - theirs) > HALF_DIGIT + _SLACK).any())


@recipe
def contradicted_metrics(artifacts: Artifacts) -> Recomputed:
    """Dev machines whose metrics the released clip scores contradict, in either table."""
    wrong = []
    for setting in ("45", "beats"):
        configs = [name for name in RELEASED if name in set(grid(artifacts, setting)["config"])]
        names, _, values = pivot_machines(
            machines(artifacts, setting, "dev"), QUANTITIES, configs=configs
        )
        for (i, machine), (j, config) in product(enumerate(names), enumerate(configs)):
            if _far(clip_metrics(artifacts, config, machine), values[i, j]):
                wrong.append(f"{SETTINGS[setting].machines}: {machine} {config}")
    return contradictions(wrong)


@recipe
def contradicted_dev_scores(artifacts: Artifacts) -> Recomputed:
    """Dev scores of four decimals that the released clip scores contradict."""
    wrong = []
    for setting in ("45", "beats"):
        scores = grid(artifacts, setting).set_index("config")["dev_omega"]
        for config in set(RELEASED) & set(scores.index):
            metrics = np.array([clip_metrics(artifacts, config, machine) for machine in DEV])
            if abs(harmonic_mean(metrics) - scores[config]) > 0.00005 + _SLACK:
                wrong.append(f"{SETTINGS[setting].grid}: {config}")
    return contradictions(sorted(wrong))


@recipe
def contradicted_grid(artifacts: Artifacts, setting: str) -> Recomputed:
    """Scores and criteria of a grid that do not follow from its machines."""
    table = grid(artifacts, setting).set_index("config")
    wrong = []
    for split in ("dev", "eval"):
        columns = [*QUANTITIES, "balance_ks"]
        _, configs, values = pivot_machines(machines(artifacts, setting, split), columns)
        told = table.loc[configs, [f"{split}_omega", f"crit_{split}"]].to_numpy()
        for j, (config, (score, criterion)) in enumerate(zip(configs, told, strict=True)):
            metrics, balance = values[:, j, :3], values[:, j, 3]
            if abs(harmonic_mean(metrics) - score) > rounding_error(metrics) + 0.00005:
                wrong.append(f"{config}: {split}_omega {score}")
            # both the mean and what is averaged have four decimals
            if abs(balance.mean() - criterion) > 0.0001 + _SLACK:
                wrong.append(f"{config}: crit_{split} {criterion}")
    return contradictions(wrong)


@recipe
def differing_grids(artifacts: Artifacts) -> Recomputed:
    """Configurations that the transfer grid and the extended grid do not have alike."""
    small, large = (grid(artifacts, s).set_index("config") for s in ("45", "beats"))
    same = (small == large.loc[small.index, small.columns]).all(axis=1)
    return contradictions([str(name) for name in small.index[~same]])


@recipe
def differing_manifest(artifacts: Artifacts) -> Recomputed:
    """Configurations in the manifest or in the extended grid, but not in both."""
    listed = {str(entry["name"]) for entry in manifest(artifacts)}
    return contradictions(sorted(listed ^ set(grid(artifacts, "beats")["config"])))


@recipe
def contradicted_experiments(artifacts: Artifacts) -> Recomputed:
    """Values of E1 and E2 that the transfer study's machines have otherwise."""
    table = machines(artifacts, "45", "dev")
    wrong = []
    for file, column, rows, same in (
        ("e1_dev.csv", "backend", BACKENDS, {"knn1": "raw-k1"}),
        ("e2_dev.csv", "variant", (*_VARIANTS, _ORACLE), _VARIANTS),
    ):
        found = read_table(artifacts, file, ("machine", column), QUANTITIES)
        keys = list(zip(found["machine"], found[column], strict=True))
        whole(file, "rows", keys, list(product(DEV, rows)))
        names, configs, values = pivot_machines(
            table, QUANTITIES, configs=list(dict.fromkeys(same.values()))
        )
        for (machine, row), theirs in zip(keys, found[list(QUANTITIES)].to_numpy(), strict=True):
            if row in same:
                ours = values[names.index(machine), configs.index(same[row])]
                if (np.abs(ours - theirs) > _SLACK).any():
                    wrong.append(f"{file}: {machine} {row}")
    return contradictions(wrong)


@recipe
def contradicted_coverage(artifacts: Artifacts) -> Recomputed:
    """Dev false-alarm rates that the released clip scores contradict."""
    ours = clip_rates(artifacts)
    theirs = published_rates(artifacts).loc[list(ours.index), list(ours.columns)]
    # rates are multiples of 1/50
    wrong = np.abs(ours.to_numpy() - theirs.to_numpy()).max(axis=1) > 0.001
    return contradictions([f"{machine} at {level}" for _, level, machine in ours.index[wrong]])


@recipe
def contradicted_thresholds(artifacts: Artifacts) -> Recomputed:
    """Published picks of the threshold veto, or their scores, that come out otherwise."""
    file = "e45_guarded_selection.csv"
    table = read_table(artifacts, file, ("backbone", "pick"), ("delta", "eval_omega"))
    keys = list(zip(table["backbone"], table["delta"], strict=True))
    whole(file, "rows", keys, list(product(BACKBONES, (2, 3, 5, 8))))
    wrong = []
    for row in table.itertuples():
        pick = config_of(artifacts, str(row.backbone), f"within-{row.delta}")
        scores = grid(artifacts, str(row.backbone)).set_index("config")["eval_omega"]
        if pick != row.pick or scores[pick] != row.eval_omega:
            wrong.append(f"{row.backbone} at {row.delta}")
    return contradictions(wrong)
