"""What the tables of a study say: the frontier, false alarms, transfer, differences, the floor.

Every interval says over what it is: machines (all sections of a machine together), families of
configurations, or test clips.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from daco.detector.decision import ROUNDING
from daco.evaluation.intervals import (
    clip_bootstrap,
    family_block_bootstrap,
    family_mean_permutation,
    machine_bootstrap,
    spearman,
)
from daco.evaluation.metrics import NOMINAL_LEVELS, QUANTITIES
from daco.evaluation.official import official_quantities, official_scores, score_differences
from daco.experiments.choice import Years
from daco.experiments.machine_data import MACHINE
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, RAW_CONFIG, ScoreConfig
from daco.method.criterion import ks_counts
from daco.validation import Float64s

CLIP_DRAWS = 1000
_FLOOR_DRAWS = 2000
_FEWEST = 3  # two configurations always correlate perfectly
_FRONTIER = [
    *("set", "variant", "configuration", "m", "auc_source", "auc_target"),
    *("signed_gap", "absolute_gap", "median_gap", "score"),
]
_COVERAGE = [*MACHINE, "domain", "configuration", "decision", "level", "rate", "n"]


# Balance of source and target along the strength of the calibration


def frontier_table(metrics: pd.DataFrame) -> pd.DataFrame:
    """The table of :meth:`StudyResult.frontier`, from a table of metrics."""
    domains = ["auc_source", "auc_target"]
    if not set(domains) <= set(metrics):
        return pd.DataFrame(columns=_FRONTIER)
    known = metrics.dropna(subset=domains)
    rows = []
    for which, part in known.groupby("set", sort=False):
        scores = official_scores(part)
        for variant, m, config in _variants(set(part["configuration"])):
            source, target = part.loc[part["configuration"] == config, domains].to_numpy(float).T
            gap = source - target
            means = source.mean(), target.mean(), gap.mean(), np.abs(gap).mean(), np.median(gap)
            rows.append([which, variant, config, m, *means, scores[config]])
    return pd.DataFrame(rows, columns=_FRONTIER)


def _variants(known: set[str]) -> Iterator[tuple[str, float, str]]:
    """Name, strength and configuration of the variants along the frontier, strong ones first."""
    soft = [ScoreConfig.parse(name) for name in known if name.startswith("conf-soft-m")]
    if RAW_CONFIG in known:
        yield "raw", np.nan, RAW_CONFIG
    for config in sorted(soft, key=lambda config: -config.m):
        if config.base.name == RAW_CONFIG:
            yield f"daco-m{config.m:g}", float(config.m), config.name
    if "ratio-soft-k1" in known:
        yield "ratio-soft", np.nan, "ratio-soft-k1"


# False alarms


def coverage_table(clips: pd.DataFrame, chosen: str) -> pd.DataFrame:
    """The table of :meth:`StudyResult.coverage`, of `chosen`, raw k-NN, the fixed default, blend.

    The paper decided by one threshold for all domains; ``paper's threshold`` has the rates of that.
    """
    known = (clips["split"] == "test") & (clips["label"] == 0) & (clips["domain"] != "")
    normals, train = clips[known], clips[clips["split"] == "train"]
    parts = []
    shown = [RAW_CONFIG, *dict.fromkeys([PAPER_CONFIG, DEFAULT_CONFIG, chosen])]
    for config in [name for name in shown[1:] if f"p:{name}" in clips]:
        p_values = normals[f"p:{config}"].dropna()
        alarms = {level: p_values <= level * (1 + ROUNDING) for level in NOMINAL_LEVELS}
        parts.append(_rates(normals, pd.DataFrame(alarms), config, "p-value"))
    for config in [name for name in dict.fromkeys(shown) if name in clips]:
        scored = normals.dropna(subset=config)
        alarms = {
            level: scored[config] > _paper_thresholds(scored, train, config, level)
            for level in NOMINAL_LEVELS
        }
        parts.append(_rates(scored, pd.DataFrame(alarms), config, "paper's threshold"))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=_COVERAGE)


def _rates(clips: pd.DataFrame, alarms: pd.DataFrame, config: str, decision: str) -> pd.DataFrame:
    """Shares of alarms by machine and domain; `alarms` has a column for each level."""
    keys = [clips.loc[alarms.index, name] for name in (*MACHINE, "domain")]
    groups = alarms.groupby(keys, sort=False, observed=True)
    rates = groups.mean().melt(ignore_index=False, var_name="level", value_name="rate")
    rates = rates.assign(n=groups.size(), configuration=config, decision=decision)
    return rates.reset_index()[_COVERAGE]


def _paper_thresholds(
    clips: pd.DataFrame, train: pd.DataFrame, config: str, rate: float
) -> pd.Series:
    """The threshold of the paper's coverage table for each clip, the same for all domains.

    It is ``1 - rate`` for ``conf`` configurations, and the quantile ``1 - rate`` of all
    leave-one-out scores of the machine for others.
    """
    if config.startswith("conf-"):
        return pd.Series(1 - rate, clips.index)
    groups = train.groupby(MACHINE, sort=False, observed=True)[config]
    limits = groups.agg(lambda scores: np.quantile(scores, 1 - rate, method="weibull"))
    return clips[MACHINE].join(limits, on=MACHINE)[config]


# Transfer: does what was known before predict the evaluation score?


def transfer_of(
    grid: pd.DataFrame,
    metrics: pd.DataFrame,
    by_machine: pd.DataFrame,
    *,
    years: Years | None = None,
    n_draws: int = 2000,
) -> pd.DataFrame:
    """The table of :meth:`StudyResult.transfer`; `metrics` and `by_machine` are resampled."""
    rows: list[list[Any]] = []
    for signal, column, sign in (("dev score", "dev_score", 1), ("criterion", "criterion_dev", -1)):
        if not {column, "eval_score"} <= set(grid):
            continue
        known = grid.dropna(subset=[column, "eval_score"])
        x, y = sign * known[column].to_numpy(float), known["eval_score"].to_numpy(float)
        rho = spearman(x, y) if len(known) >= _FEWEST else np.nan
        if np.isnan(rho):
            continue
        names = known["configuration"].tolist()
        families = [ScoreConfig.parse(name).family for name in names]
        if (n := len(set(families))) > 1:
            drawn = family_block_bootstrap(x, y, families, n_draws=n_draws)
            p = family_mean_permutation(x, y, families).p_two_sided
            rows.append([signal, rho, drawn.low, drawn.high, "families", n, p])
        if signal == "criterion":
            costs = _by_machine(by_machine[by_machine["set"] == "dev"], "criterion", names)
        else:
            costs = _machine_costs(metrics, "dev", names, years)
        scores = 1 / _machine_costs(metrics, "eval", names, years)
        if (n := min(len(costs), len(scores))) > 1:
            drawn = machine_bootstrap(costs, scores[:, :, None], n_draws=n_draws)
            rows.append([signal, rho, drawn.low, drawn.high, "machines", n, None])
    table = pd.DataFrame(rows, columns=["signal", "rho", "low", "high", "over", "n", "p"])
    return table.astype({"p": float})


def _machine_costs(
    metrics: pd.DataFrame, which: str, names: Sequence[str], years: Years | None
) -> Float64s:
    """Mean reciprocal of the metrics (machines, configurations), sections merged; smaller wins."""
    rows = metrics[metrics["set"] == which]
    quantities = official_quantities(rows, (years or {}).get(which))
    costs = (1 / rows[quantities].clip(lower=1e-6)).mean(axis=1)
    return _by_machine(rows.assign(cost=costs), "cost", names)


def _by_machine(rows: pd.DataFrame, column: str, names: Sequence[str]) -> Float64s:
    """A column as array (machines, configurations) of the machines that have all of them."""
    means = rows.groupby(["machine", "configuration"], observed=True)[column].mean()
    return means.unstack("configuration").reindex(columns=list(names)).dropna().to_numpy(float)


# Differences


def differences_table(
    metrics: pd.DataFrame,
    rules: pd.DataFrame,
    chosen: str,
    year: int | None = None,
    clips: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """The table of :meth:`StudyResult.differences`, of `metrics` and `rules` of the study.

    With test `clips` there are intervals over these, too.
    """
    known = set(metrics["configuration"]) - {chosen}
    picked = rules[rules["configuration"].isin(known)]
    others = picked.groupby("configuration", sort=False)["rule"].agg(", ".join)
    metrics = metrics[metrics["configuration"].isin([chosen, *others.index])]
    quantities = official_quantities(metrics, year)
    metrics = metrics[metrics["set"] == "eval"].dropna(subset=quantities, how="all")
    parts = []
    if chosen in set(metrics["configuration"]):
        parts.append(score_differences(metrics, chosen, year).assign(over="machines"))
    if clips is not None and set(quantities) == set(QUANTITIES):
        parts += _clip_differences(clips[clips["set"] == "eval"], chosen, others.index)
    table = pd.concat(parts) if parts else pd.DataFrame(columns=["value"])
    table = table.dropna(subset="value").rename_axis("second").reset_index()
    table = table.assign(first=chosen, rules=table["second"].map(others))
    table["order"] = table["second"].map(list(others.index).index)
    columns = ["rules", "first", "second", "value", "low", "high", "n", "over"]
    return table.sort_values("order", kind="stable", ignore_index=True).reindex(columns=columns)


def _clip_differences(
    clips: pd.DataFrame, first: str, others: Iterable[str]
) -> Iterator[pd.DataFrame]:
    """Official score of column `first` minus each of `others` with intervals over test clips.

    Machines without labels of both kinds do not count.
    """
    labels = clips.groupby(["machine", "section"])["label"]
    clips = clips[(labels.transform("min") == 0) & (labels.transform("max") == 1)]
    for name in others if len(clips) else ():
        drawn = clip_bootstrap(clips, first, name, n_draws=CLIP_DRAWS)
        values = {"value": drawn.estimate, "low": drawn.low, "high": drawn.high, "n": len(clips)}
        yield pd.DataFrame(values | {"over": "clips"}, [name])


# The floor of the criterion


@cache
def criterion_floor(n_source: int, n_target: int) -> float | None:
    """Compute the criterion of a machine with so many normals if its domains did not differ.

    No configuration can be expected to be below it. None for too few clips.

    >>> round(criterion_floor(990, 10), 2)
    0.36
    """
    held = n_source // 2, n_target // 2
    if min(held) < 1:
        return None
    rng = np.random.default_rng(0)
    step = max(1, 2**21 // sum(held))  # draws at once
    counts = [
        ks_counts(rng.random((n, held[0])), rng.random((n, held[1])))
        for n in (min(step, _FLOOR_DRAWS - start) for start in range(0, _FLOOR_DRAWS, step))
    ]
    return float(np.concatenate(counts).mean() / (held[0] * held[1]))
