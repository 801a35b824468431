"""The choice of a study: which configuration, why, and what it is worth.

`decide` sees criteria, dev scores and the label-free veto, and no evaluation label. Only after it
does `study_choice` read evaluation scores, to say what the choice and its alternatives score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.evaluation.intervals import clip_bootstrap, machine_jackknife, score_interval
from daco.experiments.analysis import (
    blind_choices,
    blind_score,
    complete_column,
    known_column,
    metrics_of,
    plain,
    pool_within,
    quantities_in,
    rows_of,
)
from daco.experiments.decision import GUARDED, GUARDS, LABEL_FREE, Decision, decide
from daco.experiments.veto import StudyVeto
from daco.method.choice import CRITERION_DIGITS
from daco.method.config import DEFAULT_CONFIG, VOTE_CONFIG
from daco.method.criterion import CHOICE_SPLITS, Floor
from daco.method.floor import study_floor
from daco.method.grid_table import column, config_names, pivot_machines
from daco.method.selection import (
    oracle,
    random_expectation,
    select_by_criterion,
    select_by_dev_score,
)
from daco.validation import Float64s

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import MachineScores

JACKKNIFE = "machine jackknife"
CLIPS = "paired clip bootstrap"
CLIP_DRAWS = 1000
_NONE: NDArray[Any] = np.empty(0)
_ADVICE = "Set the veto to 'both' to obey both of them."


@dataclass(frozen=True)
class Evidence:
    """What rules pick from: no evaluation score is among it."""

    names: list[str]
    dev: Float64s | None
    crit_dev: Float64s
    crit_eval: Float64s
    decisions: Mapping[str, Decision]

    @property
    def best_on_dev(self) -> str | None:
        """The configuration of largest dev score, where there are dev scores."""
        return None if self.dev is None else select_by_dev_score(self.names, self.dev)

    def smallest(self, criterion: Float64s) -> str | None:
        """The configuration of smallest criterion, where there is a criterion."""
        return select_by_criterion(self.names, criterion) if np.isfinite(criterion).any() else None

    def guarded(self, guard: str) -> str | None:
        """What was chosen under a veto, where that veto could be applied."""
        decision = self.decisions[guard]
        return decision.config if decision.rule == GUARDS[guard] else None


_VETO_ONLY = "development (veto only)"
RULES: dict[str, tuple[str, Callable[[Evidence], str | None]]] = {
    "fixed": ("none", lambda e: DEFAULT_CONFIG if DEFAULT_CONFIG in e.names else None),
    "dev score": ("development", lambda e: e.best_on_dev),
    "criterion": ("none", lambda e: e.smallest(e.crit_dev)),
    "criterion on evaluation normals": ("none", lambda e: e.smallest(e.crit_eval)),
    GUARDS["dev"]: (_VETO_ONLY, lambda e: e.guarded("dev")),
    GUARDS["faults"]: ("none", lambda e: e.guarded("faults")),
    GUARDS["both"]: (_VETO_ONLY, lambda e: e.guarded("both")),
}
"""The labels that a rule reads and its pick, None where it has none, in the order of the table.

A rule that is added here is in ``selection.json``, on the terminal and in the report; its title in
a comparison is in `daco.experiments.compare.RULES`.
"""


def study_choice(
    grid: pd.DataFrame,
    per_machine: pd.DataFrame,
    *,
    scores: Sequence[MachineScores] | None = None,
    veto: StudyVeto | None = None,
    guard: str = "dev",
    floor: Mapping[str, Any] | None = None,
    seed: int = 0,
    n_splits: int = CHOICE_SPLITS,
    vote: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Choose a configuration, state the reason, and compare it with the choices of other rules.

    Parameters
    ----------
    grid, per_machine : DataFrame
        The tables of a run.
    scores : sequence of MachineScores, optional
        Adds intervals over test clips, and the sizes of the domains for the noise of the criterion.
    veto : StudyVeto, optional
        The label-free veto of the same grid.
    guard : {"dev", "faults", "both"}
        The veto that the choice obeys; the result of the other one is reported as well.
    floor : mapping, optional
        The result of :func:`daco.method.floor.study_floor`, if there are no `scores`.
    seed : int
        Seed of simulations and bootstraps.
    n_splits : int
        Number of splits with which the criterion was computed; 200 by default.
    vote : mapping, optional
        ``dev_omega`` and ``eval_omega`` of a vote, for its row among the rules.

    Returns
    -------
    dict
        The content of ``selection.json``: ``chosen``, ``rows`` (every rule), ``deltas`` (the
        chosen one minus the others), ``per_machine_blind``, ``guard``, ``veto`` (by dev scores),
        ``label_free_veto``, ``warnings`` (if a veto that the choice did not obey excludes it),
        ``floor`` and ``within_noise``: configurations whose criterion differs from that of the
        chosen one by at most ``floor["sd_of_mean_reused_clips"]``.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.choose import study_choice
    >>> grid = pd.DataFrame({
    ...     "config": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...     "dev_omega": [58.7, 56.3, 50.4], "crit_dev": [0.62, 0.49, 0.45],
    ... })
    >>> nothing = pd.DataFrame(columns=["split", "machine", "config", "balance_ks"])
    >>> study_choice(grid, nothing)["chosen"]["config"]
    'conf-soft-m0-k1'
    """
    names = config_names(column(grid, "config"))
    dev = complete_column(grid, "dev_omega")
    crit_dev, crit_eval = (
        known_column(grid, name).round(CRITERION_DIGITS) for name in ("crit_dev", "crit_eval")
    )
    if scores and not np.isnan(crit_dev).all():
        floor = study_floor(_domain_sizes(scores), n_splits, seed)
    noise = noise_of(floor)
    viability = None if veto is None else veto.viability
    decisions = {
        each: decide(names, crit_dev, dev, guard=each, viability=viability, floor=noise)
        for each in dict.fromkeys([*GUARDS, guard])
    }
    decision, by_dev = decisions[guard], decisions["dev"]
    evidence = Evidence(names, dev, crit_dev, crit_eval, decisions)
    picks = {rule: pick(evidence) for rule, (_, pick) in RULES.items()}
    split = "dev" if rows_of(per_machine, "eval").empty else "eval"
    candidates = pool_within(names)
    choices = blind_choices(per_machine, candidates, split)

    # Everything is chosen; only now are evaluation scores read.
    omega = complete_column(grid, "eval_omega")
    columns = {"dev_omega": dev, "eval_omega": omega, "crit_dev": crit_dev, "crit_eval": crit_eval}

    def scores_of(config: str) -> dict[str, float | None]:
        at = names.index(config)
        return {name: None if v is None else plain(v[at]) for name, v in columns.items()}

    rows = [
        _row(rule, RULES[rule][0], config, scores_of(config))
        for rule, config in picks.items()
        if config is not None
    ]
    if choices:
        rows.append(_row("per-machine blind", "none", None, _blind(per_machine, choices, split)))
    if vote:
        known = scores_of(VOTE_CONFIG) if VOTE_CONFIG in names else vote
        rows.append(_row(VOTE_CONFIG, "none", VOTE_CONFIG, known))
    if omega is not None:
        chance, best = random_expectation(omega), oracle(names, omega)
        rows.insert(0, _row("random", "none", None, {"eval_omega": chance.mean}, chance.sd))
        rows.append(_row("oracle", "evaluation", best, scores_of(best)))
    own = scores_of(decision.config)
    return {
        "chosen": {
            "config": decision.config,
            "rule": decision.rule,
            "reason": decision.reason,
            **{name: own[name] for name in ("dev_omega", "eval_omega", "crit_dev")},
            "interval": _interval(per_machine, decision.config),
        },
        "rows": rows,
        "deltas": _deltas(per_machine, scores or (), decision.config, rows, seed),
        "per_machine_blind": {"split": split, "pool": candidates, "choices": choices},
        "guard": guard,
        "veto": None
        if by_dev.rule != GUARDED
        else {
            "rule": "dev score at or below the 10 % quantile",
            "floor": by_dev.floor,
            "removed": list(by_dev.vetoed or ()),
        },
        "label_free_veto": _veto_document(veto, decisions, decision),
        "warnings": _warnings(guard, decision, by_dev, veto),
        "floor": None if floor is None else dict(floor),
        "within_noise": _within_noise(names, crit_dev, decision, noise),
    }


def noise_of(floor: Mapping[str, Any] | None) -> Floor | None:
    """The floor of the mean criterion over a study's machines, with the noise as its sd."""
    return None if floor is None else Floor(floor["mean"], floor["sd_of_mean_reused_clips"])


def compare_scores(per_machine: pd.DataFrame, first: str, second: str) -> dict[str, Any] | None:
    """Evaluation score of `first` minus `second` with a machine jackknife; None without labels."""
    metrics = metrics_of(per_machine, "eval", list(dict.fromkeys([first, second])))
    if len(metrics) < 2:
        return None
    result = machine_jackknife(metrics[:, 0], metrics[:, -1])
    return {"first": first, "second": second, **asdict(result), "method": JACKKNIFE}


def _row(
    rule: str, labels: str, config: str | None, scores: Mapping[str, Any], sd: float | None = None
) -> dict[str, Any]:
    known = dict.fromkeys(("dev_omega", "eval_omega", "crit_dev", "crit_eval")) | dict(scores)
    return {"rule": rule, "config": config, **known, "labels": labels, "eval_sd": plain(sd)}


def _blind(
    per_machine: pd.DataFrame, choices: dict[str, str], split: str
) -> dict[str, float | None]:
    """Mean criterion and, on evaluation machines, official score of one's own choice for each."""
    used = list(dict.fromkeys(choices.values()))
    machines, _, values = pivot_machines(rows_of(per_machine, split), ["balance_ks"], configs=used)
    own = np.array([values[i, used.index(choices[m]), 0] for i, m in enumerate(machines)])
    mean = float(np.nanmean(own)) if np.isfinite(own).any() else None
    omega = blind_score(per_machine, choices, split) if split == "eval" else None
    return {f"crit_{split}": mean, "eval_omega": omega}


def _interval(per_machine: pd.DataFrame, config: str) -> dict[str, Any] | None:
    metrics = metrics_of(per_machine, "eval", [config])
    interval = score_interval(metrics[:, 0]) if len(metrics) else None
    return interval and {"low": interval[0], "high": interval[1], "method": JACKKNIFE}


def _deltas(
    per_machine: pd.DataFrame,
    scores: Sequence[MachineScores],
    chosen: str,
    rows: Sequence[Mapping[str, Any]],
    seed: int,
) -> list[dict[str, Any]]:
    """The chosen configuration against other picks, over machines and over test clips."""
    named = [row for row in rows if row["config"] is not None and row["rule"] != VOTE_CONFIG]
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


def _domain_sizes(scores: Sequence[MachineScores]) -> list[list[int]]:
    """Training clips per domain of each machine that the criterion averages."""
    sizes = [(m.split, list(Counter(m.own_domains.tolist()).values())) for m in scores]
    return [own for split, own in sizes if split == "dev"] or [own for _, own in sizes]


def _within_noise(
    names: list[str], criterion: Float64s, decision: Decision, noise: Floor | None
) -> list[str]:
    if noise is None:
        return []
    near = np.abs(criterion - criterion[names.index(decision.config)]) <= noise.sd
    out = {decision.config, *(decision.vetoed or ())}
    return [name for name, close in zip(names, near, strict=True) if close and name not in out]


def _veto_document(
    veto: StudyVeto | None, decisions: Mapping[str, Decision], decision: Decision
) -> dict[str, Any] | None:
    """The label-free veto for ``selection.json``, with its own pick."""
    if veto is None:
        return None
    own, viability = decisions["faults"], veto.viability
    return {
        **veto.to_dict(),
        "picks": own.config if own.rule == LABEL_FREE else None,
        "chosen_passes": None
        if viability.abstains or decision.config not in viability.configs
        else decision.config not in viability.reasons,
    }


def _warnings(
    guard: str, decision: Decision, by_dev: Decision, veto: StudyVeto | None
) -> list[str]:
    """Sentences about vetoes that the choice did not obey and that exclude it."""
    sentences = []
    config = decision.config
    reasons = {} if veto is None else veto.viability.reasons
    if config in reasons:
        sentences.append(
            f"{config} is excluded by the label-free veto, which this choice did not obey: "
            f"{reasons[config]}. {_ADVICE}"
        )
    if by_dev.rule == GUARDED and config in (by_dev.vetoed or ()):
        sentences.append(
            f"{config} is excluded by the dev-score veto, which this choice did not obey: its dev "
            f"score is not above {by_dev.floor:.2f}. {_ADVICE}"
        )
    if guard != "dev" and (veto is None or veto.viability.abstains):
        why = "no machine has enough normals for it" if veto is None else "it abstains"
        sentences.append(f"The label-free veto was asked for, but {why}.")
    return sentences
