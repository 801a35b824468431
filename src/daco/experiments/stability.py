"""Stability of a choice: the picks under other seeds and numbers of splits (E3)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.statistics import spearman
from daco.experiments.analysis import (
    blind_choices,
    blind_score,
    complete_column,
    mean_criterion,
    official_scores,
    plain,
    pool_within,
)
from daco.experiments.decision import GUARDS, decide
from daco.method.criterion import Floor
from daco.method.selection import select_by_criterion
from daco.method.viability import Viability

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = (
    *("kind", "seed", "n_splits", "criterion_pick", "guarded_pick"),
    *("guarded_eval_omega", "blind_eval_omega", "rho_criterion"),
)


def stability_table(
    per_machine: pd.DataFrame,
    balances: pd.DataFrame,
    *,
    guard: str = "dev",
    viability: Viability | None = None,
    floor: Floor | None = None,
) -> pd.DataFrame:
    """Picks under the seeds and numbers of splits of `balances`, and their scores.

    ``kind`` is ``seeds`` for other seeds at one number of splits, ``splits`` for the reverse.
    Scores are empty where labels are missing; the criterion of `per_machine` is not read.
    """
    import pandas as pd

    if balances.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    names = list(dict.fromkeys(balances["config"]))
    dev, evaluation = (official_scores(per_machine, split, names) for split in ("dev", "eval"))
    rows: dict[tuple[Any, Any], tuple[Any, ...]] = {}
    for (seed, n_splits), part in balances.groupby(["seed", "n_splits"]):
        criterion = mean_criterion(part, "dev", names)
        pick = None if np.isnan(criterion).all() else select_by_criterion(names, criterion)
        known_dev = None if np.isnan(dev).any() else dev
        decision = decide(
            names, criterion, known_dev, guard=guard, viability=viability, floor=floor
        )
        guarded = decision.config if decision.rule == GUARDS[guard] else None
        score = np.nan if guarded is None else evaluation[names.index(guarded)]
        choices = blind_choices(part, pool_within(names), "eval")
        blind = blind_score(per_machine, choices, "eval")
        known = np.isfinite(criterion) & np.isfinite(evaluation)
        rho = spearman(-criterion[known], evaluation[known]) if known.any() else np.nan
        rows[seed, n_splits] = (pick, guarded, plain(score), blind, plain(rho))
    # The settings that were held while the other one changed.
    [(base_seed, _)] = Counter(seed for seed, _ in rows).most_common(1)
    [(base_splits, _)] = Counter(n_splits for _, n_splits in rows).most_common(1)
    table = [("seeds", *key, *rows[key]) for key in rows if key[1] == base_splits]
    table += [("splits", *key, *rows[key]) for key in rows if key[0] == base_seed]
    return pd.DataFrame(table, columns=list(COLUMNS))


def choice_over_seeds(
    stability: pd.DataFrame, grid: pd.DataFrame, config: str, rule: str | None
) -> dict[str, Any] | None:
    """How often other seeds choose `config` too, and the mean scores of their choices.

    None where the criterion did not choose; a mean is None where scores are missing.
    """
    if stability.empty or rule not in GUARDS.values():
        return None
    table = stability[stability["kind"] == "seeds"].dropna(subset=["guarded_pick"])
    if table.empty:
        return None
    picks = table["guarded_pick"].tolist()
    names = grid["config"].tolist()
    rows = [names.index(pick) for pick in picks]
    known = {name: complete_column(grid, name) for name in ("dev_omega", "eval_omega")}
    return {
        "n_seeds": len(picks),
        "n_splits": int(table["n_splits"].iloc[0]),
        "same": picks.count(config),
        "picks": dict(Counter(picks).most_common()),
        **{name: None if v is None else float(v[rows].mean()) for name, v in known.items()},
    }
