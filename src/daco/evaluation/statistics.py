"""Rank correlations and permutation tests.

A criterion is better when smaller, so its correlations use ``-criterion``: +1 is then a perfect
predictor of the evaluation score, for the criterion as for the dev score.
"""

from __future__ import annotations

from itertools import permutations
from math import factorial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from daco.errors import InputError
from daco.evaluation.metrics import EPSILON
from daco.validation import Float64s, Indices, finite_array, require_whole

Seed = int | np.random.Generator

_DRAWN = 9_999  # orderings or exchanges, where there are too many to count them all
_BLOCK_VALUES = 7  # orderings of as many values are held at once


class PermutationTest(NamedTuple):
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

    >>> round(spearman([1, 2, 3, 4], [10, 20, 40, 30]), 3), spearman([1, 1, 1], [1, 2, 3])
    (0.8, nan)
    """
    first, second = paired(x, y)
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    from scipy.stats import spearmanr

    return float(spearmanr(first, second).statistic)


def family_mean_permutation(
    x: ArrayLike, y: ArrayLike, families: ArrayLike, n_permutations: int = 200_000, seed: Seed = 0
) -> PermutationTest:
    """Test the rank correlation between the means of method families by permutation.

    Parameters
    ----------
    x, y, families : array-like of shape (n,)
        Predictor, score and family of each configuration; for a criterion pass ``-criterion``.
    n_permutations, seed
        Orderings to draw if there are more than that, and seed or generator. The drawn p-values
        count the observed ordering itself, so none is 0.

    Examples
    --------
    >>> test = family_mean_permutation([1, 2, 3, 4], [1, 2, 3, 4], ["a", "b", "c", "d"])
    >>> round(test.rho, 3), test.exact, round(test.p_one_sided, 4)
    (1.0, True, 0.0417)
    """
    first, second, codes = family_codes(x, y, families)
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
    rho, observed, own = spearman(*means), ranks_x @ ranks_y, 0 if exact else 1
    as_large = [np.sum(sums >= observed), np.sum(np.abs(sums) >= abs(observed))]
    one, two = (np.nan if np.isnan(rho) else (n + own) / (len(sums) + own) for n in as_large)
    return PermutationTest(rho, float(one), float(two), len(sizes), len(sums), exact)


def paired_p_value(first: ArrayLike, second: ArrayLike, *, arithmetic: bool = False) -> float:
    """Compute the two-sided p-value of a difference of official scores on the same machines.

    The two systems change places on each machine: all 2^n exchanges are counted for up to 13
    machines, 9,999 are drawn above. The smallest possible value is ``2 / 2^n``.

    Parameters
    ----------
    first, second, arithmetic
        Metrics of two systems on the same machines, shape (n_machines, n_quantities), and whether
        scores are arithmetic means, as in 2020, and not harmonic ones.

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
        counts = f"{len(first)} and {len(second)}"
        raise InputError(f"'x' and 'y' must have one value per configuration. Got {counts} values.")
    return first, second


def family_codes(
    x: ArrayLike, y: ArrayLike, families: ArrayLike
) -> tuple[Float64s, Float64s, Indices]:
    """Two vectors, and the families as 0, 1, ... in sorted order; at least two."""
    first, second = paired(x, y)
    names, codes = np.unique(np.asarray(families).astype(str), return_inverse=True)
    if codes.shape != first.shape or len(names) < 2:
        raise InputError(
            f"'families' must name one family for each of the {len(first)} configurations, and at "
            f"least two families. Got {len(names)} of {codes.size} configurations."
        )
    return first, second, codes


def same_machines(first: ArrayLike, second: ArrayLike) -> tuple[Float64s, Float64s]:
    """Metrics of two systems on the same machines, or an `InputError`."""
    one, two = finite_array(first, "first", 2), finite_array(second, "second", 2)
    if one.shape != two.shape or not one.size:
        shapes = f"{one.shape} and {two.shape}"
        raise InputError(f"Two systems are compared on the same machines. Got shapes {shapes}.")
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
    return np.divide(joint, np.sqrt(spread), out=np.full_like(spread, np.nan), where=spread > 0)


def _ordering_sums(fixed: Float64s, moved: Float64s) -> Float64s:
    """``fixed @ ordering`` for every ordering of `moved`."""
    if len(fixed) <= _BLOCK_VALUES:
        orderings = np.array(list(permutations(moved.tolist())))
        return np.asarray(orderings @ fixed, dtype=float)
    parts = [
        fixed[0] * value + _ordering_sums(fixed[1:], np.delete(moved, i))
        for i, value in enumerate(moved)
    ]
    return np.concatenate(parts)
