"""Baselines, frontier, diagnostics, false-alarm rates and cost (E1, E2, E6); counts; 2026."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd

from daco.evaluation.metrics import NOMINAL_LEVELS, QUANTITIES, fpr_coverage, harmonic_mean
from daco.evaluation.statistics import partial_spearman
from daco.experiments.grid_table import pivot_machines
from daco.files.hashing import sha256_of_file
from daco.method.config import PAPER_CONFIG, RAW_CONFIG, blind_pool
from daco.paper.artifacts import BACKBONES, DEV, EVAL, RELEASED, ArtifactError, Artifacts, cached
from daco.paper.printed import Recomputed, number
from daco.paper.scores import HALF_DIGIT, RECORDINGS, config_of, metrics_of, rounding_error
from daco.paper.statistics import families_of

BACKENDS = ("knn1", "sel-maha", "gmm2")

_COMPUTER = "the authors' computer"
_E6 = "results/e6_efficiency.txt"
_COST = re.compile(
    r"^(beats|eat|panns)\s+(\d+\.\d+)\s+(\d+)\s+(\d+\.\d+)\s+\S+\s+(\d+)\s*$", re.MULTILINE
)
_CYCLE = re.compile(r"score\+calibrate (\d+) ms, criterion \(10 splits\) (\d+) ms")
_COST_COLUMNS = ("parameters", "dim", "ms_per_clip", "memory")
_MANIFEST = "release/manifest.json"


# E1


def baseline(artifacts: Artifacts, backend: str, which: str) -> Recomputed:
    """Dev score, or the mean AUC of a domain, of a backend on frozen embeddings."""
    if backend == "knn1":  # the clips of raw-k1 were released
        metrics, error = metrics_of(artifacts, "45", "dev", RAW_CONFIG)[1], 0.0
    else:
        rows = {"machine": DEV, "backend": BACKENDS}
        table = artifacts.table("e1_dev.csv", rows, QUANTITIES)
        metrics = table[table["backend"] == backend][list(QUANTITIES)].to_numpy()
        error = rounding_error(metrics)
    if which == "score":
        return number(harmonic_mean(metrics), error=error)
    return number(metrics[:, QUANTITIES.index(which)].mean())


# E2: the frontier and its diagnostics


def gap(artifacts: Artifacts, config: str, which: str) -> Recomputed:
    """Source minus target AUC over the dev machines: signed mean, mean absolute or median."""
    _, metrics = metrics_of(artifacts, "45", "dev", config)
    gaps = metrics[:, 0] - metrics[:, 1]
    values = {"signed": gaps.mean(), "absolute": np.abs(gaps).mean(), "median": np.median(gaps)}
    return number(values[which])


def target_gains(artifacts: Artifacts) -> dict[str, float]:
    """How much target AUC full equalisation gains on each of the 15 machines."""
    gains: dict[str, float] = {}
    for split in ("dev", "eval"):
        names, after = metrics_of(artifacts, "45", split, PAPER_CONFIG)
        _, before = metrics_of(artifacts, "45", split, RAW_CONFIG)
        gains |= dict(zip(names, (after - before)[:, 1].tolist(), strict=True))
    return gains


def target_gain(artifacts: Artifacts, machine: str) -> Recomputed:
    """The target AUC that full equalisation gains on a machine."""
    error = 0.0 if machine in DEV else 2 * HALF_DIGIT
    return number(target_gains(artifacts)[machine], error=error)


def diagnostics(artifacts: Artifacts) -> pd.DataFrame:
    """The authors' diagnostics by machine; accuracies in percent."""
    columns = ("assignment_acc_test_normals", "separability_train")
    shares = ("pct_anom_above_tgt_max", "pct_anom_above_src_q90")
    rows = {"machine": (*DEV, *EVAL)}
    table = artifacts.table("diagnostics.csv", rows, (*columns, *shares), ["split"])
    table = table.set_index("machine")
    return table.assign(assignment_acc_test_normals=100 * table["assignment_acc_test_normals"])


def diagnostic(artifacts: Artifacts, machine: str, column: str) -> Recomputed:
    """A diagnostic of one machine; accuracies and shares in percent."""
    return number(diagnostics(artifacts)[column][machine], needs=RECORDINGS)


def separability_and_gain(artifacts: Artifacts, which: str) -> Recomputed:
    """Rank correlation of the domains' separability and the gain, or its p-value."""
    gains = target_gains(artifacts)
    separability = diagnostics(artifacts)["separability_train"][list(gains)]
    correlation = partial_spearman(separability, list(gains.values()), [])
    return number(correlation.rho if which == "rho" else correlation.p_value)


# E2: realised false-alarm rates


@cached
def published_rates(artifacts: Artifacts) -> pd.DataFrame:
    """False-alarm rates by system, level and machine (rows) and domain (columns)."""
    keys = ["system", "nominal_fpr", "machine"]
    levels = (("raw", "daco-m0"), NOMINAL_LEVELS, (*DEV, *EVAL))
    rows = {**dict(zip(keys, levels, strict=True)), "domain": ("source", "target")}
    table = artifacts.table("fpr_coverage.csv", rows, ("nominal_fpr", "empirical_fpr"))
    return table.pivot(index=keys, columns="domain", values="empirical_fpr").sort_index()


@cached
def clip_rates(artifacts: Artifacts) -> pd.DataFrame:
    """The same of the dev machines under full equalisation, from their released clips."""
    rows = {}
    for machine in DEV:
        clips = artifacts.clips(PAPER_CONFIG, "dev", machine)
        for row in fpr_coverage(clips.scores, clips.labels, clips.domains):
            rows["daco-m0", row.level, machine] = row.rates
    return pd.DataFrame.from_dict(rows, orient="index")


def _rates(artifacts: Artifacts, system: str, level: str) -> pd.DataFrame:
    """Rates by machine; from clips where they were released with a threshold that needs none."""
    table = published_rates(artifacts).copy()
    table.update(clip_rates(artifacts))
    return pd.DataFrame(table.xs((system, float(level))))


def imbalance(artifacts: Artifacts, system: str, level: str, which: str = "all") -> Recomputed:
    """Mean distance of the two domains' false-alarm rates over machines."""
    rates = _rates(artifacts, system, level)
    if which == "dev":
        rates = rates.loc[list(DEV)]
    return number((rates["source"] - rates["target"]).abs().mean())


def imbalance_ratio(artifacts: Artifacts, level: str, which: str = "all") -> Recomputed:
    """Imbalance of calibrated over that of raw scores."""
    calibrated, raw = (
        imbalance(artifacts, system, level, which).values[0] for system in ("daco-m0", "raw")
    )
    return number(calibrated / raw)


def realised_rate(artifacts: Artifacts, system: str, level: str) -> Recomputed:
    """Mean false-alarm rate over machines and domains where `level` was asked."""
    return number(_rates(artifacts, system, level).to_numpy().mean())


def nominal_levels(artifacts: Artifacts) -> Recomputed:
    """Lowest and highest nominal level."""
    levels = published_rates(artifacts).index.get_level_values("nominal_fpr")
    return number(levels.min(), levels.max())


# E6


def efficiency(artifacts: Artifacts, backbone: str, column: str) -> Recomputed:
    """Parameters, dimension, time or memory of a backbone."""
    costs = {name: values for name, *values in _COST.findall(artifacts.text(_E6))}
    if len(costs) != 3:
        raise ArtifactError(_E6, f"has {len(costs)} of 3 backbones")
    needs = "the network's weights" if column in ("parameters", "dim") else _COMPUTER
    return number(costs[backbone][_COST_COLUMNS.index(column)], needs=needs)


def cycle_seconds(artifacts: Artifacts) -> Recomputed:
    """Seconds of one configuration on one machine, criterion included."""
    match = _CYCLE.search(artifacts.text(_E6))
    if match is None:
        raise ArtifactError(_E6, "has no line on the configuration cycle")
    return number(sum(map(float, match.groups())) / 1000, needs=_COMPUTER)


def study_minutes(artifacts: Artifacts) -> Recomputed:
    """Minutes that the cycles of a whole grid on all machines take."""
    cycles = len(artifacts.grid("beats")) * len((*DEV, *EVAL))
    return number(cycles * cycle_seconds(artifacts).values[0] / 60, needs=_COMPUTER)


# Counts


def manifest(artifacts: Artifacts) -> list[dict[str, Any]]:
    """The authors' list of configurations."""
    entries = artifacts.entry(_MANIFEST)
    fields = {"name", "base", "k", "method", "prior_strength", "density_K"}
    if isinstance(entries, list) and all(
        isinstance(entry, dict) and fields <= entry.keys() for entry in entries
    ):
        return entries
    raise ArtifactError(_MANIFEST, "is not a list of configurations")


def manifest_values(artifacts: Artifacts, which: str) -> Recomputed:
    """The different values of k, of m or of K over all configurations."""
    kind, wanted, name = {
        "k": ("base", "knn", "k"),
        "m": ("method", "conformal", "prior_strength"),
        "K": ("density_K", None, "density_K"),
    }[which]
    entries = [e for e in manifest(artifacts) if (e[kind] == wanted if wanted else e[kind])]
    return Recomputed(tuple(sorted({float(entry[name]) for entry in entries})))


def configurations(artifacts: Artifacts, setting: str, family: str = "") -> Recomputed:
    """Configurations of a grid, or of those the conformal ones."""
    kinds = families_of(artifacts.grid(setting))
    return number(np.sum(np.char.startswith(kinds, "conf")) if family else len(kinds))


def families(artifacts: Artifacts, setting: str) -> Recomputed:
    """Method families of a grid."""
    return number(len(np.unique(families_of(artifacts.grid(setting)))))


def blind_pool_size(artifacts: Artifacts, setting: str) -> Recomputed:
    """Configurations of the grid in the pool for choosing per machine: soft, k=1, no z-score."""
    return number(sum(config.name in artifacts.grid(setting).index for config in blind_pool()))


def backbones(artifacts: Artifacts) -> Recomputed:
    """Backbones with a grid of their own."""
    return number(sum(len(artifacts.grid(setting)) > 0 for setting in BACKBONES))


def machines_of(artifacts: Artifacts, setting: str, split: str) -> Recomputed:
    """Machines of a split, or of both."""
    splits = ("dev", "eval") if split == "all" else (split,)
    return number(sum(artifacts.machines(setting, s)["machine"].nunique() for s in splits))


def clips_per_machine(artifacts: Artifacts, which: str) -> Recomputed:
    """Test clips of each machine; normal and anomalous ones where the names tell (dev)."""
    if which == "all":
        places = [*(("dev", name) for name in DEV), *(("eval", name) for name in EVAL)]
        counts = {len(artifacts.clips(RELEASED[0], *place).names) for place in places}
    else:
        labels = [artifacts.clips(RELEASED[0], "dev", name).labels for name in DEV]
        counts = {int(np.sum(each == (which == "anomaly"))) for each in labels}
    # one number is printed for all machines
    return Recomputed(tuple(float(count) for count in sorted(counts)))


# After the paper: the frozen forward test of 2026


def frozen_value(artifacts: Artifacts, policy: str, column: str) -> Recomputed:
    """Dev score or criterion of the frozen pick, from the frozen table of machines."""
    pick = config_of(artifacts, policy, "frozen-pick")
    table = artifacts.machines(policy, "dev")
    _, _, values = pivot_machines(table, [*QUANTITIES, "balance_ks"], configs=[pick])
    metrics, balance = values[:, 0, :3], values[:, 0, 3]
    if column == "crit_dev":
        return number(balance.mean(), error=0.00005)  # each has four decimals
    return number(harmonic_mean(metrics), error=rounding_error(metrics))


def sha256(artifacts: Artifacts, file: str) -> Recomputed:
    """The hash of a frozen file."""
    return Recomputed(name=artifacts.read(f"results/{file}", sha256_of_file))


def changed_after_freezing(artifacts: Artifacts) -> Recomputed:
    """Dev scores and criteria that the 2026 grid has otherwise than the frozen one."""
    changed = 0
    for policy in ("ch0", "mix"):
        frozen = artifacts.grid(policy, frozen=True)[["dev_omega", "crit_dev"]]
        later = artifacts.grid(policy).loc[frozen.index, frozen.columns]
        changed += int(np.sum(frozen.to_numpy() != later.to_numpy()))
    return number(changed)
