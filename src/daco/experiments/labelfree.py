"""Label-free choice for machines of which there are only normal recordings.

Only training clips and their domains are read. A balanced configuration may still detect
nothing, which no label-free criterion can see; the candidates are therefore the paper's pool
of known viable ones, unless a dev grid is there to veto the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.bank import NormalBank
from daco.clips import counted, some
from daco.config import DEFAULT_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.criterion import Balance, Floor
from daco.errors import InputError, NotEnoughClipsError
from daco.experiments.floor import bank_floor
from daco.results import column, config_names, numbers
from daco.selection import viable
from daco.table import EmbeddingTable

if TYPE_CHECKING:
    import pandas as pd

ALL_MACHINES = "all machines"

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class LabelFreeChoice:
    """What the criterion says for one machine, or for all of them together.

    Attributes
    ----------
    machine : str
    domains : dict
        Training clips of each domain; of all machines, machines instead.
    pick : str
        The candidate of smallest criterion; an exact tie falls to the first.
    use : str
        What to use: the default where the pick is better by less than the noise.
    advice : str
        Why, in words.
    criterion, default_criterion : float or None
        Of the pick and of the fixed default; None where there is nothing to balance.
    floor : Floor or None
        What the criterion averages, and how much it varies, when the domains do not differ.
    criteria : dict
        The criterion of every candidate.
    within_noise : tuple of str
        Other candidates that cannot be told from the pick.
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


@dataclass(frozen=True)
class LabelFreeSelection:
    """A choice per machine, and one for all of them.

    ``common`` is None when no machine has a criterion; ``vetoed`` is None without a dev grid.
    """

    machines: tuple[LabelFreeChoice, ...]
    common: LabelFreeChoice | None
    candidates: tuple[str, ...]
    vetoed: tuple[str, ...] | None
    seed: int
    n_splits: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"schema": 1, "default": DEFAULT_CONFIG, **asdict(self)}


def select_label_free(
    table: EmbeddingTable,
    candidates: Iterable[str | ScoreConfig] | None = None,
    *,
    dev_grid: pd.DataFrame | None = None,
    readout: str | None = None,
    seed: int = 0,
    n_splits: int = 10,
    progress: Progress | None = None,
) -> LabelFreeSelection:
    """For each machine the best balanced configuration, and whether that means anything.

    Parameters
    ----------
    table : EmbeddingTable
        Only clips of split ``train`` are read: their vectors, machines and domains.
    candidates : iterable of str or ScoreConfig, optional
        In tie-breaking order; :func:`daco.config.blind_pool` by default.
    dev_grid : DataFrame, optional
        ``config`` and ``dev_omega`` of labelled machines: candidates in the bottom decile of
        that grid, or not in it at all, are left out first.
    readout : str, optional
        Which vectors of the table; by default its first.
    seed, n_splits : int
        Of the criterion.
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
    names = config_names(blind_pool() if candidates is None else parse_grid(candidates))
    names, vetoed, notes = _guard(names, dev_grid)
    banks = _normals(table, readout)
    found: list[tuple[LabelFreeChoice, list[Fraction] | None]] = []
    for done, (machine, vectors, domains) in enumerate(banks):
        if progress is not None:
            progress(done, len(banks))
        found.append(_choose(machine, vectors, domains, names, n_splits, seed))
    if progress is not None:
        progress(len(banks), len(banks))
    return LabelFreeSelection(
        machines=tuple(choice for choice, _ in found),
        common=_common(found, names),
        candidates=tuple(names),
        vetoed=vetoed,
        seed=seed,
        n_splits=n_splits,
        notes=tuple(notes),
    )


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
        notes.append(f"Left out, because the dev grid does not have them: {some(unknown)}.")
    if vetoed:
        notes.append(f"Left out by the dev scores: {some(vetoed)}.")
    return left, vetoed, notes


def _normals(table: EmbeddingTable, readout: str | None) -> list[tuple[str, Any, list[str]]]:
    """Title, vectors and domains of each machine's training clips, in order of appearance."""
    train = table.select(split="train")
    if not len(train):
        raise InputError(
            "The table has no clip of split 'train'. A choice needs normal recordings: correct the "
            "'split' column, or embed the training clips."
        )
    columns = {name: train.columns[name].tolist() for name in ("year", "machine", "section")}
    domains, labels = train.columns["domain"].tolist(), train.columns["label"].tolist()
    if missing := [m for m, d in zip(columns["machine"], domains, strict=True) if d is None]:
        raise InputError(
            f"{counted(missing, 'training clip')} without a domain (machines: "
            f"{some(dict.fromkeys(missing))}). The criterion compares domains: fill the 'domain' "
            "column."
        )
    if odd := [m for m, label in zip(columns["machine"], labels, strict=True) if label == 1]:
        raise InputError(
            f"{counted(odd, 'training clip')} labelled as anomaly (machines: "
            f"{some(dict.fromkeys(odd))}). Training clips are normal: remove them."
        )
    rows: dict[tuple[Any, str, str], list[int]] = {}
    for row, key in enumerate(zip(*columns.values(), strict=True)):
        rows.setdefault(key, []).append(row)
    matrix = train.matrix(readout)
    titles = _titles(list(rows))
    return [
        (title, matrix[mine], [domains[row] for row in mine])
        for title, mine in zip(titles, rows.values(), strict=True)
    ]


def _titles(keys: Sequence[tuple[Any, str, str]]) -> list[str]:
    """A machine's name, with section and year where the name alone would not do."""
    sections = Counter((year, machine) for year, machine, _ in keys)
    years = {machine: len({y for y, m, _ in keys if m == machine}) for _, machine, _ in keys}
    return [
        machine
        + (f"_{section}" if sections[year, machine] > 1 else "")
        + (f" ({year})" if years[machine] > 1 and year is not None else "")
        for year, machine, section in keys
    ]


def _choose(
    machine: str, vectors: Any, domains: list[str], names: list[str], n_splits: int, seed: int
) -> tuple[LabelFreeChoice, list[Fraction] | None]:
    """One machine's choice, and the exact criteria of the candidates and the default."""
    sizes = {str(name): size for name, size in sorted(Counter(domains).items())}
    scored = [*names, *([] if DEFAULT_CONFIG in names else [DEFAULT_CONFIG])]
    if len(sizes) < 2:
        return _fallback(machine, sizes, names, "it has one domain, nothing to balance"), None
    try:
        balance = NormalBank(vectors, domains).exact_balance(scored, n_splits, seed)
    except NotEnoughClipsError as error:
        return _fallback(machine, sizes, names, str(error).rstrip(".")), None
    exact = _fractions(balance)
    floor = bank_floor(list(sizes.values()), n_splits, seed)
    return _judge(machine, sizes, names, exact, floor), exact


def _common(
    found: Sequence[tuple[LabelFreeChoice, list[Fraction] | None]], names: list[str]
) -> LabelFreeChoice | None:
    """One configuration for all machines: the smallest mean criterion."""
    known = [(choice, exact) for choice, exact in found if exact is not None]
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
    return _judge(ALL_MACHINES, {"machines": len(known)}, names, means, floor)


def _fractions(balance: Balance) -> list[Fraction]:
    """The criterion of each configuration, exact."""
    _, n_splits, n_pairs = balance.counts.shape
    parts = [int(denominator) * n_splits * n_pairs for denominator in balance.denominators]
    return [
        sum((Fraction(int(t), part) for t, part in zip(row, parts, strict=True)), Fraction())
        for row in balance.counts.sum(axis=1)
    ]


def _judge(
    machine: str,
    sizes: dict[str, int],
    names: list[str],
    exact: list[Fraction],
    floor: Floor | None,
) -> LabelFreeChoice:
    """The smallest criterion, and whether it can be told from the default's."""
    own = exact[: len(names)]
    pick = names[own.index(min(own))]
    noise = 0.0 if floor is None else floor.sd
    default = exact[names.index(DEFAULT_CONFIG) if DEFAULT_CONFIG in names else -1]
    use, gain = pick, float(default - min(own))
    if DEFAULT_CONFIG not in names:
        advice = "the default is not a candidate"
    elif pick == DEFAULT_CONFIG:
        advice = "the default is the best balanced"
    elif gain <= noise:
        use = DEFAULT_CONFIG
        advice = (
            f"{gain:.3f} better than the default, inside the noise of {noise:.3f}: the default is "
            "as good, keep it"
        )
    else:
        advice = f"{gain:.3f} better than the default, more than the noise of {noise:.3f}"
    return LabelFreeChoice(
        machine=machine,
        domains=sizes,
        pick=pick,
        use=use,
        advice=advice,
        criterion=float(min(own)),
        default_criterion=float(default),
        floor=floor,
        criteria={name: float(value) for name, value in zip(names, own, strict=True)},
        within_noise=tuple(
            name
            for name, value in zip(names, own, strict=True)
            if name != pick and float(value - min(own)) <= noise
        ),
    )


def _fallback(machine: str, sizes: dict[str, int], names: list[str], why: str) -> LabelFreeChoice:
    use = DEFAULT_CONFIG if DEFAULT_CONFIG in names else names[0]
    what = "the default" if use == DEFAULT_CONFIG else "the first candidate"
    return LabelFreeChoice(
        machine, sizes, use, use, f"{what} is used: {why}", None, None, None, {}, ()
    )
