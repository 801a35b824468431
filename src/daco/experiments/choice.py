"""The choice of a study: which configuration, why, and what it is worth.

The choice is made by `decide`, which is given criteria and dev scores and nothing else. Only
after it are evaluation scores read, to say what the choice and its alternatives score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.evaluation.intervals import clip_bootstrap, machine_jackknife, score_interval
from daco.experiments.aggregate import (
    CRITERION_DIGITS,
    blind_choices,
    blind_score,
    complete_column,
    known_column,
    metrics_of,
    plain,
    pool_within,
    rows_of,
)
from daco.experiments.decision import GUARDED, GUARDS, Decision, decide_with
from daco.experiments.guards import (
    add_guarded,
    hears_of,
    label_free_document,
    veto_warnings,
)
from daco.experiments.hearing import Hearing
from daco.method.config import ScoreConfig
from daco.method.criterion import CHOICE_SPLITS
from daco.method.floor import study_floor
from daco.method.grid_table import column, config_names, pivot_machines
from daco.method.selection import SelectionRow, Veto, blind_criteria, selection_table, viable
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import MachineScores

JACKKNIFE = "machine jackknife"
CLIPS = "paired clip bootstrap"
_NONE: NDArray[Any] = np.empty(0)
SIGNALS = ("dev_omega", "crit_dev", "crit_eval")


def choose(
    grid: pd.DataFrame,
    per_machine: pd.DataFrame,
    *,
    scores: Sequence[MachineScores] | None = None,
    veto: Veto = viable,
    hearing: Hearing | None = None,
    guard: str = "dev",
    pool: Iterable[str | ScoreConfig] | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    n_source: int | None = None,
    n_target: int | None = None,
    n_draws: int = 1000,
) -> dict[str, Any]:
    """What to use, why, and how it compares with the other rules.

    Parameters
    ----------
    grid, per_machine : DataFrame
        The tables of a run.
    scores : sequence of MachineScores, optional
        Adds intervals over test clips, and the domain sizes for the criterion's floor.
    veto : callable or array of bool
        As for :func:`daco.method.selection.guarded_selection`.
    hearing : Hearing, optional
        The label-free veto of the same grid.
    guard : {"dev", "faults", "both"}
        Which of the two vetoes the choice obeys. What the other one says is always told.
    pool : iterable of str or ScoreConfig, optional
        Candidates for choosing per machine; the paper's nine, as far as the grid has them.
    seed : int
        Of simulations and bootstraps.
    n_splits : int
        That the criterion was computed with.
    n_source, n_target : int, optional
        Training clips per domain, where `scores` do not tell.
    n_draws : int
        Of the clip bootstrap.

    Returns
    -------
    dict
        The content of ``selection.json``: ``chosen``, ``rows`` (every rule), ``deltas`` (the
        chosen one against the others), ``per_machine_blind``, ``guard``, ``veto`` (by dev
        scores), ``label_free_veto``, ``warnings`` (the chosen one is cut by a veto that it was
        not asked to pass), ``floor`` and ``within_noise``: configurations whose criterion cannot
        be told from the chosen one's, because they differ by at most
        ``floor["sd_of_mean_reused_clips"]``.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.choice import choose
    >>> grid = pd.DataFrame({
    ...     "config": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...     "dev_omega": [58.7, 56.3, 50.4], "crit_dev": [0.62, 0.49, 0.45],
    ... })
    >>> nothing = pd.DataFrame(columns=["split", "machine", "config", "balance_ks"])
    >>> choose(grid, nothing)["chosen"]["config"]
    'conf-soft-m0-k1'
    """
    names = config_names(column(grid, "config"))
    dev = complete_column(grid, "dev_omega")
    criterion = known_column(grid, "crit_dev")
    hears = hears_of(hearing, names)
    decisions = {
        each: decide_with(each, names, criterion, dev, veto=veto, hears=hears, pool=pool)
        for each in dict.fromkeys(["dev", guard] if hears is None else [*GUARDS, guard])
    }
    decision, by_dev = decisions[guard], decisions["dev"]
    split = "dev" if rows_of(per_machine, "eval").empty else "eval"
    candidates = pool_within(names, pool)
    choices = blind_choices(per_machine, candidates, split) if candidates else {}
    floor = study_floor(_domain_sizes(per_machine, scores, n_source, n_target), n_splits, seed)
    close = _within_noise(names, criterion, decision, floor)

    # Everything is chosen; only now are evaluation scores read.
    rows = _rows(grid, by_dev, veto)
    add_guarded(rows, grid, decisions)
    if choices:
        above_oracle = sum(row.rule != "oracle" for row in rows)
        rows.insert(above_oracle, _blind_row(per_machine, choices, split))
    picks = {row.rule: row.config for row in rows if row.config is not None}
    return {
        "chosen": {
            "config": decision.config,
            "rule": decision.rule,
            "reason": decision.reason,
            "dev_omega": _at(dev, names, decision.config),
            "eval_omega": _at(complete_column(grid, "eval_omega"), names, decision.config),
            "crit_dev": plain(criterion[names.index(decision.config)]),
            "interval": _score_interval(per_machine, decision.config),
        },
        "rows": [{key: plain(value) for key, value in asdict(row).items()} for row in rows],
        "deltas": _deltas(per_machine, scores or (), decision.config, picks, n_draws, seed),
        "per_machine_blind": {"split": split, "pool": candidates, "choices": choices},
        "guard": guard,
        "veto": None
        if by_dev.vetoed is None
        else {
            "rule": _veto_rule(veto),
            "floor": by_dev.floor,
            "removed": list(by_dev.vetoed),
        },
        "label_free_veto": label_free_document(hearing, decisions, decision),
        "warnings": veto_warnings(guard, decision, by_dev, hearing),
        "floor": floor,
        "within_noise": close,
    }


def compare_scores(
    per_machine: pd.DataFrame, first: str, second: str, split: str = "eval"
) -> dict[str, Any] | None:
    """Official score of `first` minus `second` with a machine jackknife; None without labels."""
    metrics = metrics_of(per_machine, split, list(dict.fromkeys([first, second])))
    if len(metrics) < 2:
        return None
    result = machine_jackknife(metrics[:, 0], metrics[:, -1])
    return {"first": first, "second": second, **asdict(result), "method": JACKKNIFE}


def _at(values: Float64s | None, names: list[str], config: str) -> float | None:
    return _value(values, names.index(config))


def _value(values: Float64s | None, at: int) -> float | None:
    return None if values is None else float(values[at])


def _rows(grid: pd.DataFrame, decision: Decision, veto: Veto) -> list[SelectionRow]:
    """Every rule that this grid defines.

    The table of rules wants both signals. One that is missing is made neutral, and the rules
    that would have read it are dropped.
    """
    n = len(grid)
    known = {name: known_column(grid, name) for name in SIGNALS}
    for name in ("crit_dev", "crit_eval"):
        known[name] = known[name].round(CRITERION_DIGITS)
    missing = {name for name, values in known.items() if np.isnan(values).all()}
    if complete_column(grid, "dev_omega") is None:
        missing.add("dev_omega")
    columns: dict[str, Any] = {"config": list(grid["config"])}
    columns |= {name: np.zeros(n) if name in missing else known[name] for name in SIGNALS}
    if "crit_eval" in missing:
        del columns["crit_eval"]
    if (omega := complete_column(grid, "eval_omega")) is not None:
        columns["eval_omega"] = omega
    guarded = decision.rule == GUARDED
    undefined = {"dev score"} if "dev_omega" in missing else set()
    undefined |= {"criterion"} if "crit_dev" in missing else set()
    undefined |= set() if guarded else {GUARDED}
    rows = selection_table(columns, veto=veto if guarded else np.ones(n, dtype=bool))
    rows = [row for row in rows if row.rule not in undefined]
    if "dev_omega" in missing:
        rows = [replace(row, dev_omega=None) for row in rows]
    if "crit_dev" in missing:
        rows = [replace(row, crit_dev=None) for row in rows]
    return rows


def _blind_row(per_machine: pd.DataFrame, choices: dict[str, str], split: str) -> SelectionRow:
    part = rows_of(per_machine, split)
    used = list(dict.fromkeys(choices.values()))
    machines, _, values = pivot_machines(part, ["balance_ks"], configs=used)
    own = np.array([values[i, used.index(choices[m]), 0] for i, m in enumerate(machines)])
    criterion = float(np.nanmean(own)) if np.isfinite(own).any() else None
    omega = blind_score(per_machine, choices, split) if split == "eval" else None
    criteria = blind_criteria(criterion, split)
    return SelectionRow("per-machine blind", None, None, omega, *criteria, "none")


def _score_interval(per_machine: pd.DataFrame, config: str) -> dict[str, Any] | None:
    metrics = metrics_of(per_machine, "eval", [config])
    found = score_interval(metrics[:, 0]) if len(metrics) else None
    if found is None:
        return None
    return {"low": found[0], "high": found[1], "method": JACKKNIFE}


def _deltas(
    per_machine: pd.DataFrame,
    scores: Sequence[MachineScores],
    chosen: str,
    picks: dict[str, str],
    n_draws: int,
    seed: int,
) -> list[dict[str, Any]]:
    found = []
    clips = _labelled_clips(scores, [chosen, *picks.values()])
    for rule, title in (("dev score", "dev pick"), ("fixed", "fixed default"), ("oracle",) * 2):
        if rule not in picks:
            continue
        jackknife = compare_scores(per_machine, chosen, picks[rule])
        if jackknife is not None:
            found.append({"against": title, **jackknife})
        if clips:
            found.append(
                {"against": title, **_over_clips(clips, chosen, picks[rule], n_draws, seed)}
            )
    return found


def _labelled_clips(scores: Sequence[MachineScores], configs: Iterable[str]) -> list[MachineScores]:
    """Evaluation machines for which the official metrics are defined, with what is compared."""

    def complete(machine: MachineScores) -> bool:
        normal = set(machine.domains[machine.labels == 0].tolist())
        known = machine.labelled and bool((machine.labels == 1).any())
        return known and normal == set(machine.domains.tolist()) and len(normal) > 1

    wanted = tuple(dict.fromkeys(configs))
    found = []
    for machine in scores:
        if machine.split == "eval" and complete(machine):
            columns = np.column_stack([machine.of(config) for config in wanted])
            found.append(replace(machine, configs=wanted, scores=columns, own=_NONE, names=_NONE))
    return found


def _over_clips(
    clips: list[MachineScores], first: str, second: str, n_draws: int, seed: int
) -> dict[str, Any]:
    delta = low = high = se = 0.0
    if first != second:
        interval = clip_bootstrap(
            {m.title: m.of(first) for m in clips},
            {m.title: m.of(second) for m in clips},
            {m.title: m.labels for m in clips},
            {m.title: m.domains for m in clips},
            n_draws=n_draws,
            seed=seed,
        )
        delta, low, high = interval.estimate, interval.low, interval.high
        se = float(interval.draws.std(ddof=1)) if len(interval.draws) > 1 else 0.0
    values = {"delta": delta, "se": se, "low": low, "high": high}
    return {
        "first": first,
        "second": second,
        **values,
        "loo_low": None,
        "loo_high": None,
        "n_machines": len(clips),
        "method": CLIPS,
    }


def _domain_sizes(
    per_machine: pd.DataFrame,
    scores: Sequence[MachineScores] | None,
    n_source: int | None,
    n_target: int | None,
) -> list[list[int]]:
    """Training clips per domain of each machine that the criterion averages."""
    if scores:
        sizes = [
            (machine.split, list(Counter(machine.own_domains.tolist()).values()))
            for machine in scores
        ]
        return [own for split, own in sizes if split == "dev"] or [own for _, own in sizes]
    if n_source is None or n_target is None:
        return []
    n_machines = rows_of(per_machine, "dev")["machine"].nunique()
    return [[n_source, n_target]] * int(n_machines)


def _within_noise(
    names: list[str], criterion: Float64s, decision: Decision, floor: dict[str, Any] | None
) -> list[str]:
    if floor is None:
        return []
    distance = np.abs(criterion - criterion[names.index(decision.config)])
    near: NDArray[np.bool_] = distance <= floor["sd_of_mean_reused_clips"]
    out = {decision.config, *(decision.vetoed or ())}
    return [name for name, close in zip(names, near, strict=True) if close and name not in out]


def _veto_rule(veto: Veto) -> str:
    if veto is viable:
        return "dev score at or below the 10 % quantile"
    return getattr(veto, "__name__", "a function of the dev scores") if callable(veto) else "a mask"
