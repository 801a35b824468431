"""95 % intervals: of a share, over machines (jackknife), over families, machines and clips.

Machines are few: intervals over them have the reach of Student's t distribution, and no difference
on fewer than five machines is called larger than chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.evaluation.metrics import EPSILON, grid_metrics, harmonic_mean
from daco.evaluation.statistics import (
    Seed,
    centred_ranks,
    family_codes,
    machine_costs,
    row_correlations,
    same_machines,
    spearman,
)
from daco.validation import Float64s, Indices, finite_array, require_whole

FEWEST_MACHINES = 5


def share_interval(count: int, n: int) -> tuple[float, float]:
    """Compute the exact 95 % interval of a share ``count / n``; (0, 1) if n is 0.

    >>> [round(end, 2) for end in share_interval(10, 10)]
    [0.69, 1.0]
    """
    from scipy.stats import binomtest

    if n == 0:
        return 0.0, 1.0
    ends = binomtest(count, n).proportion_ci(0.95)
    return float(ends.low), float(ends.high)


def too_few_machines(n_machines: int) -> str | None:
    """The caution about differences on fewer than five machines, else None."""
    if n_machines >= FEWEST_MACHINES:
        return None
    are = "1 machine is" if n_machines == 1 else f"{n_machines} machines are"
    return f"{are} too few to tell a difference from chance."


def t_quantiles(n: Any) -> Any:
    """How many standard errors 95 % intervals from n values reach to each side; nan below two."""
    from scipy.special import stdtrit

    return stdtrit(n - 1, 0.975)


@dataclass(frozen=True)
class Jackknife:
    """A difference of official scores, and how much it depends on single machines.

    ``low`` and ``high`` are ``delta`` -+ t ``se`` with Student's t. ``loo_low`` and ``loo_high``
    are the range of the difference when each machine in turn is left out.
    """

    delta: float
    se: float
    low: float
    high: float
    loo_low: float
    loo_high: float
    n_machines: int


@dataclass(frozen=True)
class Interval:
    """A 95 % bootstrap interval, with the ``estimate`` from the data themselves.

    ``draws`` has the statistic of each draw for which it is defined: the correlation of a constant
    is left out. Without any draw the ends are nan.
    """

    estimate: float
    low: float
    high: float
    draws: Float64s = field(repr=False, compare=False)


def machine_jackknife(first: ArrayLike, second: ArrayLike) -> Jackknife:
    """Compute the official score of `first` minus `second`, and its jackknife error.

    Parameters
    ----------
    first, second : array-like of shape (n_machines, n_quantities)
        Metrics of two systems on the same machines in the same order; the result is in their unit.

    Examples
    --------
    >>> better = [[70, 60, 55], [80, 50, 52], [66, 61, 58]]
    >>> worse = [[72, 50, 54], [81, 40, 51], [68, 55, 57]]
    >>> result = machine_jackknife(better, worse)
    >>> round(result.delta, 2), round(result.low, 2), round(result.high, 2)
    (3.82, -0.38, 8.02)
    """
    one, two = same_machines(first, second)
    if (n := len(one)) < 2:
        raise InputError("machine_jackknife leaves machines out one by one: give at least two.")
    delta = float(harmonic_mean(one) - harmonic_mean(two))
    rest = [np.arange(n) != machine for machine in range(n)]
    left_out = np.array([harmonic_mean(one[each]) - harmonic_mean(two[each]) for each in rest])
    se = float(np.sqrt((n - 1) * left_out.var()))
    reach = float(t_quantiles(n)) * se
    ends = delta - reach, delta + reach
    return Jackknife(delta, se, *ends, float(left_out.min()), float(left_out.max()), n)


def family_block_bootstrap(
    x: ArrayLike, y: ArrayLike, families: ArrayLike, n_draws: int = 5000, seed: Seed = 0
) -> Interval:
    """Compute Spearman's correlation over configurations, by resampling whole families.

    Configurations of one family are near copies of each other and are drawn together, which
    :func:`scipy.stats.bootstrap` cannot do.

    Parameters
    ----------
    x, y, families : array-like of shape (n,)
        Predictor, score and family of each configuration; for a criterion pass ``-criterion``.
    n_draws, seed
        Number of draws, and seed or generator of the random numbers.

    Examples
    --------
    >>> interval = family_block_bootstrap(
    ...     [1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5], ["a", "a", "b", "b", "c", "c"], seed=1
    ... )
    >>> round(interval.estimate, 3), round(interval.high, 3)
    (0.886, 1.0)
    """
    first, second, codes = family_codes(x, y, families)
    n_families = int(codes.max()) + 1
    drawn = _multiplicities(np.random.default_rng(seed), n_draws, n_families)
    weights = drawn[:, codes]
    half = weights.sum(axis=1, keepdims=True) / 2
    members = np.asarray(np.arange(n_families)[:, None] == codes, dtype=float)

    def drawn_ranks(values: Float64s) -> Float64s:
        # How many of the drawn values are below, ties as one half: the rank, less the mean rank.
        below = (values[:, None] < values) + 0.5 * (values[:, None] == values)
        return drawn @ (members @ below) - half

    values = row_correlations(drawn_ranks(first), drawn_ranks(second), weights)
    return _interval(spearman(first, second), values)


def machine_bootstrap(
    criterion: ArrayLike, metrics: ArrayLike, n_draws: int = 5000, seed: Seed = 0
) -> Interval:
    """Compute the rank correlation of ``-criterion`` and official score, by resampling machines.

    Dev machines are drawn for the criterion (their mean), evaluation machines independently
    for the official score (harmonic mean over the drawn machines and their quantities).
    Percentiles are expanded as by Hesterberg for n, the smaller number of machines.

    Parameters
    ----------
    criterion : array-like of shape (n_dev_machines, n_configs)
        Smaller is better; the sign is turned here.
    metrics : array-like of shape (n_eval_machines, n_configs, n_quantities)
    n_draws, seed
        Number of draws, and seed or generator of the random numbers.
    """
    balance, scores = finite_array(criterion, "criterion", 2), finite_array(metrics, "metrics", 3)
    if balance.shape[1] != scores.shape[1]:
        raise InputError(
            f"machine_bootstrap needs the same configurations twice. 'criterion' has "
            f"{balance.shape[1]} columns, 'metrics' {scores.shape[1]}."
        )
    costs = machine_costs(scores)
    rng = np.random.default_rng(seed)
    drawn_dev = _multiplicities(rng, n_draws, len(balance))
    drawn_eval = _multiplicities(rng, n_draws, len(costs))
    # Rounded, because equal configurations may differ in the last bits after a matrix product.
    values = row_correlations(
        centred_ranks(np.round(-drawn_dev @ balance / len(balance), 10)),
        centred_ranks(np.round(len(costs) / (drawn_eval @ costs), 10)),
    )
    estimate = spearman(-balance.mean(axis=0), 1 / costs.mean(axis=0))
    return _interval(estimate, values, min(len(balance), len(costs)))


def clip_bootstrap(
    first: Mapping[str, ArrayLike],
    second: Mapping[str, ArrayLike],
    labels: Mapping[str, ArrayLike],
    domains: Mapping[str, ArrayLike],
    n_draws: int = 2000,
    seed: Seed = 0,
) -> Interval:
    """Compute the official score of `first` minus `second` in percent, by resampling test clips.

    Clips are drawn with replacement within each machine, label and domain, and the same
    draw is used for both systems.

    Parameters
    ----------
    first, second, labels, domains : mapping of machine to array-like of shape (n_clips,)
        Scores of two systems; 1 for an anomaly and 0 for a normal clip; the clips' domains.
    n_draws, seed
        Number of draws, and seed or generator of the random numbers.
    """
    for given in (second, labels, domains):
        if differing := sorted(set(first) ^ set(given)):
            raise InputError(f"All arguments must hold the same machines, also {differing[0]!r}.")
    if not first:
        raise InputError("There is no machine. Pass the scores of at least one.")
    rng = np.random.default_rng(seed)
    costs = np.zeros((2, n_draws + 1))  # the clips as they are, and the draws
    n_metrics = 0
    for machine in first:
        truth = labels[machine], domains[machine]
        try:
            pair: Any = [first[machine], second[machine]]
            systems = finite_array(pair, "scores", 2)
            n_metrics += grid_metrics(systems.T, *truth).values.shape[1]
        except InputError as error:
            raise InputError(f"Machine {machine!r}: {error}") from None
        taken = _stratified_picks(rng, n_draws, *truth)
        for system, scores in enumerate(systems):
            # A draw has the labels and domains of the clips as they are: one more configuration.
            drawn = grid_metrics(np.column_stack([scores, scores[taken].T]), *truth).values
            costs[system] += (1 / np.maximum(drawn, EPSILON)).sum(axis=1)
    differences = 100 * n_metrics * (1 / costs[0] - 1 / costs[1])
    return _interval(float(differences[0]), differences[1:])


def _stratified_picks(
    rng: np.random.Generator, n_draws: int, labels: ArrayLike, domains: ArrayLike
) -> Indices:
    """Rows drawn with replacement in the place of each clip, of its label and domain."""
    codes = np.unique(np.asarray(domains).astype(str), return_inverse=True)[1]
    strata = 2 * codes + (np.asarray(labels) == 1)
    taken = np.empty((n_draws, len(strata)), np.intp)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        taken[:, members] = members[_picks(rng, n_draws, len(members))]
    return taken


def _picks(rng: np.random.Generator, n_draws: int, size: int) -> Indices:
    """Draws with replacement of `size` among `size`: (n_draws, size)."""
    return rng.integers(size, size=(require_whole(n_draws, "n_draws"), size))


def _multiplicities(rng: np.random.Generator, n_draws: int, size: int) -> Float64s:
    """How often each block is in each draw: a draw of blocks without copying their rows."""
    flat = _picks(rng, n_draws, size) + size * np.arange(n_draws)[:, None]
    return np.bincount(flat.ravel(), minlength=flat.size).reshape(flat.shape).astype(float)


def _interval(estimate: float, values: Float64s, n: int = 1) -> Interval:
    """Percentiles of the draws, expanded where they are draws of n machines."""
    from scipy.special import ndtr

    draws = values[~np.isnan(values)]
    tail = float(ndtr(-np.sqrt(n / (n - 1)) * t_quantiles(n))) if n > 1 else 0.025
    ends = np.quantile(draws, [tail, 1 - tail]) if len(draws) else np.full(2, np.nan)
    return Interval(estimate, float(ends[0]), float(ends[1]), draws)
