"""Differences of evaluation scores: intervals over machines and over test clips."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.evaluation.intervals import clip_bootstrap, machine_jackknife, score_interval
from daco.experiments.analysis import metrics_of, quantities_in
from daco.method.config import DEFAULT_CONFIG

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import MachineScores

JACKKNIFE = "machine jackknife"
CLIPS = "paired clip bootstrap"
CLIP_DRAWS = 1000
_NONE: NDArray[Any] = np.empty(0)


def compare_scores(per_machine: pd.DataFrame, first: str, second: str) -> dict[str, Any] | None:
    """Evaluation score of `first` minus `second` with a machine jackknife; None without labels."""
    metrics = metrics_of(per_machine, "eval", list(dict.fromkeys([first, second])))
    if len(metrics) < 2:
        return None
    result = machine_jackknife(metrics[:, 0], metrics[:, -1])
    return {"first": first, "second": second, **asdict(result), "method": JACKKNIFE}


def interval_over_machines(per_machine: pd.DataFrame, config: str) -> dict[str, Any] | None:
    """95 % interval of a configuration's evaluation score; None without labels."""
    metrics = metrics_of(per_machine, "eval", [config])
    interval = score_interval(metrics[:, 0]) if len(metrics) else None
    return interval and {"low": interval[0], "high": interval[1], "method": JACKKNIFE}


def differences(
    per_machine: pd.DataFrame,
    scores: Sequence[MachineScores],
    chosen: str,
    rows: Sequence[Mapping[str, Any]],
    seed: int,
) -> list[dict[str, Any]]:
    """The chosen configuration against other picks, over machines and over test clips."""
    named = [row for row in rows if row["config"] is not None and row["rule"] != DEFAULT_CONFIG]
    picks = {row["rule"]: row["config"] for row in named}
    # Drawn clips have the metrics of today; those of 2021 take each domain by itself.
    usual = {"auc_source", "auc_target", "pauc"}, {"auc", "pauc"}
    clips = []
    if set(quantities_in(per_machine)) in usual:
        clips = _labelled_clips(scores, [chosen, *picks.values()])
    deltas = []
    for rule, title in (("dev score", "dev pick"), ("fixed", "fixed default"), ("oracle",) * 2):
        if rule not in picks:
            continue
        jackknife = compare_scores(per_machine, chosen, picks[rule])
        if jackknife is not None:
            deltas.append({"against": title, **jackknife})
        if clips:
            deltas.append({"against": title, **_over_clips(clips, chosen, picks[rule], seed)})
    return deltas


def _labelled_clips(scores: Sequence[MachineScores], configs: Iterable[str]) -> list[MachineScores]:
    """Evaluation machines for which the official metrics are defined, with these columns only."""
    wanted = tuple(dict.fromkeys(configs))
    machines = []
    for machine in scores:
        normal = set(machine.domains[machine.labels == 0].tolist())
        known = machine.split == "eval" and machine.labelled and bool((machine.labels == 1).any())
        own = set(machine.own_domains.tolist())
        if known and normal == own == set(machine.domains.tolist()):
            columns = np.column_stack([machine.of(config) for config in wanted])
            machines.append(
                replace(machine, configs=wanted, scores=columns, own=_NONE, names=_NONE)
            )
    return machines


def _over_clips(clips: list[MachineScores], first: str, second: str, seed: int) -> dict[str, Any]:
    delta = low = high = se = 0.0
    if first != second:
        interval = clip_bootstrap(
            {m.title: m.of(first) for m in clips},
            {m.title: m.of(second) for m in clips},
            {m.title: m.labels for m in clips},
            {m.title: m.domains for m in clips},
            n_draws=CLIP_DRAWS,
            seed=seed,
        )
        delta, low, high = interval.estimate, interval.low, interval.high
        se = float(interval.draws.std(ddof=1)) if len(interval.draws) > 1 else 0.0
    return {
        "first": first,
        "second": second,
        **{"delta": delta, "se": se, "low": low, "high": high},
        **{"loo_low": None, "loo_high": None},
        "n_machines": len(clips),
        "method": CLIPS,
    }
