"""Rank correlations, their intervals and tests; jackknives of differences.

The paper's bootstrap ends come from 5,000 draws and its permutation p-values from 200,000, with
seeds that are not published. The errors granted for that are derived: four standard deviations
of an end over independent runs of 5,000 draws, and of a binomial share of 200,000.
"""

from __future__ import annotations

from math import factorial

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from daco.data.dcase import MACHINES
from daco.evaluation.intervals import (
    Interval,
    Jackknife,
    family_block_bootstrap,
    machine_bootstrap,
    machine_jackknife,
)
from daco.evaluation.metrics import QUANTITIES
from daco.evaluation.statistics import (
    PermutationTest,
    family_mean_permutation,
    partial_spearman,
    spearman,
)
from daco.experiments.grid_table import pivot_machines
from daco.method.config import ScoreConfig
from daco.paper.artifacts import YEARS, ArtifactError, Artifacts, cached
from daco.paper.printed import Recomputed, number
from daco.paper.scores import LABELS, config_of, metrics_of

_DRAWS, _PERMUTATIONS = 5000, 200_000  # as published
_RUNS = 10  # the sd over ten runs is known to a quarter: four of them are three at the least


def families_of(table: pd.DataFrame) -> NDArray[np.str_]:
    """The method family of each configuration."""
    return np.array([ScoreConfig.parse(name).family for name in table["config"]])


def _signal(table: pd.DataFrame, signal: str) -> ArrayLike:
    """The predictor of a score; a criterion is negated, because a small one is good."""
    if signal == "strength":
        return np.log1p([ScoreConfig.parse(name).m for name in table["config"]])
    return -table["crit_dev"] if signal == "criterion" else table["dev_omega"]


def rho(
    artifacts: Artifacts, setting: str, signal: str, split: str = "eval", families: str = ""
) -> Recomputed:
    """Rank correlation of a signal and a score; `families` begin so, or not so after ``not-``."""
    table = artifacts.grid(setting)
    chosen = np.char.startswith(families_of(table), families.removeprefix("not-"))
    table = table[~chosen if families.startswith("not-") else chosen]
    return number(spearman(_signal(table, signal), table[f"{split}_omega"]))


def _ends_with_error(interval: Interval) -> Recomputed:
    """An interval's ends; their error is that of ends from as many draws as the paper's."""
    draws = interval.draws[: len(interval.draws) // _DRAWS * _DRAWS].reshape(-1, _DRAWS)
    errors = 4 * np.quantile(draws, [0.025, 0.975], axis=1).std(axis=1, ddof=1)
    return number(*interval.published_interval, error=errors, cause=_drawn(_DRAWS))


def _drawn(n_draws: int) -> str:
    return f"the paper's {n_draws:,} draws"


@cached
def block_interval(artifacts: Artifacts, setting: str, signal: str) -> Recomputed:
    """Family-block bootstrap interval of a correlation."""
    table = artifacts.grid(setting)
    values, scores, families = _signal(table, signal), table["eval_omega"], families_of(table)
    return _ends_with_error(
        family_block_bootstrap(values, scores, families, n_draws=_RUNS * _DRAWS)
    )


@cached
def machine_interval(artifacts: Artifacts, setting: str) -> Recomputed:
    """Bootstrap interval of the criterion's correlation over machines.

    The paper does not state from how many draws its own is: as many as the other, presumably.
    """
    _, configs, criterion = pivot_machines(artifacts.machines(setting, "dev"), ["balance_ks"])
    evaluation = artifacts.machines(setting, "eval")
    _, _, metrics = pivot_machines(evaluation, QUANTITIES, configs=configs)
    return _ends_with_error(machine_bootstrap(criterion[:, :, 0], metrics, n_draws=_RUNS * _DRAWS))


def significance(artifacts: Artifacts, setting: str, signal: str) -> Recomputed:
    """``n.s.`` when the family-block interval contains zero."""
    low, high = block_interval(artifacts, setting, signal).values
    verdict = "n.s." if low <= 0 <= high else "significant"
    return Recomputed(name=verdict, note=f"[{low:+.2f},{high:+.2f}]")


def significant_years(artifacts: Artifacts, signal: str) -> Recomputed:
    """In how many years the family-block interval excludes zero."""
    verdicts = [significance(artifacts, year, signal).name for year in YEARS]
    return number(verdicts.count("significant"), len(YEARS))


@cached
def _permutation(artifacts: Artifacts, setting: str, signal: str) -> PermutationTest:
    table = artifacts.grid(setting)
    values, scores, families = _signal(table, signal), table["eval_omega"], families_of(table)
    return family_mean_permutation(values, scores, families, n_permutations=factorial(10))


def family_means(artifacts: Artifacts, setting: str, signal: str, which: str) -> Recomputed:
    """Rank correlation of the families' means, its permutation p-values, or their number."""
    test = _permutation(artifacts, setting, signal)
    if which in ("rho", "orderings"):
        return number(test.rho if which == "rho" else test.n_permutations)
    p = test.p_one_sided if which == "one-sided" else test.p_two_sided
    # every ordering is counted here; the paper counts the 7! of its 45 configurations and draws
    # those of the ten families of its 51
    if setting == "45":
        return number(p)
    error = 4 * np.sqrt(p * (1 - p) / _PERMUTATIONS)
    return number(p, error=error, cause=_drawn(_PERMUTATIONS))


def partial(artifacts: Artifacts, setting: str, which: str, what: str) -> Recomputed:
    """The criterion's correlation after the prior strength and the design are regressed out."""
    table = artifacts.grid(setting)
    if which == "conformal":
        table = table[np.char.startswith(families_of(table), "conf-")]
        configs = [ScoreConfig.parse(name) for name in table["config"]]
        design: list[ArrayLike] = [
            [str(config.assignment) for config in configs],
            [str(config.k) for config in configs],
        ]
    else:
        design = [families_of(table)]
    covariates = [_signal(table, "strength"), *design]
    correlation = partial_spearman(-table["crit_dev"], table["eval_omega"], covariates)
    return number(correlation.rho if what == "rho" else correlation.p_value)


def naive_p(artifacts: Artifacts, setting: str, signal: str) -> Recomputed:
    """The p-value of a correlation that takes configurations for independent."""
    table = artifacts.grid(setting)
    return number(partial_spearman(_signal(table, signal), table["eval_omega"], []).p_value)


@cached
def _jackknife(artifacts: Artifacts, setting: str, who: str, over: str) -> Jackknife:
    first, second = (
        metrics_of(artifacts, setting, "eval", config_of(artifacts, setting, each))[1]
        for each in (who, over)
    )
    return machine_jackknife(first, second)


def jackknife(artifacts: Artifacts, setting: str, who: str, over: str, which: str) -> Recomputed:
    """A difference of evaluation scores, its interval or its leave-one-machine-out range."""
    difference = _jackknife(artifacts, setting, who, over)
    if which == "delta":
        return number(difference.delta)
    if which == "interval":
        return number(*difference.published_interval)
    return number(difference.loo_low, difference.loo_high)


def stack_agreement(artifacts: Artifacts) -> Recomputed:
    """Lowest and highest clip-wise rank correlation of calibration on LDN with LDN alone."""
    agreement = []
    for split, names in MACHINES[2025].items():
        for machine in names:
            stack, alone = (
                pd.Series(clips.scores, clips.names)
                for clips in (
                    artifacts.clips("conf-soft-m0-ldnK1", split, machine),
                    artifacts.clips("ldn-ratio-K1", split, machine),
                )
            )
            agreement.append(spearman(stack, alone[stack.index]))
    return number(min(agreement), max(agreement))


def recorded_clip_interval(artifacts: Artifacts) -> Recomputed:
    """The clip-level interval of the headline gain, as the authors recorded it."""
    file, key = "results/stats_intervals.json", "conf-soft-m0-k1 - raw-k1"
    match artifacts.entry(file, "clip_bootstrap_CI95", key):
        case [float(low), float(high)]:
            return number(low, high, needs=LABELS)
    raise ArtifactError(file, f"has no interval of {key}")
