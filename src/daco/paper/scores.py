"""Picks of rules, the veto, the criterion's noise, and official scores.

Scores come from clips where they were released, else from the machines' metrics. Tables of metrics
have two decimals, grids' scores four. Where the grid's value is within the rounding of the metrics
it is the same number, known better.
"""

from __future__ import annotations

import re

import numpy as np
import pandas as pd

from daco.evaluation.metrics import QUANTITIES, harmonic_mean, machine_metrics
from daco.experiments.floors import h0_floor
from daco.experiments.grid_table import (
    composed_score,
    oracle,
    per_machine_blind,
    pivot_machines,
    random_expectation,
    viable_within,
)
from daco.method.config import PAPER_CONFIG, ScoreConfig, blind_pool
from daco.method.selection import Rule, choose, viable
from daco.paper.artifacts import (
    BACKBONES,
    RELEASED,
    SETTINGS,
    YEARS,
    ArtifactError,
    Artifacts,
    cached,
)
from daco.paper.printed import Recomputed, number
from daco.validation import Float64s

HALF_DIGIT = 0.005
"""Metrics were published with two decimals of a percent."""

LABELS, RECORDINGS = "the labels of the evaluation clips", "the recordings"

_DEGENERATE = "ldn-diff-K16"
_WITH_DEGENERATE = (*YEARS, "eat", "panns")
_SEED = re.compile(r"^seed (\d+): omega=(\d+\.\d+)\s+(.*)$", re.MULTILINE)
_SEEDS_END = re.compile(r"^composed eval omega over (\d+) seeds", re.MULTILINE)
_SEEDS_FILE = "results/e3_seed_stability.txt"
_LOGGED = {  # the log's m0 is conf-soft-m0-k1, its ratio-soft is ratio-soft-k1
    config.name.removeprefix("conf-soft-").removesuffix("-k1"): config.name
    for config in blind_pool(7)
}


@cached
def config_of(artifacts: Artifacts, setting: str, who: str) -> str:
    """The configuration a rule picks; a configuration's own name is itself."""
    table = artifacts.grid(setting)
    if who.startswith("within-"):
        return _pick_within(table, float(who.removeprefix("within-")))
    if who == "second-pick":
        return _chosen(table.drop(_chosen(table, Rule.CRITERION)), Rule.CRITERION)
    rules = {
        "dev-pick": lambda: _chosen(table, Rule.DEV),
        "criterion-pick": lambda: _chosen(table, Rule.CRITERION),
        "eval-criterion-pick": lambda: _chosen(table, Rule.CRITERION, "crit_eval"),
        "guarded-pick": lambda: _chosen(table, Rule.PAPER),
        "frozen-pick": lambda: _chosen(artifacts.grid(setting, frozen=True), Rule.PAPER),
        "oracle": lambda: oracle(table.index, table["eval_omega"]),
        "default": lambda: PAPER_CONFIG,
    }
    return rules[who]() if who in rules else ScoreConfig.parse(who).name


def _chosen(table: pd.DataFrame, rule: Rule, criterion: str = "crit_dev") -> str:
    columns = {"criterion": table[criterion], "dev_score": table["dev_omega"]}
    return choose({"config": table.index, **columns}, rule).config


def _pick_within(table: pd.DataFrame, delta: float) -> str:
    return _chosen(table[viable_within(table["dev_omega"], delta)], Rule.CRITERION)


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
    mask = viable_within(table["dev_omega"], float(delta))
    return number(np.argmax(mask[np.argsort(-table["eval_omega"].to_numpy())]))


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
        wins += scores[PAPER_CONFIG] >= scores[config_of(artifacts, year, "guarded-pick")]
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


# Official scores


def rounding_error(metrics: Float64s) -> float:
    """The most that two decimals in the metrics can move their harmonic mean.

    Its derivative in each of n metrics x is ``H**2 / (n * x**2)``; all may be off by half a
    digit the same way. The second order is below 0.0001.
    """
    mean = float(harmonic_mean(metrics))
    return HALF_DIGIT * mean**2 * float(np.mean(1 / metrics**2)) + 1e-4


@cached
def clip_metrics(artifacts: Artifacts, config: str, machine: str) -> Float64s:
    """AUC source, AUC target and pAUC of a dev machine, from its released clips, in percent."""
    clips = artifacts.clips(config, "dev", machine)
    metrics = machine_metrics(clips.scores, clips.labels, clips.domains)
    return 100 * np.array([metrics[quantity] for quantity in QUANTITIES])


def _has_clips(setting: str, split: str, config: str) -> bool:
    """Whether clip scores with labels were released."""
    return setting in ("45", "beats") and split == "dev" and config in RELEASED


@cached
def metrics_of(
    artifacts: Artifacts, setting: str, split: str, config: str
) -> tuple[list[str], Float64s]:
    """The machines and their metrics (machines, 3), from clips where there are any."""
    table = artifacts.machines(setting, split)
    names, _, values = pivot_machines(table, QUANTITIES, configs=[config])
    if _has_clips(setting, split, config):
        return names, np.array([clip_metrics(artifacts, config, name) for name in names])
    return names, values[:, 0]


def _score(artifacts: Artifacts, setting: str, split: str, who: str) -> Recomputed:
    """The official score of a configuration or a rule's pick; ``blind-9``: picks per machine."""
    if who.startswith("blind-"):
        pool = blind_pool(int(who.removeprefix("blind-")))
        choices = per_machine_blind(artifacts.machines(setting, split), pool)
        return _composed(artifacts, setting, split, choices)
    config = config_of(artifacts, setting, who)
    _, metrics = metrics_of(artifacts, setting, split, config)
    score = float(harmonic_mean(metrics))
    if _has_clips(setting, split, config):
        return number(score)
    known = float(artifacts.grid(setting)[f"{split}_omega"][config])
    if abs(score - known) <= rounding_error(metrics):
        return number(known, error=0.00005)
    note = f"From the machines; results/{SETTINGS[setting].grid} says {known}."
    return number(score, error=rounding_error(metrics), note=note)


def _composed(
    artifacts: Artifacts, setting: str, split: str, choices: dict[str, str]
) -> Recomputed:
    """The score when each machine has a configuration of its own."""
    table = artifacts.machines(setting, split)
    chosen = [key in choices.items() for key in zip(table["machine"], table["config"], strict=True)]
    metrics = table[chosen][list(QUANTITIES)].to_numpy()
    return number(composed_score(table, choices), error=rounding_error(metrics))


def eval_score(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """Official score on the evaluation machines."""
    return _score(artifacts, setting, "eval", who)


def dev_score(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """Official score on the development machines."""
    return _score(artifacts, setting, "dev", who)


def score_gain(
    artifacts: Artifacts, setting: str, who: str, over: str, split: str = "eval"
) -> Recomputed:
    """By how much one score exceeds another."""
    first, second = (_score(artifacts, setting, split, each) for each in (who, over))
    return number(first.values[0] - second.values[0], error=first.errors[0] + second.errors[0])


def stored_score(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """The evaluation score as the grid states it, with more digits than the metrics support."""
    score = artifacts.grid(setting)["eval_omega"][config_of(artifacts, setting, who)]
    needs = LABELS if SETTINGS[setting].year == 2025 else RECORDINGS
    return number(score, error=0.00005, needs=needs)


def random_score(artifacts: Artifacts, setting: str, which: str) -> Recomputed:
    """Mean or sd of the evaluation score of a configuration drawn at random."""
    expected = random_expectation(artifacts.grid(setting)["eval_omega"])
    return number(expected.mean if which == "mean" else expected.sd)


def mean_shift(artifacts: Artifacts, what: str) -> Recomputed:
    """How far the assignment, or k, moves the evaluation score on average (BEATs)."""
    groups: dict[str, list[float]] = {}
    for name, score in artifacts.grid("beats")["eval_omega"].items():
        config = ScoreConfig.parse(str(name))
        if config.base.scorer == "knn" and (what == "k" or config.assignment):
            rest = config.name[:-1] if what == "k" else config.name.replace("hard", "soft")
            groups.setdefault(rest, []).append(float(score))
    shifts = [max(group) - min(group) for group in groups.values()]
    return number(np.mean(shifts), note=f"The largest is {max(shifts):.2f}.")


def gain_at_equal_criterion(artifacts: Artifacts, setting: str, within: str) -> Recomputed:
    """The most that a hard assignment gains over a soft one at a closely matched criterion."""
    table = artifacts.grid(setting)
    kinds = np.array([ScoreConfig.parse(name).assignment or "" for name in table.index])
    hard, soft = table[kinds == "hard"], table[kinds == "soft"]
    apart = np.abs(np.subtract.outer(hard["crit_dev"].to_numpy(), soft["crit_dev"].to_numpy()))
    gains = np.subtract.outer(hard["eval_omega"].to_numpy(), soft["eval_omega"].to_numpy())
    return number(gains[apart < float(within)].max())


def distance_to_cited(artifacts: Artifacts, *cited: str) -> Recomputed:
    """The larger distance of raw kNN in 2023 and 2024 to the LDN authors' own figures."""
    ours = [eval_score(artifacts, year, "raw-k1").values[0] for year in ("2023", "2024")]
    return number(max(abs(float(a) - b) for a, b in zip(cited, ours, strict=True)))


def metric(
    artifacts: Artifacts, split: str, machine: str, config: str, quantity: str
) -> Recomputed:
    """One metric of one machine (BEATs, 2025)."""
    names, values = metrics_of(artifacts, "beats", split, config)
    value = values[names.index(machine), QUANTITIES.index(quantity)]
    # the appendix rounds the two decimals of the table once more
    needs = "" if _has_clips("beats", split, config) else LABELS
    return number(value, error=HALF_DIGIT, needs=needs)


def lowest_metric(artifacts: Artifacts, config: str, quantity: str) -> Recomputed:
    """The lowest value of a metric over the evaluation machines."""
    names, values = metrics_of(artifacts, "beats", "eval", config)
    column = values[:, QUANTITIES.index(quantity)]
    at = int(np.argmin(column))
    return number(column[at], error=HALF_DIGIT, note=f"{names[at]}.", needs=LABELS)


@cached
def logged_seeds(artifacts: Artifacts) -> list[tuple[int, float, Recomputed]]:
    """Each criterion seed, its logged score, and the score of the choices logged beside it."""
    text = artifacts.text(_SEEDS_FILE)
    lines = _SEED.findall(text)
    end = _SEEDS_END.search(text)
    if end is None or int(end[1]) != len(lines) or len(lines) < 2:
        raise ArtifactError(_SEEDS_FILE, f"is damaged: it has {len(lines)} whole seeds")
    known = set(artifacts.machines("45", "eval")["machine"])
    rows = []
    for seed, score, chosen in lines:
        words = (word.partition(":") for word in chosen.split())
        choices = {machine: _LOGGED.get(short, "") for machine, _, short in words}
        if choices.keys() != known or "" in choices.values():
            raise ArtifactError(_SEEDS_FILE, f"has no choice for every machine at seed {seed}")
        rows.append((int(seed), float(score), _composed(artifacts, "45", "eval", choices)))
    return rows


def seeds(artifacts: Artifacts, which: str) -> Recomputed:
    """Mean, sd, minimum or first of the composed scores over the logged seeds."""
    numbers, _, composed = zip(*logged_seeds(artifacts), strict=True)
    if which == "first":
        return composed[0]
    if which == "number":
        return number(len(composed))
    if which == "range":
        return number(min(numbers), max(numbers))
    scores = [score.values[0] for score in composed]
    # the authors' sd divides by n
    values = {"mean": np.mean(scores), "sd": np.std(scores), "min": min(scores)}
    return number(values[which], error=max(score.errors[0] for score in composed))
