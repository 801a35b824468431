"""Label-free choice for machines of which there are only normal recordings (``daco select``).

Only training clips and their domains are read; every machine is chosen for by
:func:`daco.method.choice.choose_config`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.compute.processes import SCORING, outcomes, worker_pool, workers_for
from daco.data.dcase import require_normal_names
from daco.errors import DacoError, InputError
from daco.experiments.device import banks_with_balances, require_device
from daco.experiments.inputs import Table, VectorReader
from daco.method.choice import Choice, choose, choose_config
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance, Floor
from daco.method.floor import mean_floor
from daco.method.grid_table import column, config_names, numbers
from daco.method.selection import viable
from daco.method.viability import refuse_oracle, viability_veto
from daco.text import name_list, quantity

if TYPE_CHECKING:
    import pandas as pd

ALL_MACHINES = "all machines"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LabelFreeChoice:
    """The choice for one machine, or for all of them together.

    Attributes
    ----------
    machine : str
    domains : dict
        Training clips of each domain; of all machines, machines instead.
    pick : str
        The candidate of smallest criterion that the veto leaves.
    use, advice : str
        What to use and why: the default where it is as good within the noise.
    criterion, default_criterion : float or None
        Of the pick and of the fixed default; None where there is nothing to balance.
    floor : Floor or None
        Mean and sd of the criterion when the domains do not differ.
    criteria : dict
        The criterion of every candidate.
    within_noise : tuple of str
        Other candidates that cannot be told from the pick.
    pseudo_scores : dict
        How well every candidate detects pseudo-anomalies, in percent; empty where unknown.
    cut : dict
        Candidates that the label-free veto excludes, and why.
    """

    machine: str
    domains: dict[str, int]
    pick: str
    use: str
    advice: str
    criterion: float | None
    default_criterion: float | None
    floor: Floor | None
    criteria: dict[str, float]
    within_noise: tuple[str, ...]
    pseudo_scores: dict[str, float] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelFreeSelection:
    """A choice per machine, and one for all of them.

    ``common`` is None when no machine has a criterion; ``vetoed`` is None without a dev grid;
    ``basis`` says what the label-free veto rests on, None where there is no veto.
    """

    machines: tuple[LabelFreeChoice, ...]
    common: LabelFreeChoice | None
    candidates: tuple[str, ...]
    vetoed: tuple[str, ...] | None
    seed: int
    n_splits: int
    notes: tuple[str, ...]
    basis: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"schema": 1, "default": DEFAULT_CONFIG, **asdict(self)}


def select_label_free(
    table: Table,
    candidates: Iterable[str | ScoreConfig] | None = None,
    *,
    dev_grid: pd.DataFrame | None = None,
    readout: str | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    device: str = "cpu",
    progress: Progress | None = None,
) -> LabelFreeSelection:
    """Choose a configuration for each machine, and one for all of them.

    Parameters
    ----------
    table : EmbeddingTable or StoredTable
        Only clips of split ``train`` are read: their vectors, machines and domains.
    candidates : iterable of str or ScoreConfig, optional
        In tie-breaking order; :func:`daco.method.config.blind_pool` by default.
    dev_grid : DataFrame, optional
        ``config`` and ``dev_omega`` of labelled machines: candidates in the bottom decile of
        that grid, or not in it at all, are left out first.
    readout : str, optional
        Which vectors of the table; by default its first.
    seed, n_splits : int
        Of the criterion.
    workers : int, optional
        Processes; by default one per core, and this one alone for fewer than 40 machines. With
        Ray, tasks at once at most.
    engine, address, device : str
        As of :func:`daco.experiments.run.study`. The choice is the same.
    progress : callable, optional
        Called with the machines done and their number.

    Examples
    --------
    >>> import numpy as np
    >>> from daco import EmbeddingTable
    >>> from daco.experiments.labelfree import select_label_free
    >>> X = np.random.default_rng(0).normal(size=(60, 8)) + 2
    >>> normals = EmbeddingTable.from_arrays(X, machine="fan", domain=["old"] * 50 + ["new"] * 10)
    >>> select_label_free(normals, ["raw-k1", "conf-soft-m0-k1"]).machines[0].use
    'conf-soft-m0-k1'
    """
    grid = blind_pool() if candidates is None else parse_grid(candidates)
    refuse_oracle(grid)
    names, vetoed, notes = _apply_dev_grid(config_names(grid), dev_grid)
    require_device(device, engine)
    banks = Normals(table, readout)
    work = partial(
        _choice,
        names,
        bands=banks.bands,
        n_splits=n_splits,
        seed=seed,
    )
    scored = names if DEFAULT_CONFIG in names else [*names, DEFAULT_CONFIG]
    items: Iterable[tuple[int, tuple[Any, ...]]] = enumerate(banks)
    if device != "cpu":
        items = banks_with_balances(banks, scored, n_splits, seed, device, banks.bands)
    with worker_pool(workers_for(len(banks), workers, engine), engine, address, SCORING) as pool:
        choices = _run(pool, work, items, banks, progress or (lambda *_: None))
    pseudo = [choice.pseudo for choice in choices if choice.pseudo is not None]
    common = _common(choices, names)
    notes += viability_veto(pseudo).notes if pseudo else ()
    if any(choice.balance is not None for choice in choices) and not pseudo:
        notes.append("No machine has enough normals for the label-free veto.")
    if excluded := dict.fromkeys(name for choice in choices for name in choice.vetoed):
        notes.append(f"Not chosen where the label-free veto excludes them: {name_list(excluded)}.")
    return LabelFreeSelection(
        machines=tuple(
            _described(title, dict(sorted(Counter(domains).items())), choice)
            for title, domains, choice in zip(banks.titles, banks.domains, choices, strict=True)
        ),
        common=common,
        candidates=tuple(names),
        vetoed=vetoed,
        seed=seed,
        n_splits=n_splits,
        notes=tuple(notes),
        basis=pseudo[0].basis if pseudo else None,
    )


class Normals(Sequence[tuple[str, Any, list[str]]]):
    """Title, vectors and domains of each machine's training clips, read when asked for."""

    def __init__(self, table: Table, readout: str | None) -> None:
        train = np.flatnonzero(table.columns["split"] == "train")
        names = ("path", "year", "machine", "section", "split", "domain", "label")
        columns = {name: table.columns[name][train].tolist() for name in names}
        _require_train(columns)
        keys = list(zip(columns["year"], columns["machine"], columns["section"], strict=True))
        rows: dict[tuple[Any, str, str], list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        self.bands = table.bands(readout)  # an unknown readout is an error here
        self.titles = _titles(list(rows))
        self.domains = [[columns["domain"][row] for row in mine] for mine in rows.values()]
        self._reader = VectorReader(table, readout, [train[mine] for mine in rows.values()])

    def __len__(self) -> int:
        return len(self.titles)

    def __getitem__(self, at: Any) -> Any:
        if not 0 <= at < len(self):
            raise IndexError(at)
        return self.titles[at], self._reader.vectors(at), self.domains[at]


def _require_train(columns: Mapping[str, list[Any]]) -> None:
    if not columns["split"]:
        raise InputError(
            "The table has no clip of split 'train'. A choice needs normal recordings: correct the "
            "'split' column, or embed the training clips."
        )

    def machines(name: str, value: Any) -> list[str]:
        pairs = zip(columns["machine"], columns[name], strict=True)
        return [machine for machine, each in pairs if each == value]

    if missing := machines("domain", None):
        raise InputError(
            f"{quantity(missing, 'training clip')} without a domain (machines: "
            f"{name_list(dict.fromkeys(missing))}). The criterion compares domains: fill the "
            "'domain' column."
        )
    if anomalies := machines("label", 1):
        raise InputError(
            f"{quantity(anomalies, 'training clip')} labelled as anomaly (machines: "
            f"{name_list(dict.fromkeys(anomalies))}). Training clips are normal: remove them."
        )
    require_normal_names(columns["path"])


def _titles(keys: Sequence[tuple[Any, str, str]]) -> list[str]:
    """A machine's name, with section and year where the name alone is ambiguous."""
    sections = Counter((year, machine) for year, machine, _ in keys)
    years: dict[str, set[Any]] = {}
    for year, machine, _ in keys:
        years.setdefault(machine, set()).add(year)
    return [
        machine
        + (f"_{section}" if sections[year, machine] > 1 else "")
        + (f" ({year})" if len(years[machine]) > 1 and year is not None else "")
        for year, machine, section in keys
    ]


def _choice(
    names: list[str],
    machine: str,
    vectors: Any,
    domains: list[str],
    balance: Balance | None = None,
    *,
    bands: int,
    n_splits: int,
    seed: int,
) -> Choice:
    """The choice for one machine; a device may have computed the criterion."""
    return choose_config(
        vectors,
        domains,
        names,
        bands=bands,
        n_splits=n_splits,
        seed=seed,
        balance=balance,
    )


def _run(
    pool: Executor | None,
    work: Callable[..., Choice],
    items: Iterable[tuple[int, tuple[Any, ...]]],
    banks: Normals,
    progress: Progress,
) -> list[Choice]:
    """The choices in the order of the machines; an error names all machines that failed."""
    choices: dict[int, Choice] = {}
    failures: dict[int, DacoError] = {}
    progress(0, len(banks))
    for index, outcome in outcomes(pool, work, items):
        if isinstance(outcome, DacoError):
            failures[index] = outcome
        else:
            choices[index] = outcome
        progress(len(choices) + len(failures), len(banks))
    if failures:
        order = sorted(failures)
        if len(banks) == 1:
            raise failures[0]
        head = f"{len(failures)} of {len(banks)} machines could not be judged."
        listed = [f"{banks.titles[index]}: {failures[index]}" for index in order]
        raise type(failures[order[0]])("\n".join([head, *listed]))
    return [choices[index] for index in range(len(banks))]


def _described(machine: str, sizes: dict[str, int], choice: Choice) -> LabelFreeChoice:
    smallest, noise = choice.criterion.get(choice.smallest), choice.noise or 0.0
    near = [
        name
        for name, value in choice.criterion.items()
        if smallest is not None and value - smallest <= noise
    ]
    scores = {}
    if choice.pseudo is not None:
        pairs = zip(choice.pseudo.configs, choice.pseudo.score.tolist(), strict=True)
        scores = {name: 100 * score for name, score in pairs}
    return LabelFreeChoice(
        machine=machine,
        domains=sizes,
        pick=choice.smallest,
        use=choice.config,
        advice=choice.reason,
        criterion=smallest,
        default_criterion=choice.default_criterion,
        floor=choice.floor,
        criteria=choice.criterion,
        within_noise=tuple(
            name for name in near if name != choice.smallest and name not in choice.vetoed
        ),
        pseudo_scores=scores,
        cut=choice.vetoed,
    )


def _common(choices: Sequence[Choice], names: list[str]) -> LabelFreeChoice | None:
    """One configuration for all machines, by the mean criterion."""
    known = [choice for choice in choices if choice.criterion]
    if not known:
        return None
    means = np.mean([list(choice.criterion.values()) for choice in known], axis=0)
    default = float(np.mean([choice.default_criterion for choice in known]))
    floors = [choice.floor for choice in known if choice.floor is not None]
    pseudo = [choice.pseudo for choice in choices if choice.pseudo is not None]
    viability = viability_veto(pseudo) if pseudo else None
    choice = choose(
        names,
        means,
        mean_floor(floors, independent=True),
        viability,
        default_criterion=default,
    )
    found = _described(ALL_MACHINES, {"machines": len(known)}, choice)
    if viability is not None:
        pairs = zip(viability.configs, viability.score.tolist(), strict=True)
        found.pseudo_scores.update({name: 100 * score for name, score in pairs})
    return found


def _apply_dev_grid(
    names: list[str], dev_grid: pd.DataFrame | None
) -> tuple[list[str], tuple[str, ...] | None, list[str]]:
    """The candidates that a dev grid leaves, those it excludes, and notes about it."""
    if dev_grid is None:
        return names, None, []
    known = config_names(column(dev_grid, "config"))
    scores = numbers("dev_omega", column(dev_grid, "dev_omega"), len(known))
    keep = dict(zip(known, viable(scores).tolist(), strict=True))
    vetoed = tuple(name for name in names if not keep.get(name, True))
    unknown = [name for name in names if name not in keep]
    left = [name for name in names if keep.get(name, False)]
    if not left:
        raise InputError(
            f"The dev grid leaves none of the {len(names)} candidates: {len(vetoed)} are in its "
            f"bottom decile, {len(unknown)} are not in it. Give another grid of candidates."
        )
    notes = []
    if unknown:
        notes.append(f"Left out, because the dev grid does not have them: {name_list(unknown)}.")
    if vetoed:
        notes.append(f"Left out by the dev scores: {name_list(vetoed)}.")
    return left, vetoed, notes
