"""Label-free choice for machines of which there are only normal recordings.

Only training clips and their domains are read. A balanced configuration may still detect
nothing, which no label-free criterion can see; the candidates are therefore the paper's pool
of known viable ones, unless a dev grid is there to veto the others. What the label-free veto cuts,
because it does not detect pseudo-anomalies, is not taken in any case.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.compute.processes import SCORING, outcomes, worker_pool, workers_for
from daco.errors import DacoError, InputError
from daco.experiments.balanced import Balanced, Guard, LabelFreeChoice, Question, balanced, judge
from daco.experiments.device import banks_with_balances, require_device
from daco.experiments.inputs import Normals, normals_of
from daco.experiments.shelf import Table
from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Floor
from daco.method.grid_table import column, config_names, numbers
from daco.method.selection import viable
from daco.method.viability import PseudoScores
from daco.text import name_list

if TYPE_CHECKING:
    import pandas as pd

ALL_MACHINES = "all machines"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LabelFreeSelection:
    """A choice per machine, and one for all of them.

    ``common`` is None when no machine has a criterion; ``vetoed`` is None without a dev grid;
    ``basis`` says what the label-free veto rests on, None where it could not be made.
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
    """For each machine the best balanced configuration, and whether that means anything.

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
    engine, address : str
        Where machines are worked on, as of :func:`daco.experiments.run.study`. The choice is the
        same.
    device : str
        ``"cpu"``, or a torch device such as ``"cuda"`` for the criterion, as of
        :func:`daco.experiments.run.study`.
    progress : callable, optional
        Called with the machines done and their number.

    Notes
    -----
    The label-free veto (:mod:`daco.method.viability`, on embedding-space pseudo-anomalies) is shown
    for every candidate. What it cuts is not chosen, nor the default where it is cut.

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
    names = config_names(blind_pool() if candidates is None else parse_grid(candidates))
    for name in names:
        if ScoreConfig.parse(name).assignment == "oracle":
            raise InputError(
                f"{name!r} reads true domains; selection must not. Remove it from the grid."
            )
    names, vetoed, notes = _guard(names, dev_grid)
    require_device(device, engine)
    banks, bands = normals_of(table, readout), table.bands(readout)
    question = Question(tuple(names), n_splits, seed, bands)
    with worker_pool(workers_for(len(banks), workers, engine), engine, address, SCORING) as pool:
        found = _all_balanced(pool, banks, question, device, progress or (lambda *_: None))
    heard = [each.heard for each in found if each.heard is not None]
    common = Guard.of(heard)
    return LabelFreeSelection(
        machines=tuple(each.choice for each in found),
        common=_common(found, names, common),
        candidates=tuple(names),
        vetoed=vetoed,
        seed=seed,
        n_splits=n_splits,
        notes=(*notes, *_veto_notes(found, heard, common)),
        basis=heard[0].basis if heard else None,
    )


def _all_balanced(
    pool: Executor | None,
    banks: Normals,
    question: Question,
    device: str,
    progress: Progress,
) -> list[Balanced]:
    """Every machine's choice in their order; what is wrong is said of all of them."""
    found: dict[int, Balanced] = {}
    failures: dict[int, DacoError] = {}
    progress(0, len(banks))
    work = partial(balanced, question=question)
    items: Iterable[tuple[int, tuple[Any, ...]]] = enumerate(banks)
    if device != "cpu":
        asked = question.scored, question.n_splits, question.seed, device, question.bands
        items = banks_with_balances(banks, *asked)
    for index, outcome in outcomes(pool, work, items):
        if isinstance(outcome, DacoError):
            failures[index] = outcome
        else:
            found[index] = outcome
        progress(len(found) + len(failures), len(banks))
    if failures:
        order = sorted(failures)
        if len(banks) == 1:
            raise failures[0]
        head = f"{len(failures)} of {len(banks)} machines could not be judged."
        listed = [f"{banks.titles[index]}: {failures[index]}" for index in order]
        raise type(failures[order[0]])("\n".join([head, *listed]))
    return [found[index] for index in range(len(banks))]


def _veto_notes(
    found: Sequence[Balanced],
    heard: Sequence[PseudoScores],
    guard: Guard,
) -> list[str]:
    notes = list(guard.notes)
    if any(each.exact is not None for each in found) and not heard:
        notes.append("No machine has enough normals for the label-free veto.")
    cut = dict.fromkeys(name for each in found for name in each.choice.cut)
    if cut:
        notes.append(f"Not chosen where the label-free veto cuts them: {name_list(cut)}.")
    return notes


def _guard(
    names: list[str], dev_grid: pd.DataFrame | None
) -> tuple[list[str], tuple[str, ...] | None, list[str]]:
    """The candidates that a dev grid leaves, those it vetoes, and what to say about it."""
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


def _common(
    found: Sequence[Balanced],
    names: list[str],
    guard: Guard,
) -> LabelFreeChoice | None:
    """One configuration for all machines: the smallest mean criterion."""
    known = [(each.choice, each.exact) for each in found if each.exact is not None]
    if not known:
        return None
    means = [
        sum(column, Fraction()) / len(known) for column in zip(*(e for _, e in known), strict=True)
    ]
    floors = [choice.floor for choice, _ in known if choice.floor is not None]
    floor = Floor(
        float(np.mean([floor.mean for floor in floors])),
        float(np.sqrt(sum(floor.sd**2 for floor in floors)) / len(floors)),
    )
    return judge(ALL_MACHINES, {"machines": len(known)}, names, means, floor, guard)
