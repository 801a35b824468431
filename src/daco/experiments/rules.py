"""The rules that choose a configuration from the table of a grid.

They read criteria, dev scores and the label-free veto, and no evaluation label.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from daco.errors import InputError
from daco.experiments.analysis import complete_column, known_column, pool_within
from daco.method.config import PAPER_CONFIG
from daco.method.selection import Choice, Rule, Table, choose, column, config_names
from daco.validation import Float64s

VETOES = {
    "paper": "paper's choice",
    "dev": "criterion, dev-score veto",
    "faults": "criterion, label-free veto",
    "both": "criterion, both vetoes",
}
"""The veto of a choice, and the name of the rule."""


def grid_choice(grid: Table, veto: str = "both", resampled: Float64s | None = None) -> Choice:
    """Choose a configuration from the table of a grid.

    Parameters
    ----------
    grid : mapping of columns
        ``config`` and, as far as they are known, ``crit_dev``, ``dev_omega``, ``viable`` (by the
        label-free veto) and ``crit_paper`` (10 splits). No other column is read.
    veto : {"both", "dev", "faults", "paper"}
        What excludes configurations: dev scores, the label-free veto, or both. ``"paper"`` is the
        paper's Algorithm 1 with its 10 splits. Without any veto, only the paper's pool of nine
        takes part, which are known to detect something.
    resampled : (C, R), optional
        The criterion in R resamples.

    Examples
    --------
    >>> grid = {"config": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...         "dev_omega": [58.7, 56.3, 50.4], "crit_dev": [0.62, 0.49, 0.45]}
    >>> grid_choice(grid).config
    'conf-soft-m0-k1'
    """
    if veto not in VETOES:
        raise InputError(f"The veto is one of {', '.join(VETOES)}. Got {veto!r}.")
    names = config_names(column(grid, "config"))
    paper = veto == "paper" and "crit_paper" in grid
    criterion = known_column(grid, "crit_paper" if paper else "crit_dev")
    table: dict[str, Any] = {"config": names, "criterion": criterion}
    dev = complete_column(grid, "dev_omega")
    if not np.isfinite(criterion).any():
        return _without_criterion(names, None if veto == "faults" else dev)
    if dev is not None and veto != "faults":
        table["dev_score"] = dev
    if veto in ("both", "faults") and "viable" in grid and _is_known(grid["viable"]):
        table["viable"] = np.asarray(grid["viable"], bool)
    if veto == "paper":
        return choose(table, Rule.PAPER)
    if len(table) == 2 and (pool := pool_within(names)):
        rows = [names.index(name) for name in pool]
        table = {"config": pool, "criterion": criterion[rows]}
        resampled = None if resampled is None else resampled[rows]
    return choose(table, Rule.GUARDED, resampled=resampled)


def _without_criterion(names: list[str], dev: Float64s | None) -> Choice:
    if PAPER_CONFIG in names:
        why = "there is no criterion, which compares two domains: the fixed default"
        return Choice(PAPER_CONFIG, Rule.GUARDED, why, PAPER_CONFIG)
    if dev is not None:
        return choose({"config": names, "dev_score": dev}, Rule.DEV)
    return Choice(names[0], Rule.GUARDED, "the first of the grid: nothing is known", names[0])


def _is_known(viable: Any) -> bool:
    return not any(each is None or each != each for each in viable)


def rule_name(veto: str, names: list[str], grid: Table) -> str:
    """The name of the rule that was applied."""
    if len(names) == 1:
        return "only configuration"
    if np.isfinite(known_column(grid, "crit_dev")).any():
        return VETOES[veto]
    return "fixed default" if PAPER_CONFIG in names else "no criterion"


def choices_by_veto(grid: Table, resampled: Float64s | None) -> dict[str, Choice]:
    """The choice under every veto that can be applied, by its name."""
    known = {
        "dev": complete_column(grid, "dev_omega") is not None,
        "faults": "viable" in grid and _is_known(grid["viable"]),
    }
    known |= {"paper": known["dev"], "both": all(known.values())}
    found: dict[str, Choice] = {}
    if not np.isfinite(known_column(grid, "crit_dev")).any():
        return found
    for veto in VETOES:
        if known[veto]:
            with suppress(InputError):  # this veto leaves nothing
                found[veto] = grid_choice(grid, veto, resampled)
    return found


def picks_of_rules(
    grid: Table, names: list[str], others: Mapping[str, Choice]
) -> dict[str, tuple[str, str]]:
    """The labels that each rule reads and its pick, in the order of the table."""
    picks: dict[str, tuple[str, str]] = {}
    if PAPER_CONFIG in names:
        picks["fixed"] = ("none", PAPER_CONFIG)
    dev = complete_column(grid, "dev_omega")
    if dev is not None:
        best = choose({"config": names, "dev_score": dev}, Rule.DEV)
        picks["dev score"] = ("development", best.config)
    for rule, name in (
        ("criterion", "crit_dev"),
        ("criterion on evaluation normals", "crit_eval"),
    ):
        criterion = known_column(grid, name)
        if np.isfinite(criterion).any():
            smallest = choose({"config": names, "criterion": criterion}, Rule.CRITERION)
            picks[rule] = ("none", smallest.config)
    for veto, choice in others.items():
        labels = "none" if veto == "faults" else "development (veto only)"
        picks[VETOES[veto]] = (labels, choice.config)
    return picks
