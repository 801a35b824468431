"""Stability of a choice: what other seeds and numbers of splits would have picked (E3)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.errors import InputError
from daco.evaluation.statistics import spearman
from daco.experiments.aggregate import (
    blind_choices,
    blind_score,
    complete_column,
    mean_criterion,
    official_scores,
    plain,
    pool_within,
)
from daco.experiments.decision import GUARDS
from daco.method.config import ScoreConfig
from daco.method.selection import Veto, guarded_selection, select_by_criterion, viable
from daco.validation import Float64s

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
    veto: Veto | None = viable,
    pool: Iterable[str | ScoreConfig] | None = None,
) -> pd.DataFrame:
    """What is picked, and what it scores, under other seeds and numbers of splits.

    Parameters
    ----------
    per_machine : DataFrame
        The metrics, as far as they are known; its criterion is not read.
    balances : DataFrame
        ``split, machine, config, seed, n_splits, balance_ks``.
    veto : callable or array of bool
        As for :func:`daco.method.selection.guarded_selection`; None where there is none.
    pool : iterable of str or ScoreConfig, optional
        As for :func:`daco.experiments.aggregate.pool_within`.

    Returns
    -------
    DataFrame
        ``kind`` (``seeds``: other seeds at one number of splits; ``splits``: the reverse),
        ``seed, n_splits, criterion_pick, guarded_pick, guarded_eval_omega, blind_eval_omega,
        rho_criterion``; nothing where labels are missing.

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
    candidates = pool_within(names, pool)
    dev, evaluation = (official_scores(per_machine, split, names) for split in ("dev", "eval"))
    rows: dict[tuple[int, int], tuple[Any, ...]] = {}
    variants = set(zip(balances["seed"].tolist(), balances["n_splits"].tolist(), strict=True))
    for seed, n_splits in sorted(variants):
        part = balances[(balances["seed"] == seed) & (balances["n_splits"] == n_splits)]
        criterion = mean_criterion(part, "dev", names)
        pick = None if np.isnan(criterion).all() else select_by_criterion(names, criterion)
        guarded = _guarded(names, dev, criterion, veto)
        score = np.nan if guarded is None else evaluation[names.index(guarded)]
        choices = blind_choices(part, candidates, "eval") if candidates else {}
        blind = blind_score(per_machine, choices, "eval")
        known = np.isfinite(criterion) & np.isfinite(evaluation)
        rho = spearman(-criterion[known], evaluation[known]) if known.any() else np.nan
        rows[seed, n_splits] = (pick, guarded, plain(score), blind, plain(rho))
    base_splits = _most_varied([n_splits for _, n_splits in rows])
    base_seed = _most_varied([seed for seed, _ in rows])
    found = [("seeds", *key, *rows[key]) for key in rows if key[1] == base_splits]
    found += [("splits", *key, *rows[key]) for key in rows if key[0] == base_seed]
    return pd.DataFrame(found, columns=list(COLUMNS))


def choice_over_seeds(
    stability: pd.DataFrame, grid: pd.DataFrame, config: str, rule: str | None
) -> dict[str, Any] | None:
    """How often other seeds choose the same configuration, and what their choices score.

    Parameters
    ----------
    stability : DataFrame
        As :func:`stability_table` returns it.
    grid : DataFrame
        ``config``, and the official scores as far as they are known.
    config : str
        The configuration that was chosen.
    rule : str or None
        The rule that chose it.

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


def _guarded(names: list[str], dev: Float64s, criterion: Float64s, veto: Veto | None) -> str | None:
    if veto is None or (callable(veto) and np.isnan(dev).any()):
        return None
    try:
        return guarded_selection({"config": names, "dev_omega": dev, "crit_dev": criterion}, veto)
    except InputError:  # the veto leaves nothing that has a criterion
        return None


def _most_varied(values: list[int]) -> int:
    """The setting that was held while the other one moved: the most frequent, else the first."""
    return max(dict.fromkeys(values), key=values.count)
