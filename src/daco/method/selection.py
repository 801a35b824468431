"""Choosing a configuration: one function and five rules, for everything that chooses.

`choose` reads a table with one row per configuration; `choose_config` makes that table from the
normal clips of one machine. The only labels that any rule reads are the dev scores of the paper's
veto; nothing here has an argument for an evaluation label.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError, NotEnoughClipsError
from daco.method import paper
from daco.method.bank import NormalBank
from daco.method.config import PAPER_CONFIG, ScoreConfig, blind_pool, parse_grid
from daco.method.criterion import CHOICE_SPLITS, Balance
from daco.method.engine import refuse_oracle
from daco.method.viability import PseudoScores, bank_pseudo_scores, viability_veto
from daco.text import name_list, quantity
from daco.validation import Float64s, Indices, finite_array

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


_RESAMPLING = (Rule.GUARDED, Rule.LABEL_FREE)  # they read the label-free veto and count resamples

Table = Any
"""Columns by name, as in a DataFrame or a dict of arrays."""


@dataclass(frozen=True)
class Choice:
    """A chosen configuration, and the evidence for it.

    Attributes
    ----------
    config, rule, reason, pick : str, Rule, str, str
        The configuration to use, why, and what the rule picks before it considers the default.
    agreement, n_resamples : float or None, int
        Share of the resamples in which `pick` has the smallest criterion of those allowed.
    criterion, vetoed : {str: float}, {str: str}
        The criterion of every candidate in their order, nan where it is not defined, and the
        candidates that a veto excludes, with the reasons.
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

    Examples
    --------
    >>> from daco.method.selection import choose
    >>> names, dev_scores = ["raw-k1", "conf-soft-m10-k1", "ldn-diff-K16"], [58.7, 56.3, 50.4]
    >>> grid = {"config": names, "criterion": [0.62, 0.49, 0.45], "dev_score": dev_scores}
    >>> choose(grid).config, choose(grid, "criterion").config, choose(grid, "dev").config
    ('conf-soft-m10-k1', 'ldn-diff-K16', 'raw-k1')
    """
    rule = parse_rule(rule)
    names = config_names(_column(table, "config"))
    dev = _dev_scores(table, len(names), rule)
    if rule is Rule.DEV and dev is not None:
        best = names[int(dev.argmax())]
        return Choice(best, rule, f"the largest dev score, {dev.max():.2f}", best)
    criterion = _numbers(table, "criterion", len(names)).round(CRITERION_DIGITS)
    vetoed = _vetoed(table, names, dev, rule)
    if len(names) == 1:
        choice = Choice(names[0], rule, "the only candidate", names[0])
    elif rule in _RESAMPLING and np.isnan(criterion).all() and default in set(names) - set(vetoed):
        choice = _fixed(default, "no candidate has a criterion, which compares domains")
    else:
        allowed = _allowed(names, criterion, vetoed)
        samples = _resamples(resampled if rule in _RESAMPLING else None, len(names), allowed)
        choice = _smallest(names, criterion, allowed, samples, default)
    warnings: tuple[str, ...] = ()
    if dev is not None and dev.max() - dev[names.index(choice.config)] >= FAR_BELOW:
        score, best = dev[names.index(choice.config)], names[int(dev.argmax())]
        below = f"far below the best, {dev.max():.1f} of {best}"
        warnings = (f"{choice.config} has a dev score of {score:.1f}, {below}.",)
    known = dict(zip(names, criterion.tolist(), strict=True))
    return replace(choice, rule=rule, criterion=known, vetoed=vetoed, warnings=warnings)


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
        Number and seed of the splits of the criterion. Resamples and pseudo-anomalies have
        generators of their own, which follow from the seed.
    veto : bool
        Whether candidates that detect too few pseudo-anomalies made of the normals are excluded.
        Tables of scores cannot score these and are never excluded.
    sessions : N texts, optional
        Recording session of each clip, ``""`` if unknown. The criterion holds out whole sessions.

    Returns
    -------
    Choice
        With one domain or too few clips, the paper's default or else the first candidate.
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


def config_names(configs: Iterable[str | ScoreConfig]) -> list[str]:
    """Configuration names in grid order: at least one, and none twice."""
    names = [] if isinstance(configs, str) else [str(config) for config in configs]
    if not names or len(set(names)) < len(names):
        got = name_list(names) or repr(configs)
        raise InputError(f"A choice needs a sequence of configurations, each once. Got {got}.")
    return names


def parse_rule(rule: Rule | str) -> Rule:
    """The rule of this name, or an error that lists all."""
    try:
        return Rule(rule)
    except ValueError:
        raise InputError(f"A rule is one of {name_list(Rule)}. Got {rule!r}.") from None


def _column(table: Table, name: str) -> Any:
    if name not in table:
        has = ", ".join(map(str, table)) or "none"
        raise InputError(f"The table has no column {name!r}. It has: {has}.")
    return table[name]


def _numbers(table: Table, name: str, n: int) -> Float64s:
    """A column as `n` floats."""
    column = _column(table, name)
    try:
        array = np.asarray(column, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"Column {name!r} must be numbers: {error}.") from None
    if array.shape != (n,):
        raise InputError(f"Column {name!r} must have {n} values. Got shape {array.shape}.")
    return array


def _dev_scores(table: Table, n: int, rule: Rule) -> Float64s | None:
    """The dev scores; None if the rule does not read them, or can do without them."""
    if rule in (Rule.LABEL_FREE, Rule.CRITERION):
        return None
    optional = rule is Rule.GUARDED
    if optional and "dev_score" not in table:
        return None
    scores = _numbers(table, "dev_score", n)
    return None if optional and np.isnan(scores).all() else finite_array(scores, "dev_score", 1)


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
        # Where nine of ten candidates share the best score, none of these is in a bottom decile.
        excluded["dev-score veto"] = ~paper.viable(dev) & (dev < dev.max())
    if rule is Rule.LABEL_FREE or (rule is Rule.GUARDED and "viable" in table):
        excluded["label-free veto"] = _numbers(table, "viable", len(names)) == 0
    if excluded and np.any(list(excluded.values()), axis=0).all():
        left = [f"the {veto} leaves {(~out).sum()}" for veto, out in excluded.items()]
        raise InputError(
            f"Of {len(names)} configurations {' and '.join(left)}, so that none can be chosen by "
            f"the rule {rule}. Add configurations, or choose by the rule {Rule.CRITERION}."
        )
    vetoes = [[veto for veto, out in excluded.items() if out[row]] for row in range(len(names))]
    return {name: " and ".join(by) for name, by in zip(names, vetoes, strict=True) if by}


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
