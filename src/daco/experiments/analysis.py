"""Per-machine tables by configuration: official scores, criteria, the balance frontier (E2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.metrics import harmonic_mean
from daco.experiments.grid_table import pivot_machines
from daco.method.config import PAPER_CONFIG, RAW_CONFIG, ScoreConfig, blind_pool
from daco.method.selection import CRITERION_DIGITS, Table, column, numbers
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

RATIO_CONFIG = "ratio-soft-k1"


def pool_within(names: Collection[str]) -> list[str]:
    """The candidates for choosing per machine: of the paper's nine those that the grid has."""
    return [config.name for config in blind_pool() if config.name in names]


def quantities_in(table: pd.DataFrame) -> list[str]:
    """The metrics of a per-machine table, whose harmonic mean is the official score."""
    return [str(name) for name in table if str(name).startswith(("auc", "pauc"))]


def quantity_title(name: str) -> str:
    """A metric as tables and figures call it: ``pAUC source``."""
    return name.replace("auc", "AUC").replace("_", " ")


def labelled_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The rows that have all metrics of the table."""
    quantities = quantities_in(table)
    return table.dropna(subset=quantities) if quantities else table[:0]


def rows_of(per_machine: pd.DataFrame, split: str) -> pd.DataFrame:
    """The rows of a split, ``dev`` or ``eval``."""
    return per_machine[column(per_machine, "split") == split]


def blind_choices(
    per_machine: pd.DataFrame, pool: Iterable[str | ScoreConfig], split: str
) -> dict[str, str]:
    """For each machine the pool configuration of smallest criterion, from its own normals.

    A machine without a criterion gets the fixed default, or the first of a pool without it; where
    no machine has one, there is no choice.
    """
    part, names = rows_of(per_machine, split), [str(config) for config in pool]
    if part.empty or not names:
        return {}
    fallback = PAPER_CONFIG if PAPER_CONFIG in names else names[0]
    machines, _, values = pivot_machines(part, ["balance_ks"], configs=names)
    values = np.where(np.isnan(values), np.inf, np.round(values, CRITERION_DIGITS))[:, :, 0]
    if np.isinf(values).all():
        return {}
    return {
        machine: fallback if np.isinf(row).all() else names[int(row.argmin())]
        for machine, row in zip(machines, values, strict=True)
    }


def blind_score(per_machine: pd.DataFrame, choices: dict[str, str], split: str) -> float | None:
    """Official score when each labelled machine runs its own choice; None without labels."""
    part = labelled_rows(rows_of(per_machine, split))
    if part.empty:
        return None
    cells = part.set_index(["machine", "config"])[quantities_in(part)]
    chosen = [choice for choice in choices.items() if choice in cells.index]
    return float(harmonic_mean(cells.loc[chosen])) if chosen else None


def metrics_of(
    per_machine: pd.DataFrame,
    split: str,
    configs: list[str],
    columns: Sequence[str] | None = None,
) -> Float64s:
    """Metrics (machines, configurations, quantities) of the machines of a split with all of them.

    ``columns`` are by default those of the official score.
    """
    part = rows_of(per_machine, split)
    columns = quantities_in(part) if columns is None else columns
    if part.empty or not columns or not set(columns) <= set(part.columns):
        return np.empty((0, len(configs), len(columns)))
    values = pivot_machines(part, columns, configs=configs)[2]
    return values[np.isfinite(values).all(axis=(1, 2))]


def official_scores(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """Official score of each configuration over the labelled machines of a split; else nan."""
    values = metrics_of(per_machine, split, configs)
    if not len(values):
        return np.full(len(configs), np.nan)
    return np.asarray(harmonic_mean(values.transpose(1, 0, 2).reshape(len(configs), -1), axis=1))


def criteria_of(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """Criteria (machines, configurations) of the machines of a split that have them."""
    return metrics_of(per_machine, split, configs, ["balance_ks"])[:, :, 0]


def mean_criterion(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """The criterion of each configuration, averaged over the machines that have one; else nan."""
    values = criteria_of(per_machine, split, configs)
    if not len(values):
        return np.full(len(configs), np.nan)
    return np.asarray(np.round(values.mean(axis=0), CRITERION_DIGITS))


def known_column(grid: Table, name: str) -> Float64s:
    """A column of a grid table; nan where it is not known."""
    if name not in grid:
        return np.full(len(grid["config"]), np.nan)
    return numbers(name, grid[name], len(grid["config"]), allow_nan=True)


def complete_column(grid: Table, name: str) -> Float64s | None:
    """A column of scores, or None where the table does not have it for every configuration."""
    values = known_column(grid, name)
    return values if np.isfinite(values).all() else None


def plain(value: Any) -> Any:
    """A value for JSON: numpy's numbers as Python's, nan as None."""
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and np.isnan(value) else value


def plain_rows(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows of a table for JSON."""
    return [
        {str(key): plain(value) for key, value in row.items()} for row in table.to_dict("records")
    ]


def frontier_table(per_machine: pd.DataFrame) -> pd.DataFrame:
    """Balance of source and target AUC along the calibration strengths (E2).

    One row per labelled split and variant: ``raw``, ``daco-m...`` from strong to no shrinkage,
    ``ratio-soft``, as far as the grid has them. Gaps are source minus target.
    """
    import pandas as pd

    names = list(dict.fromkeys(per_machine["config"]))
    mapped = (ScoreConfig.parse(name) for name in names if name.startswith("conf-soft-m"))
    soft = [c for c in mapped if c.family == "conf-soft" and c.k == 1]
    soft.sort(key=lambda c: -c.m)
    variants: list[tuple[str, float | None, str]] = [
        ("raw", None, RAW_CONFIG),
        *((f"daco-m{c.m:g}", c.m, c.name) for c in soft),
        ("ratio-soft", None, RATIO_CONFIG),
    ]
    rows = []
    for split in dict.fromkeys(per_machine["split"]):
        for variant, m, name in variants:
            values = metrics_of(per_machine, split, [name]) if name in names else np.empty(0)
            if not values.size or "auc_target" not in per_machine:
                continue
            by_domain = metrics_of(per_machine, split, [name], ["auc_source", "auc_target"])
            source, target = by_domain[:, 0].T
            gap = source - target
            means = [source.mean(), target.mean(), gap.mean(), np.abs(gap).mean(), np.median(gap)]
            rows.append([split, variant, m, *map(float, means), float(harmonic_mean(values))])
    columns = ["split", "variant", "m", "mean_auc_source", "mean_auc_target"]
    columns += ["signed_gap", "absolute_gap", "median_gap", "omega"]
    return pd.DataFrame(rows, columns=columns)


def gain_table(per_machine: pd.DataFrame, diagnostics: pd.DataFrame | None = None) -> pd.DataFrame:
    """Separability and gain of target AUC by the default over raw k-NN, a row per machine (E2).

    A table without separability takes that of the diagnostics. No rows where it is not known, or
    one of the two configurations is missing.
    """
    import pandas as pd

    keys = ["machine", "split"]
    before, after = (
        per_machine[per_machine["config"] == config].set_index(keys)
        for config in (RAW_CONFIG, PAPER_CONFIG)
    )
    known = before.rename(columns={"separability": "separability_train"})
    if "separability_train" not in known and diagnostics is not None:
        known = diagnostics.set_index(keys)
    if "auc_target" not in per_machine or "separability_train" not in known:
        return pd.DataFrame(columns=[*keys, "separability_train", "target_auc_gain"])
    gain = (after["auc_target"] - before["auc_target"]).rename("target_auc_gain")
    return known[["separability_train"]].join(gain, how="inner").reset_index()
