"""Rank correlations, their intervals and tests; jackknives of differences.

The paper's bootstrap ends come from 5,000 draws and its permutation p-values from 200,000, with
seeds that are not published. The errors granted for that are derived: four standard deviations
of an end over independent runs of 5,000 draws, and of a binomial share of 200,000.
"""

from __future__ import annotations

from functools import cache
from math import factorial

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr

from daco.evaluation import intervals
from daco.evaluation.metrics import harmonic_mean
from daco.method.config import ScoreConfig
from reproduction.printed import Recomputed, number
from reproduction.published import DEV, EVAL, METRICS, Published
from reproduction.scores import configuration_of, metrics_of

_DRAWS = 5000  # as published
_RUNS = 10  # the sd over ten runs is known to a quarter: four of them are three at the least


def families_of(table: pd.DataFrame) -> NDArray[np.str_]:
    """The method family of each configuration of a grid."""
    return np.array([ScoreConfig.parse(str(name)).family for name in table.index])


def _signal(table: pd.DataFrame, signal: str) -> pd.Series[float]:
    """The predictor of a score; a criterion is negated, because a small one is good."""
    if signal == "strength":
        strengths = [ScoreConfig.parse(str(name)).m for name in table.index]
        return pd.Series(np.log1p(strengths), table.index)
    return -table["criterion_dev"] if signal == "criterion" else table["dev_score"]


def rho(
    published: Published,
    setting: str,
    signal: str,
    of: str = "eval",
    families: str = "",
    which: str = "rho",
) -> Recomputed:
    """Rank correlation of a signal and a score, or its naive p-value.

    Of the configurations whose families begin with `families`, or not so after ``not-``.
    """
    table = published.grid(setting)
    chosen = np.char.startswith(families_of(table), families.removeprefix("not-"))
    table = table[~chosen if families.startswith("not-") else chosen]
    correlation = spearmanr(_signal(table, signal), table[f"{of}_score"])
    return number(correlation.statistic if which == "rho" else correlation.pvalue)


def partial(published: Published, setting: str, which: str, what: str) -> Recomputed:
    """The criterion's correlation after the prior strength and the design are regressed out.

    As published: least squares on the values, then the rank correlation of the residuals, whose
    p-value ignores the regression.
    """
    table = published.grid(setting)
    if which == "conformal":
        table = table[np.char.startswith(families_of(table), "conf-")]
        configs = [ScoreConfig.parse(str(name)) for name in table.index]
        groups = [[str(config.assignment) for config in configs], [config.k for config in configs]]
    else:
        groups = [families_of(table)]
    dummies = [pd.get_dummies(pd.Series(group)).to_numpy(float) for group in groups]
    design = np.column_stack([np.ones(len(table)), _signal(table, "strength"), *dummies])
    sides = np.column_stack([-table["criterion_dev"], table["eval_score"]])
    residuals = sides - design @ np.linalg.lstsq(design, sides)[0]
    correlation = spearmanr(*residuals.T)
    return number(correlation.statistic if what == "rho" else correlation.pvalue)


def _ends(draws: NDArray[np.float64]) -> Recomputed:
    """Plain percentiles; their error is that of ends from as many draws as the paper's."""
    runs = draws[: len(draws) // _DRAWS * _DRAWS].reshape(-1, _DRAWS)
    errors = 4 * np.quantile(runs, [0.025, 0.975], axis=1).std(axis=1, ddof=1)
    ends = np.quantile(draws, [0.025, 0.975])
    return number(*ends, error=errors, cause="the paper's 5,000 draws")


@cache
def block_interval(published: Published, setting: str, signal: str) -> Recomputed:
    """Family-block bootstrap interval of a correlation."""
    table = published.grid(setting)
    arguments = _signal(table, signal), table["eval_score"], families_of(table)
    return _ends(intervals.family_block_bootstrap(*arguments, n_draws=_RUNS * _DRAWS).draws)


@cache
def machine_interval(published: Published, setting: str) -> Recomputed:
    """Bootstrap interval of the criterion's correlation over machines."""
    shape = (-1, len(published.grid(setting)))
    criterion = published.metrics(setting, "dev")["criterion"].to_numpy().reshape(shape)
    metrics = published.metrics(setting, "eval")[METRICS].to_numpy().reshape(*shape, len(METRICS))
    return _ends(intervals.machine_bootstrap(criterion, metrics, n_draws=_RUNS * _DRAWS).draws)


def significance(published: Published, setting: str, signal: str) -> Recomputed:
    """``n.s.`` when the family-block interval contains zero."""
    low, high = block_interval(published, setting, signal).values
    verdict = "n.s." if low <= 0 <= high else "significant"
    return Recomputed(name=verdict, note=f"[{low:+.2f},{high:+.2f}]")


def significant_years(published: Published, signal: str) -> Recomputed:
    """In how many years the family-block interval excludes zero."""
    verdicts = [significance(published, year, signal).name for year in ("2023", "2024", "beats")]
    return number(verdicts.count("significant"), 3)


@cache
def family_means(published: Published, setting: str, signal: str, which: str) -> Recomputed:
    """Rank correlation of the families' means, its permutation p-values, or their number."""
    table = published.grid(setting)
    arguments = _signal(table, signal), table["eval_score"], families_of(table)
    test = intervals.family_mean_permutation(*arguments, n_permutations=factorial(10))
    if which in ("rho", "orderings"):
        return number(test.rho if which == "rho" else test.n_permutations)
    p = test.p_one_sided if which == "one-sided" else test.p_two_sided
    # every ordering is counted here; the paper counts the 7! of its 45 configurations and draws
    # those of the ten families of its 51
    if setting == "45":
        return number(p)
    error = 4 * np.sqrt(p * (1 - p) / 200_000)
    return number(p, error=error, cause="the paper's 200,000 draws")


def jackknife(published: Published, setting: str, who: str, over: str, which: str) -> Recomputed:
    """A difference of evaluation scores, its interval or its leave-one-machine-out range."""
    picks = [configuration_of(published, setting, each) for each in (who, over)]
    first, second = (metrics_of(published, setting, "eval", p).to_numpy() for p in picks)
    delta = harmonic_mean(first) - harmonic_mean(second)
    if which == "delta":
        return number(delta)
    rest = [np.delete(np.arange(len(first)), machine) for machine in range(len(first))]
    left_out = [harmonic_mean(first[rows]) - harmonic_mean(second[rows]) for rows in rest]
    if which == "interval":  # the paper's: 1.96 standard errors, too narrow for few machines
        reach = 1.96 * np.sqrt((len(first) - 1) * np.var(left_out))
        return number(delta - reach, delta + reach)
    return number(min(left_out), max(left_out))


def stack_agreement(published: Published) -> Recomputed:
    """Lowest and highest clip-wise rank correlation of calibration on LDN with LDN alone."""
    agreement = []
    for of, machine in [*(("dev", name) for name in DEV), *(("eval", name) for name in EVAL)]:
        stack = published.clips("conf-soft-m0-ldnK1", of, machine)["score"]
        alone = published.clips("ldn-ratio-K1", of, machine)["score"]
        agreement.append(spearmanr(stack, alone[stack.index]).statistic)
    return number(min(agreement), max(agreement))
