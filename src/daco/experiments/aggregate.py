"""A per-machine table seen by configuration: official scores, criteria, choices per machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.choice import CRITERION_DIGITS
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool
from daco.method.grid_table import (
    column,
    composed_score,
    numbers,
    pivot_machines,
)
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

RAW = "raw-k1"


def pool_within(names: Collection[str]) -> list[str]:
    """The candidates for choosing per machine: of the paper's nine those that the grid has.

    Examples
    --------
    >>> from daco.experiments.aggregate import pool_within
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
