"""Result tables: one row per configuration, or per machine and configuration.

Any mapping of columns is a table, a DataFrame as well as a dict of arrays; column names are the
published ones. A missing or doubled entry, or a value that is not a number, is an error that names
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.method.config import ScoreConfig
from daco.text import suggestion
from daco.validation import Float64s


class Table(Protocol):
    """Columns by name, as in a DataFrame or a dict of arrays."""

    def __getitem__(self, key: str, /) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...


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
    >>> from daco.method.grid_table import pivot_machines
    >>> table = {"machine": ["fan", "fan"], "config": ["raw-k1", "raw-k2"], "pauc": [51.0, 52.0]}
    >>> machines, configs, values = pivot_machines(table, ["pauc"])
    >>> machines, configs, values.shape
    (['fan'], ['raw-k1', 'raw-k2'], (1, 2, 1))
    """
    cells, data = _cells(table, columns, split)
    machines = list(dict.fromkeys(machine for machine, _ in cells))
    known = list(dict.fromkeys(config for _, config in cells))
    names = known if configs is None else config_names(configs)
    require_known(names, known, "The per-machine table")
    rows = [[_row(cells, machine, name) for name in names] for machine in machines]
    return machines, names, data[np.array(rows)]


def composed_score(table: Table, choices: Mapping[str, str]) -> float:
    """Compute the official score if each machine uses its own configuration.

    It reads the metric columns, so call it only after a label-free choice.

    Parameters
    ----------
    table : DataFrame, or dict of arrays by column
        Metrics of each machine and configuration, as in ``per_machine.csv``.
    choices : dict of str to str
        The configuration of each machine.

    Returns
    -------
    float
        In the unit of the table.

    Examples
    --------
    >>> from daco.method.grid_table import composed_score
    >>> table = {"machine": ["fan"], "config": ["raw-k2"],
    ...          "auc_source": [70.0], "auc_target": [60.0], "pauc": [55.0]}
    >>> round(composed_score(table, {"fan": "raw-k2"}), 2)
    61.06
    """
    cells, data = _cells(table, QUANTITIES, None)
    if not choices:
        raise InputError("composed_score was given no choices. Choose for at least one machine.")
    require_known(choices, {machine for machine, _ in cells}, "The per-machine table")
    return float(harmonic_mean([data[_row(cells, *choice)] for choice in choices.items()]))


def column(table: Table, name: str) -> Any:
    """A column of `table`, or an error that lists those it has."""
    if name not in table:
        has = ", ".join(map(str, table)) or "none"
        raise InputError(f"The table has no column {name!r}. It has: {has}.")
    return table[name]


def config_names(configs: Iterable[str | ScoreConfig]) -> list[str]:
    """Configuration names in grid order: at least one, and none twice."""
    if isinstance(configs, str):
        raise InputError(f"Give a sequence of configurations. Got the single name {configs!r}.")
    names: dict[str, None] = {}
    for config in configs:
        if not isinstance(config, str | ScoreConfig):
            raise InputError(f"A configuration must be a name. Got {config!r} at row {len(names)}.")
        if str(config) in names:
            raise InputError(
                f"The grid has {str(config)!r} twice. Select within one setting: keep the rows of "
                "one year, backbone and channel policy."
            )
        names[str(config)] = None
    if not names:
        raise InputError("The grid is empty. Give at least one configuration.")
    return list(names)


def numbers(name: str, values: ArrayLike, n: int, *, allow_nan: bool = False) -> Float64s:
    """Column `name` as `n` floats."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"Column {name!r} must be numbers: {error}.") from None
    if array.shape != (n,):
        raise InputError(
            f"Column {name!r} must have one value for each of the {n} rows. "
            f"Got shape {array.shape}."
        )
    bad = ~np.isfinite(array)
    if not allow_nan and bad.any():
        row = int(np.argmax(bad))
        raise InputError(
            f"Column {name!r} is {array[row]} at row {row}. Score that configuration or remove "
            "its row."
        )
    return array


def require_known(wanted: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise an InputError with the closest known name for a name that is not known."""
    known = list(known)
    for name in wanted:
        if name not in known:
            raise InputError(f"{where} has no {name!r}.{suggestion(name, known, cutoff=0.0)}")


def _cells(
    table: Table, columns: Sequence[str], split: str | None
) -> tuple[dict[tuple[str, str], int], Float64s]:
    """The row of each machine and configuration, and the columns' values."""
    machines = [str(machine) for machine in column(table, "machine")]
    configs = [str(config) for config in column(table, "config")]
    if len(machines) != len(configs):
        raise InputError(
            f"Columns of one table have one length. 'machine' has {len(machines)} rows, 'config' "
            f"{len(configs)}."
        )
    rows: Iterable[int] = range(len(machines))
    if split is not None:
        splits = [str(s) for s in column(table, "split")]
        require_known([split], splits, "Column 'split'")
        rows = [row for row in rows if splits[row] == split]
    cells: dict[tuple[str, str], int] = {}
    for row in rows:
        cell = machines[row], configs[row]
        if cell in cells:
            raise InputError(
                f"Machine {cell[0]!r} has {cell[1]!r} twice. Keep one split and one channel policy."
            )
        cells[cell] = row
    if not cells:
        raise InputError("The per-machine table is empty. Give one row per machine and config.")
    values = [numbers(c, column(table, c), len(machines), allow_nan=True) for c in columns]
    return cells, np.column_stack(values)


def _row(cells: Mapping[tuple[str, str], int], machine: str, config: str) -> int:
    if (machine, config) not in cells:
        raise InputError(
            f"Machine {machine!r} has no row for {config!r}. Score that configuration too, or "
            "choose among those it has."
        )
    return cells[machine, config]
