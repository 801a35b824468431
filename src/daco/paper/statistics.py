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
from daco.method.config import ScoreConfig
from daco.method.grid_table import pivot_machines
from daco.paper.artifacts import (
    YEARS,
    ArtifactError,
    Artifacts,
    cached,
    clips,
    grid,
    machines,
    read_entry,
)
from daco.paper.choices import config_of
from daco.paper.printed import Recomputed, number, pair, read, recipe, with_draws
from daco.paper.scores import LABELS, metrics_of

_DRAWS, _PERMUTATIONS = 5000, 200_000  # as published
_RUNS = 10  # the sd over ten runs is known to a quarter: four of them are three at the least


def families_of(table: pd.DataFrame) -> NDArray[np.str_]:
    """The method family of each configuration."""
    return np.array([ScoreConfig.parse(name).family for name in table["config"]])


def _log_strength(table: pd.DataFrame) -> NDArray[np.float64]:
    return np.log1p([ScoreConfig.parse(name).prior_strength for name in table["config"]])


def _signal(table: pd.DataFrame, signal: str) -> ArrayLike:
    """What is to predict a score; a small criterion is a good one."""
    if signal == "strength":
        return _log_strength(table)
    return -table["crit_dev"] if signal == "criterion" else table["dev_omega"]


def _subset(table: pd.DataFrame, families: str) -> pd.DataFrame:
    """Configurations whose family begins so, or does not, after ``not-``."""
    chosen = np.char.startswith(families_of(table), families.removeprefix("not-"))
    return table[~chosen if families.startswith("not-") else chosen]


@recipe
def rho(
    artifacts: Artifacts, setting: str, signal: str, split: str = "eval", families: str = ""
) -> Recomputed:
    """Rank correlation of a signal and a score, over all configurations or some families."""
    table = _subset(grid(artifacts, setting), families)
    return number(spearman(_signal(table, signal), table[f"{split}_omega"]))


def _ends_with_error(interval: Interval) -> Recomputed:
    """An interval's ends; their error is that of ends from as many draws as the paper's."""
    draws = interval.draws[: len(interval.draws) // _DRAWS * _DRAWS].reshape(-1, _DRAWS)
    low, high = 4 * np.quantile(draws, [0.025, 0.975], axis=1).std(axis=1, ddof=1)
    return with_draws(pair(*interval.published_interval, (float(low), float(high))), _DRAWS)


@recipe
@cached
def block_interval(artifacts: Artifacts, setting: str, signal: str) -> Recomputed:
    """Family-block bootstrap interval of a correlation."""
    table = grid(artifacts, setting)
    families, draws = families_of(table), _RUNS * _DRAWS
    scores = table["eval_omega"]
    return _ends_with_error(
        family_block_bootstrap(_signal(table, signal), scores, families, n_draws=draws)
    )


@recipe
@cached
def machine_interval(artifacts: Artifacts, setting: str) -> Recomputed:
    """Bootstrap interval of the criterion's correlation over machines.

    The paper does not state from how many draws its own is: as many as the other, presumably.
    """
    _, configs, criterion = pivot_machines(machines(artifacts, setting, "dev"), ["balance_ks"])
    evaluation = machines(artifacts, setting, "eval")
    _, _, metrics = pivot_machines(evaluation, QUANTITIES, configs=configs)
    return _ends_with_error(machine_bootstrap(criterion[:, :, 0], metrics, n_draws=_RUNS * _DRAWS))


@recipe
def significance(artifacts: Artifacts, setting: str, signal: str) -> Recomputed:
    """``n.s.`` when the family-block interval contains zero."""
    low, high = block_interval(artifacts, setting, signal).values
    verdict = "n.s." if low <= 0 <= high else "significant"
    return Recomputed(name=verdict, note=f"[{low:+.2f},{high:+.2f}]")


@recipe
def significant_years(artifacts: Artifacts, signal: str) -> Recomputed:
    """In how many years the family-block interval excludes zero."""
    verdicts = [significance(artifacts, year, signal).name for year in YEARS]
    return pair(verdicts.count("significant"), len(YEARS))


@cached
def _permutation(artifacts: Artifacts, setting: str, signal: str) -> PermutationTest:
    table = grid(artifacts, setting)
    signals = _signal(table, signal)
    return family_mean_permutation(
        signals, table["eval_omega"], families_of(table), n_permutations=factorial(10)
    )


@recipe
def family_means(artifacts: Artifacts, setting: str, signal: str, which: str) -> Recomputed:
    """Rank correlation of the families' means, its permutation p-values, or their number."""
    test = _permutation(artifacts, setting, signal)
    if which == "rho":
        return number(test.rho)
    if which == "orderings":
        return number(test.n_permutations)
    p = test.p_one_sided if which == "one-sided" else test.p_two_sided
    # every ordering is counted here; the paper counts the 7! of its 45 configurations and draws
    # those of the ten families of its 51
    if setting == "45":
        return number(p)
    return with_draws(number(p, 4 * np.sqrt(p * (1 - p) / _PERMUTATIONS)), _PERMUTATIONS)


@recipe
def partial(artifacts: Artifacts, setting: str, which: str, what: str) -> Recomputed:
    """The criterion's correlation after the prior strength and the design are regressed out."""
    table = _subset(grid(artifacts, setting), "conf-" if which == "conformal" else "")
    covariates: list[ArrayLike] = [_log_strength(table), families_of(table)]
    if which == "conformal":
        configs = [ScoreConfig.parse(name) for name in table["config"]]
        covariates[1:] = [
            [str(config.assignment) for config in configs],
            [str(config.neighbours) for config in configs],
        ]
    found = partial_spearman(-table["crit_dev"], table["eval_omega"], covariates)
    return number(found.rho if what == "rho" else found.p_value)


@recipe
def naive_p(artifacts: Artifacts, setting: str, signal: str) -> Recomputed:
    """The p-value of a correlation that takes configurations for independent."""
    table = grid(artifacts, setting)
    return number(partial_spearman(_signal(table, signal), table["eval_omega"], []).p_value)


@cached
def _jackknife(artifacts: Artifacts, setting: str, who: str, over: str) -> Jackknife:
    first, second = (
        metrics_of(artifacts, setting, "eval", config_of(artifacts, setting, each))[1]
        for each in (who, over)
    )
    return machine_jackknife(first, second)


@recipe
def jackknife(artifacts: Artifacts, setting: str, who: str, over: str, which: str) -> Recomputed:
    """A difference of evaluation scores, its interval or its leave-one-machine-out range."""
    found = _jackknife(artifacts, setting, who, over)
    if which == "delta":
        return number(found.delta)
    ends = found.published_interval if which == "interval" else (found.loo_low, found.loo_high)
    return pair(*ends)


@recipe
def stack_agreement(artifacts: Artifacts) -> Recomputed:
    """Lowest and highest clip-wise rank correlation of calibration on LDN with LDN alone."""
    found = []
    for split, names in MACHINES[2025].items():
        for machine in names:
            stack = clips(artifacts, "conf-soft-m0-ldnK1", split, machine)
            alone = clips(artifacts, "ldn-ratio-K1", split, machine)
            scores = dict(zip(alone.names, alone.scores, strict=True))
            found.append(spearman(stack.scores, [scores[name] for name in stack.names]))
    return pair(min(found), max(found))


@recipe
def recorded_clip_interval(artifacts: Artifacts) -> Recomputed:
    """The clip-level interval of the headline gain, as the authors recorded it."""
    file, key = "results/stats_intervals.json", "conf-soft-m0-k1 - raw-k1"
    match read_entry(artifacts, file, "clip_bootstrap_CI95", key):
        case [float(low), float(high)]:
            return read(pair(low, high), LABELS)
    raise ArtifactError(file, f"has no interval of {key}")
