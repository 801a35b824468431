"""Rules that pick a configuration from a grid, and what labels each of them reads.

A grid table has one row per configuration and the published columns: ``config``,
``dev_omega`` and ``eval_omega`` (official score in percent), ``crit_dev`` and ``crit_eval``
(criterion, smaller is better). Any mapping of columns will do: a DataFrame or a dict.

Labels cannot reach a label-free pick: such a function has no argument that could carry
them. Guarded selection reads ``dev_omega`` and ``crit_dev`` and nothing else. Ties are
broken by grid order, and a configuration whose criterion is nan is never chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.evaluation.metrics import QUANTITIES
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool
from daco.method.grid_table import (
    Table,
    column,
    composed_score,
    config_names,
    numbers,
    pivot_machines,
    require_known,
)
from daco.validation import Bools, Float64s

Veto = Callable[[Float64s], Bools] | Sequence[bool] | Bools


@dataclass(frozen=True)
class RandomExpectation:
    """Official score of a configuration drawn at random: mean, and sd with ``n - 1``."""

    mean: float
    sd: float


@dataclass(frozen=True)
class SelectionRow:
    """What one rule picked and what it is worth.

    Attributes
    ----------
    rule : str
        The rule's name.
    config : str or None
        The pick; None when there is not one (per machine, random).
    dev_omega, eval_omega : float or None
        The pick's official scores; None where the table has none.
    crit_dev, crit_eval : float or None
        The pick's criterion on dev machines and on evaluation machines, whichever of them the
        rule read; None where the table has none. Of per-machine picks: the mean of the chosen
        on the machines that chose.
    labels : str
        The labels the rule read: ``"none"``, ``"development"``, ``"development (veto only)"``,
        ``"the mask's"`` (those that a veto given as a mask was made with)
        or ``"evaluation"``.
    eval_sd : float or None
        Standard deviation over configurations, for the random rule.
    """

    rule: str
    config: str | None
    dev_omega: float | None
    eval_omega: float | None
    crit_dev: float | None
    crit_eval: float | None
    labels: str
    eval_sd: float | None = None


def viable(dev_omega: ArrayLike, quantile: float = 0.10) -> Bools:
    """Configurations strictly above the `quantile` (linear) of the dev scores.

    Strict as published: a configuration that sits on the quantile is out.

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
    """The configuration of largest dev score: standard practice, reads dev labels.

    Examples
    --------
    >>> from daco.method.selection import select_by_dev_score
    >>> select_by_dev_score(["raw-k1", "raw-k2"], [58.7, 58.4])
    'raw-k1'
    """
    names = config_names(configs)
    return names[int(np.argmax(numbers("dev_omega", dev_omega, len(names))))]


def select_by_criterion(configs: Iterable[str | ScoreConfig], criterion: ArrayLike) -> str:
    """The configuration of smallest criterion: label-free, and blind to detection power.

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
    """Smallest criterion among the viable configurations (the paper's Algorithm 1).

    Parameters
    ----------
    table : mapping of columns
        ``config`` and ``crit_dev``, and ``dev_omega`` when `veto` is a function.
    veto : callable or array of bool
        A function of the dev scores that says which configurations are viable. By default
        the bottom decile is out; ``lambda dev: viable_within(dev, 5)`` is the threshold
        form. Or such a mask itself, from a veto that needs no dev labels.

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
            f"The veto leaves none of the {len(names)} configurations. The bottom-decile veto is "
            "strict, so equal dev scores all fall: use viable_within or a larger grid."
        )
    return names[_smallest(np.where(mask, criterion, np.nan), "a viable configuration")]


def fixed_default(configs: Iterable[str | ScoreConfig], default: str = DEFAULT_CONFIG) -> str:
    """The configuration named in advance, checked to be in the grid.

    Examples
    --------
    >>> from daco.method.selection import fixed_default
    >>> fixed_default(["raw-k1", "conf-soft-m0-k1"])
    'conf-soft-m0-k1'
    """
    require_known([default], config_names(configs), "The grid")
    return default


def oracle(configs: Iterable[str | ScoreConfig], eval_omega: ArrayLike) -> str:
    """The best configuration in hindsight. Reads evaluation labels: an upper bound, not a rule.

    Examples
    --------
    >>> from daco.method.selection import oracle
    >>> oracle(["raw-k1", "raw-k2"], [55.8, 56.0])
    'raw-k2'
    """
    names = config_names(configs)
    return names[int(np.argmax(numbers("eval_omega", eval_omega, len(names))))]


def random_expectation(eval_omega: ArrayLike) -> RandomExpectation:
    """What a configuration drawn at random scores; sd with ``n - 1``, nan for one value.

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
    table: Table,
    pool: Iterable[str | ScoreConfig] | None = None,
    *,
    split: str | None = None,
) -> dict[str, str]:
    """For each machine the pool configuration of smallest criterion, from its own normals.

    Parameters
    ----------
    table : mapping of columns
        One row per machine and configuration: ``machine``, ``config``, ``balance_ks``. No
        other column is read, but for ``split`` when asked.
    pool : iterable of str or ScoreConfig, optional
        The candidates in tie-breaking order; :func:`daco.method.config.blind_pool` by default.
    split : str, optional
        Only rows of this ``split``, such as ``"eval"``.

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
    machines, _, values = pivot_machines(table, ["balance_ks"], configs=candidates, split=split)
    return {
        machine: candidates[_smallest(row, f"a pool configuration of machine {machine!r}")]
        for machine, row in zip(machines, values[:, :, 0], strict=True)
    }


def selection_table(
    table: Table,
    *,
    per_machine: Table | None = None,
    pool: Iterable[str | ScoreConfig] | None = None,
    split: str | None = None,
    veto: Veto = viable,
    fixed: Sequence[str] | None = None,
) -> list[SelectionRow]:
    """Every rule on one grid, from the least informed to the oracle.

    Parameters
    ----------
    table : mapping of columns
        ``config``, ``dev_omega``, ``crit_dev``; with ``crit_eval`` the criterion on the
        evaluation machines' normals is added, with ``eval_omega`` the scores of the picks,
        the random expectation and the oracle.
    per_machine, pool, split : optional
        As for :func:`per_machine_blind`; without `per_machine` that rule is left out. Its
        score is added when the table has the metric columns.
    veto : callable or array of bool
        As for :func:`guarded_selection`.
    fixed : sequence of str, optional
        Configurations named in advance; by default the paper's, when the grid has it.

    Examples
    --------
    >>> from daco.method.selection import selection_table
    >>> grid = {
    ...     "config": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...     "dev_omega": [58.7, 56.3, 50.4],
    ...     "crit_dev": [0.62, 0.49, 0.45],
    ... }
    >>> for row in selection_table(grid):
    ...     print(row.rule, row.config, row.labels, sep=" | ")
    fixed | conf-soft-m0-k1 | none
    dev score | raw-k1 | development
    criterion | ldn-diff-K16 | none
    guarded criterion | conf-soft-m0-k1 | development (veto only)
    """
    names = config_names(column(table, "config"))
    dev = numbers("dev_omega", column(table, "dev_omega"), len(names))
    criterion = numbers("crit_dev", column(table, "crit_dev"), len(names), allow_nan=True)
    if fixed is None:
        fixed = [DEFAULT_CONFIG] if DEFAULT_CONFIG in names else []
    picks = [("fixed", fixed_default(names, name), "none") for name in fixed]
    picks.append(("dev score", select_by_dev_score(names, dev), "development"))
    picks.append(("criterion", select_by_criterion(names, criterion), "none"))
    own = None
    if "crit_eval" in table:
        own = numbers("crit_eval", column(table, "crit_eval"), len(names), allow_nan=True)
        pick = select_by_criterion(names, own)
        picks.append(("criterion on evaluation normals", pick, "none"))
    pick = guarded_selection(table, veto)
    veto_labels = "development (veto only)" if callable(veto) else "the mask's"
    picks.append(("guarded criterion", pick, veto_labels))
    blind = per_machine_blind(per_machine, pool, split=split) if per_machine is not None else None

    # every label-free and guarded pick is made; only now are evaluation scores read
    scores = None
    if "eval_omega" in table:
        scores = numbers("eval_omega", column(table, "eval_omega"), len(names))

    def row(rule: str, config: str, labels: str) -> SelectionRow:
        at = names.index(config)
        omega, on_eval = (None if each is None else float(each[at]) for each in (scores, own))
        criteria = float(criterion[at]), on_eval
        return SelectionRow(rule, config, float(dev[at]), omega, *criteria, labels)

    rows = [row(*pick) for pick in picks]
    if per_machine is not None and blind is not None:
        rows.append(_blind_row(per_machine, blind, split))
    if scores is not None:
        chance = random_expectation(scores)
        spread = SelectionRow("random", None, None, chance.mean, None, None, "none", chance.sd)
        rows = [spread, *rows, row("oracle", oracle(names, scores), "evaluation")]
    return rows


def _blind_row(per_machine: Table, choices: Mapping[str, str], split: str | None) -> SelectionRow:
    used = list(dict.fromkeys(choices.values()))
    machines, _, values = pivot_machines(per_machine, ["balance_ks"], configs=used, split=split)
    chosen = [values[i, used.index(choices[m]), 0] for i, m in enumerate(machines)]
    omega = None
    if all(quantity in per_machine for quantity in QUANTITIES):
        omega = composed_score(per_machine, choices, split=split)
    criteria = blind_criteria(float(np.mean(chosen)), split)
    return SelectionRow("per-machine blind", None, None, omega, *criteria, "none")


def blind_criteria(mean: float | None, split: str | None) -> tuple[float | None, float | None]:
    """``crit_dev`` and ``crit_eval`` of picks per machine: one of them, by who chose."""
    return (mean, None) if split == "dev" else (None, mean)


def _scores(name: str, values: ArrayLike) -> Float64s:
    scores = numbers(name, values, np.size(np.asarray(values)))
    if not len(scores):
        raise InputError(f"Column {name!r} is empty. Give at least one configuration.")
    return scores


def _smallest(criterion: Float64s, what: str) -> int:
    if np.isnan(criterion).all():
        raise InputError(
            f"The criterion is nan for all that could be chosen: it does not rank {what}. A "
            "machine needs normals of both domains for it."
        )
    return int(np.nanargmin(criterion))
