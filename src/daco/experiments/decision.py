"""The rule of a study: one configuration from criteria and dev scores, and the reason.

Nothing here has an argument that could carry an evaluation label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.experiments.aggregate import CRITERION_DIGITS, pool_within
from daco.method.config import DEFAULT_CONFIG, ScoreConfig
from daco.method.grid_table import config_names, numbers
from daco.method.selection import (
    Veto,
    guarded_selection,
    select_by_criterion,
    select_by_dev_score,
    viable,
)
from daco.text import quantity

GUARDED = "guarded criterion"
LABEL_FREE = "criterion, label-free veto"
TWICE_GUARDED = "criterion, both vetoes"
GUARDS = {"dev": GUARDED, "faults": LABEL_FREE, "both": TWICE_GUARDED}
"""Which veto guards a choice, and what the rule is then called."""


@dataclass(frozen=True)
class Decision:
    """A choice, and the rule and reason it was made by.

    ``vetoed`` are the configurations that the veto removed, None where none was possible;
    ``floor`` is the dev score at or below which they lie, where the veto is the paper's.
    """

    config: str
    rule: str
    reason: str
    vetoed: tuple[str, ...] | None = None
    floor: float | None = None


def decide(
    configs: Iterable[str | ScoreConfig],
    criterion: ArrayLike,
    dev_omega: ArrayLike | None,
    *,
    veto: Veto = viable,
    pool: Iterable[str | ScoreConfig] | None = None,
    by: str = "the veto leaves",
    unguarded: str = "Without dev labels nothing vetoes degenerate configurations",
) -> Decision:
    """Choose from criteria and dev scores; no argument could carry an evaluation label.

    With dev scores: the smallest criterion among the viable (Algorithm 1 of the paper).
    Without them nothing would veto a configuration that is balanced and detects nothing, so
    the fixed default is taken where the grid has it, else the smallest criterion of the
    paper's pool for choosing without labels, whose members are known to be viable.

    Parameters
    ----------
    configs : iterable of str or ScoreConfig
    criterion : array-like
        On the dev machines; nan where it is not defined.
    dev_omega : array-like or None
    veto : callable or array of bool
        As for :func:`daco.method.selection.guarded_selection`; a mask needs no dev scores.
    pool : iterable of str or ScoreConfig, optional
        As for :func:`daco.experiments.aggregate.pool_within`.
    by, unguarded : str
        Words of the reason: what leaves the configurations to choose from, and why there is no
        veto where there is none.

    Examples
    --------
    >>> from daco.experiments.decision import decide
    >>> grid = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"]
    >>> decide(grid, [0.62, 0.49, 0.45], [58.7, 56.3, 50.4]).config
    'conf-soft-m0-k1'
    >>> decide(grid, [0.62, 0.49, 0.45], None).rule
    'fixed default'
    """
    names = config_names(configs)
    balance = numbers("crit_dev", criterion, len(names), allow_nan=True)
    balance = np.round(balance, CRITERION_DIGITS)
    ranked = bool(np.isfinite(balance).any())
    if len(names) == 1:
        return Decision(names[0], "only configuration", "The grid has no other.")
    dev = None if dev_omega is None else numbers("dev_omega", dev_omega, len(names))
    if ranked and (dev is not None or not callable(veto)):
        keep = np.asarray(veto(dev) if callable(veto) and dev is not None else veto)
        # a mask of another shape is refused by guarded_selection
        if keep.shape != balance.shape or np.isfinite(balance[keep]).any():
            pick = guarded_selection({"config": names, "crit_dev": balance}, keep)
            reason = (
                f"The smallest criterion, {balance[names.index(pick)]:.4f}, of the "
                f"{quantity(int(keep.sum()), 'configuration')} that {by}."
            )
            removed = tuple(name for name, kept in zip(names, keep, strict=True) if not kept)
            floor = float(np.quantile(dev, 0.10)) if dev is not None and veto is viable else None
            return Decision(pick, GUARDED, reason, removed, floor)
        why = "The veto leaves no configuration with a criterion"
    elif dev is not None:
        why = "The criterion is not defined: the dev machines do not have two domains"
    else:
        why = unguarded
    if DEFAULT_CONFIG in names:
        return Decision(DEFAULT_CONFIG, "fixed default", f"{why}: the default is kept.")
    candidates = pool_within(names, pool)
    within = np.where(np.isin(names, candidates), balance, np.nan)
    if np.isfinite(within).any():
        reason = f"{why}, and the default is not in the grid: the pool of known viable ones is."
        return Decision(select_by_criterion(names, within), "criterion in the pool", reason)
    if dev is not None:
        return Decision(select_by_dev_score(names, dev), "dev score", f"{why}.")
    if ranked:
        reason = (
            f"{why}, and the grid has neither the default nor a configuration of the pool: the "
            "smallest criterion is taken unguarded, and may detect nothing."
        )
        return Decision(select_by_criterion(names, balance), "criterion", reason)
    return Decision(names[0], "first of the grid", "Neither dev scores nor criteria are known.")


def decide_with(
    guard: str,
    configs: Iterable[str | ScoreConfig],
    criterion: ArrayLike,
    dev_omega: ArrayLike | None,
    *,
    veto: Veto = viable,
    hears: ArrayLike | None = None,
    pool: Iterable[str | ScoreConfig] | None = None,
) -> Decision:
    """As :func:`decide`, guarded by the dev veto, by the label-free one, or by both.

    Parameters
    ----------
    guard : {"dev", "faults", "both"}
    configs, criterion, dev_omega, veto, pool
        As for `decide`.
    hears : array of bool, optional
        What the label-free veto keeps; None where it says nothing. ``"faults"`` then keeps the
        fixed default, and ``"both"`` is the dev veto alone.

    Examples
    --------
    >>> from daco.experiments.decision import decide_with
    >>> grid, dev = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"], [50.4, 56.3, 58.7]
    >>> [decide_with(guard, grid, [0.62, 0.49, 0.45], dev, hears=[True, True, False]).config
    ...  for guard in ("dev", "faults", "both")]
    ['ldn-diff-K16', 'conf-soft-m0-k1', 'conf-soft-m0-k1']
    """
    if guard not in GUARDS:
        known = ", ".join(GUARDS)
        raise InputError(f"The veto of a choice is one of {known}. Got {guard!r}.")
    if guard == "dev":
        return decide(configs, criterion, dev_omega, veto=veto, pool=pool)
    if hears is None:
        if guard == "both":
            return decide(configs, criterion, dev_omega, veto=veto, pool=pool)
        why = "The label-free veto says nothing about these machines"
        return decide(configs, criterion, None, pool=pool, unguarded=why)
    keep = np.asarray(hears, dtype=bool)
    if guard == "faults":
        found = _by_hearing(configs, criterion, keep, pool, "the label-free veto leaves")
    else:
        why = "Without dev labels there is no dev veto"
        both = _intersection(veto, keep)
        by = "both vetoes leave"
        found = decide(configs, criterion, dev_omega, veto=both, pool=pool, by=by, unguarded=why)
        if found.rule == "criterion":  # no default, no pool: the one veto there is guards alone
            by = "the label-free veto leaves (without dev labels there is no dev veto)"
            found, guard = _by_hearing(configs, criterion, keep, pool, by), "faults"
    return replace(found, rule=GUARDS[guard]) if found.rule == GUARDED else found


def _by_hearing(
    configs: Iterable[str | ScoreConfig],
    criterion: ArrayLike,
    keep: NDArray[np.bool_],
    pool: Iterable[str | ScoreConfig] | None,
    by: str,
) -> Decision:
    """The choice of the label-free veto; dev scores, which are made of labels, have no way in."""
    names = config_names(configs)
    found = decide(names, criterion, None, veto=keep, pool=pool, by=by)
    if found.rule == "criterion" and keep.any():
        kept = names[int(np.argmax(keep))]
        reason = "None that the label-free veto leaves has a criterion: the first of them."
        return Decision(kept, "first of the grid", reason)
    return found


def veto_of(guard: str, hears: NDArray[np.bool_] | None, veto: Veto = viable) -> Veto | None:
    """The veto that `guard` names; None where the label-free one was asked and says nothing."""
    if guard == "faults":
        return hears
    return veto if guard == "dev" or hears is None else _intersection(veto, hears)


def _intersection(veto: Veto, keep: NDArray[np.bool_]) -> Veto:
    if not callable(veto):
        return np.asarray(veto) & keep
    return lambda dev: np.asarray(veto(dev) & keep)
