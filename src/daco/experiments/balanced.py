"""The label-free choice of one machine: all of it from that machine's own normals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from daco.errors import NotEnoughClipsError
from daco.method.bank import NormalBank
from daco.method.config import DEFAULT_CONFIG
from daco.method.criterion import Balance, Floor
from daco.method.floor import choice_floor
from daco.method.pseudo_anomalies import moved_normals
from daco.method.viability import PseudoScores, pseudo_scores, viability_veto


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
        What to use: the default where the pick is better by less than the noise, and the
        label-free veto does not cut it.
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
        Candidates that the label-free veto cuts, and why: they were not chosen from.
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
class Guard:
    """What the label-free veto says of the candidates; what it cuts may not be chosen."""

    scores: dict[str, float] = field(default_factory=dict)
    cut: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, heard: Sequence[PseudoScores]) -> Guard:
        """The veto of what was heard; of nothing, none."""
        if not heard:
            return cls()
        veto = viability_veto(heard)
        scores = {
            name: 100 * float(score)
            for name, score in zip(veto.configs, veto.score.tolist(), strict=True)
        }
        return cls(scores, dict(veto.reasons), veto.notes)

    def on(self, choice: LabelFreeChoice) -> LabelFreeChoice:
        """A choice with what the veto says of it."""
        return replace(choice, pseudo_scores=self.scores, cut=self.cut)


@dataclass(frozen=True)
class Balanced:
    """What the work on one machine gives.

    ``exact`` are the criteria of the candidates and of the default, ``heard`` is what the
    candidates hear of pseudo-anomalies; None where the normals do not suffice.
    """

    choice: LabelFreeChoice
    exact: list[Fraction] | None
    heard: PseudoScores | None


@dataclass(frozen=True)
class Question:
    """What is asked of every machine."""

    names: tuple[str, ...]
    n_splits: int
    seed: int
    bands: int

    @property
    def scored(self) -> list[str]:
        """The candidates, and the default where it is not among them."""
        names = list(self.names)
        return [*names, *([] if DEFAULT_CONFIG in names else [DEFAULT_CONFIG])]


def balanced(
    machine: str,
    vectors: Any,
    domains: list[str],
    found: Balance | None = None,
    *,
    question: Question,
) -> Balanced:
    """The choice for one machine.

    ``found`` is the criterion that a device computed; without it, it is computed here.
    """
    heard = _heard(vectors, domains, question)
    guard = Guard.of([] if heard is None else [heard])
    choice, exact = _choose(machine, vectors, domains, found, question, guard)
    return Balanced(choice, exact, heard)


def _heard(vectors: Any, domains: list[str], question: Question) -> PseudoScores | None:
    """What the candidates hear of pseudo-anomalies; None for too few clips or one candidate."""
    if len(set(domains)) < 2:
        return None
    try:
        made = moved_normals(vectors, domains, seed=question.seed)
        return pseudo_scores(vectors, domains, made, list(question.names), bands=question.bands)
    except NotEnoughClipsError:
        return None


def _choose(
    machine: str,
    vectors: Any,
    domains: list[str],
    found: Balance | None,
    question: Question,
    guard: Guard,
) -> tuple[LabelFreeChoice, list[Fraction] | None]:
    """One machine's choice, and the exact criteria of the candidates and the default."""
    names, n_splits, seed = list(question.names), question.n_splits, question.seed
    sizes = {str(name): size for name, size in sorted(Counter(domains).items())}
    if len(sizes) < 2:
        return _fallback(machine, sizes, names, "it has one domain, nothing to balance"), None
    try:
        balance = _balance(vectors, domains, found, question)
    except NotEnoughClipsError as error:
        return _fallback(machine, sizes, names, str(error).rstrip(".")), None
    exact = _fractions(balance)
    floor = choice_floor(list(sizes.values()), n_splits, seed)
    return judge(machine, sizes, names, exact, floor, guard), exact


def _balance(
    vectors: Any, domains: list[str], found: Balance | None, question: Question
) -> Balance:
    if found is not None:
        return found
    bank = NormalBank(vectors, domains, bands=question.bands)
    return bank.exact_balance(question.scored, question.n_splits, question.seed)


def _fractions(balance: Balance) -> list[Fraction]:
    """The criterion of each configuration, exact."""
    _, n_splits, n_pairs = balance.counts.shape
    parts = [int(denominator) * n_splits * n_pairs for denominator in balance.denominators]
    return [
        sum((Fraction(int(t), part) for t, part in zip(row, parts, strict=True)), Fraction())
        for row in balance.counts.sum(axis=1)
    ]


def judge(
    machine: str,
    sizes: dict[str, int],
    names: list[str],
    exact: list[Fraction],
    floor: Floor | None,
    guard: Guard,
) -> LabelFreeChoice:
    """The smallest criterion of what may be chosen, and whether the default's is as good."""
    criteria = dict(zip(names, exact, strict=False))
    own = {name: value for name, value in criteria.items() if name not in guard.cut}
    pick = min(own, key=own.__getitem__)
    smallest = own[pick]
    noise = 0.0 if floor is None else floor.sd
    default = exact[names.index(DEFAULT_CONFIG) if DEFAULT_CONFIG in names else -1]
    use, gain = pick, float(default - smallest)
    if DEFAULT_CONFIG not in names:
        advice = "the default is not a candidate"
    elif DEFAULT_CONFIG in guard.cut:
        advice = "the label-free veto cuts the default"
    elif pick == DEFAULT_CONFIG:
        advice = "the default is the best balanced"
    elif gain <= noise:
        use = DEFAULT_CONFIG
        advice = (
            f"the default, keep it: {pick} is better balanced by {gain:.3f}, inside the noise of "
            f"{noise:.3f}"
        )
    else:
        advice = f"better balanced than the default by {gain:.3f}; the noise is {noise:.3f}"
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
