"""Rank correlations, permutation tests and intervals over machines.

Sign: a criterion is better when smaller, so its correlations use ``-criterion``. Then +1 is
a perfect predictor of the evaluation score, for the criterion as for the dev score.
Intervals by resampling are in :mod:`daco.evaluation.bootstrap`.

Machines are few. Intervals over them use quantiles of Student's t distribution, p-values of
few values count all orderings, and `larger_than_chance` is False below five machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import permutations
from math import factorial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from daco.errors import InputError
from daco.evaluation.metrics import EPSILON, harmonic_mean
from daco.validation import Float64s, is_whole

EXACT_FAMILIES = 8
"""Up to this many families, or values, every ordering is counted; above, orderings are drawn."""

FEWEST_MACHINES = 5
"""With fewer machines no difference is called larger than chance."""

_LEVEL = 0.95
_DRAWN = 9_999  # orderings or exchanges, where there are too many to count them all

_MAX_EXACT = 10  # 10! = 3.6 million orderings: a fraction of a second, 11! is not


@dataclass(frozen=True)
class PartialCorrelation:
    """A rank correlation after covariates were regressed out.

    Attributes
    ----------
    rho : float
        Spearman correlation of the two residuals.
    p_permutation : float
        Two-sided: the share of orderings of the residuals of `y` that correlate at least as much
        once the covariates are regressed out of them again (Freedman and Lane). All orderings are
        counted for up to 8 values, 9,999 are drawn above.
    p_value : float
        Two-sided, t distribution with ``n - 2`` degrees of freedom: the paper's convention,
        which does not charge for the covariates and is too small for few values. At least
        ``2 / n!``, the smallest share that orderings can have.
    p_value_adjusted : float
        The same with ``n - 2 - n_covariates`` degrees of freedom; nan when none are left.
    n, n_covariates : int
        Configurations, and independent covariate columns without the constant.
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

    Attributes
    ----------
    delta, se : float
        The difference and its jackknife standard error.
    low, high : float
        ``delta`` -+ t ``se``: a 95 % interval with the quantile of Student's t distribution
        with n - 1 degrees of freedom, for n machines.
    loo_low, loo_high : float
        The range of the difference when each machine in turn is left out.
    n_machines : int
    """

    delta: float
    se: float
    low: float
    high: float
    loo_low: float
    loo_high: float
    n_machines: int

    @property
    def published_interval(self) -> tuple[float, float]:
        """The paper's formula, ``delta`` -+ 1.96 ``se``: too narrow for few machines."""
        return self.delta - 1.96 * self.se, self.delta + 1.96 * self.se


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation; tied values share their average rank.

    Returns nan, silently, when either side is constant: it then has no ranks to correlate.

    Examples
    --------
    >>> from daco.evaluation.statistics import spearman
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
    >>> from daco.evaluation.statistics import partial_spearman
    >>> trend = [0, 1, 2, 3, 4, 5]
    >>> result = partial_spearman([0, 3, 1, 4, 6, 4], [0, 2, 1, 5, 4, 6], [trend])
    >>> round(result.rho, 3), result.n_covariates
    (0.314, 1)
    """
    first, second = paired("partial_spearman", x=x, y=y)
    design = np.column_stack(
        [np.ones(len(first)), *(_design_columns(c, len(first)) for c in covariates)]
    )
    left = _residual(first, design), _residual(second, design)
    rho = spearman(*left)
    used = int(np.linalg.matrix_rank(design)) - 1
    return PartialCorrelation(
        rho=rho,
        p_permutation=_residual_permutation(*left, design),
        p_value=_t_test(rho, len(first) - 2, len(first)),
        p_value_adjusted=_t_test(rho, len(first) - 2 - used, len(first)),
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
        Each configuration's family (:attr:`daco.method.config.ScoreConfig.family`).
    n_permutations : int, optional
        Draw this many orderings, or count all of them where there are no more than that. By
        default all orderings are counted for up to 8 families and 200,000 are drawn above.
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
    >>> from daco.evaluation.statistics import family_mean_permutation
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
    if n_permutations is not None:
        n_permutations = positive_int(where, "n_permutations", n_permutations)
    if exact is None and n_permutations is None:
        exact = n <= EXACT_FAMILIES
    elif exact is None:
        exact = n <= EXACT_FAMILIES and factorial(n) <= (n_permutations or 0)
    if exact and n > _MAX_EXACT:
        raise InputError(
            f"Counting all orderings of {n} families would take too long (at most {_MAX_EXACT}). "
            "Leave 'exact' out to draw them instead."
        )
    if exact:
        sums = _ordering_sums(ranks_x, ranks_y)
        own = 0
    else:
        drawn = n_permutations or 200_000
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
    >>> from daco.evaluation.statistics import machine_jackknife
    >>> better = [[70, 60, 55], [80, 50, 52], [66, 61, 58]]
    >>> worse = [[72, 50, 54], [81, 40, 51], [68, 55, 57]]
    >>> result = machine_jackknife(better, worse)
    >>> round(result.delta, 2), round(result.low, 2), round(result.high, 2)
    (3.82, -0.38, 8.02)
    """
    one, two = _same_machines("machine_jackknife", first, second)
    n = len(one)
    if n < 2:
        raise InputError("machine_jackknife leaves machines out one by one: give at least two.")
    rest = 1.0 - np.eye(n)
    left_out = (n - 1) * (1 / (rest @ _costs(one)) - 1 / (rest @ _costs(two)))
    delta = float(harmonic_mean(one) - harmonic_mean(two))
    se = float(np.sqrt((n - 1) * left_out.var()))
    reach = t_quantile(n) * se
    return Jackknife(
        delta=delta,
        se=se,
        low=delta - reach,
        high=delta + reach,
        loo_low=float(left_out.min()),
        loo_high=float(left_out.max()),
        n_machines=n,
    )


def score_interval(metrics: ArrayLike) -> tuple[float, float] | None:
    """95 % interval over machines of an official score in percent; None for one machine.

    The interval is that of `machine_jackknife`, cut at 0 and 100.

    Parameters
    ----------
    metrics : array-like of shape (n_machines, n_quantities)
        AUC source, AUC target and pAUC in percent.

    Examples
    --------
    >>> from daco.evaluation.statistics import score_interval
    >>> low, high = score_interval([[70, 60, 55], [80, 50, 52], [66, 61, 58]])
    >>> round(low, 1), round(high, 1)
    (55.3, 65.0)
    """
    values = quantities("score_interval", "metrics", metrics, 2)
    if len(values) < 2:
        return None
    # Against a system of 100 % on every machine, the difference is the score less 100.
    found = machine_jackknife(values, np.full_like(values, 100.0))
    return max(0.0, 100 + found.low), min(100.0, 100 + found.high)


def paired_p_value(first: ArrayLike, second: ArrayLike) -> float:
    """Two-sided p-value of a difference of official scores on the same machines.

    The two systems change places on each machine by itself: all 2^n exchanges are counted for
    up to 13 machines, 9,999 are drawn above. The smallest possible value is ``2 / 2^n``.

    Parameters
    ----------
    first, second : array-like of shape (n_machines, n_quantities)
        As for `machine_jackknife`.

    Examples
    --------
    >>> from daco.evaluation.statistics import paired_p_value
    >>> paired_p_value([[70, 60, 55]] * 2, [[60, 50, 45]] * 2)
    0.5
    >>> paired_p_value([[70, 60, 55]] * 5, [[60, 50, 45]] * 5)
    0.0625
    """
    one, two = _same_machines("paired_p_value", first, second)
    if len(one) < 2:
        return 1.0
    from scipy.stats import permutation_test

    found = permutation_test(
        (_costs(one), _costs(two)),
        lambda a, b, axis: 1 / a.mean(axis=axis) - 1 / b.mean(axis=axis),
        permutation_type="samples",
        vectorized=True,
        n_resamples=_DRAWN,
        random_state=0,
    )
    return float(found.pvalue)


def _same_machines(where: str, first: ArrayLike, second: ArrayLike) -> tuple[Float64s, Float64s]:
    one, two = quantities(where, "first", first, 2), quantities(where, "second", second, 2)
    if one.shape != two.shape:
        raise InputError(
            f"{where} compares two systems on the same machines. Got shapes {one.shape} and "
            f"{two.shape}."
        )
    return one, two


def larger_than_chance(low: float, high: float, n_machines: int) -> bool:
    """Whether a difference may be called larger than chance.

    Its interval excludes zero, and it was measured on at least five machines.

    Examples
    --------
    >>> from daco.evaluation.statistics import larger_than_chance
    >>> larger_than_chance(0.4, 3.1, 8), larger_than_chance(0.4, 3.1, 4)
    (True, False)
    """
    return n_machines >= FEWEST_MACHINES and not low <= 0 <= high


def too_few_machines(n_machines: int) -> str | None:
    """The sentence that stands beside differences on fewer than five machines.

    Examples
    --------
    >>> from daco.evaluation.statistics import too_few_machines
    >>> too_few_machines(3), too_few_machines(5)
    ('3 machines are too few to tell a difference from chance.', None)
    """
    if n_machines >= FEWEST_MACHINES:
        return None
    are = "1 machine is" if n_machines == 1 else f"{n_machines} machines are"
    return f"{are} too few to tell a difference from chance."


def t_quantile(n: int, level: float = _LEVEL) -> float:
    """How many standard errors a two-sided interval from n values reaches to each side.

    Examples
    --------
    >>> from daco.evaluation.statistics import t_quantile
    >>> [round(t_quantile(n), 2) for n in (2, 3, 5, 10)]
    [12.71, 4.3, 2.78, 2.26]
    """
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, (1 + level) / 2))


def paired(where: str, **vectors: ArrayLike) -> list[Float64s]:
    """The vectors as finite float arrays of one length, or an error naming the wrong one."""
    arrays: list[Float64s] = []
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


def quantities(where: str, name: str, values: ArrayLike, ndim: int) -> Float64s:
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
    if not is_whole(value, least=1):
        raise InputError(f"The {name!r} argument of {where} must be an int >= 1. Got {value!r}.")
    return int(value)


def _costs(metrics: Float64s) -> Float64s:
    """Mean reciprocal per machine: an official score is the reciprocal of the machines' mean."""
    return np.asarray((1 / np.maximum(metrics, EPSILON)).mean(axis=1), dtype=float)


def _floats(where: str, name: str, values: ArrayLike) -> Float64s:
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


def _centred_ranks(values: Float64s) -> Float64s:
    """Average ranks minus their mean: exact multiples of one half."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    average = np.cumsum(counts) - (counts - 1) / 2
    return np.asarray(average[inverse] - (len(values) + 1) / 2, dtype=float)


def _correlation(ranks_x: Float64s, ranks_y: Float64s) -> float:
    spread = (ranks_x @ ranks_x) * (ranks_y @ ranks_y)
    return float((ranks_x @ ranks_y) / np.sqrt(spread)) if spread > 0 else float("nan")


def _design_columns(covariate: ArrayLike, n: int) -> Float64s:
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
    from scipy.stats import rankdata

    n = len(left_x)
    ranks_x, ranks_y = _centred_ranks(left_x), _centred_ranks(left_y)
    if not (ranks_x.any() and ranks_y.any()):
        return float("nan")
    order = _orderings(n) if n <= EXACT_FAMILIES else _drawn_orderings(n)
    if design.shape[1] > 1:
        moved = left_y[order]
        moved = np.round(moved - moved @ design @ np.linalg.pinv(design), 8)
        ranks = rankdata(moved, axis=1) - (n + 1) / 2
    else:  # a constant alone changes no rank
        ranks = ranks_y[order]
    spread = np.sqrt((ranks**2).sum(axis=1) * (ranks_x @ ranks_x))
    # An ordering that the covariates explain has no ranks to correlate.
    found = np.divide(np.abs(ranks @ ranks_x), spread, out=np.zeros(len(ranks)), where=spread > 0)
    # The first is the ordering as it is. Equal correlations differ by the rounding of a spread.
    return float(np.mean(found >= found[0] - 1e-12))


@lru_cache(maxsize=4)
def _drawn_orderings(n: int) -> NDArray[np.intp]:
    """The ordering as it is, and others that are drawn."""
    same = np.arange(n)
    drawn = np.random.default_rng(0).permuted(np.tile(same, (_DRAWN, 1)), axis=1)
    return np.concatenate([same[None], drawn])


@cache
def _orderings(n: int) -> NDArray[np.intp]:
    return np.array(list(permutations(range(n))), dtype=np.intp)


def _ordering_sums(fixed: Float64s, moved: Float64s) -> Float64s:
    """``fixed @ ordering`` for every ordering of `moved`."""
    if len(fixed) <= 7:
        return np.asarray(moved[_orderings(len(fixed))] @ fixed, dtype=float)
    return np.concatenate(
        [
            fixed[0] * value + _ordering_sums(fixed[1:], np.delete(moved, i))
            for i, value in enumerate(moved)
        ]
    )
