"""Which configuration a rule picks in a setting, and what the veto does."""

from __future__ import annotations

import numpy as np
import pandas as pd

from daco.method.config import DEFAULT_CONFIG, ScoreConfig, blind_pool
from daco.method.criterion import h0_floor
from daco.method.selection import (
    guarded_selection,
    oracle,
    per_machine_blind,
    random_expectation,
    select_by_criterion,
    select_by_dev_score,
    viable,
    viable_within,
)
from daco.paper.artifacts import (
    BACKBONES,
    YEARS,
    ArtifactError,
    Artifacts,
    frozen_grid,
    grid,
    machines,
    once,
    read_entry,
)
from daco.paper.recipe import Recomputed, named, number, pair, read, recipe

DEGENERATE = "ldn-diff-K16"
WITH_DEGENERATE = (*YEARS, "eat", "panns")
"""The settings in which the degenerate configuration is on the grid (BEATs is 2025)."""

_FORMS = (3.0, 8.0)  # the thresholds between which the paper varies the veto


@once
def config_of(artifacts: Artifacts, setting: str, who: str) -> str:
    """The configuration a rule picks; a configuration's own name stands for itself."""
    table = grid(artifacts, setting)
    names = table["config"]
    if who == "dev-pick":
        return select_by_dev_score(names, table["dev_omega"])
    if who == "criterion-pick":
        return select_by_criterion(names, table["crit_dev"])
    if who == "eval-criterion-pick":
        return select_by_criterion(names, table["crit_eval"])
    if who == "second-pick":
        rest = table[names != select_by_criterion(names, table["crit_dev"])]
        return select_by_criterion(rest["config"], rest["crit_dev"])
    if who == "guarded-pick":
        return guarded_selection(table)
    if who == "frozen-pick":
        return guarded_selection(frozen_grid(artifacts, setting))
    if who == "oracle":
        return oracle(names, table["eval_omega"])
    if who == "default":
        return DEFAULT_CONFIG
    if who.startswith("within-"):
        return _pick_within(table, float(who.removeprefix("within-")))
    return ScoreConfig.parse(who).name


def _pick_within(table: pd.DataFrame, delta: float) -> str:
    return guarded_selection(table, veto=lambda dev: viable_within(dev, delta))


@recipe
def pick(artifacts: Artifacts, setting: str, rule: str) -> Recomputed:
    """The configuration that a rule picks."""
    return named(config_of(artifacts, setting, rule))


@recipe
def random_score(artifacts: Artifacts, setting: str, which: str) -> Recomputed:
    """Mean or sd of the evaluation score of a configuration drawn at random."""
    expected = random_expectation(grid(artifacts, setting)["eval_omega"])
    return number(expected.mean if which == "mean" else expected.sd)


@recipe
def random_range(artifacts: Artifacts) -> Recomputed:
    """The lowest and highest of these means over the backbones."""
    means = [random_score(artifacts, setting, "mean").values[0] for setting in BACKBONES]
    return pair(min(means), max(means))


@recipe
def vetoed(artifacts: Artifacts, setting: str) -> Recomputed:
    """How many configurations the bottom-decile veto drops."""
    return number(np.sum(~viable(grid(artifacts, setting)["dev_omega"])))


@recipe
def above_veto_floor(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """How far a configuration's dev score is above the 10 % quantile."""
    dev = grid(artifacts, setting).set_index("config")["dev_omega"]
    return number(dev[config_of(artifacts, setting, who)] - np.quantile(dev, 0.10))


def picks_by_threshold(artifacts: Artifacts, setting: str) -> list[str]:
    """The picks of the threshold veto for every delta from 3 to 8 that could change them."""
    table = grid(artifacts, setting)
    behind = table["dev_omega"].max() - table["dev_omega"]
    low, high = _FORMS
    deltas = [low, *sorted(d for d in behind if low < d < high), high]
    return [_pick_within(table, delta) for delta in deltas]


@recipe
def threshold_picks(artifacts: Artifacts, setting: str) -> Recomputed:
    """How many different configurations the threshold veto picks for deltas 3 to 8."""
    return number(len(set(picks_by_threshold(artifacts, setting))))


@recipe
def threshold_scores(artifacts: Artifacts, setting: str) -> Recomputed:
    """Lowest and highest evaluation score over the forms of the veto."""
    scores = grid(artifacts, setting).set_index("config")["eval_omega"]
    picks = [*picks_by_threshold(artifacts, setting), config_of(artifacts, setting, "guarded-pick")]
    return pair(scores[picks].min(), scores[picks].max())


@recipe
def stable_thresholds(artifacts: Artifacts) -> Recomputed:
    """How many of the backbones keep one pick for all deltas from 3 to 8."""
    stable = sum(len(set(picks_by_threshold(artifacts, s))) == 1 for s in BACKBONES)
    return pair(stable, len(BACKBONES))


@recipe
def same_as_threshold(artifacts: Artifacts, delta: str) -> Recomputed:
    """On how many backbones the bottom-decile veto and the threshold pick the same."""
    rules = ("guarded-pick", f"within-{delta}")
    return number(sum(len({config_of(artifacts, s, r) for r in rules}) == 1 for s in BACKBONES))


@recipe
def best_excluded(artifacts: Artifacts, setting: str, delta: str) -> Recomputed:
    """How many of the best configurations, counted from the top, a threshold excludes."""
    table = grid(artifacts, setting)
    kept = viable_within(table["dev_omega"], float(delta))
    return number(np.argmax(kept[np.argsort(-table["eval_omega"].to_numpy())]))


@recipe
def deficit_of_best(artifacts: Artifacts, setting: str, count: str) -> Recomputed:
    """Mean distance of the best configurations' dev scores to the best dev score."""
    table = grid(artifacts, setting)
    best = table.nlargest(int(count), "eval_omega")["dev_omega"]
    return number(table["dev_omega"].max() - best.mean())


@recipe
def degenerate_picks(artifacts: Artifacts, rule: str) -> Recomputed:
    """In how many settings a rule picks the degenerate configuration."""
    fallen = [s for s in WITH_DEGENERATE if config_of(artifacts, s, rule) == DEGENERATE]
    return pair(len(fallen), len(WITH_DEGENERATE))


@recipe
def degenerate_deficit(artifacts: Artifacts) -> Recomputed:
    """How far it lies below the best dev score, at least and at most."""
    dev = [grid(artifacts, s).set_index("config")["dev_omega"] for s in WITH_DEGENERATE]
    behind = [scores.max() - scores[DEGENERATE] for scores in dev]
    return pair(min(behind), max(behind))


@recipe
def default_wins(artifacts: Artifacts, *years: str) -> Recomputed:
    """In how many years the fixed default scores at least what guarded selection does."""
    years = years or YEARS
    wins = 0
    for year in years:
        scores = grid(artifacts, year).set_index("config")["eval_omega"]
        wins += scores[DEFAULT_CONFIG] >= scores[config_of(artifacts, year, "guarded-pick")]
    return pair(wins, len(years))


@recipe
def blind_pool_size(artifacts: Artifacts, setting: str) -> Recomputed:
    """How many configurations of the grid are in the pool for choosing per machine.

    The pool holds the soft k=1 configurations without the z-score.
    """
    names = set(grid(artifacts, setting)["config"])
    return number(sum(config.name in names for config in blind_pool()))


@once
def blind_choices(artifacts: Artifacts, setting: str, split: str, size: int) -> dict[str, str]:
    """Each machine's own choice from a pool, by its criterion alone."""
    return per_machine_blind(machines(artifacts, setting, split), blind_pool(size))


@recipe
def criterion_of_pair(artifacts: Artifacts, machine: str, first: str, second: str) -> Recomputed:
    """The criterion of two configurations on one evaluation machine of the transfer study."""
    table = machines(artifacts, "45", "eval")
    values = table[table["machine"] == machine].set_index("config")["balance_ks"]
    return read(pair(values[first], values[second]), "the recordings")


@recipe
def criterion_range(artifacts: Artifacts, setting: str) -> Recomputed:
    """Smallest and largest criterion of a grid."""
    criterion = grid(artifacts, setting)["crit_dev"]
    return pair(criterion.min(), criterion.max())


@recipe
def smallest_criterion_step(artifacts: Artifacts, setting: str) -> Recomputed:
    """The distance of the two smallest criteria."""
    first, second = np.sort(grid(artifacts, setting)["crit_dev"])[:2]
    return number(second - first)


@once
def floor_of_seven(artifacts: Artifacts) -> tuple[float, float]:
    """Mean and sd of the criterion over seven machines whose domains do not differ.

    8,000 simulations: the standard error of the sd, sd / sqrt(16,000), is about 0.0001.
    """
    floor = h0_floor(495, 5, n_splits=10, n_simulations=8000)
    return floor.mean, floor.sd / np.sqrt(7)


@recipe
def floor(artifacts: Artifacts, which: str) -> Recomputed:
    """The criterion's floor: its mean, or its sd for a mean of seven machines."""
    return number(floor_of_seven(artifacts)[which == "sd"])


@recipe
def plausible_picks(artifacts: Artifacts, setting: str) -> Recomputed:
    """Lowest and highest evaluation score of what noise could have picked.

    That is every criterion within three sd of the floor of the smallest one.
    """
    table = grid(artifacts, setting)
    noise = 3 * floor_of_seven(artifacts)[1]
    near = table[table["crit_dev"] <= table["crit_dev"].min() + noise]["eval_omega"]
    return pair(near.min(), near.max())


@recipe
def recorded_picks_by_splits(artifacts: Artifacts) -> Recomputed:
    """How many different picks the authors recorded for 5, 10 and 20 splits."""
    file = "results/paper_stats.json"
    picks = read_entry(artifacts, file, "criterion_sensitivity", "argmin_by_S")
    if not isinstance(picks, dict) or len(picks) != 3:
        raise ArtifactError(file, "has no picks for three numbers of splits")
    return read(number(len(set(picks.values()))), "the recordings")
