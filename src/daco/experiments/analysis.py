"""Per-machine tables by configuration: official scores, criteria, the balance frontier (E2)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.choice import CRITERION_DIGITS
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig, blind_pool
from daco.method.grid_table import (
    column,
    composed_score,
    numbers,
    pivot_machines,
)
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

RATIO_CONFIG = "ratio-soft-k1"


def pool_within(names: Collection[str]) -> list[str]:
    """The candidates for choosing per machine: of the paper's nine those that the grid has.

    Examples
    --------
    >>> from daco.experiments.analysis import pool_within
    >>> pool_within(["raw-k1", "raw-k2", "conf-soft-m0-k1"])
    ['raw-k1', 'conf-soft-m0-k1']
    """
    return [config.name for config in blind_pool() if config.name in names]


def rows_of(per_machine: pd.DataFrame, split: str) -> pd.DataFrame:
    """The rows of a split, ``dev`` or ``eval``."""
    return per_machine[column(per_machine, "split") == split]


def blind_choices(
    per_machine: pd.DataFrame, pool: Iterable[str | ScoreConfig], split: str
) -> dict[str, str]:
    """For each machine the pool configuration of smallest criterion, from its own normals.

    A machine without a criterion (it has one domain) gets the fixed default, or the first of a
    pool without it.
    """
    part = rows_of(per_machine, split)
    if part.empty:
        return {}
    names = [str(config) for config in pool]
    fallback = DEFAULT_CONFIG if DEFAULT_CONFIG in names else names[0]
    machines, _, values = pivot_machines(part, ["balance_ks"], configs=names)
    values = np.where(np.isnan(values), np.inf, np.round(values, CRITERION_DIGITS))[:, :, 0]
    return {
        machine: fallback if np.isinf(row).all() else names[int(row.argmin())]
        for machine, row in zip(machines, values, strict=True)
    }


def official_scores(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """Official score of each configuration over the labelled machines of a split; else nan."""
    values = metrics_of(per_machine, split, configs)
    if not len(values):
        return np.full(len(configs), np.nan)
    return np.asarray(harmonic_mean(values.transpose(1, 0, 2).reshape(len(configs), -1), axis=1))


def metrics_of(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """Metrics (machines, configurations, 3) of the machines of a split that have labels."""
    part = rows_of(per_machine, split)
    if part.empty or not set(QUANTITIES) <= set(part.columns):
        return np.empty((0, len(configs), len(QUANTITIES)))
    values = pivot_machines(part, QUANTITIES, configs=configs)[2]
    return values[np.isfinite(values).all(axis=(1, 2))]


def criteria_of(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """Criteria (machines, configurations) of the machines of a split that have them."""
    part = rows_of(per_machine, split)
    if part.empty or "balance_ks" not in part:
        return np.empty((0, len(configs)))
    values = pivot_machines(part, ["balance_ks"], configs=configs)[2][:, :, 0]
    return values[np.isfinite(values).all(axis=1)]


def mean_criterion(per_machine: pd.DataFrame, split: str, configs: list[str]) -> Float64s:
    """The criterion of each configuration, averaged over the machines that have one; else nan."""
    values = criteria_of(per_machine, split, configs)
    if not len(values):
        return np.full(len(configs), np.nan)
    return np.asarray(np.round(values.mean(axis=0), CRITERION_DIGITS))


def blind_score(per_machine: pd.DataFrame, choices: dict[str, str], split: str) -> float | None:
    """Official score when each labelled machine runs its own choice; None without labels."""
    part = rows_of(per_machine, split)
    if not set(QUANTITIES) <= set(part.columns):
        return None
    part = part.dropna(subset=list(QUANTITIES))
    labelled = set(part["machine"])
    chosen = {machine: config for machine, config in choices.items() if machine in labelled}
    return composed_score(part, chosen) if chosen else None


def complete_column(grid: pd.DataFrame, name: str) -> Float64s | None:
    """A column of scores, or None where the table does not have it for every configuration."""
    values = known_column(grid, name)
    return values if np.isfinite(values).all() else None


def known_column(grid: pd.DataFrame, name: str) -> Float64s:
    """A column of a grid table; nan where it is not known."""
    if name not in grid:
        return np.full(len(grid), np.nan)
    return numbers(name, grid[name], len(grid), allow_nan=True)


def plain(value: Any) -> Any:
    """A value for JSON: numpy's numbers as Python's, nan as None."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    return None if np.isnan(value) else float(value)


def frontier_table(per_machine: pd.DataFrame) -> pd.DataFrame:
    """Balance of source and target AUC along the calibration strengths (E2).

    One row per labelled split and variant: ``raw``, ``daco-m...`` from strong to no shrinkage,
    ``ratio-soft``, as far as the grid has them. Gaps are source minus target.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.analysis import frontier_table
    >>> table = pd.DataFrame({"split": "dev", "machine": ["fan", "valve"], "config": "raw-k1",
    ...     "auc_source": [70.0, 60.0], "auc_target": [50.0, 62.0], "pauc": [52.0, 53.0]})
    >>> frontier_table(table)[["variant", "signed_gap", "absolute_gap"]].values.tolist()
    [['raw', 9.0, 11.0]]
    """
    import pandas as pd

    names = list(dict.fromkeys(per_machine["config"]))
    variants: list[tuple[str, float | None, str]] = [("raw", None, RAW_CONFIG)]
    mapped = (ScoreConfig.parse(name) for name in names if name.startswith("conf-soft-m"))
    soft = [c for c in mapped if c.family == "conf-soft"]
    soft = sorted((c for c in soft if c.neighbours == 1), key=lambda c: -c.prior_strength)
    variants += [(f"daco-m{c.prior_strength:g}", c.prior_strength, c.name) for c in soft]
    variants.append(("ratio-soft", None, RATIO_CONFIG))
    rows = []
    for split in dict.fromkeys(per_machine["split"]):
        for variant, m, name in variants:
            values = metrics_of(per_machine, split, [name]) if name in names else np.empty(0)
            if not values.size:
                continue
            source, target = values[:, 0, 0], values[:, 0, 1]
            gap = source - target
            means = [source.mean(), target.mean(), gap.mean(), np.abs(gap).mean(), np.median(gap)]
            rows.append([split, variant, m, *map(float, means), float(harmonic_mean(values))])
    columns = ["split", "variant", "m", "mean_auc_source", "mean_auc_target"]
    columns += ["signed_gap", "absolute_gap", "median_gap", "omega"]
    return pd.DataFrame(rows, columns=columns)


def gain_table(per_machine: pd.DataFrame) -> pd.DataFrame:
    """What a per-machine table alone says of where calibration pays (E2); else no rows.

    ``machine, split, separability_train, target_auc_gain``, a row per machine.
    """
    import pandas as pd

    columns = ["machine", "split", "separability_train", "target_auc_gain"]
    if "separability" not in per_machine:
        return pd.DataFrame(columns=columns)
    keys = ["machine", "split"]
    part = {
        config: per_machine[per_machine["config"] == config].set_index(keys)
        for config in (RAW_CONFIG, DEFAULT_CONFIG)
    }
    before, after = part.values()
    gain = (after["auc_target"] - before["auc_target"]).rename("target_auc_gain")
    table = before["separability"].rename("separability_train").to_frame().join(gain, how="inner")
    return table.reset_index()[columns]
