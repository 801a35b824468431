"""95 % intervals and tests: of shares, rank correlations, and differences between systems.

Machines are few: intervals over them have the reach of Student's t distribution, and no difference
on fewer than five machines is called larger than chance. A criterion is better when smaller, so
its correlations use ``-criterion``: +1 is then a perfect predictor of the evaluation score.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain, permutations
from math import factorial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.evaluation.metrics import EPSILON, grid_metrics
from daco.validation import Float64s, Indices, finite_array, require_whole

if TYPE_CHECKING:
    import pandas as pd

Seed = int | np.random.Generator

FEWEST_MACHINES = 5
_DRAWN = 9_999  # exchanges of two systems, where there are too many to count them all


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


class PermutationTest(NamedTuple):
    """Rank correlation of family means and its p-values by so many orderings."""

    rho: float
    p_one_sided: float
    p_two_sided: float
    n_permutations: int


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


# Two systems


def paired_p_value(first: ArrayLike, second: ArrayLike, *, arithmetic: bool = False) -> float:
    """Compute the two-sided p-value of a difference of official scores on the same machines.

    The two systems, metrics of shape (n_machines, n_quantities), change places on each machine:
    all 2^n exchanges are counted for up to 13 machines, 9,999 are drawn above. The smallest
    possible value is ``2 / 2^n``. With `arithmetic`, scores are arithmetic means, as in 2020.

    >>> paired_p_value([[70, 60, 55]] * 5, [[60, 50, 45]] * 5)
    0.0625
    """
    from scipy.stats import permutation_test

    one, two = finite_array(first, "first", 2), finite_array(second, "second", 2)
    if one.shape != two.shape:
        shapes = f"{one.shape} and {two.shape}"
        raise InputError(f"Two systems are compared on the same machines. Got shapes {shapes}.")
    if len(one) < 2:
        return 1.0

    def difference(a: Float64s, b: Float64s, axis: int) -> Any:
        means = a.mean(axis=axis), b.mean(axis=axis)
        return means[0] - means[1] if arithmetic else 1 / means[0] - 1 / means[1]

    test = permutation_test(
        [each.mean(axis=1) if arithmetic else _machine_costs(each) for each in (one, two)],
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_DRAWN,
        random_state=0,
    )
    return float(test.pvalue)


def clip_bootstrap(
    clips: pd.DataFrame, first: str, second: str, n_draws: int = 2000, seed: Seed = 0
) -> Interval:
    """Compute the official score of one system minus another's in percent, over test clips.

    `clips` has ``machine``, ``section``, ``label``, ``domain`` and the scores `first` and `second`.
    Clips are drawn with replacement within each machine, label and domain, and the same draw is
    used for both systems.
    """
    rng = np.random.default_rng(seed)
    costs = np.zeros((2, n_draws + 1))  # the clips as they are, and the draws
    n_metrics = 0
    for machine, rows in clips.groupby(["machine", "section"], sort=False):
        labels, domains = rows["label"].to_numpy(), rows["domain"].to_numpy()
        taken = _stratified_picks(rng, n_draws, labels, domains)
        for system, name in enumerate((first, second)):
            scores = rows[name].to_numpy(float)
            # A draw has the labels and domains of the clips as they are: one more configuration.
            matrix = np.column_stack([scores, scores[taken].T])
            try:
                values = grid_metrics(matrix, labels, domains).values
            except InputError as error:
                raise InputError(f"Machine {machine[0]!r}, {name}: {error}") from None
            costs[system] += (1 / np.maximum(values, EPSILON)).sum(axis=1)
        n_metrics += values.shape[1]
    if not n_metrics:
        raise InputError("There is no test clip. Give the scores of at least one machine.")
    differences = 100 * n_metrics * (1 / costs[0] - 1 / costs[1])
    return _interval(float(differences[0]), differences[1:])


def _stratified_picks(
    rng: np.random.Generator, n_draws: int, labels: NDArray[Any], domains: NDArray[Any]
) -> Indices:
    """Rows drawn with replacement in the place of each clip, of its label and domain."""
    codes = np.unique(domains.astype(str), return_inverse=True)[1]
    strata = 2 * codes + (labels == 1)
    taken = np.empty((n_draws, len(strata)), np.intp)
    for stratum in np.unique(strata):
        members = np.flatnonzero(strata == stratum)
        taken[:, members] = members[_picks(rng, n_draws, len(members))]
    return taken


# Rank correlations of configurations


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Compute Spearman's rank correlation; nan if either side is constant.

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 3), spearman([1, 1, 1], [1, 2, 3])
    (0.8, nan)
    """
    from scipy.stats import spearmanr

    first, second = finite_array(x, "x", 1), finite_array(y, "y", 1)
    if len(first) != len(second) or not len(first):
        counts = f"{len(first)} and {len(second)}"
        raise InputError(f"'x' and 'y' must have one value per configuration. Got {counts} values.")
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(spearmanr(first, second).statistic)


def family_block_bootstrap(
    x: ArrayLike, y: ArrayLike, families: ArrayLike, n_draws: int = 5000, seed: Seed = 0
) -> Interval:
    """Compute Spearman's correlation over configurations, by resampling whole families.

    Configurations of one family are near copies of each other and are drawn together, which
    :func:`scipy.stats.bootstrap` cannot do. For a criterion pass ``-criterion``.

    >>> interval = family_block_bootstrap(
    ...     [1, 2, 3, 4, 5, 6], [1, 3, 2, 4, 6, 5], ["a", "a", "b", "b", "c", "c"], seed=1
    ... )
    >>> round(interval.estimate, 3), round(interval.high, 3)
    (0.886, 1.0)
    """
    estimate, codes = spearman(x, y), _family_codes(families, np.size(x))
    n_families = int(codes.max()) + 1
    drawn = _multiplicities(np.random.default_rng(seed), n_draws, n_families)
    weights = drawn[:, codes]
    half = weights.sum(axis=1, keepdims=True) / 2
    members = np.asarray(np.arange(n_families)[:, None] == codes, dtype=float)

    def drawn_ranks(values: Float64s) -> Float64s:
        # How many of the drawn values are below, ties as one half: the rank, less the mean rank.
        below = (values[:, None] < values) + 0.5 * (values[:, None] == values)
        return drawn @ (members @ below) - half

    ranks_x, ranks_y = (drawn_ranks(np.asarray(each, float)) for each in (x, y))
    return _interval(estimate, _row_correlations(ranks_x, ranks_y, weights))


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
    costs = _machine_costs(scores)
    estimate = spearman(-balance.mean(axis=0), 1 / costs.mean(axis=0))
    rng = np.random.default_rng(seed)
    drawn_dev = _multiplicities(rng, n_draws, len(balance))
    drawn_eval = _multiplicities(rng, n_draws, len(costs))
    # Rounded, because equal configurations may differ in the last bits after a matrix product.
    values = _row_correlations(
        _centred_ranks(np.round(-drawn_dev @ balance / len(balance), 10)),
        _centred_ranks(np.round(len(costs) / (drawn_eval @ costs), 10)),
    )
    return _interval(estimate, values, min(len(balance), len(costs)))


def family_mean_permutation(
    x: ArrayLike, y: ArrayLike, families: ArrayLike, n_permutations: int = 200_000, seed: Seed = 0
) -> PermutationTest:
    """Test the rank correlation between the means of method families by permutation.

    All orderings are counted, or `n_permutations` drawn if there are more than that. The drawn
    p-values count the observed ordering itself, so none is 0.

    >>> test = family_mean_permutation([1, 2, 3, 4], [1, 2, 3, 4], ["a", "b", "c", "d"])
    >>> round(test.rho, 3), test.n_permutations, round(test.p_one_sided, 4)
    (1.0, 24, 0.0417)
    """
    codes = _family_codes(families, np.size(x))
    sizes = np.bincount(codes)
    means = [np.bincount(codes, np.asarray(each, float)) / sizes for each in (x, y)]
    ranks_x, ranks_y = map(_centred_ranks, means)
    exact = factorial(len(sizes)) <= require_whole(n_permutations, "n_permutations")
    if exact:
        sums = _ordering_sums(ranks_x, ranks_y)
    else:
        rows = np.tile(ranks_y, (n_permutations, 1))
        sums = np.random.default_rng(seed).permuted(rows, axis=1) @ ranks_x
    # Centred ranks are multiples of 1/2: the sums are exact, so >= needs no tolerance.
    # scipy.stats.permutation_test has one, and takes minutes for the 10! of ten families.
    rho, observed, own = spearman(*means), ranks_x @ ranks_y, 0 if exact else 1
    as_large = [np.sum(sums >= observed), np.sum(np.abs(sums) >= abs(observed))]
    one, two = (np.nan if np.isnan(rho) else (n + own) / (len(sums) + own) for n in as_large)
    return PermutationTest(rho, float(one), float(two), len(sums))


def _family_codes(families: ArrayLike, n: int) -> Indices:
    """The families as 0, 1, ... in sorted order; at least two."""
    names, codes = np.unique(np.asarray(families).astype(str), return_inverse=True)
    if codes.shape != (n,) or len(names) < 2:
        raise InputError(
            f"'families' must name one family for each of the {n} configurations, and at least two "
            f"families. Got {len(names)} of {codes.size} configurations."
        )
    return codes


def _machine_costs(metrics: Float64s) -> Float64s:
    """Mean reciprocal of the quantities; an official score is the reciprocal of their mean."""
    return np.asarray((1 / np.maximum(metrics, EPSILON)).mean(axis=-1), dtype=float)


def _centred_ranks(values: Float64s) -> Float64s:
    """Average ranks within each row minus their mean: exact multiples of one half."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2, dtype=float)


def _row_correlations(ranks_x: Float64s, ranks_y: Float64s, weights: Any = 1.0) -> Float64s:
    """Weighted correlation of each row of two centred rank arrays; nan where constant."""
    spread = (weights * ranks_x**2).sum(axis=1) * (weights * ranks_y**2).sum(axis=1)
    joint = (weights * ranks_x * ranks_y).sum(axis=1)
    return np.divide(joint, np.sqrt(spread), out=np.full_like(spread, np.nan), where=spread > 0)


def _ordering_sums(fixed: Float64s, moved: Float64s) -> Float64s:
    """``fixed @ ordering`` for every ordering of `moved`."""
    n = len(moved)
    values = chain.from_iterable(permutations(moved.tolist()))
    orderings = np.fromiter(values, float, count=factorial(n) * n).reshape(-1, n)
    return np.asarray(orderings @ fixed)


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
