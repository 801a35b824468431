"""Bootstrap intervals: over method families, over machines, over test clips.

A draw is kept as multiplicities (how often each block was taken), never as copied rows, so
thousands of draws are a few matrix products. Intervals are percentile intervals; those over
machines, which are few, are expanded to the reach of Student's t distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.evaluation.metrics import EPSILON, machine_metrics, official_score
from daco.evaluation.statistics import (
    family_codes,
    paired,
    positive_int,
    quantities,
    spearman,
    t_quantile,
)
from daco.validation import Float64s

_MAX_FPR = 0.1  # the partial AUC covers false-positive rates from 0 to this


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval.

    Attributes
    ----------
    estimate : float
        The statistic on the data as they are.
    low, high : float
        Interval ends; nan when every draw was undefined.
    draws : ndarray
        The statistic of each defined draw.
    n_undefined : int
        Draws left out because the statistic had no value, such as a correlation when the
        drawn families happen to be constant.
    level : float
        Nominal coverage.
    """

    estimate: float
    low: float
    high: float
    draws: Float64s = field(repr=False, compare=False)
    n_undefined: int = 0
    level: float = 0.95

    @property
    def published_interval(self) -> tuple[float, float]:
        """The paper's formula, the plain percentiles of the draws: too narrow for few machines."""
        return _percentiles(self.draws, (1 - self.level) / 2)


def family_block_bootstrap(
    x: ArrayLike,
    y: ArrayLike,
    families: ArrayLike,
    *,
    n_draws: int = 5000,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> Interval:
    """Spearman's correlation over configurations, resampling whole method families.

    Configurations of one family are near copies of each other; resampling them one by one
    would count the same evidence many times.

    Parameters
    ----------
    x, y : array-like of shape (n,)
        Predictor and score of each configuration; for a criterion pass ``-criterion``.
    families : array-like of shape (n,)
        Each configuration's family (:attr:`daco.method.config.ScoreConfig.family`).
    n_draws, level, seed
        Number of draws, nominal coverage, and an int or a ``numpy.random.Generator``.

    Examples
    --------
    >>> from daco.evaluation.bootstrap import family_block_bootstrap
    >>> interval = family_block_bootstrap(
    ...     [1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5], ["a", "a", "b", "b", "c", "c"], seed=1
    ... )
    >>> round(interval.estimate, 3), round(interval.high, 3)
    (0.886, 1.0)
    """
    where = "family_block_bootstrap"
    first, second = paired(where, x=x, y=y)
    codes = family_codes(where, families, len(first))
    n_families = int(codes.max()) + 1
    n_draws = positive_int(where, "n_draws", n_draws)
    drawn = _multiplicities(np.random.default_rng(seed), n_draws, n_families)
    weights = drawn[:, codes]
    half = weights.sum(axis=1, keepdims=True) / 2
    # the rank of i in the drawn multiset, minus the mean rank: all exact halves
    ranks_x = drawn @ _wins_by_family(first, codes, n_families) - half
    ranks_y = drawn @ _wins_by_family(second, codes, n_families) - half
    values = _row_correlations(ranks_x, ranks_y, weights)
    return _interval(where, spearman(first, second), values, level)


def machine_bootstrap(
    criterion: ArrayLike,
    metrics: ArrayLike,
    *,
    n_draws: int = 5000,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> Interval:
    """Rank correlation of ``-criterion`` and official score, resampling machines.

    Dev machines are drawn for the criterion (their mean), evaluation machines independently
    for the official score (harmonic mean over the drawn machines and their quantities).

    Parameters
    ----------
    criterion : array-like of shape (n_dev_machines, n_configs)
        Smaller is better; the sign is turned here.
    metrics : array-like of shape (n_eval_machines, n_configs, n_quantities)
        AUC source, AUC target and pAUC. :func:`daco.method.grid_table.pivot_machines` makes
        both arrays from a per-machine table.
    n_draws, level, seed
        Number of draws, nominal coverage, and an int or a ``numpy.random.Generator``.

    Notes
    -----
    Plain percentiles of resampled means are as narrow as an interval with a normal quantile and
    a standard deviation that divides by n. The percentiles taken here are those of an interval
    with Student's t and n - 1 (Hesterberg's expanded percentile interval), n being the smaller
    number of machines. Two machines have the range of all draws.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.evaluation.bootstrap import machine_bootstrap
    >>> rng = np.random.default_rng(0)
    >>> interval = machine_bootstrap(rng.random((7, 5)), rng.uniform(50, 90, (8, 5, 3)))
    >>> -1 <= interval.low <= interval.high <= 1
    True
    """
    where = "machine_bootstrap"
    balance = quantities(where, "criterion", criterion, 2)
    scores = quantities(where, "metrics", metrics, 3)
    if balance.shape[1] != scores.shape[1]:
        raise InputError(
            f"machine_bootstrap needs the same configurations twice. 'criterion' has "
            f"{balance.shape[1]} columns, 'metrics' {scores.shape[1]}."
        )
    costs = (1 / np.maximum(scores, EPSILON)).mean(axis=2)
    rng = np.random.default_rng(seed)
    n_draws = positive_int(where, "n_draws", n_draws)
    drawn_dev = _multiplicities(rng, n_draws, len(balance))
    drawn_eval = _multiplicities(rng, n_draws, len(costs))
    values = _row_correlations(
        _row_ranks(-drawn_dev @ balance / len(balance)),
        _row_ranks(len(costs) / (drawn_eval @ costs)),
        np.ones((1, balance.shape[1])),
    )
    estimate = spearman(-balance.mean(axis=0), 1 / costs.mean(axis=0))
    return _interval(where, estimate, values, level, min(len(balance), len(costs)))


def clip_bootstrap(
    first: Mapping[str, ArrayLike],
    second: Mapping[str, ArrayLike],
    labels: Mapping[str, ArrayLike],
    domains: Mapping[str, ArrayLike],
    *,
    n_draws: int = 2000,
    level: float = 0.95,
    seed: int | np.random.Generator = 0,
) -> Interval:
    """Official score of `first` minus `second` in percent, resampling test clips.

    Clips are drawn with replacement within each machine, label and domain, and the same
    draw is used for both systems.

    Parameters
    ----------
    first, second : mapping of machine to array-like of shape (n_clips,)
        Anomaly scores of two systems, higher = more anomalous.
    labels : mapping of machine to array-like of shape (n_clips,)
        1 for an anomaly, 0 for a normal clip.
    domains : mapping of machine to array-like of shape (n_clips,)
        Each clip's domain, such as ``"source"`` or ``"target"``.
    n_draws, level, seed
        Number of draws, nominal coverage, and an int or a ``numpy.random.Generator``.

    Notes
    -----
    The official score is that of :func:`daco.evaluation.metrics.official_score`, times 100. A
    domain's number of normal clips and of anomalies is the same in every draw.

    Examples
    --------
    >>> import numpy as np
    >>> from daco.evaluation.bootstrap import clip_bootstrap
    >>> label, domain = np.tile([0, 1], 20), np.repeat(["source", "target"], 20)
    >>> noise = np.random.default_rng(0).normal(size=(2, 40))
    >>> interval = clip_bootstrap(
    ...     {"fan": label * 2 + noise[0]}, {"fan": noise[1]}, {"fan": label}, {"fan": domain}
    ... )
    >>> interval.estimate > 0 and interval.low < interval.estimate < interval.high
    True
    """
    where = "clip_bootstrap"
    machines = _same_machines(where, first=first, second=second, labels=labels, domains=domains)
    rng = np.random.default_rng(seed)
    n_draws = positive_int(where, "n_draws", n_draws)
    observed: tuple[list[dict[str, float]], ...] = ([], [])
    costs = np.zeros((2, n_draws))
    n_metrics = 0
    for machine in machines:
        systems = (first[machine], second[machine])
        try:
            for scores, found in zip(systems, observed, strict=True):
                found.append(machine_metrics(scores, labels[machine], domains[machine]))
        except InputError as error:
            raise InputError(f"Machine {machine!r} of {where}: {error}") from None
        anomaly = np.asarray(labels[machine]) == 1
        domain = np.unique(np.asarray(domains[machine]).astype(str), return_inverse=True)[1]
        weights = _stratified_multiplicities(rng, n_draws, 2 * domain + anomaly)
        for system, scores in enumerate(systems):
            drawn = _weighted_metrics(np.asarray(scores, dtype=float), anomaly, domain, weights)
            costs[system] += (1 / np.maximum(drawn, EPSILON)).sum(axis=1)
        n_metrics += len(observed[0][-1])
    estimate = 100 * (official_score(observed[0]) - official_score(observed[1]))
    return _interval(where, estimate, 100 * n_metrics * (1 / costs[0] - 1 / costs[1]), level)


def _multiplicities(rng: np.random.Generator, n_draws: int, size: int) -> Float64s:
    """How often each of `size` blocks is taken in `size` draws with replacement."""
    picks = rng.integers(size, size=(n_draws, size)) + size * np.arange(n_draws)[:, None]
    counts = np.bincount(picks.ravel(), minlength=n_draws * size)
    return counts.reshape(n_draws, size).astype(float)


def _stratified_multiplicities(
    rng: np.random.Generator, n_draws: int, strata: NDArray[np.intp]
) -> Float64s:
    weights = np.empty((n_draws, len(strata)))
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        weights[:, members] = _multiplicities(rng, n_draws, len(members))
    return weights


def _wins(above: Float64s, below: Float64s) -> Float64s:
    """1 where `above` is larger, one half where equal; rows `below`, columns `above`."""
    return np.asarray(
        (below[:, None] < above[None, :]) + 0.5 * (below[:, None] == above[None, :]), dtype=float
    )


def _wins_by_family(values: Float64s, codes: NDArray[np.intp], n_families: int) -> Float64s:
    membership = np.asarray(np.arange(n_families)[:, None] == codes[None, :], dtype=float)
    return membership @ _wins(values, values)


def _row_ranks(values: Float64s) -> Float64s:
    """Centred average ranks within each row."""
    # equal configurations may differ in the last bits after the matrix product
    values = np.round(values, 10)
    ranks = np.full(values.shape, -values.shape[1] / 2)
    for column in values.T:
        other = column[:, None]
        ranks += (other < values) + 0.5 * (other == values)
    return ranks


def _row_correlations(ranks_x: Float64s, ranks_y: Float64s, weights: Float64s) -> Float64s:
    """Weighted correlation of each row of two centred rank arrays; nan where constant."""
    spread = (weights * ranks_x**2).sum(axis=1) * (weights * ranks_y**2).sum(axis=1)
    joint = (weights * ranks_x * ranks_y).sum(axis=1)
    result = np.full(len(joint), np.nan)
    np.divide(joint, np.sqrt(spread), out=result, where=spread > 0)
    return result


def _interval(
    where: str, estimate: float, values: Float64s, level: float, n: int | None = None
) -> Interval:
    """Percentiles of the draws, expanded where they are draws of n machines."""
    if not 0 < level < 1:
        raise InputError(f"The 'level' argument of {where} must be between 0 and 1. Got {level!r}.")
    draws = values[~np.isnan(values)]
    tail = (1 - level) / 2
    if n is not None and n > 1:
        from scipy.special import ndtr

        tail = float(ndtr(-np.sqrt(n / (n - 1)) * t_quantile(n, level)))
    low, high = _percentiles(draws, tail)
    return Interval(estimate, low, high, draws, len(values) - len(draws), level)


def _percentiles(draws: Float64s, tail: float) -> tuple[float, float]:
    if not len(draws):
        return float("nan"), float("nan")
    low, high = np.quantile(draws, [tail, 1 - tail])
    return float(low), float(high)


def _same_machines(where: str, **given: Mapping[str, ArrayLike]) -> list[str]:
    machines = list(given["first"])
    if not machines:
        raise InputError(f"{where} was given no machine. Pass the scores of at least one.")
    for name, mapping in given.items():
        if differing := sorted(set(machines) ^ set(mapping)):
            raise InputError(
                f"The arguments of {where} must hold the same machines. {differing[0]!r} is only "
                f"in one of 'first' and {name!r}."
            )
    return machines


def _weighted_metrics(
    scores: Float64s,
    anomaly: NDArray[np.bool_],
    domain: NDArray[np.intp],
    weights: Float64s,
) -> Float64s:
    """AUC per domain and pAUC of each row of clip multiplicities."""
    positive, negative = weights[:, anomaly], weights[:, ~anomaly]
    # wins of the drawn anomalies over each normal clip, shared by all domains
    wins = (positive @ _wins(scores[anomaly], scores[~anomaly]).T) * negative
    columns = []
    for code in range(int(domain.max()) + 1):
        inside = domain[~anomaly] == code
        pairs = positive.sum(axis=1) * negative[:, inside].sum(axis=1)
        columns.append(wins[:, inside].sum(axis=1) / pairs)
    return np.stack([*columns, _weighted_pauc(scores, anomaly, weights)], axis=1)


def _weighted_pauc(scores: Float64s, anomaly: NDArray[np.bool_], weights: Float64s) -> Float64s:
    """Standardised partial AUC; the score order is the same in every row, only weights change."""
    order = np.argsort(-scores, kind="stable")
    # clips with one score enter the curve together, as one slanted segment
    ends = np.flatnonzero(np.diff(scores[order], append=np.nan) != 0)
    drawn = weights[:, order]
    counts = [
        np.cumsum(drawn * mask, axis=1)[:, ends] for mask in (~anomaly[order], anomaly[order])
    ]
    fpr, tpr = (np.pad(c / c[:, -1:], ((0, 0), (1, 0))) for c in counts)
    width, rise = np.diff(fpr, axis=1), np.diff(tpr, axis=1)
    inside = np.clip(_MAX_FPR - fpr[:, :-1], 0, width)
    share = np.divide(inside, width, out=np.zeros_like(width), where=width > 0)
    area = (inside * (tpr[:, :-1] + 0.5 * share * rise)).sum(axis=1)
    chance = _MAX_FPR**2 / 2
    return np.asarray(0.5 * (1 + (area - chance) / (_MAX_FPR - chance)), dtype=float)
