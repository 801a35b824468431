"""Baselines, diagnostics, false-alarm rates and cost (E1, E2, E6); counts; records."""

from __future__ import annotations

import json
import re
from functools import cache

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from daco.evaluation.metrics import NOMINAL_LEVELS, harmonic_mean
from daco.method.config import PAPER_CONFIG, RAW_CONFIG, ScoreConfig, blind_pool
from reproduction.printed import Recomputed, number
from reproduction.published import DEV, EVAL, METRICS, Published, PublishedError
from reproduction.scores import HALF_DIGIT, LABELS, RECORDINGS, metrics_of, rounding_error
from reproduction.statistics import families_of

_COMPUTER = "the authors' computer"
_E6 = "results/e6_efficiency.txt"
_COST = r" *(?P<parameters>\S+) +(?P<dim>\d+) +(?P<ms_per_clip>\S+) +\S+ +(?P<memory>\d+) *$"
_CYCLE = re.compile(r"score\+calibrate (\d+) ms, criterion \(10 splits\) (\d+) ms")


def baseline(published: Published, backend: str, which: str) -> Recomputed:
    """Dev score, or the mean AUC of a domain, of a backend on frozen embeddings (E1)."""
    if backend == "knn1":  # the clips of raw-k1 were released
        table, error = metrics_of(published, "45", "dev", RAW_CONFIG), 0.0
    else:
        rows = {"machine": DEV, "backend": ("knn1", "sel-maha", "gmm2")}
        table = published.table("e1_dev.csv", rows, METRICS)
        table = table[table["backend"] == backend][METRICS]
        error = rounding_error(table)
    if which == "score":
        return number(harmonic_mean(table.to_numpy()), error=error)
    return number(table[which].mean())


def gap(published: Published, configuration: str, which: str) -> Recomputed:
    """Source minus target AUC over the dev machines (E2): signed mean, mean absolute or median."""
    table = metrics_of(published, "45", "dev", configuration)
    gaps = table["auc_source"] - table["auc_target"]
    values = {"signed": gaps.mean(), "absolute": gaps.abs().mean(), "median": gaps.median()}
    return number(values[which])


def _target_gains(published: Published) -> pd.Series[float]:
    """How much target AUC full equalisation gains on each of the 15 machines."""
    gains = [
        metrics_of(published, "45", of, PAPER_CONFIG) - metrics_of(published, "45", of, RAW_CONFIG)
        for of in ("dev", "eval")
    ]
    return pd.concat(gains)["auc_target"]


def target_gain(published: Published, machine: str) -> Recomputed:
    """The target AUC that full equalisation gains on a machine."""
    error = 0.0 if machine in DEV else 2 * HALF_DIGIT
    return number(_target_gains(published)[machine], error=error)


def _diagnostics(published: Published) -> pd.DataFrame:
    """The authors' diagnostics by machine; accuracies in percent."""
    accuracy, shares = "assignment_acc_test_normals", ("above_tgt_max", "above_src_q90")
    columns = [accuracy, "separability_train", *(f"pct_anom_{share}" for share in shares)]
    table = published.table("diagnostics.csv", {"machine": (*DEV, *EVAL)}, columns)
    return table.assign(**{accuracy: 100 * table[accuracy]}).set_index("machine")


def diagnostic(published: Published, machine: str, column: str) -> Recomputed:
    """A diagnostic of one machine; accuracies and shares in percent."""
    return number(_diagnostics(published)[column][machine], needs=RECORDINGS)


def separability_and_gain(published: Published, which: str) -> Recomputed:
    """Rank correlation of the domains' separability and the gain, or its p-value."""
    gains = _target_gains(published)
    correlation = spearmanr(_diagnostics(published)["separability_train"][gains.index], gains)
    return number(correlation.statistic if which == "rho" else correlation.pvalue)


@cache
def _rates(published: Published, system: str) -> pd.DataFrame:
    """False-alarm rates by level and machine (rows) and domain (columns).

    They come from clips where these were released with a threshold that needs no normals.
    """
    levels = {"system": ("raw", "daco-m0"), "nominal_fpr": NOMINAL_LEVELS}
    rows = {**levels, "machine": (*DEV, *EVAL), "domain": ("source", "target")}
    table = published.table("fpr_coverage.csv", rows, ("nominal_fpr", "empirical_fpr"))
    table = table[table["system"] == system]
    table = table.pivot(index=["nominal_fpr", "machine"], columns="domain", values="empirical_fpr")
    for machine in DEV if system == "daco-m0" else ():
        clips = published.clips(PAPER_CONFIG, "dev", machine)
        normals = clips[clips["label"] == 0]
        for level in NOMINAL_LEVELS:
            alarms = normals["score"] > 1 - level
            table.loc[(level, machine)] = alarms.groupby(normals["domain"]).mean()
    return table


def imbalance(published: Published, system: str, level: str, which: str = "all") -> Recomputed:
    """Mean distance of the two domains' false-alarm rates over machines."""
    rates = _rates(published, system).loc[float(level)]
    if which == "dev":
        rates = rates.loc[list(DEV)]
    return number((rates["source"] - rates["target"]).abs().mean())


def imbalance_ratio(published: Published, level: str, which: str = "all") -> Recomputed:
    """Imbalance of calibrated over that of raw scores."""
    calibrated, raw = (imbalance(published, s, level, which) for s in ("daco-m0", "raw"))
    return number(calibrated.values[0] / raw.values[0])


def realised_rate(published: Published, system: str, level: str) -> Recomputed:
    """Mean false-alarm rate over machines and domains where `level` was asked."""
    return number(_rates(published, system).loc[float(level)].to_numpy().mean())


def nominal_levels(published: Published) -> Recomputed:
    """Lowest and highest nominal level."""
    levels = _rates(published, "raw").index.get_level_values("nominal_fpr")
    return number(levels.min(), levels.max())


def efficiency(published: Published, backbone: str, column: str) -> Recomputed:
    """Parameters, dimension, time or memory of a backbone (E6)."""
    match = re.search(rf"^{backbone} {_COST}", published.text(_E6), re.MULTILINE)
    if match is None:
        raise PublishedError(_E6, f"has no line on {backbone}")
    needs = "the network's weights" if column in ("parameters", "dim") else _COMPUTER
    return number(match[column], needs=needs)


def cycle_seconds(published: Published) -> Recomputed:
    """Seconds of one configuration on one machine, criterion included."""
    match = _CYCLE.search(published.text(_E6))
    if match is None:
        raise PublishedError(_E6, "has no line on the configuration cycle")
    return number(sum(map(float, match.groups())) / 1000, needs=_COMPUTER)


def study_minutes(published: Published) -> Recomputed:
    """Minutes that the cycles of a whole grid on all machines take."""
    minutes = cycle_seconds(published).values[0] / 60
    return number(minutes * len(published.grid("beats")) * len((*DEV, *EVAL)), needs=_COMPUTER)


def count(published: Published, what: str, setting: str) -> Recomputed:
    """Configurations, conformal ones, families, pool for choosing per machine, or machines."""
    if what in ("dev-machines", "eval-machines", "machines"):
        sets = ("dev", "eval") if what == "machines" else (what.removesuffix("-machines"),)
        return number(sum(published.metrics(setting, of)["machine"].nunique() for of in sets))
    table = published.grid(setting)
    if what == "blind-pool":  # soft, k=1, no z-score
        return number(sum(config.name in table.index for config in blind_pool()))
    families = families_of(table)
    if what == "families":
        return number(len(np.unique(families)))
    return number(np.char.startswith(families, "conf" if what == "conformal" else "").sum())


def parameters(published: Published, which: str) -> Recomputed:
    """The different values of k, of m or of K in the grid."""
    configs = [ScoreConfig.parse(str(name)) for name in published.grid("beats").index]
    values: dict[str, set[float]] = {
        "k": {config.k for config in configs if config.scorer == "knn"},
        "m": {config.m for config in configs if config.calibration == "conf"},
        "K": {config.k for config in configs if config.scorer != "knn"},
    }
    return number(*sorted(values[which]))


def clips_per_machine(published: Published, which: str) -> Recomputed:
    """Test clips of each machine; normal and anomalous ones where the names tell (dev)."""
    dev = [published.clips(RAW_CONFIG, "dev", name) for name in DEV]
    if which == "all":
        evaluation = [published.clips(RAW_CONFIG, "eval", name) for name in EVAL]
        counts = {len(each) for each in (*dev, *evaluation)}
    else:
        counts = {int(np.sum(each["label"] == (which == "anomaly"))) for each in dev}
    return number(*sorted(counts))  # one number is printed for all machines


def recorded(published: Published, needs: str, file: str, *keys: str) -> Recomputed:
    """An interval that the authors recorded in a JSON file, or a number of different picks."""
    where = f"results/{file}"
    entry = published.read(where, json.loads)
    for key in keys:
        entry = entry.get(key) if isinstance(entry, dict) else None
    if not entry:
        raise PublishedError(where, f"has no entry {' / '.join(keys)}")
    values = [len(set(entry.values()))] if isinstance(entry, dict) else entry
    return number(*values, needs={"labels": LABELS, "recordings": RECORDINGS}[needs])
