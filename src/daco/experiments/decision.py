"""The rule of a study: one configuration from criteria and dev scores, and the reason.

Nothing here has an argument that could carry an evaluation label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daco.config import DEFAULT_CONFIG, ScoreConfig
from daco.experiments.aggregate import CRITERION_DIGITS, pool_within
from daco.results import config_names, numbers
from daco.selection import (
    Veto,
    guarded_selection,
    select_by_criterion,
    select_by_dev_score,
    viable,
)

GUARDED = "guarded criterion"


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
        As for :func:`daco.selection.guarded_selection`; a mask needs no dev scores.
    pool : iterable of str or ScoreConfig, optional
        As for :func:`daco.experiments.aggregate.pool_within`.

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
                f"{int(keep.sum())} configurations that the veto leaves."
            )
            removed = tuple(name for name, kept in zip(names, keep, strict=True) if not kept)
            floor = float(np.quantile(dev, 0.10)) if dev is not None and veto is viable else None
            return Decision(pick, GUARDED, reason, removed, floor)
        why = "The veto leaves no configuration with a criterion"
    elif dev is not None:
        why = "The criterion is not defined: the dev machines do not have two domains"
    else:
        why = "Without dev labels nothing vetoes degenerate configurations"
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
