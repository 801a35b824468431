"""The paper's rules that pick a configuration from a grid, and what labels each of them reads.

A grid table has one row per configuration and the published columns: ``config``,
``dev_omega`` and ``eval_omega`` (official score in percent), ``crit_dev`` and ``crit_eval``
(criterion, smaller is better). Any mapping of columns will do: a DataFrame or a dict.

Guarded selection reads ``dev_omega`` and ``crit_dev`` and nothing else. Ties are broken by grid
order, and a configuration whose criterion is nan is never chosen. The label-free choice of the
commands, which also knows the noise of the criterion, is `daco.method.choice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.method.config import ScoreConfig, blind_pool
from daco.method.grid_table import Table, column, config_names, numbers, pivot_machines
from daco.validation import Bools, Float64s

Veto = Callable[[Float64s], Bools] | Sequence[bool] | Bools


@dataclass(frozen=True)
class RandomExpectation:
    """Official score of a configuration drawn at random: mean, and sd with ``n - 1``."""

    mean: float
    sd: float


def viable(dev_omega: ArrayLike, quantile: float = 0.10) -> Bools:
    """Configurations strictly above the `quantile` (linear) of the dev scores, as published.

    Examples
    --------
    >>> from daco.method.selection import viable
    >>> viable([50.0, 58.0, 57.0, 56.0]).tolist()
    [False, True, True, True]
    """
    scores = _scores("dev_omega", dev_omega)
    if not 0 <= quantile < 1:
        raise InputError(f"The 'quantile' of the veto must be in [0, 1). Got {quantile!r}.")
    return np.asarray(scores > np.quantile(scores, quantile))


def viable_within(dev_omega: ArrayLike, delta: float) -> Bools:
    """Configurations at most `delta` points below the best dev score.

    Examples
    --------
    >>> from daco.method.selection import viable_within
    >>> viable_within([50.0, 58.0, 57.0, 56.0], delta=2).tolist()
    [False, True, True, True]
    """
    scores = _scores("dev_omega", dev_omega)
    if not delta >= 0:
        raise InputError(f"The 'delta' of the veto must be a number >= 0. Got {delta!r}.")
    # 58.7 - 0.3 is a little more than 58.4 in floating point, and 58.4 is within 0.3.
    return np.asarray(scores >= scores.max() - delta - 1e-9)


def select_by_dev_score(configs: Iterable[str | ScoreConfig], dev_omega: ArrayLike) -> str:
    """Return the configuration with the largest dev score; this reads dev labels.

    Parameters
    ----------
    configs : sequence of str
        Names of C configurations.
    dev_omega : array-like of shape (C,)
        Official scores of the development machines.

    Returns
    -------
    str

    Examples
    --------
    >>> from daco.method.selection import select_by_dev_score
    >>> select_by_dev_score(["raw-k1", "raw-k2"], [58.7, 58.4])
    'raw-k1'
    """
    names = config_names(configs)
    return names[int(np.argmax(numbers("dev_omega", dev_omega, len(names))))]


def select_by_criterion(configs: Iterable[str | ScoreConfig], criterion: ArrayLike) -> str:
    """Return the configuration with the smallest criterion, without labels.

    Parameters
    ----------
    configs : sequence of str
        Names of C configurations.
    criterion : array-like of shape (C,)
        Mean criterion over machines.

    Returns
    -------
    str

    Examples
    --------
    >>> from daco.method.selection import select_by_criterion
    >>> select_by_criterion(["raw-k1", "conf-soft-m0-k1"], [0.62, 0.49])
    'conf-soft-m0-k1'
    """
    names = config_names(configs)
    values = numbers("criterion", criterion, len(names), allow_nan=True)
    return names[_smallest(values, "any configuration")]


def guarded_selection(table: Table, veto: Veto = viable) -> str:
    """Return the smallest criterion among viable configurations (the paper's Algorithm 1).

    Parameters
    ----------
    table : mapping of columns
        ``config`` and ``crit_dev``, and ``dev_omega`` if `veto` is a function.
    veto : callable or array of bool
        A function of the dev scores that returns a mask of viable configurations. The default
        excludes the bottom decile; ``lambda dev: viable_within(dev, 5)`` excludes those that are
        more than 5 points below the best. Or such a mask, from a veto that needs no dev labels.

    Returns
    -------
    str
        The name of the configuration.

    Examples
    --------
    >>> from daco.method.selection import guarded_selection
    >>> grid = {
    ...     "config": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...     "dev_omega": [58.7, 56.3, 50.4],
    ...     "crit_dev": [0.62, 0.49, 0.45],
    ... }
    >>> guarded_selection(grid)
    'conf-soft-m0-k1'
    """
    names = config_names(column(table, "config"))
    criterion = numbers("crit_dev", column(table, "crit_dev"), len(names), allow_nan=True)
    if callable(veto):
        mask = np.asarray(veto(numbers("dev_omega", column(table, "dev_omega"), len(names))))
    else:
        mask = np.asarray(veto)
    if mask.shape != (len(names),) or mask.dtype != np.bool_:
        raise InputError(
            f"A veto must give one bool for each of the {len(names)} configurations. "
            f"Got {mask.dtype} of shape {mask.shape}."
        )
    if not mask.any():
        raise InputError(
            f"The veto excludes all {len(names)} configurations. The bottom-decile veto excludes "
            "equal dev scores together: use viable_within or a larger grid."
        )
    return names[_smallest(np.where(mask, criterion, np.nan), "a viable configuration")]


def oracle(configs: Iterable[str | ScoreConfig], eval_omega: ArrayLike) -> str:
    """Return the best configuration in hindsight: an upper bound that reads evaluation labels.

    Parameters
    ----------
    configs : sequence of str
        Names of C configurations.
    eval_omega : array-like of shape (C,)
        Official scores of the evaluation machines.

    Returns
    -------
    str

    Examples
    --------
    >>> from daco.method.selection import oracle
    >>> oracle(["raw-k1", "raw-k2"], [55.8, 56.0])
    'raw-k2'
    """
    names = config_names(configs)
    return names[int(np.argmax(numbers("eval_omega", eval_omega, len(names))))]


def random_expectation(eval_omega: ArrayLike) -> RandomExpectation:
    """Compute mean and standard deviation of the scores of all configurations.

    Parameters
    ----------
    eval_omega : array-like of shape (C,)
        Official scores of the evaluation machines.

    Returns
    -------
    RandomExpectation
        ``sd`` is nan for one configuration.

    Examples
    --------
    >>> from daco.method.selection import random_expectation
    >>> random_expectation([55.0, 57.0, 59.0])
    RandomExpectation(mean=57.0, sd=2.0)
    """
    scores = _scores("eval_omega", eval_omega)
    sd = float(scores.std(ddof=1)) if len(scores) > 1 else float("nan")
    return RandomExpectation(float(scores.mean()), sd)


def per_machine_blind(
    table: Table, pool: Iterable[str | ScoreConfig] | None = None
) -> dict[str, str]:
    """Choose the smallest criterion of the pool for each machine (the paper's blind rule).

    Parameters
    ----------
    table : mapping of columns
        One row per machine and configuration: ``machine``, ``config``, ``balance_ks``. No
        other column is read.
    pool : iterable of str or ScoreConfig, optional
        The candidates in tie-breaking order; :func:`daco.method.config.blind_pool` by default.

    Returns
    -------
    {machine: configuration}

    Examples
    --------
    >>> from daco.method.selection import per_machine_blind
    >>> per_machine_blind(
    ...     {"machine": ["fan", "fan"], "config": ["raw-k1", "raw-k2"], "balance_ks": [0.5, 0.4]},
    ...     pool=["raw-k1", "raw-k2"],
    ... )
    {'fan': 'raw-k2'}
    """
    candidates = config_names(blind_pool() if pool is None else pool)
    machines, _, values = pivot_machines(table, ["balance_ks"], configs=candidates)
    return {
        machine: candidates[_smallest(row, f"a pool configuration of machine {machine!r}")]
        for machine, row in zip(machines, values[:, :, 0], strict=True)
    }


def _scores(name: str, values: ArrayLike) -> Float64s:
    scores = numbers(name, values, np.size(np.asarray(values)))
    if not len(scores):
        raise InputError(f"Column {name!r} is empty. Give at least one configuration.")
    return scores


def _smallest(criterion: Float64s, what: str) -> int:
    if np.isnan(criterion).all():
        raise InputError(
            f"The criterion is NaN for every candidate, so it cannot choose {what}. "
            "The machine needs normals of both domains."
        )
    return int(np.nanargmin(criterion))
