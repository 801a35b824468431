"""Statistics of a study: what predicts the evaluation score, how stably, at what balance (E2, E3).

All of it is computed from the tables of a run. What a grid does not define (a correlation of
constant values, families of a grid with one family, scores without labels) is None, and a
sentence in ``notes`` says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.evaluation.intervals import Interval, family_block_bootstrap, machine_bootstrap
from daco.evaluation.statistics import family_mean_permutation, partial_spearman, spearman
from daco.experiments.aggregate import (
    criteria_of,
    metrics_of,
    plain,
    rows_of,
)
from daco.method.choice import CRITERION_DIGITS
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig, parse_grid
from daco.method.grid_table import column, numbers
from daco.text import quantity
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

_FEWEST = 3  # two points always correlate perfectly


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
        turned, so that +1 is a perfect predictor for both signals.

        ``n_configs, families, n_dev_machines, n_eval_machines, n_draws, seed``
            What the numbers rest on; ``families`` counts configurations.
        ``signals``
            ``dev_score`` and ``criterion``: ``rho, p_naive, n`` of the rank correlation with
            ``eval_omega`` (a permutation of configurations as if they were independent; all
            orderings of up to 8 are counted); ``family_block`` (interval over families),
            ``family_means`` (permutation test), ``machine_bootstrap`` (criterion only),
            ``leave_one_family_out`` (range), ``conformal_only``, ``without_conformal``, and
            ``partial``: given ``log(m + 1)`` and the family on the whole grid, and within the
            conformal configurations given ``log(m + 1)``, assignment and base score.
        ``strength``
            Over the conformal configurations, the correlation of ``m`` with ``dev_score``,
            ``eval_score`` and ``criterion``.
        ``dev_and_eval_within_conformal_soft, criterion_and_dev_score``
            Further correlations.
        ``ranges``
            Highest minus lowest dev and evaluation score.
        ``gain_and_separability``
            Over all labelled machines: target AUC gained by the fixed default over raw k-NN
            against the separability of the domains.
        ``coverage``
            Rows of mean false-positive rate and mean difference between domains.
        ``notes``
            Why values are missing, one sentence each.

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
    notes = _Notes()
    table = _Grid.of(grid)
    return {
        "n_configs": len(table.configs),
        "families": _counts(table.families),
        "n_dev_machines": len(_machines(per_machine, "dev")),
        "n_eval_machines": len(_machines(per_machine, "eval")),
        "n_draws": n_draws,
        "seed": seed,
        "signals": _signals(table, per_machine, n_draws, seed, notes),
        "strength": _strength(table, notes),
        "dev_and_eval_within_conformal_soft": _correlation(
            table.dev,
            table.evaluation,
            notes.of("dev and evaluation score in conf-soft"),
            table.families == "conf-soft",
        ),
        "criterion_and_dev_score": _correlation(
            table.criterion, table.dev, notes.of("criterion and dev score")
        ),
        "ranges": {"dev_score": _range(table.dev), "eval_score": _range(table.evaluation)},
        "gain_and_separability": _gain(per_machine, diagnostics, notes),
        "coverage": [] if coverage is None or coverage.empty else _coverage(coverage),
        "notes": list(notes.sentences),
    }


class _Notes:
    """Sentences about what is missing, each once."""

    def __init__(self) -> None:
        self.sentences: dict[str, None] = {}

    def add(self, sentence: str) -> None:
        self.sentences[sentence] = None

    def of(self, what: str) -> Callable[[str], None]:
        """A recorder of why `what` has no value."""
        return lambda why: self.add(f"No correlation of {what}: {why}.")


@dataclass(frozen=True, eq=False)
class _Grid:
    """The columns of a grid; nan where unknown. ``criterion`` has its sign turned."""

    configs: list[ScoreConfig]
    families: NDArray[np.str_]
    conformal: NDArray[np.bool_]
    log_strength: Float64s
    dev: Float64s
    evaluation: Float64s
    criterion: Float64s

    @classmethod
    def of(cls, grid: pd.DataFrame) -> _Grid:
        configs = parse_grid(column(grid, "config"))

        def values(name: str) -> Float64s:
            if name not in grid:
                return np.full(len(configs), np.nan)
            return numbers(name, grid[name], len(configs), allow_nan=True)

        return cls(
            configs=configs,
            families=np.array([config.family for config in configs]),
            conformal=np.array([config.calibration == "conf" for config in configs]),
            log_strength=np.log1p([config.prior_strength for config in configs]),
            dev=values("dev_omega"),
            evaluation=values("eval_omega"),
            criterion=-np.round(values("crit_dev"), CRITERION_DIGITS),
        )


def _signals(
    table: _Grid, per_machine: pd.DataFrame, n_draws: int, seed: int, notes: _Notes
) -> dict[str, Any]:
    found: dict[str, Any] = {"dev_score": None, "criterion": None}
    if not np.isfinite(table.evaluation).any():
        notes.add("The evaluation score is not known: nothing can be said about transfer to it.")
        return found
    for name, title, signal in (
        ("dev_score", "dev score", table.dev),
        ("criterion", "criterion", table.criterion),
    ):
        known = np.isfinite(signal) & np.isfinite(table.evaluation)
        if not np.isfinite(signal).any():
            notes.add(f"The {title} is not known: it predicts nothing here.")
        elif known.sum() < _FEWEST:
            notes.add(f"The {title} is known for fewer than {_FEWEST} configurations.")
        else:
            if not known.all():
                unknown = quantity(int((~known).sum()), "configuration")
                notes.add(f"Left out: {unknown} without {title} or score.")
            found[name] = _signal(table, title, signal, known, n_draws, seed, notes)
    if found["criterion"] is not None:
        found["criterion"]["machine_bootstrap"] = _over_machines(
            table, per_machine, n_draws, seed, notes
        )
    return found


def _signal(
    table: _Grid,
    title: str,
    signal: Float64s,
    known: NDArray[np.bool_],
    n_draws: int,
    seed: int,
    notes: _Notes,
) -> dict[str, Any]:
    x, y, families = signal[known], table.evaluation[known], table.families[known]
    whole = _correlation(x, y, notes.of(f"{title} and evaluation score"))
    block = means = left_out = None
    names = np.unique(families)
    if len(names) < 2:
        notes.add(f"All configurations are of family {names[0]}: families cannot be resampled.")
    elif whole["rho"] is not None:
        block = _interval(family_block_bootstrap(x, y, families, n_draws=n_draws, seed=seed))
        means = asdict(family_mean_permutation(x, y, families, seed=seed))
        means = {key: plain(value) for key, value in means.items()}
        rhos = [_rho(x[families != name], y[families != name]) for name in names]
        rhos = [rho for rho in rhos if not np.isnan(rho)]
        left_out = {"low": min(rhos), "high": max(rhos)} if rhos else None
    conformal = known & table.conformal
    base = np.array([config.base.name for config in table.configs])
    assignment = np.array([str(config.assignment) for config in table.configs])
    return {
        **whole,
        "family_block": block,
        "family_means": means,
        "leave_one_family_out": left_out,
        "conformal_only": _correlation(
            signal, table.evaluation, notes.of(f"{title} within conformal families"), conformal
        ),
        "without_conformal": _correlation(
            signal,
            table.evaluation,
            notes.of(f"{title} outside conformal families"),
            known & ~table.conformal,
        ),
        "partial": {
            "given_strength_and_family": _partial(
                signal, table.evaluation, [table.log_strength, table.families], known, title, notes
            ),
            "conformal_given_strength_assignment_base": _partial(
                signal,
                table.evaluation,
                [table.log_strength, assignment, base],
                conformal,
                f"{title} within conformal families",
                notes,
            ),
        },
    }


def _over_machines(
    table: _Grid, per_machine: pd.DataFrame, n_draws: int, seed: int, notes: _Notes
) -> dict[str, Any] | None:
    names = [config.name for config in table.configs]
    balance = criteria_of(per_machine, "dev", names)
    metrics = metrics_of(per_machine, "eval", names)
    if min(len(balance), len(metrics)) < 2 or len(names) < _FEWEST:
        notes.add("Machines cannot be resampled: that needs two dev and two evaluation machines.")
        return None
    drawn = machine_bootstrap(balance, metrics, n_draws=n_draws, seed=seed)
    return {**_interval(drawn), "n_dev": len(balance), "n_eval": len(metrics)}


def _strength(table: _Grid, notes: _Notes) -> dict[str, Any]:
    signals = {"dev_score": table.dev, "eval_score": table.evaluation, "criterion": table.criterion}
    return {
        name: _correlation(
            table.log_strength, values, notes.of(f"m and {name.replace('_', ' ')}"), table.conformal
        )
        for name, values in signals.items()
    }


def _gain(
    per_machine: pd.DataFrame, diagnostics: pd.DataFrame | None, notes: _Notes
) -> dict[str, Any] | None:
    """Target AUC of the fixed default less that of raw k-NN, against separability."""
    place = ["split", "machine"]
    rows = {
        name: per_machine[per_machine["config"] == name] for name in (RAW_CONFIG, DEFAULT_CONFIG)
    }
    if any(part.empty for part in rows.values()) or "auc_target" not in per_machine:
        notes.add(
            f"The gain of calibration needs {RAW_CONFIG} and {DEFAULT_CONFIG} with their metrics."
        )
        return None
    raw, default = (part.set_index(place) for part in rows.values())
    if "separability" in raw:
        separability = raw["separability"]
    elif diagnostics is not None and "separability_train" in diagnostics:
        separability = diagnostics.set_index(place)["separability_train"].reindex(raw.index)
    else:
        notes.add("The separability of the machines' domains is not known.")
        return None
    gain = default["auc_target"].reindex(raw.index) - raw["auc_target"]
    found = _correlation(
        separability.to_numpy(float), gain.to_numpy(float), notes.of("gain and separability")
    )
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
            rows.append(
                {
                    "machines": scope,
                    "nominal_fpr": float(level),
                    "system": str(system),
                    "mean_fpr": float(rate),
                    "imbalance": float(imbalance),
                    "ratio_to_raw": float(imbalance / raw) if raw > 0 else None,
                }
            )
    return rows


def _correlation(
    x: Float64s,
    y: Float64s,
    undefined: Callable[[str], None],
    among: NDArray[np.bool_] | None = None,
) -> dict[str, Any]:
    known = np.isfinite(x) & np.isfinite(y)
    known &= True if among is None else among
    n = int(known.sum())
    rho = p = None
    if n < _FEWEST:
        undefined(f"{n} values are fewer than {_FEWEST}")
    elif np.isnan(spearman(x[known], y[known])):
        undefined("one side is constant")
    else:
        rho = spearman(x[known], y[known])
        p = plain(partial_spearman(x[known], y[known], []).p_permutation)
    return {"rho": rho, "p_naive": p, "n": n}


def _partial(
    x: Float64s,
    y: Float64s,
    covariates: list[Any],
    among: NDArray[np.bool_],
    title: str,
    notes: _Notes,
) -> dict[str, Any] | None:
    found = None
    if among.sum() >= _FEWEST:
        found = partial_spearman(x[among], y[among], [c[among] for c in covariates])
    if found is None or np.isnan(found.rho):
        notes.add(f"No partial correlation of {title}: the covariates leave nothing to rank.")
        return None
    return {key: plain(value) for key, value in asdict(found).items()}


def _interval(interval: Interval) -> dict[str, Any]:
    return {
        "low": plain(interval.low),
        "high": plain(interval.high),
        "level": 0.95,
        "n_draws": len(interval.draws),
        "n_undefined": interval.n_undefined,
    }


def _rho(x: Float64s, y: Float64s) -> float:
    known = np.isfinite(x) & np.isfinite(y)
    return spearman(x[known], y[known]) if known.sum() >= _FEWEST else float("nan")


def _machines(per_machine: pd.DataFrame, split: str) -> list[str]:
    return list(dict.fromkeys(rows_of(per_machine, split)["machine"]))


def _counts(families: NDArray[np.str_]) -> dict[str, int]:
    names, counts = np.unique(families, return_counts=True)
    return dict(zip(names.tolist(), counts.tolist(), strict=True))


def _range(values: Float64s) -> float | None:
    known = values[np.isfinite(values)]
    return float(np.ptp(known)) if len(known) else None
