"""Whether the artifacts agree with each other: counts of values that contradict other values.

Clip scores give metrics, metrics give scores, scores and criteria give the grid, and the authors
recorded statistics of it. A value that was changed in one file no longer follows from the next
one, whether or not the paper prints a figure that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.grid_table import pivot_machines
from daco.paper.artifacts import (
    BACKBONES,
    RELEASED,
    SETTINGS,
    ArtifactError,
    Artifacts,
    grid,
    machines,
    read_entry,
    read_table,
    require_rows,
)
from daco.paper.choices import config_of
from daco.paper.experiments import BACKENDS, DEV, clip_rates, manifest, published_rates
from daco.paper.printed import Recomputed, contradictions, recipe
from daco.paper.scores import HALF_DIGIT, clip_metrics, logged_seeds, rounding_error
from daco.paper.statistics import block_interval, family_means, jackknife, rho

_SLACK = 1e-9  # decimals are not binary
_VARIANTS = {
    "raw": "raw-k1",
    **{f"daco-m{m}": f"conf-soft-m{m}-k1" for m in (0, 10, 30, 100, 300)},
    "ratio-soft": "ratio-soft-k1",
}
_ORACLE = "daco-m30-orc"  # reads the true domains: in no grid

Entry = tuple[tuple[str, ...], Recomputed, int]
"""Keys of a record, what it should be, and its number of decimals."""


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
            apart = np.abs(clip_metrics(artifacts, config, machine) - values[i, j])
            if (apart > HALF_DIGIT + _SLACK).any():
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
        stated = table.loc[configs, [f"{split}_omega", f"crit_{split}"]].to_numpy()
        for j, (config, (score, criterion)) in enumerate(zip(configs, stated, strict=True)):
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
        require_rows(file, "rows", keys, list(product(DEV, rows)))
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
    require_rows(file, "rows", keys, list(product(BACKBONES, (2, 3, 5, 8))))
    wrong = []
    for row in table.itertuples():
        pick = config_of(artifacts, str(row.backbone), f"within-{row.delta}")
        scores = grid(artifacts, str(row.backbone)).set_index("config")["eval_omega"]
        if pick != row.pick or scores[pick] != row.eval_omega:
            wrong.append(f"{row.backbone} at {row.delta}")
    return contradictions(wrong)


@recipe
def contradicted_records(artifacts: Artifacts, file: str) -> Recomputed:
    """Recorded correlations, intervals, p-values and differences that come out otherwise."""
    entries, where = {
        "yearly": (_yearly, "results/stats_yearly.json"),
        "forward": (_forward, "results/stats_e8_2026.json"),
    }[file]
    wrong = []
    for keys, found, digits in entries(artifacts):
        entry = read_entry(artifacts, where, *keys)
        try:
            recorded = np.atleast_1d(np.asarray(entry, dtype=float))
        except (TypeError, ValueError):
            raise ArtifactError(where, f"has no numbers at {' / '.join(keys)}") from None
        errors = np.array(found.errors or (0.0,) * len(found.values))
        if recorded.shape != errors.shape:
            raise ArtifactError(where, f"has {recorded.size} numbers at {' / '.join(keys)}")
        apart = np.abs(recorded - found.values)
        if not (apart <= 0.5 * 10.0**-digits + errors + 1e-9).all():
            wrong.append(f"{' / '.join(keys)}: {entry}")
    return contradictions(wrong)


@recipe
def contradicted_seeds(artifacts: Artifacts) -> Recomputed:
    """Logged scores of criterion seeds that do not follow from the choices logged beside them."""
    return contradictions(
        [
            f"seed {seed}: {logged}"
            for seed, logged, ours in logged_seeds(artifacts)
            if not abs(ours.values[0] - logged) <= HALF_DIGIT + ours.errors[0]
        ]
    )


def _yearly(artifacts: Artifacts) -> Iterator[Entry]:
    for year, setting in (("2023", "2023"), ("2024", "2024"), ("2025", "beats")):
        for key, signal in (("criterion", "criterion"), ("dev_omega", "dev")):
            yield (year, key, "rho_full_grid"), rho(artifacts, setting, signal), 3
            interval = block_interval(artifacts, setting, signal)
            yield (year, key, "family_block_CI95"), interval, 3
            yield from _permutation(artifacts, (year, key, "perm"), setting, signal)
        for key, over in (("vs_fixed", "default"), ("vs_devpick", "dev-pick")):
            yield from _difference(artifacts, (year, f"delta_guarded_{key}"), setting, over)


def _forward(artifacts: Artifacts) -> Iterator[Entry]:
    for policy in ("ch0", "mix"):
        for key, signal in (("rho_criterion", "criterion"), ("rho_dev", "dev")):
            interval = block_interval(artifacts, policy, signal)
            yield (policy, key, "block_ci95"), interval, 3
            yield from _permutation(artifacts, (policy, key), policy, signal)
        for key, over in (("vs_dev", "dev-pick"), ("vs_default", "default")):
            yield from _difference(artifacts, (policy, f"delta_guarded_{key}"), policy, over)


def _permutation(
    artifacts: Artifacts, keys: tuple[str, ...], setting: str, signal: str
) -> Iterator[Entry]:
    yield (*keys, "rho_family_means"), family_means(artifacts, setting, signal, "rho"), 3
    for side in ("one", "two"):
        p = family_means(artifacts, setting, signal, f"{side}-sided")
        yield (*keys, f"p_{side}_sided"), p, 4  # drawn ones count the observed ordering itself


def _difference(
    artifacts: Artifacts, keys: tuple[str, ...], setting: str, over: str
) -> Iterator[Entry]:
    for key, which in (("delta", "delta"), ("ci95", "interval"), ("loo_range", "left-out")):
        yield (*keys, key), jackknife(artifacts, setting, "guarded-pick", over, which), 2
