"""Which configuration a rule picks in a setting, what the veto does, and the criterion's noise."""

from __future__ import annotations

import numpy as np
import pandas as pd

from daco.method.config import DEFAULT_CONFIG, ScoreConfig
from daco.method.criterion import h0_floor
from daco.method.selection import (
    guarded_selection,
    oracle,
    select_by_criterion,
    select_by_dev_score,
    viable,
    viable_within,
)
from daco.paper.artifacts import BACKBONES, YEARS, ArtifactError, Artifacts, cached
from daco.paper.printed import Recomputed, number

RECORDINGS = "the recordings"

_DEGENERATE = "ldn-diff-K16"
_WITH_DEGENERATE = (*YEARS, "eat", "panns")


@cached
def config_of(artifacts: Artifacts, setting: str, who: str) -> str:
    """The configuration a rule picks; a configuration's own name is itself."""
    table = artifacts.grid(setting)
    if who.startswith("within-"):
        return _pick_within(table, float(who.removeprefix("within-")))
    if who == "second-pick":
        rest = table.drop(select_by_criterion(table.index, table["crit_dev"]))
        return select_by_criterion(rest.index, rest["crit_dev"])
    rules = {
        "dev-pick": lambda: select_by_dev_score(table.index, table["dev_omega"]),
        "criterion-pick": lambda: select_by_criterion(table.index, table["crit_dev"]),
        "eval-criterion-pick": lambda: select_by_criterion(table.index, table["crit_eval"]),
        "guarded-pick": lambda: guarded_selection(table),
        "frozen-pick": lambda: guarded_selection(artifacts.grid(setting, frozen=True)),
        "oracle": lambda: oracle(table.index, table["eval_omega"]),
        "default": lambda: DEFAULT_CONFIG,
    }
    return rules[who]() if who in rules else ScoreConfig.parse(who).name


def _pick_within(table: pd.DataFrame, delta: float) -> str:
    return guarded_selection(table, veto=lambda dev: viable_within(dev, delta))


def pick(artifacts: Artifacts, setting: str, rule: str) -> Recomputed:
    """The configuration that a rule picks."""
    return Recomputed(name=config_of(artifacts, setting, rule))


def vetoed(artifacts: Artifacts, setting: str) -> Recomputed:
    """How many configurations the bottom-decile veto excludes."""
    return number(np.sum(~viable(artifacts.grid(setting)["dev_omega"])))


def above_veto_floor(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """How far a configuration's dev score is above the 10 % quantile."""
    dev = artifacts.grid(setting)["dev_omega"]
    return number(dev[config_of(artifacts, setting, who)] - np.quantile(dev, 0.10))


def _threshold_picks(artifacts: Artifacts, setting: str) -> list[str]:
    """The picks of the threshold veto for every delta from 3 to 8 that could change them."""
    table = artifacts.grid(setting)
    behind = table["dev_omega"].max() - table["dev_omega"]
    deltas = [3.0, *sorted(d for d in behind if 3 < d < 8), 8.0]
    return [_pick_within(table, delta) for delta in deltas]


def threshold_picks(artifacts: Artifacts, setting: str) -> Recomputed:
    """How many different configurations the threshold veto picks for deltas 3 to 8."""
    return number(len(set(_threshold_picks(artifacts, setting))))


def threshold_scores(artifacts: Artifacts, setting: str) -> Recomputed:
    """Lowest and highest evaluation score over the forms of the veto."""
    picks = [*_threshold_picks(artifacts, setting), config_of(artifacts, setting, "guarded-pick")]
    scores = artifacts.grid(setting)["eval_omega"][picks]
    return number(scores.min(), scores.max())


def stable_thresholds(artifacts: Artifacts) -> Recomputed:
    """How many of the backbones keep one pick for all deltas from 3 to 8."""
    stable = sum(len(set(_threshold_picks(artifacts, s))) == 1 for s in BACKBONES)
    return number(stable, len(BACKBONES))


def same_as_threshold(artifacts: Artifacts, delta: str) -> Recomputed:
    """On how many backbones the bottom-decile veto and the threshold pick the same."""
    rules = ("guarded-pick", f"within-{delta}")
    return number(sum(len({config_of(artifacts, s, r) for r in rules}) == 1 for s in BACKBONES))


def best_excluded(artifacts: Artifacts, setting: str, delta: str) -> Recomputed:
    """How many of the best configurations, counted from the top, a threshold excludes."""
    table = artifacts.grid(setting)
    kept = viable_within(table["dev_omega"], float(delta))
    return number(np.argmax(kept[np.argsort(-table["eval_omega"].to_numpy())]))


def deficit_of_best(artifacts: Artifacts, setting: str, count: str) -> Recomputed:
    """Mean distance of the best configurations' dev scores to the best dev score."""
    table = artifacts.grid(setting)
    best = table.nlargest(int(count), "eval_omega")["dev_omega"]
    return number(table["dev_omega"].max() - best.mean())


def degenerate_picks(artifacts: Artifacts, rule: str) -> Recomputed:
    """In how many settings a rule picks the degenerate configuration."""
    picks = [config_of(artifacts, setting, rule) for setting in _WITH_DEGENERATE]
    return number(picks.count(_DEGENERATE), len(picks))


def degenerate_deficit(artifacts: Artifacts) -> Recomputed:
    """How far it is below the best dev score, at least and at most."""
    scores = [artifacts.grid(setting)["dev_omega"] for setting in _WITH_DEGENERATE]
    behind = [dev.max() - dev[_DEGENERATE] for dev in scores]
    return number(min(behind), max(behind))


def default_wins(artifacts: Artifacts, *years: str) -> Recomputed:
    """In how many years the fixed default scores at least what guarded selection does."""
    years = years or YEARS
    wins = 0
    for year in years:
        scores = artifacts.grid(year)["eval_omega"]
        wins += scores[DEFAULT_CONFIG] >= scores[config_of(artifacts, year, "guarded-pick")]
    return number(wins, len(years))


# The criterion


def criterion_of_pair(artifacts: Artifacts, machine: str, first: str, second: str) -> Recomputed:
    """The criterion of two configurations on one evaluation machine of the transfer study."""
    table = artifacts.machines("45", "eval").set_index(["machine", "config"])["balance_ks"]
    return number(table[machine, first], table[machine, second], needs=RECORDINGS)


def spread(artifacts: Artifacts, setting: str, column: str, which: str) -> Recomputed:
    """Range, its width, or the distance of the two smallest values of a grid's column."""
    values = np.sort(artifacts.grid(setting)[column].to_numpy())
    if which == "range":
        return number(values[0], values[-1])
    return number(values[1] - values[0] if which == "step" else values[-1] - values[0])


@cached
def _floor_of_seven(artifacts: Artifacts) -> tuple[float, float]:
    """Mean and sd of the criterion over seven machines whose domains do not differ.

    8,000 simulations: the standard error of the sd, sd / sqrt(16,000), is about 0.0001.
    """
    simulated = h0_floor(495, 5, n_splits=10, n_simulations=8000)
    return simulated.mean, simulated.sd / np.sqrt(7)


def floor(artifacts: Artifacts, which: str) -> Recomputed:
    """The criterion's floor: its mean, or its sd for a mean of seven machines."""
    return number(_floor_of_seven(artifacts)[which == "sd"])


def plausible_picks(artifacts: Artifacts, setting: str) -> Recomputed:
    """Lowest and highest evaluation score among criteria within three sd of the smallest."""
    table = artifacts.grid(setting)
    noise = 3 * _floor_of_seven(artifacts)[1]
    near = table[table["crit_dev"] <= table["crit_dev"].min() + noise]["eval_omega"]
    return number(near.min(), near.max())


def recorded_picks_by_splits(artifacts: Artifacts) -> Recomputed:
    """How many different picks the authors recorded for 5, 10 and 20 splits."""
    file = "results/paper_stats.json"
    picks = artifacts.entry(file, "criterion_sensitivity", "argmin_by_S")
    if not isinstance(picks, dict) or len(picks) != 3:
        raise ArtifactError(file, "has no picks for three numbers of splits")
    return number(len(set(picks.values())), needs=RECORDINGS)
