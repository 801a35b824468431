"""Label-free choice for machines of which there are only normal recordings (``daco select``).

Only training clips and their domains are read; every machine is chosen for by
:func:`daco.method.selection.choose_config`.
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
from daco.data.views import Views
from daco.errors import InputError
from daco.experiments.floors import bank_floor
from daco.experiments.inputs import Table, VectorReader, rows_by
from daco.experiments.machine import Items, collect, require_some
from daco.method.bank import NormalBank
from daco.method.config import PAPER_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS
from daco.method.engine import refuse_oracle
from daco.method.selection import (
    Choice,
    Rule,
    choose,
    choose_config,
    column,
    config_names,
    numbers,
    viable,
)
from daco.method.viability import viability_veto
from daco.text import name_list, quantity
from daco.validation import Indices

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
    use, reason : str
        The configuration to use, and why: the paper's default if it is as good within the noise.
    pick : str
        The candidate that most resamples agree on, of those that the veto leaves.
    agreement : float or None
        The share of the resamples that agree on `use`.
    criterion : {str: float or None}
        The criterion of every candidate.
    floor : float or None
        The criterion if the domains did not differ.
    pseudo_scores : {str: float}
        How well each candidate detects pseudo-anomalies, in percent.
    vetoed : {str: str}
        Candidates that the label-free veto excludes, with the reasons.
    """

    machine: str
    domains: dict[str, int]
    use: str
    reason: str
    pick: str
    agreement: float | None = None
    criterion: dict[str, float | None] = field(default_factory=dict)
    floor: float | None = None
    pseudo_scores: dict[str, float] = field(default_factory=dict)
    vetoed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class LabelFreeSelection:
    """A choice for each machine, and one for all of them.

    Attributes
    ----------
    machines : tuple of LabelFreeChoice
    common : LabelFreeChoice or None
        The choice for all machines; None if no machine has a criterion.
    candidates : tuple of str
    dev_vetoed : tuple of str or None
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
    dev_vetoed: tuple[str, ...] | None
    seed: int
    n_splits: int
    notes: tuple[str, ...]
    basis: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"schema": 1, "default": PAPER_CONFIG, **asdict(self)}


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
    engine, address : str
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
    train = np.flatnonzero(table.columns["split"] == "train")
    _require_normals(table, train)
    rows = rows_by(table, "year", "machine", "section", rows=train)
    titles = _titles(list(rows))
    domains = [table.columns["domain"][mine].tolist() for mine in rows.values()]
    reader = VectorReader(table, readout, list(rows.values()))
    sessions = _sessions(table, rows.values())
    items: Items = (
        (at, (reader.vectors(at), *of)) for at, of in enumerate(zip(domains, sessions, strict=True))
    )
    work = partial(_choose, table.layout(readout), names, n_splits, seed)
    with worker_pool(workers_for(len(rows), workers, engine), engine, address, SCORING) as pool:
        found = collect(
            pool,
            work,
            items,
            titles,
            advance=lambda done: progress(done, len(rows)) if progress else None,
            notes=notes,
        )
    require_some(found, notes)
    choices = [found[at] for at in sorted(found)]
    sizes = [dict(sorted(Counter(domains[at]).items())) for at in sorted(found)]
    pseudo = [choice.pseudo for choice in choices if choice.pseudo is not None]
    notes += viability_veto(pseudo).warnings if pseudo else ()
    if any(choice.balance is not None for choice in choices) and not pseudo:
        notes.append("No machine has enough normals for the label-free veto.")
    return LabelFreeSelection(
        machines=tuple(
            _describe(titles[at], of, choice)
            for at, of, choice in zip(sorted(found), sizes, choices, strict=True)
        ),
        common=_common(choices, sizes, names),
        candidates=tuple(names),
        dev_vetoed=vetoed,
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
    views: Views,
    names: list[str],
    n_splits: int,
    seed: int,
    vectors: Any,
    domains: list[str],
    sessions: list[str],
) -> Choice:
    """The choice for one machine."""
    bank = NormalBank(vectors, domains, views=views)
    return choose_config(bank, names, n_splits=n_splits, seed=seed, sessions=sessions)


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
    criterion = {
        name: None if np.isnan(value) else value for name, value in choice.criterion.items()
    }
    pseudo = choice.pseudo
    scores = {} if pseudo is None else dict(zip(pseudo.configs, pseudo.score, strict=True))
    return LabelFreeChoice(
        machine=machine,
        domains=sizes,
        use=choice.config,
        reason=choice.reason,
        pick=choice.pick,
        agreement=choice.agreement,
        criterion=criterion,
        floor=bank_floor(tuple(sizes.values())),
        pseudo_scores={name: 100 * float(score) for name, score in scores.items()},
        vetoed=dict(choice.vetoed),
    )


def _common(
    choices: Sequence[Choice], sizes: Sequence[dict[str, int]], names: list[str]
) -> LabelFreeChoice | None:
    """One configuration for all machines, by the mean criterion."""
    known = [choice.balance for choice in choices if choice.balance is not None]
    if not known:
        return None
    criterion = np.mean([balance.values for balance in known], axis=0)
    table: dict[str, Any] = {"config": names, "criterion": criterion}
    pseudo = [choice.pseudo for choice in choices if choice.pseudo is not None]
    veto = viability_veto(pseudo) if pseudo else None
    if veto is not None:
        table["viable"] = [name not in veto.reasons for name in names]
    resampled = np.mean([balance.resampled for balance in known], axis=0)
    choice = choose(table, Rule.GUARDED, resampled=resampled)
    floors = [floor for each in sizes if (floor := bank_floor(tuple(each.values()))) is not None]
    scores = {} if veto is None else dict(zip(veto.configs, veto.score, strict=True))
    return LabelFreeChoice(
        machine=ALL_MACHINES,
        domains={"machines": len(known)},
        use=choice.config,
        reason=choice.reason,
        pick=choice.pick,
        agreement=choice.agreement,
        criterion=dict(choice.criterion),
        floor=float(np.mean(floors)) if floors else None,
        pseudo_scores={name: 100 * float(score) for name, score in scores.items()},
        vetoed={} if veto is None else {name: veto.reasons[name] for name in choice.vetoed},
    )


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
