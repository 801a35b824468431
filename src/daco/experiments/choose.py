"""The choice of a study: which configuration, why, and what it is worth.

The rules (:mod:`daco.experiments.rules`) read no evaluation label. Only after they have chosen does
`study_choice` read evaluation scores, to say what the choice and its alternatives score.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from daco.experiments.analysis import (
    blind_choices,
    blind_score,
    complete_column,
    known_column,
    plain,
    pool_within,
    rows_of,
)
from daco.experiments.differences import differences, interval_over_machines
from daco.experiments.floors import bank_floor
from daco.experiments.grid_table import oracle, pivot_machines, random_expectation
from daco.experiments.rules import choices_by_veto, grid_choice, picks_of_rules, rule_name
from daco.experiments.veto import StudyVeto
from daco.method.config import DEFAULT_CONFIG
from daco.method.selection import (
    CRITERION_DIGITS,
    NOISE_QUANTILE,
    Choice,
    column,
    config_names,
)
from daco.validation import Bools, Float64s, Indices

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import MachineScores

_ADVICE = "The veto 'both' obeys both of them."


def study_choice(
    grid: pd.DataFrame,
    per_machine: pd.DataFrame,
    *,
    scores: Sequence[MachineScores] | None = None,
    label_free: StudyVeto | None = None,
    veto: str = "both",
    resampled: Float64s | None = None,
    seed: int = 0,
    default: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Choose a configuration, state the reason, and compare it with the choices of other rules.

    Parameters
    ----------
    grid, per_machine : DataFrame
        The tables of a run.
    scores : sequence of MachineScores, optional
        Adds intervals over test clips, and the floor of the criterion.
    label_free : StudyVeto, optional
        The label-free veto of the same grid.
    veto : {"both", "dev", "faults", "paper"}
        The veto that the choice obeys; the results of the others are reported as well.
    resampled : (C, R), optional
        The criterion in R resamples, mean over the development machines.
    seed : int
        Seed of the bootstraps.
    default : mapping, optional
        ``dev_omega`` and ``eval_omega`` of daco's default, for its row among the rules.

    Returns
    -------
    dict
        The content of ``selection.json``: ``chosen``, ``rows`` (every rule), ``deltas`` (the
        chosen one minus the others), ``per_machine_blind``, ``guard`` (the veto that was obeyed),
        ``veto`` (by dev scores), ``label_free_veto``, ``warnings``, ``floor``, ``resamples`` (how
        often each configuration would have been picked) and ``within_noise``: configurations whose
        criterion is not larger than that of the chosen one in all but 5 % of the resamples.

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
    choice = grid_choice(grid, veto, resampled)
    others = choices_by_veto(grid, resampled)
    picks = picks_of_rules(grid, names, others)
    split = "dev" if rows_of(per_machine, "eval").empty else "eval"
    candidates = pool_within(names)
    blind = blind_choices(per_machine, candidates, split)

    # Everything is chosen; only now are evaluation scores read.
    columns = _score_columns(grid)

    def scores_of(config: str) -> dict[str, float | None]:
        at = names.index(config)
        return {name: None if v is None else plain(v[at]) for name, v in columns.items()}

    rows = [
        _row(rule, labels, config, scores_of(config)) for rule, (labels, config) in picks.items()
    ]
    if blind:
        rows.append(_row("per-machine blind", "none", None, _blind(per_machine, blind, split)))
    if default:
        known = scores_of(DEFAULT_CONFIG) if DEFAULT_CONFIG in names else default
        rows.append(_row(DEFAULT_CONFIG, "none", DEFAULT_CONFIG, known))
    if (omega := columns["eval_omega"]) is not None:
        chance, best = random_expectation(omega), oracle(names, omega)
        rows.insert(0, _row("random", "none", None, {"eval_omega": chance.mean}, chance.sd))
        rows.append(_row("oracle", "evaluation", best, scores_of(best)))
    own = scores_of(choice.config)
    by_dev = others.get("dev")
    return {
        "chosen": {
            "config": choice.config,
            "rule": rule_name(veto, names, grid),
            "reason": f"{choice.reason[0].upper()}{choice.reason[1:]}.",
            **{name: own[name] for name in ("dev_omega", "eval_omega", "crit_dev")},
            "interval": interval_over_machines(per_machine, choice.config),
        },
        "rows": rows,
        "deltas": differences(per_machine, scores or (), choice.config, rows, seed),
        "per_machine_blind": {"split": split, "pool": candidates, "choices": blind},
        "guard": veto,
        "veto": None if by_dev is None else _dev_veto(columns["dev_omega"], by_dev),
        "label_free_veto": _veto_document(label_free, others, choice.config),
        "warnings": [*choice.warnings, *_disobeyed(veto, choice.config, by_dev, label_free)],
        "floor": _floor(scores or ()),
        "resamples": _resamples(names, choice, resampled, columns),
        "within_noise": _within_noise(names, choice, resampled),
    }


def _score_columns(grid: pd.DataFrame) -> dict[str, Float64s | None]:
    scores = {name: complete_column(grid, name) for name in ("dev_omega", "eval_omega")}
    criteria = {
        name: known_column(grid, name).round(CRITERION_DIGITS) for name in ("crit_dev", "crit_eval")
    }
    return {**scores, **criteria}


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


def _dev_veto(dev: Float64s | None, choice: Choice) -> dict[str, Any]:
    """The veto by dev scores for ``selection.json``."""
    return {
        "rule": "dev score at or below the 10 % quantile",
        "floor": None if dev is None else float(np.quantile(dev, 0.10)),
        "removed": list(choice.vetoed),
    }


def _floor(scores: Sequence[MachineScores]) -> dict[str, Any] | None:
    """The criterion that machines of these sizes would have if their domains did not differ."""
    sizes = [
        tuple(sorted(Counter(m.own_domains.tolist()).values(), reverse=True))
        for m in scores
        if m.split == "dev"
    ]
    known = [each for each in sizes if bank_floor(each) is not None]
    if not known:
        return None
    usual = Counter(known).most_common(1)[0][0]
    mean = float(np.mean([bank_floor(each) for each in known]))
    return {"mean": mean, "n_source": usual[0], "n_target": usual[-1]}


def _resamples(
    names: list[str],
    choice: Choice,
    resampled: Float64s | None,
    columns: Mapping[str, Float64s | None],
) -> dict[str, Any] | None:
    """What other splits and clips would have picked, how often, and its mean scores."""
    if resampled is None or choice.agreement is None:
        return None
    allowed = _allowed(names, choice)
    samples = resampled[allowed][:, _complete(resampled[allowed])]
    winners = allowed[samples.argmin(axis=0)]
    counts = Counter(winners.tolist()).most_common()
    means = {
        name: None if (values := columns[name]) is None else float(values[winners].mean())
        for name in ("dev_omega", "eval_omega")
    }
    return {
        "n": choice.n_resamples,
        "agreement": choice.agreement,
        "picks": {names[at]: count for at, count in counts},
        **means,
    }


def _within_noise(names: list[str], choice: Choice, resampled: Float64s | None) -> list[str]:
    """Configurations that no veto excludes and whose criterion is not above the chosen one's."""
    if resampled is None or choice.agreement is None:
        return []
    allowed = _allowed(names, choice)
    complete = _complete(resampled[allowed])
    chosen = resampled[names.index(choice.config), complete]
    differences = resampled[allowed][:, complete] - chosen
    near = allowed[np.quantile(differences, NOISE_QUANTILE, axis=1) <= 0]
    return [names[at] for at in near if names[at] != choice.config]


def _allowed(names: list[str], choice: Choice) -> Indices:
    """Rows of the configurations that have a criterion and that no veto excludes."""
    known = choice.criterion.items()
    allowed = [name for name, value in known if value == value and name not in choice.vetoed]
    return np.array([names.index(name) for name in allowed], np.intp)


def _complete(resampled: Float64s) -> Bools:
    """The resamples in which all of these configurations have a criterion."""
    return np.asarray(np.isfinite(resampled).all(axis=0))


def _veto_document(
    label_free: StudyVeto | None, others: Mapping[str, Choice], config: str
) -> dict[str, Any] | None:
    """The label-free veto for ``selection.json``, with its own pick."""
    if label_free is None:
        return None
    viability = label_free.viability
    own = others.get("faults")
    return {
        **label_free.to_dict(),
        "picks": None if own is None else own.config,
        "chosen_passes": None
        if viability.abstains or config not in viability.configs
        else config not in viability.reasons,
    }


def _disobeyed(
    veto: str, config: str, by_dev: Choice | None, label_free: StudyVeto | None
) -> list[str]:
    """Sentences about vetoes that the choice did not obey and that exclude it."""
    sentences = []
    reasons = {} if label_free is None else label_free.viability.reasons
    if config in reasons and veto in ("dev", "paper"):
        sentences.append(
            f"{config} is excluded by the label-free veto, which this choice did not obey: "
            f"{reasons[config]}. {_ADVICE}"
        )
    if by_dev is not None and config in by_dev.vetoed and veto == "faults":
        sentences.append(
            f"{config} is excluded by the dev-score veto, which this choice did not obey: "
            f"{by_dev.vetoed[config]}. {_ADVICE}"
        )
    if veto in ("faults", "both") and (label_free is None or label_free.viability.abstains):
        why = "no machine has enough normals for it" if label_free is None else "it abstains"
        sentences.append(f"The label-free veto was asked for, but {why}.")
    return sentences
