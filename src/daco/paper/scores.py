"""Official scores: from clips where they were released, else from the machines' metrics.

The tables of metrics have two decimals, the grids' scores four. A score is recomputed from the
metrics; where the grid's value lies within their rounding it is the same number, known better.
"""

from __future__ import annotations

import re

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean, machine_metrics
from daco.method.config import ScoreConfig, blind_pool
from daco.method.grid_table import composed_score, pivot_machines
from daco.paper.artifacts import (
    BACKBONES,
    RELEASED,
    SETTINGS,
    YEARS,
    ArtifactError,
    Artifacts,
    clips,
    grid,
    machines,
    once,
    read_text,
)
from daco.paper.choices import DEGENERATE, blind_choices, config_of
from daco.paper.recipe import Recomputed, number, pair, read, recipe
from daco.validation import Float64s

HALF_DIGIT = 0.005
"""Metrics were published with two decimals of a percent."""

SEVEN_SETTINGS = ("2023", "2024", *BACKBONES, "ch0", "mix")
"""Three years, three backbones in 2025, two channel policies in 2026."""

LABELS = "the labels of the evaluation clips"

_SEED = re.compile(r"^seed (\d+): omega=(\d+\.\d+)\s+(.*)$", re.MULTILINE)
_SEEDS_END = re.compile(r"^composed eval omega over (\d+) seeds", re.MULTILINE)
_SEEDS_FILE = "results/e3_seed_stability.txt"
_LOGGED = {  # the log's m0 is conf-soft-m0-k1, its ratio-soft is ratio-soft-k1
    config.name.removeprefix("conf-soft-").removesuffix("-k1"): config.name
    for config in blind_pool(7)
}


def rounding_error(metrics: Float64s) -> float:
    """The most that two decimals in the metrics can move their harmonic mean.

    Its derivative in each of n metrics x is ``H**2 / (n * x**2)``; all may be off by half a
    digit the same way. The second order is below 0.0001.
    """
    mean = float(harmonic_mean(metrics))
    return HALF_DIGIT * mean**2 * float(np.mean(1 / metrics**2)) + 1e-4


@once
def clip_metrics(artifacts: Artifacts, config: str, machine: str) -> Float64s:
    """AUC source, AUC target and pAUC of a dev machine, from its released clips, in percent."""
    found = clips(artifacts, config, "dev", machine)
    metrics = machine_metrics(found.scores, found.labels, found.domains)
    return 100 * np.array([metrics[quantity] for quantity in QUANTITIES])


def has_clips(setting: str, split: str, config: str) -> bool:
    """Whether clip scores with labels were released."""
    return setting in ("45", "beats") and split == "dev" and config in RELEASED


@once
def metrics_of(
    artifacts: Artifacts, setting: str, split: str, config: str
) -> tuple[list[str], Float64s]:
    """The machines and their metrics (machines, 3), from clips where there are any."""
    names, _, values = pivot_machines(
        machines(artifacts, setting, split), QUANTITIES, configs=[config]
    )
    if has_clips(setting, split, config):
        return names, np.array([clip_metrics(artifacts, config, name) for name in names])
    return names, values[:, 0]


def score_of(artifacts: Artifacts, setting: str, split: str, who: str) -> Recomputed:
    """The official score of a configuration, or of a rule's pick."""
    config = config_of(artifacts, setting, who)
    _, metrics = metrics_of(artifacts, setting, split, config)
    score = float(harmonic_mean(metrics))
    if has_clips(setting, split, config):
        return number(score)
    known = float(grid(artifacts, setting).set_index("config")[f"{split}_omega"][config])
    if abs(score - known) <= rounding_error(metrics):
        return number(known, 0.00005)
    told = f"From the machines; results/{SETTINGS[setting].grid} says {known}."
    return number(score, rounding_error(metrics), told)


def _difference(first: Recomputed, second: Recomputed) -> Recomputed:
    return number(first.values[0] - second.values[0], first.errors[0] + second.errors[0])


@recipe
def eval_score(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """Official score on the evaluation machines."""
    return score_of(artifacts, setting, "eval", who)


@recipe
def dev_score(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """Official score on the development machines."""
    return score_of(artifacts, setting, "dev", who)


@recipe
def stored_score(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """The evaluation score as the grid states it, with more digits than the metrics support."""
    scores = grid(artifacts, setting).set_index("config")["eval_omega"]
    needs = LABELS if SETTINGS[setting].year == 2025 else "the recordings"
    return read(number(scores[config_of(artifacts, setting, who)], 0.00005), needs)


@recipe
def degenerate_scores(artifacts: Artifacts, *settings: str) -> Recomputed:
    """Lowest and highest evaluation score of the degenerate configuration."""
    scores = [eval_score(artifacts, setting, DEGENERATE).values[0] for setting in settings]
    return pair(min(scores), max(scores))


@recipe
def score_gain(artifacts: Artifacts, setting: str, who: str, over: str) -> Recomputed:
    """By how much one evaluation score exceeds another."""
    return _difference(eval_score(artifacts, setting, who), eval_score(artifacts, setting, over))


@recipe
def mean_gain(artifacts: Artifacts, who: str, over: str, *settings: str) -> Recomputed:
    """The mean of such gains over settings."""
    return number(np.mean([score_gain(artifacts, s, who, over).values for s in settings]))


@recipe
def worst_gain(artifacts: Artifacts, who: str, over: str) -> Recomputed:
    """The smallest of such gains over the years."""
    return number(min(score_gain(artifacts, year, who, over).values[0] for year in YEARS))


@recipe
def mean_score(artifacts: Artifacts, who: str) -> Recomputed:
    """Mean evaluation score over the seven published settings."""
    scores = [eval_score(artifacts, setting, who) for setting in SEVEN_SETTINGS]
    return number(np.mean([score.values for score in scores]), 0.00005)


@recipe
def score_range(artifacts: Artifacts, setting: str, split: str) -> Recomputed:
    """Highest minus lowest score of a grid."""
    return number(np.ptp(grid(artifacts, setting)[f"{split}_omega"].to_numpy()))


@recipe
def dev_cost(artifacts: Artifacts, setting: str, who: str) -> Recomputed:
    """What a rule's pick loses on the development machines against the best there."""
    best = dev_score(artifacts, setting, "dev-pick")
    return _difference(best, dev_score(artifacts, setting, who))


@recipe
def blind_dev_cost(artifacts: Artifacts, setting: str, size: str) -> Recomputed:
    """The same for choosing per machine from a pool."""
    best = dev_score(artifacts, setting, "dev-pick")
    return _difference(best, _composed(artifacts, setting, "dev", int(size)))


@recipe
def blind_score(artifacts: Artifacts, setting: str, size: str) -> Recomputed:
    """Evaluation score when each machine runs its own label-free choice from a pool."""
    return _composed(artifacts, setting, "eval", int(size))


def _composed(artifacts: Artifacts, setting: str, split: str, size: int) -> Recomputed:
    return _composed_of(artifacts, setting, split, blind_choices(artifacts, setting, split, size))


def _composed_of(
    artifacts: Artifacts, setting: str, split: str, choices: dict[str, str]
) -> Recomputed:
    table = machines(artifacts, setting, split)
    used = list(dict.fromkeys(choices.values()))
    names, _, values = pivot_machines(table, QUANTITIES, configs=used)
    chosen = np.array([values[names.index(m), used.index(c)] for m, c in choices.items()])
    return number(composed_score(table, choices), rounding_error(chosen))


@once
def seed_scores(artifacts: Artifacts) -> tuple[list[int], list[Recomputed]]:
    """The ten criterion seeds, and the composed score of the choices logged for each."""
    seeds: list[int] = []
    scores: list[Recomputed] = []
    known = set(machines(artifacts, "45", "eval")["machine"])
    for seed, _, chosen in _logged_seeds(artifacts):
        words = (word.partition(":") for word in chosen.split())
        choices = {machine: _LOGGED.get(short, "") for machine, _, short in words}
        if choices.keys() != known or "" in choices.values():
            raise ArtifactError(_SEEDS_FILE, f"has no choice for every machine at seed {seed}")
        seeds.append(int(seed))
        scores.append(_composed_of(artifacts, "45", "eval", choices))
    return seeds, scores


def logged_scores(artifacts: Artifacts) -> list[float]:
    """The score that the log itself has for each seed."""
    return [float(score) for _, score, _ in _logged_seeds(artifacts)]


def _logged_seeds(artifacts: Artifacts) -> list[tuple[str, str, str]]:
    text = read_text(artifacts, _SEEDS_FILE)
    found = _SEED.findall(text)
    summed_up = _SEEDS_END.search(text)
    if summed_up is None or int(summed_up[1]) != len(found) or len(found) < 2:
        raise ArtifactError(_SEEDS_FILE, f"is damaged: it has {len(found)} whole seeds")
    return found


@recipe
def seeds(artifacts: Artifacts, which: str) -> Recomputed:
    """Mean, sd, minimum or first of the composed scores over the logged seeds."""
    numbers, found = seed_scores(artifacts)
    scores = [score.values[0] for score in found]
    error = max(score.errors[0] for score in found)
    match which:
        case "mean":
            return number(np.mean(scores), error)
        case "sd":
            return number(np.std(scores), error)  # the authors' sd divides by n
        case "min":
            return number(min(scores), error)
        case "first":
            return found[0]
        case "number":
            return number(len(scores))
    return pair(min(numbers), max(numbers))


@recipe
def metric(
    artifacts: Artifacts, split: str, machine: str, config: str, quantity: str
) -> Recomputed:
    """One metric of one machine (BEATs, 2025)."""
    names, values = metrics_of(artifacts, "beats", split, config)
    # the appendix rounds the two decimals of the table once more
    found = number(_at(names, values, machine, quantity), HALF_DIGIT)
    return found if has_clips("beats", split, config) else read(found, LABELS)


@recipe
def metric_change(artifacts: Artifacts, machine: str, quantity: str) -> Recomputed:
    """A dev machine's metric before and after full equalisation."""
    before, after = (
        metric(artifacts, "dev", machine, config, quantity)
        for config in ("raw-k1", config_of(artifacts, "45", "default"))
    )
    return pair(before.values[0], after.values[0], (HALF_DIGIT, HALF_DIGIT))


@recipe
def lowest_metric(artifacts: Artifacts, config: str, quantity: str) -> Recomputed:
    """The lowest value of a metric over the evaluation machines."""
    names, values = metrics_of(artifacts, "beats", "eval", config)
    at = int(np.argmin(values[:, QUANTITIES.index(quantity)]))
    value = _at(names, values, names[at], quantity)
    return read(number(value, HALF_DIGIT, f"{names[at]}."), LABELS)


def _at(names: list[str], values: Float64s, machine: str, quantity: str) -> float:
    return float(values[names.index(machine), QUANTITIES.index(quantity)])


@recipe
def mean_shift(artifacts: Artifacts, what: str) -> Recomputed:
    """How far the assignment, or k, moves the evaluation score on average (BEATs)."""
    scores = grid(artifacts, "beats").set_index("config")["eval_omega"]
    groups: dict[str, list[float]] = {}
    for name in scores.index:
        config = ScoreConfig.parse(name)
        if config.scorer == "knn" and (what == "k" or config.assignment):
            rest = name[:-1] if what == "k" else name.replace("hard", "soft")
            groups.setdefault(rest, []).append(float(scores[name]))
    shifts = [max(group) - min(group) for group in groups.values()]
    return number(np.mean(shifts), note=f"The largest is {max(shifts):.2f}.")


@recipe
def gain_at_equal_criterion(artifacts: Artifacts, setting: str, within: str) -> Recomputed:
    """The most that a hard assignment gains over a soft one at a closely matched criterion."""
    table = grid(artifacts, setting)
    kinds = np.array([ScoreConfig.parse(name).assignment or "" for name in table["config"]])
    hard, soft = table[kinds == "hard"], table[kinds == "soft"]
    apart = np.abs(np.subtract.outer(hard["crit_dev"].to_numpy(), soft["crit_dev"].to_numpy()))
    gains = np.subtract.outer(hard["eval_omega"].to_numpy(), soft["eval_omega"].to_numpy())
    return number(gains[apart < float(within)].max())


@recipe
def distance_to_cited(artifacts: Artifacts, cited_2023: str, cited_2024: str) -> Recomputed:
    """The larger distance of raw kNN in 2023 and 2024 to the LDN authors' own figures."""
    ours = [eval_score(artifacts, year, "raw-k1").values[0] for year in ("2023", "2024")]
    return number(max(abs(float(cited_2023) - ours[0]), abs(float(cited_2024) - ours[1])))
