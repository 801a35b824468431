"""Whether the artifacts agree with each other: counts of values that contradict other values.

Clip scores give metrics, metrics give scores, scores and criteria give the grid, and the authors
recorded statistics of it. A value that was changed in one file no longer follows from the next
one, whether or not the paper prints a figure that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.experiments.grid_table import pivot_machines
from daco.method.config import RAW_CONFIG
from daco.paper.artifacts import BACKBONES, DEV, RELEASED, SETTINGS, ArtifactError, Artifacts
from daco.paper.experiments import BACKENDS, clip_rates, manifest, published_rates
from daco.paper.printed import Recomputed, contradictions
from daco.paper.scores import HALF_DIGIT, clip_metrics, config_of, logged_seeds, rounding_error
from daco.paper.statistics import block_interval, family_means, jackknife, rho

_SLACK = 1e-9  # decimals are not binary
_METRICS = list(QUANTITIES)
_VARIANTS = {
    "raw": RAW_CONFIG,
    **{f"daco-m{m}": f"conf-soft-m{m}-k1" for m in (0, 10, 30, 100, 300)},
    "ratio-soft": "ratio-soft-k1",
}
_ORACLE = "daco-m30-orc"  # reads the true domains: in no grid


def contradicted_metrics(artifacts: Artifacts) -> Recomputed:
    """Dev machines whose metrics the released clip scores contradict, in either table."""
    wrong = []
    for setting in ("45", "beats"):
        table = artifacts.machines(setting, "dev")
        table = table[table["config"].isin(RELEASED)]
        names = table[["machine", "config"]].itertuples(index=False, name=None)
        for (machine, config), stated in zip(names, table[_METRICS].to_numpy(), strict=True):
            apart = np.abs(clip_metrics(artifacts, config, machine) - stated)
            if (apart > HALF_DIGIT + _SLACK).any():
                wrong.append(f"{SETTINGS[setting].machines}: {machine} {config}")
    return contradictions(wrong)


def contradicted_dev_scores(artifacts: Artifacts) -> Recomputed:
    """Dev scores of four decimals that the released clip scores contradict."""
    wrong = []
    for setting in ("45", "beats"):
        for config, score in artifacts.grid(setting)["dev_omega"].items():
            if config in RELEASED:
                metrics = [clip_metrics(artifacts, str(config), machine) for machine in DEV]
                if abs(harmonic_mean(metrics) - score) > 0.00005 + _SLACK:
                    wrong.append(f"{SETTINGS[setting].grid}: {config}")
    return contradictions(wrong)


def contradicted_grid(artifacts: Artifacts, setting: str) -> Recomputed:
    """Scores and criteria of a grid that do not follow from its machines."""
    wrong = []
    for split in ("dev", "eval"):
        columns = [*QUANTITIES, "balance_ks"]
        _, configs, values = pivot_machines(artifacts.machines(setting, split), columns)
        stated = artifacts.grid(setting).loc[configs, [f"{split}_omega", f"crit_{split}"]]
        for j, (config, score, criterion) in enumerate(stated.itertuples(name=None)):
            metrics, balance = values[:, j, :3], values[:, j, 3]
            if abs(harmonic_mean(metrics) - score) > rounding_error(metrics) + 0.00005:
                wrong.append(f"{config}: {split}_omega {score}")
            # both the mean and what is averaged have four decimals
            if abs(balance.mean() - criterion) > 0.0001 + _SLACK:
                wrong.append(f"{config}: crit_{split} {criterion}")
    return contradictions(wrong)


def differing_grids(artifacts: Artifacts) -> Recomputed:
    """Configurations that the transfer grid and the extended grid do not have alike."""
    small, large = (artifacts.grid(setting) for setting in ("45", "beats"))
    same = (small == large.loc[small.index, small.columns]).all(axis=1)
    return contradictions([str(name) for name in small.index[~same]])


def differing_manifest(artifacts: Artifacts) -> Recomputed:
    """Configurations in the manifest or in the extended grid, but not in both."""
    listed = {str(entry["name"]) for entry in manifest(artifacts)}
    return contradictions(sorted(listed ^ set(artifacts.grid("beats").index)))


def contradicted_experiments(artifacts: Artifacts) -> Recomputed:
    """Values of E1 and E2 that the transfer study's machines have otherwise."""
    ours = artifacts.machines("45", "dev").set_index(["machine", "config"])[_METRICS]
    wrong = []
    for file, column, rows, same in (
        ("e1_dev.csv", "backend", BACKENDS, {"knn1": RAW_CONFIG}),
        ("e2_dev.csv", "variant", (*_VARIANTS, _ORACLE), _VARIANTS),
    ):
        table = artifacts.table(file, {"machine": DEV, column: rows}, QUANTITIES)
        theirs = table[table[column].isin(same)].set_index(["machine", column])[_METRICS]
        for (machine, row), values in zip(theirs.index, theirs.to_numpy(), strict=True):
            if (np.abs(ours.loc[(machine, same[row])] - values) > _SLACK).any():
                wrong.append(f"{file}: {machine} {row}")
    return contradictions(wrong)


def contradicted_coverage(artifacts: Artifacts) -> Recomputed:
    """Dev false-alarm rates that the released clip scores contradict."""
    ours = clip_rates(artifacts)
    theirs = published_rates(artifacts).loc[list(ours.index), list(ours.columns)]
    # rates are multiples of 1/50
    wrong = np.abs(ours.to_numpy() - theirs.to_numpy()).max(axis=1) > 0.001
    return contradictions([f"{machine} at {level}" for _, level, machine in ours.index[wrong]])


def contradicted_thresholds(artifacts: Artifacts) -> Recomputed:
    """Published picks of the threshold veto, or their scores, that come out otherwise."""
    rows = {"backbone": BACKBONES, "delta": (2.0, 3.0, 5.0, 8.0)}
    file = "e45_guarded_selection.csv"
    table = artifacts.table(file, rows, ("delta", "eval_omega"), ["pick"])
    wrong = []
    for row in table.to_dict("records"):
        backbone, delta = row["backbone"], row["delta"]
        pick = config_of(artifacts, backbone, f"within-{delta}")
        score = artifacts.grid(backbone)["eval_omega"][pick]
        if (pick, score) != (row["pick"], row["eval_omega"]):
            wrong.append(f"{backbone} at {delta:g}")
    return contradictions(wrong)


def contradicted_records(artifacts: Artifacts, file: str) -> Recomputed:
    """Recorded correlations, intervals, p-values and differences that come out otherwise."""
    where = f"results/stats_{'yearly' if file == 'yearly' else 'e8_2026'}.json"
    wrong = []
    for keys, expected, digits in _records(artifacts, yearly=file == "yearly"):
        entry = artifacts.entry(where, *keys)
        try:
            recorded = np.atleast_1d(np.asarray(entry, dtype=float))
        except (TypeError, ValueError):
            raise ArtifactError(where, f"has no numbers at {' / '.join(keys)}") from None
        if len(recorded) != len(expected.values):
            raise ArtifactError(where, f"has {recorded.size} numbers at {' / '.join(keys)}")
        apart = np.abs(recorded - expected.values)
        if not (apart <= 0.5 * 10.0**-digits + np.array(expected.errors) + _SLACK).all():
            wrong.append(f"{' / '.join(keys)}: {entry}")
    return contradictions(wrong)


def _records(
    artifacts: Artifacts, *, yearly: bool
) -> Iterator[tuple[tuple[str, ...], Recomputed, int]]:
    """Keys of each record of the years or of 2026, its expected value, and its decimals."""
    if yearly:
        settings = {"2023": "2023", "2024": "2024", "2025": "beats"}
        signals = {"criterion": "criterion", "dev_omega": "dev"}
        others = {"vs_fixed": "default", "vs_devpick": "dev-pick"}
    else:
        settings = {"ch0": "ch0", "mix": "mix"}
        signals = {"rho_criterion": "criterion", "rho_dev": "dev"}
        others = {"vs_dev": "dev-pick", "vs_default": "default"}
    for group, setting in settings.items():
        for key, signal in signals.items():
            if yearly:
                yield (group, key, "rho_full_grid"), rho(artifacts, setting, signal), 3
            interval = "family_block_CI95" if yearly else "block_ci95"
            yield (group, key, interval), block_interval(artifacts, setting, signal), 3
            test = (group, key, "perm") if yearly else (group, key)
            yield (*test, "rho_family_means"), family_means(artifacts, setting, signal, "rho"), 3
            for side in ("one", "two"):  # drawn ones count the observed ordering itself
                p = family_means(artifacts, setting, signal, f"{side}-sided")
                yield (*test, f"p_{side}_sided"), p, 4
        for key, over in others.items():
            for name, which in (("delta", "delta"), ("ci95", "interval"), ("loo_range", "loo")):
                difference = jackknife(artifacts, setting, "guarded-pick", over, which)
                yield (group, f"delta_guarded_{key}", name), difference, 2


def contradicted_seeds(artifacts: Artifacts) -> Recomputed:
    """Logged scores of criterion seeds that do not follow from the choices logged beside them."""
    return contradictions(
        [
            f"seed {seed}: {logged}"
            for seed, logged, ours in logged_seeds(artifacts)
            if not abs(ours.values[0] - logged) <= HALF_DIGIT + ours.errors[0]
        ]
    )
