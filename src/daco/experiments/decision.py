"""The rule of a study: one configuration from criteria and dev scores, and the reason.

Nothing here has an argument that could carry an evaluation label.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.experiments.analysis import pool_within
from daco.method.choice import CRITERION_DIGITS, choose
from daco.method.config import DEFAULT_CONFIG, ScoreConfig
from daco.method.criterion import Floor
from daco.method.grid_table import config_names, numbers
from daco.method.selection import guarded_selection, select_by_dev_score, viable
from daco.method.viability import Viability
from daco.text import quantity
from daco.validation import Float64s

GUARDED = "guarded criterion"
LABEL_FREE = "criterion, label-free veto"
TWICE_GUARDED = "criterion, both vetoes"
GUARDS = {"dev": GUARDED, "faults": LABEL_FREE, "both": TWICE_GUARDED}
"""Which veto guards a choice, and the name of the rule."""


@dataclass(frozen=True)
class Decision:
    """A choice with its rule and reason.

    ``vetoed`` are the configurations that the veto excludes, None where there was no veto;
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
    guard: str = "dev",
    viability: Viability | None = None,
    floor: Floor | None = None,
) -> Decision:
    """Choose from criteria and dev scores; no argument could carry an evaluation label.

    With dev scores, ``"dev"`` and ``"both"`` take the smallest criterion among the configurations
    that the veto leaves (the paper's Algorithm 1). ``"faults"``, and every guard without dev
    scores, is the label-free choice of :func:`daco.method.choice.choose`: in the whole grid where
    the label-free veto was asked for, else in the paper's pool of configurations that are known to
    detect something. The sd of `floor` is the noise of a label-free choice.

    >>> grid = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"]
    >>> decide(grid, [0.62, 0.49, 0.45], [58.7, 56.3, 50.4]).config
    'conf-soft-m0-k1'
    """
    if guard not in GUARDS:
        raise InputError(f"The veto of a choice is one of {', '.join(GUARDS)}. Got {guard!r}.")
    names = config_names(configs)
    if len(names) == 1:
        return Decision(names[0], "only configuration", "The grid has no other.")
    balance = numbers("crit_dev", criterion, len(names), allow_nan=True).round(CRITERION_DIGITS)
    dev = None if dev_omega is None else numbers("dev_omega", dev_omega, len(names))
    asked = guard != "dev" and viability is not None and not viability.abstains
    if guard == "faults":
        dev, why = None, "" if asked else "The label-free veto does not apply to these machines. "
    elif dev is None:
        why = "Without dev labels there is no dev veto. "
    else:
        keep = viable(dev)
        if asked and viability is not None:
            keep &= ~np.isin(names, viability.excluded)
        if np.isfinite(balance[keep]).any():
            pick = guarded_selection({"config": names, "crit_dev": balance}, keep)
            by = "both vetoes leave" if asked else "the veto leaves"
            count = quantity(int(keep.sum()), "configuration")
            return Decision(
                pick,
                TWICE_GUARDED if asked else GUARDED,
                f"The smallest criterion, {balance[names.index(pick)]:.4f}, of the {count} that "
                f"{by}.",
                tuple(name for name, stays in zip(names, keep, strict=True) if not stays),
                None if asked else float(np.quantile(dev, 0.10)),
            )
        why = "The veto leaves no configuration with a criterion. "
    return _label_free(names, balance, dev, asked, viability, floor, why)


def _label_free(
    names: list[str],
    balance: Float64s,
    dev: Float64s | None,
    asked: bool,
    viability: Viability | None,
    floor: Floor | None,
    why: str,
) -> Decision:
    pool = pool_within(names)
    if not np.isfinite(balance).any() and DEFAULT_CONFIG in names:
        reason = "There is no criterion, which compares two domains: the fixed default is used."
        return Decision(DEFAULT_CONFIG, "fixed default", f"{reason} The vote needs no choice.")
    if dev is not None and (not pool or not np.isfinite(balance).any()):
        return Decision(select_by_dev_score(names, dev), "dev score", f"{why}The best dev score.")
    if not np.isfinite(balance).any():
        return Decision(names[0], "first of the grid", "Neither dev scores nor criteria are known.")
    candidates = names if asked or not pool else pool
    values = balance[[names.index(name) for name in candidates]]
    choice = choose(candidates, values, floor, viability)
    rule = LABEL_FREE if asked else "criterion in the pool" if pool else "criterion"
    unguarded = not asked and not pool and not choice.vetoed
    risk = " Nothing guards this choice, and it may detect nothing." if unguarded else ""
    reason = f"{why}{choice.reason[0].upper()}{choice.reason[1:]}.{risk}"
    return Decision(choice.config, rule, reason, tuple(choice.vetoed) if asked else None)
