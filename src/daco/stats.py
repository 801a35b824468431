"""Rank correlations, permutation of families and the machine jackknife.

Sign: a criterion is better when smaller, so its correlations use ``-criterion``. Then +1 is
a perfect predictor of the evaluation score, for the criterion as for the dev score.
Intervals by resampling are in :mod:`daco.bootstrap`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.metrics import harmonic_mean

FloatArray = NDArray[np.float64]

EXACT_FAMILIES = 8
"""Up to this many families every ordering is counted; above, orderings are drawn."""

_MAX_EXACT = 10  # 10! = 3.6 million orderings: a fraction of a second, 11! is not


@dataclass(frozen=True)
class PartialCorrelation:
    """A rank correlation after covariates were regressed out.

    Attributes
    ----------
    rho : float
        Spearman correlation of the two residuals.
    p_value : float
        Two-sided, t distribution with ``n - 2`` degrees of freedom: the published convention,
        which does not charge for the covariates.
    p_value_adjusted : float
        The same with ``n - 2 - n_covariates`` degrees of freedom; nan when none are left.
    n, n_covariates : int
        Configurations, and independent covariate columns without the constant.
    """

    rho: float
    p_value: float
    p_value_adjusted: float
    n: int
    n_covariates: int


@dataclass(frozen=True)
class PermutationTest:
    """Rank correlation of family means and its permutation p-values.

    ``exact`` says whether all orderings were counted or ``n_permutations`` were drawn.
    """

    rho: float
    p_one_sided: float
    p_two_sided: float
    n_families: int
    n_permutations: int
    exact: bool


@dataclass(frozen=True)
class Jackknife:
    """A difference of official scores, and how far it rests on single machines.

    ``low`` and ``high`` are ``delta`` -+ 1.96 ``se``; ``loo_low`` and ``loo_high`` the range
    of the difference when each machine in turn is left out.
    """

    delta: float
    se: float
    low: float
    high: float
    loo_low: float
    loo_high: float


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation; tied values share their average rank.

    Returns nan, silently, when either side is constant: it then has no ranks to correlate.

    Examples
    --------
    >>> from daco.stats import spearman
    >>> spearman([1, 2, 3, 4], [10, 20, 40, 30])
    0.8
    >>> spearman([1, 1, 1], [1, 2, 3])
    nan
    """
    first, second = paired("spearman", x=x, y=y)
    return _correlation(_centred_ranks(first), _centred_ranks(second))


def partial_spearman(
    x: ArrayLike, y: ArrayLike, covariates: Sequence[ArrayLike]
) -> PartialCorrelation:
    """Rank correlation of what covariates leave of `x` and `y`.

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

    Examples
    --------
    >>> from daco.stats import partial_spearman
    >>> trend = [0, 1, 2, 3, 4, 5]
    >>> result = partial_spearman([0, 3, 1, 4, 6, 4], [0, 2, 1, 5, 4, 6], [trend])
    >>> round(result.rho, 3), result.n_covariates
    (0.314, 1)
    """
    first, second = paired("partial_spearman", x=x, y=y)
    design = np.column_stack(
        [np.ones(len(first)), *(_design_columns(c, len(first)) for c in covariates)]
    )
    rho = spearman(_residual(first, design), _residual(second, design))
    used = int(np.linalg.matrix_rank(design)) - 1
    return PartialCorrelation(
        rho=rho,
        p_value=_t_test(rho, len(first) - 2),
        p_value_adjusted=_t_test(rho, len(first) - 2 - used),
        n=len(first),
        n_covariates=used,
    )


def family_mean_permutation(
    x: ArrayLike,
    y: ArrayLike,
    families: ArrayLike,
    *,
    n_permutations: int | None = None,
    exact: bool | None = None,
    seed: int | np.random.Generator = 0,
) -> PermutationTest:
    """Permutation test of the rank correlation between the means of the method families.

    Parameters
    ----------
    x, y : array-like of shape (n,)
        Predictor and score of each configuration; for a criterion pass ``-criterion``.
    families : array-like of shape (n,)
        Each configuration's family (:attr:`daco.config.ScoreConfig.family`).
    n_permutations : int, optional
        Draw this many orderings. By default all orderings are counted for up to
        8 families and 200,000 are drawn above.
    exact : bool, optional
        Force counting (up to 10 families) or drawing.
    seed : int or numpy.random.Generator
        For drawn orderings.

    Notes
    -----
    One-sided: orderings that correlate at least as much; two-sided: at least as much in
    absolute value. Drawn p-values count the observed ordering itself, so none is 0.

    Examples
    --------
    >>> from daco.stats import family_mean_permutation
    >>> test = family_mean_permutation([1, 2, 3, 4], [1, 2, 3, 4], ["a", "b", "c", "d"])
    >>> test.rho, test.exact, round(test.p_one_sided, 4)
    (1.0, True, 0.0417)
    """
    where = "family_mean_permutation"
    first, second = paired(where, x=x, y=y)
    codes = family_codes(where, families, len(first))
    sizes = np.bincount(codes)
    ranks_x = _centred_ranks(np.bincount(codes, first) / sizes)
    ranks_y = _centred_ranks(np.bincount(codes, second) / sizes)
    n = len(sizes)
    if exact is None:
        exact = n_permutations is None and n <= EXACT_FAMILIES
    if exact and n > _MAX_EXACT:
        raise InputError(
            f"Counting all orderings of {n} families would take too long (at most {_MAX_EXACT}). "
            "Leave 'exact' out to draw them instead."
        )
    if exact:
        sums = _ordering_sums(ranks_x, ranks_y)
        own = 0
    else:
        drawn = positive_int(where, "n_permutations", n_permutations or 200_000)
        rng = np.random.default_rng(seed)
        sums = rng.permuted(np.tile(ranks_y, (drawn, 1)), axis=1) @ ranks_x
        own = 1
    # centred ranks are multiples of 1/2: the sums are exact, so >= needs no tolerance
    observed = float(ranks_x @ ranks_y)
    rho = _correlation(ranks_x, ranks_y)
    defined = not np.isnan(rho)
    total = len(sums) + own
    return PermutationTest(
        rho=rho,
        p_one_sided=float((np.sum(sums >= observed) + own) / total) if defined else np.nan,
        p_two_sided=(
            float((np.sum(np.abs(sums) >= abs(observed)) + own) / total) if defined else np.nan
        ),
        n_families=n,
        n_permutations=len(sums),
        exact=exact,
    )


def machine_jackknife(first: ArrayLike, second: ArrayLike) -> Jackknife:
    """Official score of `first` minus `second`, with a leave-one-machine-out error.

    Parameters
    ----------
    first, second : array-like of shape (n_machines, n_quantities)
        AUC source, AUC target and pAUC of two systems on the same machines in the same
        order; the result is in their unit.

    Examples
    --------
    >>> from daco.stats import machine_jackknife
    >>> better = [[70, 60, 55], [80, 50, 52], [66, 61, 58]]
    >>> worse = [[72, 50, 54], [81, 40, 51], [68, 55, 57]]
    >>> result = machine_jackknife(better, worse)
    >>> round(result.delta, 2), round(result.low, 2), round(result.high, 2)
    (3.82, 1.9, 5.73)
    """
    where = "machine_jackknife"
    one, two = quantities(where, "first", first, 2), quantities(where, "second", second, 2)
    if one.shape != two.shape:
        raise InputError(
            f"machine_jackknife compares two systems on the same machines. Got shapes {one.shape} "
            f"and {two.shape}."
        )
    n = len(one)
    if n < 2:
        raise InputError("machine_jackknife leaves machines out one by one: give at least two.")
    kept = ~np.eye(n, dtype=bool)
    left_out = np.array([harmonic_mean(one[keep]) - harmonic_mean(two[keep]) for keep in kept])
    delta = float(harmonic_mean(one) - harmonic_mean(two))
    se = float(np.sqrt((n - 1) * left_out.var()))
    return Jackknife(
        delta=delta,
        se=se,
        low=delta - 1.96 * se,
        high=delta + 1.96 * se,
        loo_low=float(left_out.min()),
        loo_high=float(left_out.max()),
    )


def paired(where: str, **vectors: ArrayLike) -> list[FloatArray]:
    """The vectors as finite float arrays of one length, or an error naming the wrong one."""
    arrays: list[FloatArray] = []
    for name, values in vectors.items():
        array = _floats(where, name, values)
        if array.ndim != 1 or not len(array):
            raise InputError(
                f"The {name!r} argument of {where} must be a vector with at least one value. "
                f"Got shape {array.shape} instead."
            )
        if arrays and len(array) != len(arrays[0]):
            raise InputError(
                f"The {name!r} argument of {where} has {len(array)} values, the first one "
                f"{len(arrays[0])}. Give one value per configuration in both."
            )
        arrays.append(array)
    return arrays


def family_codes(where: str, families: ArrayLike, n: int) -> NDArray[np.intp]:
    """Families as 0, 1, ... in sorted order; fewer than two are an error."""
    labels = np.asarray(families)
    if labels.shape != (n,):
        raise InputError(
            f"The 'families' argument of {where} must name one family for each of the {n} "
            f"configurations. Got shape {labels.shape} instead."
        )
    names, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(names) < 2:
        raise InputError(
            f"{where} compares families, and all {n} configurations are of family "
            f"{str(names[0])!r}. Give configurations of at least two families."
        )
    return codes


def quantities(where: str, name: str, values: ArrayLike, ndim: int) -> FloatArray:
    """Metrics per machine as a finite array of `ndim` axes, machines first."""
    array = _floats(where, name, values)
    if array.ndim != ndim or not array.size:
        raise InputError(
            f"The {name!r} argument of {where} must have {ndim} axes, machines first. "
            f"Got shape {array.shape} instead."
        )
    return array


def positive_int(where: str, name: str, value: Any) -> int:
    """`value` as an int of at least 1."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"The {name!r} argument of {where} must be an int >= 1. Got {value!r}.")
    return int(value)


def _floats(where: str, name: str, values: ArrayLike) -> FloatArray:
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InputError(f"The {name!r} argument of {where} must be numbers: {error}.") from error
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise InputError(
            f"The {name!r} argument of {where} must be finite. Got {array[tuple(bad[0])]} at "
            f"position {tuple(int(i) for i in bad[0])} ({len(bad)} such values); remove them first."
        )
    return array


def _centred_ranks(values: FloatArray) -> FloatArray:
    """Average ranks minus their mean: exact multiples of one half."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    average = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(average[inverse] - (len(values) + 1) / 2, dtype=float)


def _correlation(ranks_x: FloatArray, ranks_y: FloatArray) -> float:
    spread = (ranks_x @ ranks_x) * (ranks_y @ ranks_y)
    return float((ranks_x @ ranks_y) / np.sqrt(spread)) if spread > 0 else float("nan")


def _design_columns(covariate: ArrayLike, n: int) -> FloatArray:
    column = np.asarray(covariate)
    if column.shape != (n,):
        raise InputError(
            f"A covariate of partial_spearman must have one value for each of the {n} "
            f"configurations. Got shape {column.shape} instead."
        )
    if column.dtype.kind in "fiub":
        return _floats("partial_spearman", "covariates", column)[:, None]
    labels = column.astype(str)
    return np.asarray(labels[:, None] == np.unique(labels)[None, :], dtype=float)


def _residual(values: FloatArray, design: FloatArray) -> FloatArray:
    residual = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
    # residuals that are equal on paper differ in the last bits: rank them as equal
    scale = np.max(np.abs(values - values.mean())) or 1.0
    return np.asarray(np.round(residual / scale, 10), dtype=float)


def _t_test(rho: float, freedom: int) -> float:
    if np.isnan(rho) or freedom < 1:
        return float("nan")
    from scipy.special import stdtr

    if abs(rho) >= 1:
        return 0.0
    t = abs(rho) * np.sqrt(freedom / (1 - rho * rho))
    return float(2 * stdtr(freedom, -t))


@cache
def _orderings(n: int) -> NDArray[np.intp]:
    return np.array(list(permutations(range(n))), dtype=np.intp)


def _ordering_sums(fixed: FloatArray, moved: FloatArray) -> FloatArray:
    """``fixed @ ordering`` for every ordering of `moved`."""
    if len(fixed) <= 7:
        return np.asarray(moved[_orderings(len(fixed))] @ fixed, dtype=float)
    return np.concatenate(
        [
            fixed[0] * value + _ordering_sums(fixed[1:], np.delete(moved, i))
            for i, value in enumerate(moved)
        ]
    )
