"""Statistics of a study: what predicts the evaluation score, how stably, at what balance (E2, E3).

Everything is computed from the tables of a run. A value that a grid does not define (a correlation
of constant values, scores without labels) is None, and a sentence in ``notes`` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.evaluation.intervals import Interval, family_block_bootstrap, machine_bootstrap
from daco.evaluation.statistics import family_mean_permutation, partial_spearman, spearman
from daco.experiments.analysis import (
    criteria_of,
    gain_table,
    known_column,
    metrics_of,
    plain,
    rows_of,
)
from daco.method.config import PAPER_CONFIG, RAW_CONFIG, parse_grid
from daco.method.selection import CRITERION_DIGITS, column
from daco.text import quantity

if TYPE_CHECKING:
    import pandas as pd

_FEWEST = 3  # two points always correlate perfectly

Note = Callable[[str], None]


def transfer_statistics(
    grid: pd.DataFrame,
    per_machine: pd.DataFrame,
    *,
    coverage: pd.DataFrame | None = None,
    diagnostics: pd.DataFrame | None = None,
    n_draws: int = 5000,
    seed: int = 0,
) -> dict[str, Any]:
    """How the dev score and the criterion rank configurations by evaluation score.

    Parameters
    ----------
    grid : DataFrame
        ``config`` and, as far as they are known, ``dev_omega``, ``eval_omega``, ``crit_dev``.
    per_machine : DataFrame
        ``split, machine, config``, the metrics and ``balance_ks``; with ``separability`` the
        gain of calibration is set against it.
    coverage : DataFrame, optional
        ``machine, nominal_fpr, domain, system, empirical_fpr`` and perhaps ``split``.
    diagnostics : DataFrame, optional
        ``split, machine, separability_train``, for a `per_machine` without separability.
    n_draws, seed
        Of the bootstraps; the seed also draws permutations of more than eight families.

    Returns
    -------
    dict
        The content of ``stats.json``. The criterion enters every correlation with its sign
        turned, so that +1 is a perfect predictor for both signals. ``signals`` has for
        ``dev_score`` and ``criterion`` the rank correlation with ``eval_omega``: ``rho``,
        ``p_naive`` (a permutation of configurations as if they were independent), ``n``, intervals
        and tests over families and machines, and ``partial`` correlations given ``log(m + 1)`` and
        the family, or within conformal configurations assignment and base score. ``notes`` say why
        values are missing.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.statistics import transfer_statistics
    >>> grid = pd.DataFrame({
    ...     "config": ["raw-k1", "raw-k2", "ratio-soft-k1", "ratio-hard-k1"],
    ...     "eval_omega": [55.0, 56.0, 58.0, 59.0], "crit_dev": [0.6, 0.55, 0.5, 0.48],
    ... })
    >>> nothing = pd.DataFrame(columns=["split", "machine", "config"])
    >>> stats = transfer_statistics(grid, nothing, n_draws=100)
    >>> stats["signals"]["criterion"]["rho"], stats["signals"]["dev_score"]
    (1.0, None)
    >>> stats["notes"][0]
    'The dev score is not known: it predicts nothing here.'
    """
    import pandas as pd

    notes: dict[str, None] = {}
    note: Note = notes.setdefault
    configs = parse_grid(column(grid, "config"))
    table = pd.DataFrame(
        {
            "config": [config.name for config in configs],
            "family": [config.family for config in configs],
            "conformal": [config.calibration == "conf" for config in configs],
            "strength": np.log1p([config.m for config in configs]),
            "assignment": [str(config.assignment) for config in configs],
            "base": [config.base.name for config in configs],
            "dev_score": known_column(grid, "dev_omega"),
            "eval_score": known_column(grid, "eval_omega"),
            # with its sign turned: larger is better, as for scores
            "criterion": -known_column(grid, "crit_dev").round(CRITERION_DIGITS),
        }
    )
    soft, conformal = table[table["family"] == "conf-soft"], table[table["conformal"]]
    names = {"dev_score": "dev score", "eval_score": "eval score", "criterion": "criterion"}

    def correlate(part: pd.DataFrame, first: str, second: str, what: str) -> dict[str, Any]:
        return _correlation(part[first], part[second], what, note)

    return {
        "n_configs": len(table),
        "families": table.groupby("family").size().to_dict(),
        **{
            f"n_{split}_machines": rows_of(per_machine, split)["machine"].nunique()
            for split in ("dev", "eval")
        },
        "n_draws": n_draws,
        "seed": seed,
        "signals": _signals(table, per_machine, n_draws, seed, note),
        "strength": {
            name: correlate(conformal, "strength", name, f"m and {title}")
            for name, title in names.items()
        },
        "dev_and_eval_within_conformal_soft": correlate(
            soft, "dev_score", "eval_score", "dev and evaluation score in conf-soft"
        ),
        "criterion_and_dev_score": correlate(
            table, "criterion", "dev_score", "criterion and dev score"
        ),
        "ranges": {
            name: plain(table[name].max() - table[name].min())
            for name in ("dev_score", "eval_score")
        },
        "gain_and_separability": _gain(per_machine, diagnostics, note),
        "coverage": [] if coverage is None or coverage.empty else _coverage(coverage),
        "notes": list(notes),
    }


def _signals(
    table: pd.DataFrame, per_machine: pd.DataFrame, n_draws: int, seed: int, note: Note
) -> dict[str, Any]:
    found: dict[str, Any] = {"dev_score": None, "criterion": None}
    if table["eval_score"].isna().all():
        note("The evaluation score is not known: nothing can be said about transfer to it.")
        return found
    for name, title in (("dev_score", "dev score"), ("criterion", "criterion")):
        known = table.dropna(subset=[name, "eval_score"])
        if table[name].isna().all():
            note(f"The {title} is not known: it predicts nothing here.")
        elif len(known) < _FEWEST:
            note(f"The {title} is known for fewer than {_FEWEST} configurations.")
        else:
            if len(known) < len(table):
                unknown = quantity(len(table) - len(known), "configuration")
                note(f"Left out: {unknown} without {title} or score.")
            found[name] = _signal(known, name, title, n_draws, seed, note)
    if found["criterion"] is not None:
        names = table["config"].tolist()
        balance = criteria_of(per_machine, "dev", names)
        metrics = metrics_of(per_machine, "eval", names)
        over_machines = None
        if min(len(balance), len(metrics)) < 2 or len(names) < _FEWEST:
            note("Machines cannot be resampled: that needs two dev and two evaluation machines.")
        else:
            drawn = machine_bootstrap(balance, metrics, n_draws=n_draws, seed=seed)
            over_machines = {**_interval(drawn), "n_dev": len(balance), "n_eval": len(metrics)}
        found["criterion"]["machine_bootstrap"] = over_machines
    return found


def _signal(
    known: pd.DataFrame, name: str, title: str, n_draws: int, seed: int, note: Note
) -> dict[str, Any]:
    x, y, families = (known[each].to_numpy() for each in (name, "eval_score", "family"))
    whole = _correlation(x, y, f"{title} and evaluation score", note)
    block = means = left_out = None
    names = np.unique(families)
    if len(names) < 2:
        note(f"All configurations are of family {names[0]}: families cannot be resampled.")
    elif whole["rho"] is not None:
        block = _interval(family_block_bootstrap(x, y, families, n_draws=n_draws, seed=seed))
        means = _plain(family_mean_permutation(x, y, families, seed=seed))
        parts = [families != family for family in names]
        rhos = [spearman(x[part], y[part]) for part in parts if part.sum() >= _FEWEST]
        rhos = [rho for rho in rhos if not np.isnan(rho)]
        left_out = {"low": min(rhos), "high": max(rhos)} if rhos else None
    within, outside = known[known["conformal"]], known[~known["conformal"]]
    inside = f"{title} within conformal families"
    return {
        **whole,
        "family_block": block,
        "family_means": means,
        "leave_one_family_out": left_out,
        "conformal_only": _correlation(within[name], within["eval_score"], inside, note),
        "without_conformal": _correlation(
            outside[name], outside["eval_score"], f"{title} outside conformal families", note
        ),
        "partial": {
            "given_strength_and_family": _partial(known, name, ["strength", "family"], title, note),
            "conformal_given_strength_assignment_base": _partial(
                within, name, ["strength", "assignment", "base"], inside, note
            ),
        },
    }


def _gain(
    per_machine: pd.DataFrame, diagnostics: pd.DataFrame | None, note: Note
) -> dict[str, Any] | None:
    """Target AUC of the fixed default less that of raw k-NN, against separability."""
    table = gain_table(per_machine, diagnostics)
    if table.empty:
        note(
            f"The gain of calibration needs {RAW_CONFIG} and {PAPER_CONFIG} with their metrics, "
            "and the separability of the machines' domains."
        )
        return None
    columns = table["separability_train"], table["target_auc_gain"]
    found = _correlation(*columns, "gain and separability", note)
    return {"rho": found["rho"], "p_naive": found["p_naive"], "n_machines": found["n"]}


def _coverage(coverage: pd.DataFrame) -> list[dict[str, Any]]:
    """Mean rate, and mean difference between domains, over machines: all, and by split."""
    by_split = ["split"] if "split" in coverage else []
    keys = [*by_split, "machine", "nominal_fpr", "system"]
    machines = coverage.groupby(keys, sort=False)["empirical_fpr"].agg(["min", "max", "mean"])
    machines = machines.reset_index()
    machines["imbalance"] = machines["max"] - machines["min"]
    scopes = {"all": machines}
    if by_split:
        scopes |= {str(name): part for name, part in machines.groupby("split", sort=False)}
    rows: list[dict[str, Any]] = []
    for scope, part in scopes.items():
        means = part.groupby(["nominal_fpr", "system"], sort=False)[["mean", "imbalance"]].mean()
        for level, system, rate, imbalance in means.reset_index().itertuples(index=False):
            raw = means["imbalance"].get((level, "raw"), 0.0)
            row = {"machines": scope, "nominal_fpr": level, "system": str(system)}
            row |= {"mean_fpr": rate, "imbalance": imbalance}
            rows.append({**row, "ratio_to_raw": float(imbalance / raw) if raw > 0 else None})
    return rows


def _correlation(x: Any, y: Any, what: str, note: Note) -> dict[str, Any]:
    x, y = np.asarray(x, float), np.asarray(y, float)
    known = np.isfinite(x) & np.isfinite(y)
    n = int(known.sum())
    rho = p = None
    if n < _FEWEST:
        note(f"No correlation of {what}: {n} values are fewer than {_FEWEST}.")
    elif np.isnan(spearman(x[known], y[known])):
        note(f"No correlation of {what}: one side is constant.")
    else:
        rho = spearman(x[known], y[known])
        p = plain(partial_spearman(x[known], y[known], []).p_permutation)
    return {"rho": rho, "p_naive": p, "n": n}


def _partial(
    part: pd.DataFrame, name: str, covariates: list[str], title: str, note: Note
) -> dict[str, Any] | None:
    found = None
    if len(part) >= _FEWEST:
        x, y = part[name].to_numpy(), part["eval_score"].to_numpy()
        found = partial_spearman(x, y, [part[each].to_numpy() for each in covariates])
    if found is None or np.isnan(found.rho):
        note(f"No partial correlation of {title}: the covariates leave nothing to rank.")
        return None
    return _plain(found)


def _plain(result: Any) -> dict[str, Any]:
    return {key: plain(value) for key, value in asdict(result).items()}


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "low": plain(interval.low),
        "high": plain(interval.high),
        "level": 0.95,
        "n_draws": len(interval.draws),
        "n_undefined": interval.n_undefined,
    }
