"""Label-free choice for machines of which there are only normal recordings (``daco select``).

Only training clips and their domains are read; every machine is chosen for by
:func:`daco.method.choice.choose_config`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.compute.processes import SCORING, worker_pool, workers_for
from daco.data.dcase import require_normal_names
from daco.errors import InputError
from daco.experiments.device import require_device, with_balances
from daco.experiments.inputs import Table, VectorReader, rows_by
from daco.experiments.machine import Items, Settings, collect, require_some
from daco.method.choice import Choice, choose, choose_config
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance, Floor
from daco.method.floor import mean_floor
from daco.method.grid_table import column, config_names, numbers
from daco.method.limits import refuse_oracle
from daco.method.selection import viable
from daco.method.viability import viability_veto
from daco.text import name_list, quantity
from daco.validation import Float64s, Indices

if TYPE_CHECKING:
    import pandas as pd

ALL_MACHINES = "all machines"


@dataclass(frozen=True)
class LabelFreeChoice:
    """The choice for one machine, or for all of them together; unknown values are None or empty.

    Attributes
    ----------
    machine : str
    domains : {str: int}
        Number of training clips in each domain, of this machine or of all.
    use, advice : str
        The configuration to use, and why: the default if it is as good within the noise.
    pick : str
        The candidate with the smallest criterion that the veto leaves.
    criterion, default_criterion : float or None
        The criterion of `pick`, and of the default.
    floor : Floor or None
        Mean and sd of the criterion if the domains do not differ.
    criteria : {str: float}
        The criterion of every candidate.
    within_noise : tuple of str
        Other candidates that cannot be distinguished from `pick`.
    pseudo_scores : {str: float}
        How well each candidate detects pseudo-anomalies, in percent.
    cut : {str: str}
        Candidates that the label-free veto excludes, with the reasons.
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
    """A choice for each machine, and one for all of them.

    Attributes
    ----------
    machines : tuple of LabelFreeChoice
    common : LabelFreeChoice or None
        The choice for all machines; None if no machine has a criterion.
    candidates : tuple of str
    vetoed : tuple of str or None
        Candidates that the dev grid excludes; None without a dev grid.
    seed, n_splits : int
        Seed and number (200 by default) of the splits of the criterion.
    notes : tuple of str
        Remarks in sentences.
    basis : str or None
        The kind of pseudo-anomalies of the label-free veto; None without a veto.
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
        """Return plain values for JSON."""
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
    progress: Callable[[int, int], None] | None = None,
) -> LabelFreeSelection:
    """Choose a configuration for each machine, and one for all of them, without labels.

    Parameters
    ----------
    table : EmbeddingTable or StoredTable
        Only clips of split ``train`` are used: their embeddings, machines, domains and sessions.
    candidates : iterable of str or ScoreConfig, optional
        In tie-breaking order; :func:`daco.method.config.blind_pool` by default.
    dev_grid : DataFrame, optional
        ``config`` and ``dev_omega`` of labelled machines: candidates in the bottom decile of
        that grid, or not in it at all, are left out first.
    readout : str, optional
        The readout of the table to use; by default its first.
    seed, n_splits : int
        Seed and number of the splits of the criterion.
    workers : int, optional
        Processes; by default one per core, and this one alone for fewer than 40 machines. With
        Ray, the most tasks at a time.
    engine, address, device : str
        As in :func:`daco.experiments.run.study`. The choice is the same.
    progress : callable, optional
        Called with the number of machines done, and of all machines.

    Returns
    -------
    LabelFreeSelection

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
    train = np.flatnonzero(table.columns["split"] == "train")
    _require_normals(table, train)
    rows = rows_by(table, "year", "machine", "section", rows=train)
    bands, titles = table.bands(readout), _titles(list(rows))
    domains = [table.columns["domain"][mine].tolist() for mine in rows.values()]
    reader = VectorReader(table, readout, list(rows.values()))
    sessions = _sessions(table, rows.values())
    items: Items = (
        (at, (reader.vectors(at), *of)) for at, of in enumerate(zip(domains, sessions, strict=True))
    )
    if device != "cpu":
        scored = names if DEFAULT_CONFIG in names else [*names, DEFAULT_CONFIG]
        items = with_balances(items, Settings(tuple(scored), seed, n_splits), device, bands)
    options = {"pool": names, "bands": bands, "n_splits": n_splits, "seed": seed}
    with worker_pool(workers_for(len(rows), workers, engine), engine, address, SCORING) as pool:
        found = collect(
            pool,
            partial(_choose, options),
            items,
            titles,
            advance=lambda done: progress(done, len(rows)) if progress else None,
            notes=notes,
        )
    require_some(found, notes)
    left = sorted(found)
    choices = [found[at] for at in left]
    titles, domains = [titles[at] for at in left], [domains[at] for at in left]
    pseudo = [choice.pseudo for choice in choices if choice.pseudo is not None]
    notes += viability_veto(pseudo).notes if pseudo else ()
    if any(choice.balance is not None for choice in choices) and not pseudo:
        notes.append("No machine has enough normals for the label-free veto.")
    if excluded := dict.fromkeys(name for choice in choices for name in choice.vetoed):
        notes.append(f"Not chosen where the label-free veto excludes them: {name_list(excluded)}.")
    return LabelFreeSelection(
        machines=tuple(
            _describe(title, dict(sorted(Counter(of).items())), choice)
            for title, of, choice in zip(titles, domains, choices, strict=True)
        ),
        common=_common(choices, names),
        candidates=tuple(names),
        vetoed=vetoed,
        seed=seed,
        n_splits=n_splits,
        notes=tuple(notes),
        basis=pseudo[0].basis if pseudo else None,
    )


def _sessions(table: Table, machines: Iterable[Indices]) -> list[list[str]]:
    """Recording sessions of each machine's clips, "" where not known; none where none is."""
    known = table.columns.get("session")
    if known is None or not any(known):
        return [[] for _ in machines]
    return [[session or "" for session in known[rows].tolist()] for rows in machines]


def _choose(
    options: dict[str, Any],
    vectors: Any,
    domains: list[str],
    sessions: list[str],
    balance: Balance | None = None,
) -> Choice:
    """The choice for one machine; a device may have computed the criterion without sessions."""
    balance = None if any(sessions) else balance
    return choose_config(vectors, domains, balance=balance, sessions=sessions, **options)


def _require_normals(table: Table, train: Indices) -> None:
    if not len(train):
        raise InputError(
            "The table has no clip of split 'train'. A choice needs normal recordings: correct the "
            "'split' column, or embed the training clips."
        )
    machines = table.columns["machine"][train]
    for name, value, what, advice in (
        (
            "domain",
            None,
            "without a domain",
            "The criterion compares domains: fill the 'domain' column.",
        ),
        ("label", 1, "labelled as anomaly", "Training clips are normal: remove them."),
    ):
        wrong = machines[table.columns[name][train] == value].tolist()
        if wrong:
            raise InputError(
                f"{quantity(wrong, 'training clip')} {what} (machines: "
                f"{name_list(dict.fromkeys(wrong))}). {advice}"
            )
    require_normal_names(table.columns["path"][train].tolist())


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


def _describe(machine: str, sizes: dict[str, int], choice: Choice) -> LabelFreeChoice:
    smallest, noise = choice.criterion.get(choice.smallest), choice.noise or 0.0
    excluded = {choice.smallest, *choice.vetoed}
    near = tuple(
        name
        for name, value in choice.criterion.items()
        if smallest is not None and value - smallest <= noise and name not in excluded
    )
    scores = choice.pseudo and _percent(choice.pseudo.configs, choice.pseudo.score)
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
        within_noise=near,
        pseudo_scores=scores or {},
        cut=choice.vetoed,
    )


def _percent(configs: Sequence[str], scores: Float64s) -> dict[str, float]:
    return dict(zip(configs, (100 * scores).tolist(), strict=True))


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
    floor = mean_floor(floors, independent=True)
    choice = choose(names, means, floor, viability, default_criterion=default)
    found = _describe(ALL_MACHINES, {"machines": len(known)}, choice)
    if viability is not None:
        found.pseudo_scores.update(_percent(viability.configs, viability.score))
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
