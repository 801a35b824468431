"""Rank correlations, permutation tests and intervals over machines.

Sign: a criterion is better when smaller, so its correlations use ``-criterion``. Then +1 is
a perfect predictor of the evaluation score, for the criterion as for the dev score.
P-values of few values count all orderings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.evaluation.metrics import EPSILON
from daco.validation import Bools, Float64s, Indices, finite_array, require_whole

EXACT_VALUES = 8
"""Up to this many values every ordering is counted; above, orderings are drawn."""

_DRAWN = 9_999  # orderings or exchanges, where there are too many to count them all


@dataclass(frozen=True)
class PartialCorrelation:
    """Spearman correlation of the residuals after a regression on covariates; two-sided p-values.

    ``p_permutation`` permutes the residuals of `y` (Freedman and Lane): all orderings of up to 8
    values, else 9,999. ``p_value`` is that of the paper, of a t distribution with ``n - 2`` degrees
    of freedom, which ignores the covariates; it is at least ``2 / n!``. ``p_value_adjusted`` has
    ``n - 2 - n_covariates`` degrees of freedom, and is nan if none are left.
    """

    rho: float
    p_permutation: float
    p_value: float
    p_value_adjusted: float
    n: int
    n_covariates: int


@dataclass(frozen=True)
class PermutationTest:
    """Rank correlation of family means and its permutation p-values.

    ``exact``: all orderings were counted; otherwise ``n_permutations`` were drawn.
    """

    rho: float
    p_one_sided: float
    p_two_sided: float
    n_families: int
    n_permutations: int
    exact: bool


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Compute Spearman's rank correlation; nan if either side is constant.

    Parameters
    ----------
    x, y : array-like of shape (n,)

    Returns
    -------
    float between -1 and 1

    Examples
    --------
    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 3), spearman([1, 1, 1], [1, 2, 3])
    (0.8, nan)
    """
    first, second = paired(x, y)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def partial_spearman(
    x: ArrayLike, y: ArrayLike, covariates: Sequence[ArrayLike]
) -> PartialCorrelation:
    """Correlate the ranks of `x` and `y` after a regression on covariates.

    The published convention: least squares on the *values* (not on ranks) with a constant,
    then Spearman of the residuals.

    Parameters
    ----------
    x, y : array-like of shape (n,)
        For a criterion pass ``-criterion``.
    covariates : sequence of array-like of shape (n,)
        A numeric column enters linearly, a column of strings as one dummy per value. The
        paper's are ``[np.log1p(m), family]`` on a whole grid and ``[np.log1p(m), assignment,
        k as strings]`` on the conformal configurations.

    Returns
    -------
    PartialCorrelation

    Examples
    --------
    >>> from daco.evaluation.statistics import partial_spearman
    >>> trend = [0, 1, 2, 3, 4, 5]
    >>> result = partial_spearman([0, 3, 1, 4, 6, 4], [0, 2, 1, 5, 4, 6], [trend])
    >>> round(result.rho, 3), result.n_covariates
    (0.314, 1)
    """
    first, second = paired(x, y)
    n = len(first)
    design = np.column_stack([np.ones(n), *(_design_columns(each, n) for each in covariates)])
    residuals = _residual(first, design), _residual(second, design)
    rho = spearman(*residuals)
    used = int(np.linalg.matrix_rank(design)) - 1
    p_permutation = _residual_permutation(*residuals, design)
    p_values = _t_test(rho, n - 2, n), _t_test(rho, n - 2 - used, n)
    return PartialCorrelation(rho, p_permutation, *p_values, n, used)


def family_mean_permutation(
    x: ArrayLike,
    y: ArrayLike,
    families: ArrayLike,
    *,
    n_permutations: int = 200_000,
    seed: int | np.random.Generator = 0,
) -> PermutationTest:
    """Test the rank correlation between the means of method families by permutation.

    Parameters
    ----------
    x, y : array-like of shape (n,)
        Predictor and score of each configuration; for a criterion pass ``-criterion``.
    families : array-like of shape (n,)
        The family of each configuration (:attr:`daco.method.config.ScoreConfig.family`).
    n_permutations : int
        Number of orderings to draw. All are counted if there are no more than that (up to 8
        families by default).
    seed : int or Generator

    Returns
    -------
    PermutationTest
        The one-sided p-value counts orderings that correlate at least as much, the two-sided one
        those that do so in absolute value. Drawn p-values count the observed ordering itself, so
        none is 0.

    Examples
    --------
    >>> from daco.evaluation.statistics import family_mean_permutation
    >>> test = family_mean_permutation([1, 2, 3, 4], [1, 2, 3, 4], ["a", "b", "c", "d"])
    >>> round(test.rho, 3), test.exact, round(test.p_one_sided, 4)
    (1.0, True, 0.0417)
    """
    first, second = paired(x, y)
    codes = family_codes(families, len(first))
    require_whole(n_permutations, "n_permutations")
    sizes = np.bincount(codes)
    means = np.bincount(codes, first) / sizes, np.bincount(codes, second) / sizes
    ranks_x, ranks_y = map(centred_ranks, means)
    exact = factorial(len(sizes)) <= n_permutations
    if exact:
        sums = _ordering_sums(ranks_x, ranks_y)
    else:
        rows = np.tile(ranks_y, (n_permutations, 1))
        sums = np.random.default_rng(seed).permuted(rows, axis=1) @ ranks_x
    # Centred ranks are multiples of 1/2: the sums are exact, so >= needs no tolerance.
    # scipy.stats.permutation_test has one, and takes minutes for the 10! of ten families.
    observed, own = ranks_x @ ranks_y, 0 if exact else 1
    rho = spearman(*means)

    def p_value(as_large: Bools) -> float:
        return float("nan") if np.isnan(rho) else float((as_large.sum() + own) / (len(sums) + own))

    p_values = p_value(sums >= observed), p_value(np.abs(sums) >= abs(observed))
    return PermutationTest(rho, *p_values, len(sizes), len(sums), exact)


def paired_p_value(first: ArrayLike, second: ArrayLike, *, arithmetic: bool = False) -> float:
    """Compute the two-sided p-value of a difference of official scores on the same machines.

    The two systems change places on each machine: all 2^n exchanges are counted for up to 13
    machines, 9,999 are drawn above. The smallest possible value is ``2 / 2^n``.

    Parameters
    ----------
    first, second, arithmetic
        As in :func:`daco.evaluation.intervals.machine_jackknife`.

    Returns
    -------
    float

    Examples
    --------
    >>> paired_p_value([[70, 60, 55]] * 5, [[60, 50, 45]] * 5)
    0.0625
    """
    one, two = same_machines(first, second)
    if len(one) < 2:
        return 1.0
    from scipy.stats import permutation_test

    def difference(a: Float64s, b: Float64s, axis: int) -> Any:
        means = a.mean(axis=axis), b.mean(axis=axis)
        return means[0] - means[1] if arithmetic else 1 / means[0] - 1 / means[1]

    test = permutation_test(
        [each.mean(axis=1) if arithmetic else machine_costs(each) for each in (one, two)],
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=_DRAWN,
        random_state=0,
    )
    return float(test.pvalue)


def paired(x: ArrayLike, y: ArrayLike) -> tuple[Float64s, Float64s]:
    """Two finite vectors of one length, or an `InputError`."""
    first, second = finite_array(x, "x", 1), finite_array(y, "y", 1)
    if len(first) != len(second) or not len(first):
        raise InputError(
            f"'x' and 'y' must have one value per configuration each. Got {len(first)} and "
            f"{len(second)} values."
        )
    return first, second


def family_codes(families: ArrayLike, n: int) -> Indices:
    """Families as 0, 1, ... in sorted order; fewer than two raise an `InputError`."""
    labels = np.asarray(families)
    if labels.shape != (n,):
        raise InputError(
            f"'families' must name one family for each of the {n} configurations. Got shape "
            f"{labels.shape}."
        )
    names, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"All {n} configurations are of family {str(names[0])!r}. Give configurations of at "
            "least two families."
        )
    return codes


def same_machines(first: ArrayLike, second: ArrayLike) -> tuple[Float64s, Float64s]:
    """Metrics of two systems on the same machines, or an `InputError`."""
    one, two = finite_array(first, "first", 2), finite_array(second, "second", 2)
    if one.shape != two.shape or not one.size:
        raise InputError(
            f"Two systems are compared on the same machines. Got shapes {one.shape} and "
            f"{two.shape}."
        )
    return one, two


def machine_costs(metrics: Float64s) -> Float64s:
    """Mean reciprocal of the quantities; an official score is the reciprocal of their mean."""
    return np.asarray((1 / np.maximum(metrics, EPSILON)).mean(axis=-1), dtype=float)


def centred_ranks(values: Float64s) -> Float64s:
    """Average ranks within each row minus their mean: exact multiples of one half."""
    from scipy.stats import rankdata

    return np.asarray(rankdata(values, axis=-1) - (values.shape[-1] + 1) / 2, dtype=float)


def row_correlations(ranks_x: Float64s, ranks_y: Float64s, weights: Any = 1.0) -> Float64s:
    """Weighted correlation of each row of two centred rank arrays; nan where constant."""
    spread = (weights * ranks_x**2).sum(axis=1) * (weights * ranks_y**2).sum(axis=1)
    joint = (weights * ranks_x * ranks_y).sum(axis=1)
    nothing = np.full(len(joint), np.nan)
    return np.divide(joint, np.sqrt(spread), out=nothing, where=spread > 0)


def _design_columns(covariate: ArrayLike, n: int) -> Float64s:
    column = np.asarray(covariate)
    if column.shape != (n,):
        raise InputError(
            f"A covariate of partial_spearman must have one value for each of the {n} "
            f"configurations. Got shape {column.shape} instead."
        )
    if column.dtype.kind in "fiub":
        return finite_array(column, "covariates", 1)[:, None]
    labels = column.astype(str)
    return np.asarray(labels[:, None] == np.unique(labels)[None, :], dtype=float)


def _residual(values: Float64s, design: Float64s) -> Float64s:
    residual = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    # residuals that are equal on paper differ in the last bits: rank them as equal
    scale = np.max(np.abs(values - values.mean())) or 1.0
    return np.asarray(np.round(residual / scale, 10), dtype=float)


def _t_test(rho: float, freedom: int, n: int) -> float:
    if np.isnan(rho) or freedom < 1:
        return float("nan")
    from scipy.special import stdtr

    t = abs(rho) * np.sqrt(freedom / max(1 - rho * rho, np.finfo(float).eps))
    return max(float(2 * stdtr(freedom, -t)), 2 / factorial(min(n, 170)))  # a float holds 170!


def _residual_permutation(left_x: Float64s, left_y: Float64s, design: Float64s) -> float:
    """Two-sided p-value of the rank correlation of two residuals of one design."""
    ranks_x = centred_ranks(left_x)
    if not ranks_x.any() or not centred_ranks(left_y).any():
        return float("nan")
    moved = left_y[_orderings(len(left_y))]
    if design.shape[1] > 1:  # a constant alone changes no rank
        moved = np.round(moved - moved @ design @ np.linalg.pinv(design), 8)
    # An ordering that the covariates explain has no ranks to correlate.
    rho = np.nan_to_num(np.abs(row_correlations(centred_ranks(moved), ranks_x[None])))
    # The first is the ordering as it is. Equal correlations differ by the rounding of a spread.
    return float(np.mean(rho >= rho[0] - 1e-12))


@lru_cache(maxsize=4)
def _orderings(n: int) -> Indices:
    """All orderings of few values; of more the ordering as it is, and others that are drawn."""
    if n <= EXACT_VALUES:
        return np.array(list(permutations(range(n))), dtype=np.intp)
    same = np.arange(n)
    drawn = np.random.default_rng(0).permuted(np.tile(same, (_DRAWN, 1)), axis=1)
    return np.concatenate([same[None], drawn])


def _ordering_sums(fixed: Float64s, moved: Float64s) -> Float64s:
    """``fixed @ ordering`` for every ordering of `moved`."""
    if len(fixed) < EXACT_VALUES:
        return np.asarray(moved[_orderings(len(fixed))] @ fixed, dtype=float)
    parts = [
        fixed[0] * value + _ordering_sums(fixed[1:], np.delete(moved, i))
        for i, value in enumerate(moved)
    ]
    return np.concatenate(parts)
