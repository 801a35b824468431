"""What rules pick from a grid, and official scores.

Scores come from clips where these were released, else from the machines' metrics. Tables of metrics
have two decimals, grids' scores four. Where the grid's value is within the rounding of the metrics
it is the same number, known better.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from daco.evaluation.metrics import harmonic_mean, machine_metrics
from daco.method.config import PAPER_CONFIG, blind_pool
from daco.method.criterion import ks_counts
from daco.method.paper import guarded_selection, viable
from reproduction.printed import Recomputed, number
from reproduction.published import EVAL, METRICS, SETTINGS, Published, PublishedError

RELEASED = (
    *("raw-k1", "conf-soft-m0-k1", "conf-soft-m0-k2", "conf-hard-m0-k1", "conf-hard-m0-k2"),
    *("ratio-soft-k1", "zscore-soft-k1", "ldn-ratio-K1", "ldn-ratio-K16"),
    *("ldn-diff-K1", "ldn-diff-K16", "conf-soft-m0-ldnK1", "conf-soft-m30-ldnK1"),
)
"""Configurations whose scores of every clip were published (BEATs, 2025)."""

HALF_DIGIT = 0.005
"""Metrics were published with two decimals of a percent."""

RECORDINGS, LABELS = "the recordings", "the labels of the evaluation clips"
"""What computing a value would need that the published files only state."""

_SEED = re.compile(r"^seed (\d+): omega=\d+\.\d+\s+(.*)$", re.MULTILINE)
_SEEDS_FILE = "results/e3_seed_stability.txt"


def configuration_of(published: Published, setting: str, who: str) -> str:
    """The configuration that a rule picks; a configuration's own name is itself.

    Of equal values the first in the order of the grid counts (erratum 4).
    """
    table = published.grid(setting)
    if who.startswith("within-"):
        return _pick_within(table, float(who.removeprefix("within-")))
    if who == "frozen-pick":  # before the labels of 2026
        return _guarded_pick(published.grid(setting, frozen=True))
    picks = {
        "default": PAPER_CONFIG,
        "dev-pick": table["dev_score"].idxmax(),
        "criterion-pick": table["criterion_dev"].idxmin(),
        "second-pick": table["criterion_dev"].nsmallest(2).index[1],
        "eval-criterion-pick": table["criterion_eval"].idxmin(),
        "guarded-pick": _guarded_pick(table),
        "oracle": table["eval_score"].idxmax(),
    }
    return str(picks.get(who, who))


def _guarded_pick(table: pd.DataFrame) -> str:
    """Algorithm 1 of the paper."""
    dev, criterion = table["dev_score"].to_numpy(), table["criterion_dev"].to_numpy()
    return str(table.index[guarded_selection(dev, criterion)])


def _pick_within(table: pd.DataFrame, delta: float) -> str:
    """The smallest criterion at most `delta` points below the best dev score."""
    return str(table[_within(table, delta)]["criterion_dev"].idxmin())


def _within(table: pd.DataFrame, delta: float) -> pd.Series[bool]:
    # 58.7 - 0.3 is a little more than 58.4 in floating point, and 58.4 is within 0.3
    return table["dev_score"] >= table["dev_score"].max() - delta - 1e-9


def pick(published: Published, setting: str, rule: str) -> Recomputed:
    """The configuration that a rule picks."""
    return Recomputed(name=configuration_of(published, setting, rule))


def same_picks(published: Published, first: str, second: str, *settings: str) -> Recomputed:
    """In how many settings two rules, or a rule and a configuration, are the same pick."""
    pairs = [[configuration_of(published, s, rule) for rule in (first, second)] for s in settings]
    return number(sum(a == b for a, b in pairs), len(pairs))


# The veto


def vetoed(published: Published, setting: str) -> Recomputed:
    """How many configurations the bottom-decile veto excludes."""
    return number(np.sum(~viable(published.grid(setting)["dev_score"].to_numpy())))


def above_veto_floor(published: Published, setting: str, who: str) -> Recomputed:
    """How far a configuration's dev score is above the 10 % quantile."""
    dev = published.grid(setting)["dev_score"]
    return number(dev[configuration_of(published, setting, who)] - np.quantile(dev, 0.10))


def thresholds(published: Published, setting: str, which: str) -> Recomputed:
    """Number of different picks of the threshold veto for deltas 3 to 8, or their scores."""
    table = published.grid(setting)
    behind = table["dev_score"].max() - table["dev_score"]
    deltas = [3.0, *behind[(behind > 3) & (behind < 8)], 8.0]  # where the pick could change
    picks = {_pick_within(table, delta) for delta in deltas}
    if which == "number":
        return number(len(picks))
    scores = table["eval_score"][[*picks, _guarded_pick(table)]]  # and the bottom-decile veto's
    return number(scores.min(), scores.max())


def best_excluded(published: Published, setting: str, delta: str) -> Recomputed:
    """How many of the best configurations, counted from the top, a threshold excludes."""
    table = published.grid(setting).sort_values("eval_score", ascending=False)
    return number(np.argmax(_within(table, float(delta))))


def deficit_of_best(published: Published, setting: str, count: str) -> Recomputed:
    """Mean distance of the best configurations' dev scores to the best dev score."""
    table = published.grid(setting)
    best = table.nlargest(int(count), "eval_score")["dev_score"]
    return number(table["dev_score"].max() - best.mean())


# The criterion


def criterion_of(published: Published, machine: str, configuration: str) -> Recomputed:
    """The criterion on one evaluation machine of the transfer study."""
    table = published.metrics("45", "eval").set_index(["machine", "configuration"])
    return number(table["criterion"][machine, configuration], needs=RECORDINGS)


@cache
def _floor_of_seven() -> tuple[float, float]:
    """Mean and sd of the criterion over seven machines whose domains do not differ.

    8,000 simulations of 10 splits with 495 and 5 held-out clips: the standard error of the sd,
    sd / sqrt(16,000), is about 0.0001.
    """
    rng = np.random.default_rng(0)
    criteria = [
        ks_counts(rng.random((400, 10, 495)), rng.random((400, 10, 5))).mean(axis=1) / (495 * 5)
        for _ in range(20)
    ]
    return float(np.mean(criteria)), float(np.std(criteria) / np.sqrt(7))


def floor(published: Published, which: str) -> Recomputed:
    """The criterion's floor: its mean, or its sd for a mean of seven machines."""
    return number(_floor_of_seven()[which == "sd"])


def plausible_picks(published: Published, setting: str) -> Recomputed:
    """Lowest and highest evaluation score among criteria within three sd of the smallest."""
    table = published.grid(setting)
    limit = table["criterion_dev"].min() + 3 * _floor_of_seven()[1]
    near = table["eval_score"][table["criterion_dev"] <= limit]
    return number(near.min(), near.max())


def column(published: Published, setting: str, name: str, which: str) -> Recomputed:
    """Mean, sd, range or its width of a grid's column, or the step of its two smallest values."""
    values = published.grid(setting)[name].sort_values()
    low, second, *_, high = values
    if which == "range":
        return number(low, high)
    known = {"mean": values.mean(), "sd": values.std(), "width": high - low, "step": second - low}
    return number(known[which])


def mean_shift(published: Published, what: str) -> Recomputed:
    """How far the assignment, or k, moves the evaluation score on average (BEATs)."""
    scores = published.grid("beats")["eval_score"]
    if what == "k":
        scores = scores[scores.index.str.contains("-k")]
        groups = scores.groupby(scores.index.str[:-1])
    else:
        scores = scores[scores.index.str.contains("-(?:soft|hard)-.*k")]
        groups = scores.groupby(scores.index.str.replace("hard", "soft"))
    shifts = groups.max() - groups.min()
    return number(shifts.mean(), note=f"The largest is {shifts.max():.2f}.")


def gain_at_equal_criterion(published: Published, setting: str, within: str) -> Recomputed:
    """The most that a hard assignment gains over a soft one at a closely matched criterion."""
    table = published.grid(setting)
    hard, soft = (table[table.index.str.contains(kind)] for kind in ("-hard-", "-soft-"))
    pairs = hard.merge(soft, how="cross")
    near = (pairs["criterion_dev_x"] - pairs["criterion_dev_y"]).abs() < float(within)
    return number((pairs["eval_score_x"] - pairs["eval_score_y"])[near].max())


# Official scores


def rounding_error(table: pd.DataFrame) -> float:
    """The most that two decimals in the metrics can move their harmonic mean.

    Its derivative in each of n metrics x is ``H**2 / (n * x**2)``; all may be off by half a
    digit the same way. The second order is below 0.0001.
    """
    values = table.to_numpy()
    return HALF_DIGIT * float(harmonic_mean(values)) ** 2 * float(np.mean(1 / values**2)) + 1e-4


def has_clips(setting: str, of: str, configuration: str) -> bool:
    """Whether clip scores with labels were released."""
    return setting in ("45", "beats") and of == "dev" and configuration in RELEASED


@cache
def metrics_of(published: Published, setting: str, of: str, configuration: str) -> pd.DataFrame:
    """The metrics of a configuration by machine, in percent, from clips where there are any."""
    table = published.metrics(setting, of)
    table = table[table["configuration"] == configuration].set_index("machine")[METRICS].copy()
    if has_clips(setting, of, configuration):
        for machine in table.index:
            clips = published.clips(configuration, of, machine)
            found = machine_metrics(clips["score"], clips["label"], clips["domain"])
            table.loc[machine] = [100 * found[quantity] for quantity in METRICS]
    return table


def score(published: Published, of: str, setting: str, who: str) -> Recomputed:
    """The official score of a configuration or a rule's pick; ``blind-9``: picks per machine."""
    if who.startswith("blind-"):
        pool = [config.name for config in blind_pool()[: int(who.removeprefix("blind-"))]]
        table = published.metrics(setting, of)
        criteria = table.pivot(index="machine", columns="configuration", values="criterion")
        return _composed(published, setting, of, criteria[pool].idxmin(axis=1).to_dict())
    configuration = configuration_of(published, setting, who)
    table = metrics_of(published, setting, of, configuration)
    value = harmonic_mean(table.to_numpy())
    if has_clips(setting, of, configuration):
        return number(value)
    known = published.grid(setting)[f"{of}_score"][configuration]
    if abs(value - known) <= rounding_error(table):
        return number(known, error=0.00005)
    note = f"From the machines; results/{SETTINGS[setting].grid} says {known}."
    return number(value, error=rounding_error(table), note=note)


def _composed(published: Published, setting: str, of: str, choices: dict[Any, Any]) -> Recomputed:
    """The score when each machine has a configuration of its own."""
    table = published.metrics(setting, of).set_index(["machine", "configuration"])[METRICS]
    chosen = table.loc[list(choices.items())]
    return number(harmonic_mean(chosen.to_numpy()), error=rounding_error(chosen))


def score_gain(published: Published, of: str, setting: str, who: str, over: str) -> Recomputed:
    """By how much one score exceeds another."""
    first, second = (score(published, of, setting, each) for each in (who, over))
    return number(first.values[0] - second.values[0], error=first.errors[0] + second.errors[0])


def stored_score(published: Published, setting: str, who: str) -> Recomputed:
    """The evaluation score as the grid states it, with more digits than the metrics support."""
    value = published.grid(setting)["eval_score"][configuration_of(published, setting, who)]
    needs = LABELS if SETTINGS[setting].year == 2025 else RECORDINGS
    return number(value, error=0.00005, needs=needs)


def distance_to_cited(published: Published, *cited: str) -> Recomputed:
    """The larger distance of raw kNN in 2023 and 2024 to the LDN authors' own values."""
    ours = [score(published, "eval", year, "raw-k1").values[0] for year in ("2023", "2024")]
    return number(max(abs(float(a) - b) for a, b in zip(cited, ours, strict=True)))


def metric(
    published: Published, of: str, machine: str, configuration: str, quantity: str
) -> Recomputed:
    """One metric of one machine (BEATs, 2025)."""
    value = metrics_of(published, "beats", of, configuration)[quantity][machine]
    # the appendix rounds the two decimals of the table once more
    needs = "" if has_clips("beats", of, configuration) else LABELS
    return number(value, error=HALF_DIGIT, needs=needs)


def seeds(published: Published, which: str) -> Recomputed:
    """Mean, sd, minimum or first of the scores of the choices that were logged for each seed."""
    logged = _SEED.findall(published.text(_SEEDS_FILE))
    if which == "number":
        return number(len(logged))
    if which == "range":
        numbers = [int(seed) for seed, _ in logged]
        return number(min(numbers), max(numbers))
    # the log's m0 is conf-soft-m0-k1, its ratio-soft is ratio-soft-k1
    pool = {re.sub("conf-soft-|-k1", "", config.name): config.name for config in blind_pool()[:7]}
    composed = []
    for seed, chosen in logged:
        words = (word.partition(":") for word in chosen.split())
        choices = {machine: pool.get(short) for machine, _, short in words}
        if choices.keys() != set(EVAL) or None in choices.values():
            raise PublishedError(_SEEDS_FILE, f"has no choice for every machine at seed {seed}")
        composed.append(_composed(published, "45", "eval", choices))
    if which == "first":
        return composed[0]
    scores = [each.values[0] for each in composed]
    # the authors' sd divides by n
    values = {"mean": np.mean(scores), "sd": np.std(scores), "min": min(scores)}
    return number(values[which], error=max(each.errors[0] for each in composed))
