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
    """Picks under other seeds and numbers of splits, and their scores.

    Parameters
    ----------
    per_machine : DataFrame
        The metrics, as far as they are known; its criterion is not read.
    balances : DataFrame
        ``split, machine, config, seed, n_splits, balance_ks``.
    guard, viability, floor
        As for :func:`daco.experiments.decision.decide`.

    Returns
    -------
    DataFrame
        ``kind`` (``seeds``: other seeds at one number of splits; ``splits``: the reverse),
        ``seed, n_splits, criterion_pick, guarded_pick, guarded_eval_omega, blind_eval_omega,
        rho_criterion``; empty where labels are missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.stability import stability_table
    >>> cells = {"split": "dev", "machine": "fan", "config": ["raw-k1", "raw-k2"]}
    >>> balances = pd.concat(
    ...     pd.DataFrame({**cells, "seed": seed, "n_splits": 10, "balance_ks": [0.5, 0.4 + seed]})
    ...     for seed in (0, 1)
    ... )
    >>> stability_table(pd.DataFrame(cells), balances)["criterion_pick"].tolist()
    ['raw-k2', 'raw-k1', 'raw-k2']
    """
    import pandas as pd

    if balances.empty:
        return pd.DataFrame(columns=list(COLUMNS))
    names = list(dict.fromkeys(balances["config"]))
    candidates = pool_within(names)
    dev, evaluation = (official_scores(per_machine, split, names) for split in ("dev", "eval"))
    rows: dict[tuple[int, int], tuple[Any, ...]] = {}
    variants = set(zip(balances["seed"].tolist(), balances["n_splits"].tolist(), strict=True))
    for seed, n_splits in sorted(variants):
        part = balances[(balances["seed"] == seed) & (balances["n_splits"] == n_splits)]
        criterion = mean_criterion(part, "dev", names)
        pick = None if np.isnan(criterion).all() else select_by_criterion(names, criterion)
        decision = decide(
            names,
            criterion,
            None if np.isnan(dev).any() else dev,
            guard=guard,
            viability=viability,
            floor=floor,
        )
        guarded = decision.config if decision.rule == GUARDS[guard] else None
        score = np.nan if guarded is None else evaluation[names.index(guarded)]
        choices = blind_choices(part, candidates, "eval") if candidates else {}
        blind = blind_score(per_machine, choices, "eval")
        known = np.isfinite(criterion) & np.isfinite(evaluation)
        rho = spearman(-criterion[known], evaluation[known]) if known.any() else np.nan
        rows[seed, n_splits] = (pick, guarded, plain(score), blind, plain(rho))
    base_splits = _most_frequent([n_splits for _, n_splits in rows])
    base_seed = _most_frequent([seed for seed, _ in rows])
    table = [("seeds", *key, *rows[key]) for key in rows if key[1] == base_splits]
    table += [("splits", *key, *rows[key]) for key in rows if key[0] == base_seed]
    return pd.DataFrame(table, columns=list(COLUMNS))


def choice_over_seeds(
    stability: pd.DataFrame, grid: pd.DataFrame, config: str, rule: str | None
) -> dict[str, Any] | None:
    """How often other seeds choose the same configuration, and the scores of their choices.

    Parameters
    ----------
    stability : DataFrame
        Of :func:`stability_table`.
    grid : DataFrame
        ``config``, and the official scores as far as they are known.
    config, rule : str
        The chosen configuration and the rule that chose it.

    Returns
    -------
    dict or None
        ``n_seeds``, ``n_splits``, ``same`` (seeds that choose `config`), ``picks`` (seeds by
        configuration), ``dev_omega`` and ``eval_omega`` (means over the seeds' choices, None
        where scores are missing). None where the criterion did not choose.
    """
    if stability.empty or rule not in GUARDS.values():
        return None
    table = stability[stability["kind"] == "seeds"].dropna(subset=["guarded_pick"])
    if table.empty:
        return None
    picks = table["guarded_pick"].tolist()
    names = grid["config"].tolist()
    rows = [names.index(pick) for pick in picks]
    means = {}
    for name in ("dev_omega", "eval_omega"):
        scores = complete_column(grid, name)
        means[name] = None if scores is None else float(scores[rows].mean())
    return {
        "n_seeds": len(picks),
        "n_splits": int(table["n_splits"].iloc[0]),
        "same": picks.count(config),
        "picks": dict(Counter(picks).most_common()),
        **means,
    }


def _most_frequent(values: list[int]) -> int:
    """The setting that was held while the other one changed; the first of equals."""
    return max(dict.fromkeys(values), key=values.count)
