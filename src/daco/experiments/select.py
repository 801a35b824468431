"""Choosing for machines of which there are only normal recordings (``daco select``).

Only training clips and their domains are read; every machine is chosen for by
:func:`daco.method.selection.choose_config`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from daco.compute import jobs_for, run
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.errors import DacoError, InputError
from daco.experiments.analysis import criterion_floor
from daco.experiments.inputs import VectorReader, refuse_clips, require_normals, rows_by
from daco.experiments.machine_data import left_out, require_some
from daco.method.bank import NormalBank
from daco.method.config import ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS
from daco.method.engine import refuse_oracle
from daco.method.selection import Choice, Rule, choose, choose_config, config_names
from daco.method.viability import viability_veto
from daco.validation import Indices


@dataclass(frozen=True)
class MachineChoice:
    """The choice for one machine, or for all of them together.

    Attributes
    ----------
    machine : str
    domains : {str: int}
        Number of training clips in each domain; of all machines, their number.
    choice : Choice
    floor : float or None
        The criterion if the domains did not differ.
    """

    machine: str
    domains: dict[str, int]
    choice: Choice
    floor: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {**vars(self), "choice": self.choice.to_dict()}


@dataclass(frozen=True)
class Selection:
    """A choice for each machine, and one for all of them.

    Attributes
    ----------
    machines : tuple of MachineChoice
    common : MachineChoice or None
        The choice for all machines; None if no machine has a criterion.
    candidates : tuple of str
    seed, n_splits : int
        Seed and number of the splits of the criterion.
    notes : tuple of str
        Remarks in sentences.
    """

    machines: tuple[MachineChoice, ...]
    common: MachineChoice | None
    candidates: tuple[str, ...]
    seed: int
    n_splits: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        machines = [each.to_dict() for each in self.machines]
        common = None if self.common is None else self.common.to_dict()
        return {**vars(self), "machines": machines, "common": common}


def select_label_free(
    table: EmbeddingTable,
    candidates: Iterable[str | ScoreConfig] | None = None,
    *,
    readout: str | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    workers: int | None = None,
    engine: str = "local",
    progress: Callable[[int, int], None] | None = None,
) -> Selection:
    """Choose a configuration for each machine, and one for all of them, without labels.

    Parameters
    ----------
    table : EmbeddingTable
        Only clips of split ``train`` are used: their embeddings, machines, domains and sessions.
    candidates : iterable of str or ScoreConfig, optional
        In tie-breaking order; :func:`daco.method.config.blind_pool` by default.
    readout : str, optional
        The readout of the table to use; by default its first.
    seed, n_splits : int
        Seed and number of the splits of the criterion.
    workers : int, optional
        Processes; by default one per core, and this one alone for fewer than 40 machines. With
        Ray, the most tasks at a time.
    engine : str
        As in :func:`daco.study`. The choice is the same.
    progress : callable, optional
        Called with the number of machines done, and of all machines.

    Returns
    -------
    Selection

    Examples
    --------
    >>> import numpy as np
    >>> from daco import EmbeddingTable
    >>> from daco.experiments.select import select_label_free
    >>> X = np.random.default_rng(0).normal(size=(60, 8)) + 2
    >>> normals = EmbeddingTable.from_arrays(X, machine="fan", domain=["old"] * 50 + ["new"] * 10)
    >>> select_label_free(normals, ["raw-k1", "conf-soft-m0-k1"]).machines[0].choice.config
    'conf-soft-m0-k1'
    """
    grid = blind_pool() if candidates is None else parse_grid(candidates)
    refuse_oracle(grid)
    names, notes = config_names(grid), list[str]()
    train = np.flatnonzero(table.columns["split"] == "train")
    if not len(train):
        raise InputError("The table has no clip of split 'train': embed normal recordings.")
    refuse_clips(table, train, "domain", None, "without a domain")
    require_normals(table, train)
    rows = rows_by(table, "year", "machine", "section", rows=train)
    titles = _titles(list(rows))
    domains = [table.columns["domain"][mine].tolist() for mine in rows.values()]
    sessions = _sessions(table, rows.values())
    reader = VectorReader(table, readout, list(rows.values()))
    items = ((at, (reader.vectors(at), domains[at], sessions[at])) for at in range(len(rows)))
    options = {"pool": names, "n_splits": n_splits, "seed": seed}
    work = partial(_choose, table.layout(readout), options)
    results: dict[int, Choice | DacoError] = {}
    report = progress or (lambda done, total: None)
    report(0, len(rows))
    jobs = jobs_for(len(rows), workers, engine)
    for at, outcome in run(work, items, jobs=jobs, engine=engine):
        results[at] = outcome
        report(len(results), len(rows))
    machines, failures = [], {}
    for at, choice in sorted(results.items()):
        if isinstance(choice, Choice):
            sizes = dict(sorted(Counter(domains[at]).items()))
            floor = _mean(criterion_floor(*pair) for pair in combinations(sizes.values(), 2))
            machines.append(MachineChoice(titles[at], sizes, choice, floor))
        else:
            failures[titles[at]] = choice
    notes += left_out(dict(sorted(failures.items())))
    require_some(machines, notes)
    common, remarks = _common(machines, names)
    notes += remarks
    return Selection(tuple(machines), common, tuple(names), seed, n_splits, tuple(notes))


def _choose(
    views: Views, options: dict[str, Any], vectors: Any, domains: list[str], sessions: list[str]
) -> Choice:
    """The choice for one machine."""
    bank = NormalBank(vectors, domains, views=views)
    return choose_config(bank, sessions=sessions, **options)


def _common(
    machines: Sequence[MachineChoice], names: list[str]
) -> tuple[MachineChoice | None, Sequence[str]]:
    """One configuration for all machines by the mean criterion, and notes about the veto."""
    known = [each for each in machines if each.choice.balance is not None]
    balances = [each.choice.balance for each in known if each.choice.balance is not None]
    if not balances:
        return None, ()
    table: dict[str, Any] = {
        "config": names,
        "criterion": np.mean([balance.values for balance in balances], axis=0),
    }
    notes: Sequence[str] = ("No machine has enough normals for the label-free veto.",)
    if pseudo := [each.choice.pseudo for each in known if each.choice.pseudo is not None]:
        veto = viability_veto(pseudo)
        table["viable"] = [name not in veto.reasons for name in names]
        notes = veto.warnings
    resampled = np.mean([balance.resampled for balance in balances], axis=0)
    choice = choose(table, Rule.GUARDED, resampled=resampled)
    floor = _mean(each.floor for each in known)
    return MachineChoice("all machines", {"machines": len(known)}, choice, floor), notes


def _mean(values: Iterable[float | None]) -> float | None:
    """The mean of the values that are known."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _sessions(table: EmbeddingTable, machines: Iterable[Indices]) -> list[list[str]]:
    """Recording sessions of each machine's clips, "" where not known; none where none is."""
    known = table.columns.get("session")
    if known is None or not any(known):
        return [[] for _ in machines]
    return [[session or "" for session in known[rows].tolist()] for rows in machines]


def _titles(keys: Sequence[tuple[Any, str, str]]) -> list[str]:
    """A machine's name, with section and year where the name alone is ambiguous."""
    sections = Counter((year, machine) for year, machine, _ in keys)
    years = Counter(machine for _, machine in sections)
    return [
        machine
        + (f"_{section}" if sections[year, machine] > 1 else "")
        + (f" ({year})" if years[machine] > 1 and year is not None else "")
        for year, machine, section in keys
    ]
