"""Choosing a configuration: one function and five rules, for everything that chooses.

`choose` reads a table with one row per configuration; `choose_config` makes that table from the
normal clips of one machine. The only labels that any rule reads are the dev scores of the paper's
veto; nothing here has an argument for an evaluation label.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError, NotEnoughClipsError
from daco.method.bank import NormalBank
from daco.method.config import PAPER_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance
from daco.method.engine import refuse_oracle
from daco.method.viability import PseudoScores, bank_pseudo_scores, viability_veto
from daco.text import name_list, quantity
from daco.validation import Bools, Float64s, Indices, finite_array

CRITERION_DIGITS = 12
"""Criteria are means of exact fractions whose steps are above 1e-8: equal ones agree to here."""

RESAMPLES = 100  # of splits and clips, to show how stable a choice is
NOISE_QUANTILE = 0.05
"""The default stays unless it is worse than the pick in all but this share of the resamples."""

FAR_BELOW = 5.0  # points below the best dev score from which on a choice has a warning


class Rule(StrEnum):
    """How `choose` chooses a configuration."""

    GUARDED = "guarded"
    LABEL_FREE = "label-free"
    PAPER = "paper"
    CRITERION = "criterion"
    DEV = "dev"


_RESAMPLING = (Rule.GUARDED, Rule.LABEL_FREE)
"""The rules that read the label-free veto and count resamples."""


class Table(Protocol):
    """Columns by name, as in a DataFrame or a dict of arrays."""

    def __getitem__(self, key: str, /) -> Any: ...
    def __contains__(self, key: object, /) -> bool: ...
    def __iter__(self) -> Iterator[Any]: ...


@dataclass(frozen=True)
class Choice:
    """A chosen configuration, and the evidence for it.

    Attributes
    ----------
    config, rule, reason : str, Rule, str
        The configuration to use, and why.
    pick : str
        What the rule picks before it considers the default.
    agreement, n_resamples : float or None, int
        Share of the resamples in which `pick` has the smallest criterion of those allowed.
    criterion : {str: float}
        The criterion of every candidate, in their order; nan where it is not defined.
    vetoed : {str: str}
        The candidates that a veto excludes, with the reasons.
    warnings : tuple of str
    balance, pseudo : Balance, PseudoScores or None
        What `choose_config` measured; not part of `to_dict`.
    """

    config: str
    rule: Rule
    reason: str
    pick: str
    agreement: float | None = None
    n_resamples: int = 0
    criterion: dict[str, float] = field(default_factory=dict)
    vetoed: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    balance: Balance | None = field(default=None, repr=False)
    pseudo: PseudoScores | None = field(default=None, repr=False)

    @property
    def stability(self) -> str:
        """How many resamples agree with the choice, in words; empty if there are none.

        >>> Choice("raw-k1", Rule.GUARDED, "", "raw-k1", 0.39, 100).stability
        '39 of 100 resamples pick it'
        """
        if self.agreement is None:
            return ""
        wins = f"{round(self.agreement * self.n_resamples)} of {self.n_resamples} resamples pick"
        if self.config == self.pick:
            return f"{wins} it"
        return f"kept as the default within the noise; {wins} {self.pick}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        known = {name: None if np.isnan(c) else c for name, c in self.criterion.items()}
        values = vars(self) | {"rule": self.rule.value, "criterion": known}
        return {name: each for name, each in values.items() if name not in ("balance", "pseudo")}


def choose(
    table: Table,
    rule: Rule | str = Rule.GUARDED,
    *,
    resampled: ArrayLike | None = None,
    default: str = PAPER_CONFIG,
) -> Choice:
    """Choose a configuration from a table.

    Parameters
    ----------
    table : mapping of columns
        ``config``, in tie-breaking order; ``criterion`` (mean over machines, smaller is better, nan
        if it is not defined); ``dev_score`` (official score in percent) and ``viable`` (bool, from
        the label-free veto) where they are known.
    rule : Rule or its value
        ``paper``: Algorithm 1 of the paper, the smallest criterion above the bottom decile of dev
        scores. ``criterion``: the smallest of all. ``dev``: the largest dev score. ``guarded``:
        excludes the bottom decile of dev scores and what is not viable, as far as these are known.
        ``label-free``: excludes only what is not viable, and reads no dev score.
        The last two pick the configuration that has the smallest criterion in most resamples, or
        simply the smallest if there are none. The default is chosen instead if it is as good within
        the noise: if its criterion less that of the pick, paired over resamples, has a 5 % quantile
        <= 0.
    resampled : (C, R), optional
        The criterion of each configuration in R resamples of splits and clips, mean over machines.
    default : str
        It is considered if it is a candidate that no veto excludes.

    Returns
    -------
    Choice
        If the vetoes leave no configuration, an `InputError` says so and names the rules that can
        be applied.

    Examples
    --------
    >>> from daco.method.selection import choose
    >>> grid = {
    ...     "config": ["raw-k1", "conf-soft-m10-k1", "ldn-diff-K16"],
    ...     "criterion": [0.62, 0.49, 0.45],
    ...     "dev_score": [58.7, 56.3, 50.4],
    ... }
    >>> choose(grid).config, choose(grid, "criterion").config, choose(grid, "dev").config
    ('conf-soft-m10-k1', 'ldn-diff-K16', 'raw-k1')
    >>> choose(grid).vetoed
    {'ldn-diff-K16': 'dev-score veto'}
    """
    rule = parse_rule(rule)
    names = config_names(column(table, "config"))
    dev = _dev_scores(table, len(names), rule)
    if rule is Rule.DEV and dev is not None:
        best = names[int(dev.argmax())]
        return Choice(best, rule, f"the largest dev score, {dev.max():.2f}", best)
    criterion = numbers("criterion", column(table, "criterion"), len(names), allow_nan=True)
    criterion = criterion.round(CRITERION_DIGITS)
    vetoed = _vetoed(table, names, dev, rule)
    if len(names) == 1:
        choice = Choice(names[0], rule, "the only candidate", names[0])
    elif rule in _RESAMPLING and np.isnan(criterion).all() and default in set(names) - set(vetoed):
        choice = _fixed(default, "no candidate has a criterion, which compares domains")
    else:
        allowed = _allowed(names, criterion, vetoed)
        samples = _resamples(resampled if rule in _RESAMPLING else None, len(names), allowed)
        choice = _smallest(names, criterion, allowed, samples, default)
    return replace(
        choice,
        rule=rule,
        criterion=dict(zip(names, criterion.tolist(), strict=True)),
        vetoed=vetoed,
        warnings=_warnings(choice.config, names, dev),
    )


def choose_config(
    bank: NormalBank,
    pool: Iterable[str | ScoreConfig] | None = None,
    *,
    n_splits: int = CHOICE_SPLITS,
    seed: int = 0,
    veto: bool = True,
    sessions: Sequence[str] = (),
) -> Choice:
    """Choose a configuration for one machine from its normal clips, by the guarded rule.

    Parameters
    ----------
    bank : NormalBank
        The normals, with the scorers of the pool.
    pool : iterable of configurations, optional
        The candidates; :func:`daco.method.config.blind_pool` by default.
    n_splits, seed : int
        Number (200 by default) and seed of the splits of the criterion. Resamples and
        pseudo-anomalies have generators of their own, which follow from the seed.
    veto : bool
        Whether candidates that detect too few pseudo-anomalies made of the normals are excluded.
        Tables of scores cannot score these and are never excluded.
    sessions : N texts, optional
        Recording session of each clip, ``""`` if unknown. The criterion holds out whole sessions.

    Returns
    -------
    Choice
        With one domain or too few clips, the paper's default or else the first candidate.

    Examples
    --------
    >>> import daco, numpy as np
    >>> from daco.method.selection import choose_config
    >>> choose_config(daco.NormalBank(np.random.default_rng(0).normal(size=(20, 4)))).reason
    'one domain, so there is nothing to balance: the fixed default'
    """
    grid = parse_grid(blind_pool() if pool is None else pool)
    refuse_oracle(grid)
    names = [config.name for config in grid]
    default = PAPER_CONFIG if PAPER_CONFIG in names else names[0]
    if len(bank.domains) == 1:
        return _fixed(default, "one domain, so there is nothing to balance")
    try:
        balance = bank.exact_balance(grid, n_splits, seed, sessions, n_resamples=RESAMPLES)
    except NotEnoughClipsError:
        domain, size = min(bank.domain_sizes.items(), key=lambda item: item[1])
        return _fixed(default, f"too few clips to compare ({quantity(size, 'clip')} of {domain})")
    pseudo = bank_pseudo_scores(bank, grid, seed) if veto else None
    reasons = {} if pseudo is None else viability_veto(pseudo).reasons
    is_viable = [name not in reasons for name in names]
    table = {"config": names, "criterion": balance.values, "viable": is_viable}
    choice = choose(table, Rule.GUARDED, resampled=balance.resampled)
    vetoed = {name: reasons[name] for name in choice.vetoed}
    return replace(choice, vetoed=vetoed, balance=balance, pseudo=pseudo)


def viable(dev_scores: ArrayLike, quantile: float = 0.10) -> Bools:
    """Configurations strictly above the `quantile` (linear) of the dev scores, as published.

    >>> viable([50.0, 58.0, 57.0, 56.0]).tolist()
    [False, True, True, True]
    """
    scores = numbers("dev_score", dev_scores, np.size(dev_scores))
    return np.asarray(scores > np.quantile(scores, quantile))


def column(table: Table, name: str) -> Any:
    """A column of `table`, or an error that lists those it has."""
    if name not in table:
        has = ", ".join(map(str, table)) or "none"
        raise InputError(f"The table has no column {name!r}. It has: {has}.")
    return table[name]


def config_names(configs: Iterable[str | ScoreConfig]) -> list[str]:
    """Configuration names in grid order: at least one, and none twice."""
    names = [] if isinstance(configs, str) else [str(config) for config in configs]
    if not names or len(set(names)) < len(names):
        got = name_list(names) or repr(configs)
        raise InputError(f"A choice needs a sequence of configurations, each once. Got {got}.")
    return names


def numbers(name: str, values: ArrayLike, n: int, *, allow_nan: bool = False) -> Float64s:
    """Column `name` as `n` floats, or an error that says what is wrong with it."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"Column {name!r} must be numbers: {error}.") from None
    if array.shape != (n,):
        raise InputError(f"Column {name!r} must have {n} values. Got shape {array.shape}.")
    return array if allow_nan else finite_array(array, name, 1)


def _smallest(
    names: list[str], criterion: Float64s, allowed: Indices, samples: Float64s, default: str
) -> Choice:
    """The smallest criterion, in most resamples if there are any, or a default that is as good."""
    n_samples, count = samples.shape[1], quantity(len(allowed), "configuration")
    if not n_samples:
        pick = names[allowed[0]]
        reason = f"the smallest criterion of {count}: {criterion[allowed[0]]:.4f}"
        return Choice(pick, Rule.GUARDED, reason, pick)
    winners = allowed[samples[allowed].argmin(axis=0)]
    wins = np.bincount(winners, minlength=len(names))
    pick = config = allowed[wins[allowed].argmax()]
    agreed = f"in {wins[pick]} of {n_samples} resamples"
    reason = f"the smallest criterion of {count} {agreed}: {criterion[pick]:.4f}"
    fixed = names.index(default) if default in names else -1
    if fixed in allowed and fixed != pick:
        reason += f"; the fixed default has {criterion[fixed]:.4f}"
        if np.quantile(samples[fixed] - samples[pick], NOISE_QUANTILE) <= 0:
            config = fixed
            reason = (
                f"the fixed default: its criterion, {criterion[fixed]:.4f}, is as good within the "
                f"noise as that of {names[pick]}, {criterion[pick]:.4f}, the smallest {agreed}"
            )
    share = float(wins[pick] / n_samples)
    return Choice(names[config], Rule.GUARDED, reason, names[pick], share, n_samples)


def _fixed(config: str, why: str) -> Choice:
    what = "the fixed default" if config == PAPER_CONFIG else config
    return Choice(config, Rule.GUARDED, f"{why}: {what}", config)


def _vetoed(table: Table, names: list[str], dev: Float64s | None, rule: Rule) -> dict[str, str]:
    """The configurations that are excluded, with the reasons; an error if these are all."""
    if rule is Rule.CRITERION or len(names) == 1:
        return {}
    excluded = {}
    if dev is not None:
        excluded["dev-score veto"] = ~viable(dev)
    if rule is Rule.LABEL_FREE or (rule is Rule.GUARDED and "viable" in table):
        is_viable = numbers("viable", column(table, "viable"), len(names), allow_nan=True)
        excluded["label-free veto"] = is_viable == 0
    if excluded and np.any(list(excluded.values()), axis=0).all():
        left = [f"the {veto} leaves {(~out).sum()}" for veto, out in excluded.items()]
        raise InputError(
            f"Of {len(names)} configurations {' and '.join(left)}, so that none can be chosen by "
            f"the rule {rule}. Add configurations, or choose by {_rules_that_work(excluded, dev)}."
        )
    vetoes = [[veto for veto, out in excluded.items() if out[row]] for row in range(len(names))]
    return {name: " and ".join(by) for name, by in zip(names, vetoes, strict=True) if by}


def _rules_that_work(excluded: Mapping[str, Bools], dev: Float64s | None) -> str:
    """The rules that can choose where these vetoes together leave nothing."""
    works = {
        Rule.PAPER: not excluded.get("dev-score veto", np.True_).all(),
        Rule.LABEL_FREE: not excluded.get("label-free veto", np.True_).all(),
        Rule.CRITERION: True,
        Rule.DEV: dev is not None,
    }
    return " or ".join(rule for rule, possible in works.items() if possible)


def _allowed(names: list[str], criterion: Float64s, vetoed: Mapping[str, str]) -> Indices:
    """The rows that may be chosen, by criterion, then in the order of the grid."""
    known = np.flatnonzero(~np.isnan(criterion)).tolist()
    rows = [row for row in known if names[row] not in vetoed]
    if not rows:
        raise InputError(
            "No configuration that may be chosen has a criterion. It compares two domains with at "
            "least two normal clips each: add normals, or name the configuration to use."
        )
    return np.array(sorted(rows, key=lambda row: criterion[row]))


def _resamples(resampled: ArrayLike | None, n: int, allowed: Indices) -> Float64s:
    """The resamples (C, R) in which every allowed configuration has a criterion."""
    if resampled is None or not np.size(resampled):
        return np.empty((n, 0))
    samples = np.asarray(resampled, np.float64)
    if samples.ndim != 2 or len(samples) != n:
        raise InputError(
            f"'resampled' must have a row for each of the {n} configurations and a column for each "
            f"resample. Got shape {samples.shape}."
        )
    return samples[:, np.isfinite(samples[allowed]).all(axis=0)].round(CRITERION_DIGITS)


def _warnings(config: str, names: list[str], dev: Float64s | None) -> tuple[str, ...]:
    if dev is None or dev.max() - dev[names.index(config)] < FAR_BELOW:
        return ()
    score, best = dev[names.index(config)], names[int(dev.argmax())]
    return (
        f"{config} has a dev score of {score:.1f}, far below the best, {dev.max():.1f} of {best}.",
    )


def parse_rule(rule: Rule | str) -> Rule:
    """The rule of this name, or an error that lists all."""
    try:
        return Rule(rule)
    except ValueError:
        raise InputError(f"A rule is one of {name_list(Rule)}. Got {rule!r}.") from None


def _dev_scores(table: Table, n: int, rule: Rule) -> Float64s | None:
    """The dev scores; None if the rule does not read them, or can do without them."""
    if rule in (Rule.LABEL_FREE, Rule.CRITERION):
        return None
    if rule is Rule.GUARDED:
        if "dev_score" not in table:
            return None
        if np.isnan(numbers("dev_score", table["dev_score"], n, allow_nan=True)).all():
            return None
    return numbers("dev_score", column(table, "dev_score"), n)
