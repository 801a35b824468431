"""Result tables by configuration, and what evaluation scores say about them.

Any mapping of columns is a table, a DataFrame as well as a dict of arrays; column names are the
published ones. A missing or doubled entry is an error that names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.config import ScoreConfig, blind_pool
from daco.method.selection import Rule, Table, choose, column, config_names, numbers
from daco.text import suggestion
from daco.validation import Bools, Float64s

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "RandomExpectation",
    "Table",
    "column",
    "composed_score",
    "config_names",
    "numbers",
    "oracle",
    "per_machine_blind",
    "pivot_machines",
    "random_expectation",
    "require_known",
    "viable_within",
]


@dataclass(frozen=True)
class RandomExpectation:
    """Official score of a configuration drawn at random: mean, and sd with ``n - 1``."""

    mean: float
    sd: float


def random_expectation(eval_omega: ArrayLike) -> RandomExpectation:
    """Compute mean and standard deviation of the scores of all configurations.

    Examples
    --------
    >>> from daco.experiments.grid_table import random_expectation
    >>> random_expectation([55.0, 57.0, 59.0])
    RandomExpectation(mean=57.0, sd=2.0)
    """
    scores = numbers("eval_omega", eval_omega, np.size(eval_omega))
    sd = float(scores.std(ddof=1)) if len(scores) > 1 else float("nan")
    return RandomExpectation(float(scores.mean()), sd)


def oracle(configs: Iterable[str | ScoreConfig], eval_omega: ArrayLike) -> str:
    """Return the best configuration in hindsight: an upper bound that reads evaluation labels.

    Examples
    --------
    >>> from daco.experiments.grid_table import oracle
    >>> oracle(["raw-k1", "raw-k2"], [55.8, 56.0])
    'raw-k2'
    """
    names = config_names(configs)
    return names[int(np.argmax(numbers("eval_omega", eval_omega, len(names))))]


def pivot_machines(
    table: Table,
    columns: Sequence[str],
    *,
    configs: Iterable[str | ScoreConfig] | None = None,
    split: str | None = None,
) -> tuple[list[str], list[str], Float64s]:
    """Turn a per-machine table into an array (machines, configurations, columns).

    Parameters
    ----------
    table : mapping of columns
        ``machine``, ``config`` and `columns`; ``split`` when `split` is given.
    columns : sequence of str
        What to gather, such as :data:`daco.evaluation.metrics.QUANTITIES`.
    configs : iterable of str or ScoreConfig, optional
        Which configurations, and in which order; by default all, as they come.
    split : str, optional
        Only rows of this split, such as ``"eval"``.

    Returns
    -------
    machines, configs : list of str
        In the order of the table.
    values : ndarray of shape (n_machines, n_configs, n_columns)

    Examples
    --------
    >>> from daco.experiments.grid_table import pivot_machines
    >>> table = {"machine": ["fan", "fan"], "config": ["raw-k1", "raw-k2"], "pauc": [51.0, 52.0]}
    >>> machines, configs, values = pivot_machines(table, ["pauc"])
    >>> machines, configs, values.shape
    (['fan'], ['raw-k1', 'raw-k2'], (1, 2, 1))
    """
    cells = _cells(table, columns, split)
    machines = list(dict.fromkeys(machine for machine, _ in cells.index))
    known = list(dict.fromkeys(config for _, config in cells.index))
    names = known if configs is None else config_names(configs)
    require_known(names, known, "The per-machine table")
    chosen = _rows(cells, [(machine, name) for machine in machines for name in names])
    return machines, names, chosen.reshape(len(machines), len(names), -1)


def composed_score(table: Table, choices: Mapping[str, str]) -> float:
    """Compute the official score if each machine uses its own configuration.

    It reads the metric columns, so call it only after a label-free choice.

    Parameters
    ----------
    table : mapping of columns
        Metrics of each machine and configuration, as in ``per_machine.csv``.
    choices : dict of str to str
        The configuration of each machine.

    Returns
    -------
    float
        In the unit of the table.

    Examples
    --------
    >>> from daco.experiments.grid_table import composed_score
    >>> table = {"machine": ["fan"], "config": ["raw-k2"],
    ...          "auc_source": [70.0], "auc_target": [60.0], "pauc": [55.0]}
    >>> round(composed_score(table, {"fan": "raw-k2"}), 2)
    61.06
    """
    return float(harmonic_mean(_rows(_cells(table, QUANTITIES), list(choices.items()))))


def require_known(wanted: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise an InputError with the closest known name for a name that is not known."""
    known = list(known)
    for name in wanted:
        if name not in known:
            raise InputError(f"{where} has no {name!r}.{suggestion(name, known, cutoff=0.0)}")


def _cells(table: Table, columns: Sequence[str], split: str | None = None) -> pd.DataFrame:
    """The columns by machine and configuration."""
    import pandas as pd

    keys = ["machine", "config"] if split is None else ["machine", "config", "split"]
    texts = {name: [str(each) for each in column(table, name)] for name in keys}
    if len({len(each) for each in texts.values()}) > 1:
        raise InputError(f"The columns {', '.join(keys)} must have one length.")
    count = len(texts["machine"])
    values = {c: numbers(c, column(table, c), count, allow_nan=True) for c in columns}
    frame = pd.DataFrame(texts | values)
    if split is not None:
        require_known([split], texts["split"], "Column 'split'")
        frame = frame[frame["split"] == split]
    if frame.empty:
        raise InputError("The per-machine table is empty. Give one row per machine and config.")
    cells = frame.set_index(["machine", "config"])
    doubled = cells.index[cells.index.duplicated()]
    if len(doubled):
        machine, config = doubled[0]
        raise InputError(
            f"Machine {machine!r} has {config!r} twice. Keep one split and one channel policy."
        )
    return cells[list(columns)]


def _rows(cells: pd.DataFrame, wanted: Sequence[tuple[str, str]]) -> Float64s:
    """The values of some machines and configurations, (n, columns)."""
    for machine, config in wanted:
        if (machine, config) not in cells.index:
            raise InputError(
                f"Machine {machine!r} has no row for {config!r}. Score that configuration too, or "
                "choose among those it has."
            )
    return cells.loc[list(wanted)].to_numpy(float)


def per_machine_blind(
    table: Table, pool: Iterable[str | ScoreConfig] | None = None
) -> dict[str, str]:
    """Choose the smallest criterion of a pool for each machine (the paper's blind rule).

    The table has a row for each machine and configuration, and columns ``machine``, ``config`` and
    ``balance_ks``; no other is read. The pool is :func:`daco.method.config.blind_pool` by default.

    >>> table = {"machine": ["fan"] * 2, "config": ["raw-k1", "raw-k2"], "balance_ks": [0.5, 0.4]}
    >>> per_machine_blind(table, ["raw-k1", "raw-k2"])
    {'fan': 'raw-k2'}
    """
    names = config_names(blind_pool() if pool is None else pool)
    columns = (column(table, name) for name in ("machine", "config", "balance_ks"))
    criteria: dict[str, dict[str, float]] = {}
    for machine, config, value in zip(*columns, strict=True):
        criteria.setdefault(str(machine), {})[str(config)] = float(value)
    chosen = {}
    for machine, known in criteria.items():
        missing = [name for name in names if name not in known]
        if missing:
            raise InputError(f"Machine {machine!r} has no row for {missing[0]!r}. Score it, too.")
        candidates = {"config": names, "criterion": [known[name] for name in names]}
        chosen[machine] = choose(candidates, Rule.CRITERION).config
    return chosen


def viable_within(dev_scores: ArrayLike, delta: float) -> Bools:
    """Configurations at most `delta` points below the best dev score.

    >>> viable_within([50.0, 58.0, 57.0, 56.0], delta=2).tolist()
    [False, True, True, True]
    """
    scores = numbers("dev_score", dev_scores, np.size(dev_scores))
    # 58.7 - 0.3 is a little more than 58.4 in floating point, and 58.4 is within 0.3.
    return np.asarray(scores >= scores.max() - delta - 1e-9)
