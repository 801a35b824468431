"""Label-free choice for machines of which there are only normal recordings.

Only training clips and their domains are read. A balanced configuration may still detect
nothing, which no label-free criterion can see; the candidates are therefore the paper's pool
of known viable ones, unless a dev grid is there to veto the others. Where neither guards a
candidate, the label-free veto does: what cannot hear pseudo-anomalies is not taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.bank import NormalBank
from daco.clips import some
from daco.config import DEFAULT_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.criterion import Balance, Floor
from daco.errors import InputError, NotEnoughClipsError
from daco.experiments.floor import bank_floor
from daco.experiments.inputs import normals_of
from daco.pseudo import moved_normals
from daco.results import column, config_names, numbers
from daco.selection import viable
from daco.table import EmbeddingTable
from daco.viability import PseudoScores, pseudo_scores, viability_veto

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
    pseudo_scores : dict
        What every candidate hears of pseudo-anomalies, in percent; empty where it was not
        computed.
    cut : dict
        Candidates that the label-free veto cuts, and why.
    left_out : tuple of str
        Those among them that nothing else guards: they were not chosen from.
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
    left_out: tuple[str, ...] = ()


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

    Notes
    -----
    The label-free veto (:mod:`daco.viability`, on embedding-space pseudo-anomalies) is shown for
    every candidate. It takes a candidate out of the choice only where nothing else guards it:
    without a dev grid, and if it is not one of the paper's pool.

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
    banks, bands = normals_of(table, readout), table.bands(readout)
    known = {config.name for config in blind_pool()}
    open_to_veto = set() if dev_grid is not None else set(names) - known
    found: list[tuple[LabelFreeChoice, list[Fraction] | None]] = []
    heard: list[PseudoScores] = []
    for done, (machine, vectors, domains) in enumerate(banks):
        if progress is not None:
            progress(done, len(banks))
        own = _heard(vectors, domains, names, bands, seed)
        heard += [] if own is None else [own]
        guard = _Guard.of([] if own is None else [own], open_to_veto)
        found.append(_choose(machine, vectors, domains, names, n_splits, seed, bands, guard))
    if progress is not None:
        progress(len(banks), len(banks))
    common = _Guard.of(heard, open_to_veto)
    return LabelFreeSelection(
        machines=tuple(choice for choice, _ in found),
        common=_common(found, names, common),
        candidates=tuple(names),
        vetoed=vetoed,
        seed=seed,
        n_splits=n_splits,
        notes=(*notes, *_veto_notes(found, heard, common)),
        basis=heard[0].basis if heard else None,
    )


@dataclass(frozen=True)
class _Guard:
    """What the label-free veto says of the candidates, and which of them may not be chosen."""

    scores: dict[str, float] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, heard: Sequence[PseudoScores], open_to_veto: set[str]) -> _Guard:
        if not heard:
            return cls()
        veto = viability_veto(heard)
        scores = {
            name: 100 * float(score)
            for name, score in zip(veto.configs, veto.score.tolist(), strict=True)
        }
        left_out = tuple(name for name in veto.cut if name in open_to_veto)
        return cls(scores, dict(veto.reasons), left_out, veto.notes)

    def on(self, choice: LabelFreeChoice) -> LabelFreeChoice:
        return replace(choice, pseudo_scores=self.scores, cut=self.cut, left_out=self.left_out)


def _veto_notes(
    found: Sequence[tuple[LabelFreeChoice, list[Fraction] | None]],
    heard: Sequence[PseudoScores],
    guard: _Guard,
) -> list[str]:
    notes = list(guard.notes)
    if any(exact is not None for _, exact in found) and not heard:
        notes.append("No machine has enough normals for the label-free veto.")
    left_out = dict.fromkeys(name for choice, _ in found for name in choice.left_out)
    if left_out:
        notes.append(
            "Not chosen from, because the label-free veto cuts them and no dev grid says "
            f"otherwise: {some(left_out)}."
        )
    return notes


def _heard(
    vectors: Any, domains: list[str], names: list[str], bands: int, seed: int
) -> PseudoScores | None:
    """What the candidates hear of pseudo-anomalies; None for too few clips or one candidate."""
    if len(set(domains)) < 2:
        return None
    try:
        made = moved_normals(vectors, domains, seed=seed)
        return pseudo_scores(vectors, domains, made, names, bands=bands)
    except NotEnoughClipsError:
        return None


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


def _choose(
    machine: str,
    vectors: Any,
    domains: list[str],
    names: list[str],
    n_splits: int,
    seed: int,
    bands: int,
    guard: _Guard,
) -> tuple[LabelFreeChoice, list[Fraction] | None]:
    """One machine's choice, and the exact criteria of the candidates and the default."""
    sizes = {str(name): size for name, size in sorted(Counter(domains).items())}
    scored = [*names, *([] if DEFAULT_CONFIG in names else [DEFAULT_CONFIG])]
    if len(sizes) < 2:
        return _fallback(machine, sizes, names, "it has one domain, nothing to balance"), None
    try:
        bank = NormalBank(vectors, domains, bands=bands)
        balance = bank.exact_balance(scored, n_splits, seed)
    except NotEnoughClipsError as error:
        return _fallback(machine, sizes, names, str(error).rstrip(".")), None
    exact = _fractions(balance)
    floor = bank_floor(list(sizes.values()), n_splits, seed)
    return _judge(machine, sizes, names, exact, floor, guard), exact


def _common(
    found: Sequence[tuple[LabelFreeChoice, list[Fraction] | None]],
    names: list[str],
    guard: _Guard,
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
    return _judge(ALL_MACHINES, {"machines": len(known)}, names, means, floor, guard)


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
    guard: _Guard,
) -> LabelFreeChoice:
    """The smallest criterion of what may be chosen, and whether the default's is as good."""
    criteria = dict(zip(names, exact, strict=False))
    own = {name: value for name, value in criteria.items() if name not in guard.left_out}
    pick = min(own, key=own.__getitem__)
    smallest = own[pick]
    noise = 0.0 if floor is None else floor.sd
    default = exact[names.index(DEFAULT_CONFIG) if DEFAULT_CONFIG in names else -1]
    use, gain = pick, float(default - smallest)
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
    choice = LabelFreeChoice(
        machine=machine,
        domains=sizes,
        pick=pick,
        use=use,
        advice=advice,
        criterion=float(smallest),
        default_criterion=float(default),
        floor=floor,
        criteria={name: float(value) for name, value in criteria.items()},
        within_noise=tuple(
            name for name, value in own.items() if name != pick and float(value - smallest) <= noise
        ),
    )
    return guard.on(choice)


def _fallback(machine: str, sizes: dict[str, int], names: list[str], why: str) -> LabelFreeChoice:
    use = DEFAULT_CONFIG if DEFAULT_CONFIG in names else names[0]
    what = "the default" if use == DEFAULT_CONFIG else "the first candidate"
    return LabelFreeChoice(
        machine, sizes, use, use, f"{what} is used: {why}", None, None, None, {}, ()
    )
