"""Choosing a configuration from the tables of a study: by one rule, by all, and how stably.

A choice reads criteria, the label-free veto and, for some rules, the development scores;
evaluation scores are only looked up for configurations that were chosen before.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daco.errors import InputError
from daco.evaluation.official import metrics_table, official_quantities, score_estimates
from daco.experiments.criteria import (
    MACHINE,
    Years,
    grid_of,
    label_free_veto,
    machine_criteria,
    resampled_criteria,
)
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, blind_pool
from daco.method.selection import (
    CRITERION_DIGITS,
    NOISE_QUANTILE,
    Choice,
    Rule,
    choose,
    parse_rule,
)
from daco.method.viability import Viability
from daco.validation import Float64s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from daco.experiments.result import StudyResult

PER_MACHINE = "per-machine"
"""The paper's blind rule, which chooses for each machine from its own normals."""

_READS_DEV = {
    Rule.GUARDED: "development labels (veto only)",
    Rule.PAPER: "development labels (veto only)",
    Rule.DEV: "development labels",
}
_RULES = [
    *("rule", "reads", "configuration", "criterion_dev", "dev_score", "dev_low", "dev_high"),
    *("eval_score", "eval_low", "eval_high", "n_dev_machines", "n_machines"),
    *("agreement", "stability"),
]


# Functions of a result, and of its metrics where these are known


def grid_table(result: StudyResult, metrics: pd.DataFrame | None = None) -> pd.DataFrame:
    """Score and criterion of every candidate, one row each; columns that are not known are absent.

    ``configuration, dev_score, eval_score, criterion_dev, criterion_eval, criterion_paper,
    pseudo_score, viable``; scores in percent.
    """
    if metrics is None:
        metrics = result.metrics(result.candidates)
    return _grid(result, metrics, _veto(result)[0])


def choose_from(result: StudyResult, rule: Rule | str = Rule.GUARDED) -> Choice:
    """Choose a configuration by a rule. No label of an evaluation clip is read."""
    rule = parse_rule(rule)
    metrics = None
    if rule in _READS_DEV:
        clips = result.clips[result.clips["set"] == "dev"]
        metrics = metrics_table(clips, result.candidates, result.year("dev"))
    veto, note = _veto(result)
    grid = _grid(result, metrics, veto)
    choice = pick(grid, rule, resampled_criteria(result.criteria, result.candidates))
    return _explained(choice, grid, veto, note)


def rules_table(result: StudyResult, metrics: pd.DataFrame | None = None) -> pd.DataFrame:
    """What each rule picks, and what that scores, with intervals over machines."""
    if metrics is None:
        metrics = result.metrics()
    by_machine = machine_criteria(result.criteria)
    resampled = resampled_criteria(result.criteria, result.candidates)
    grid = grid_table(result, metrics)
    return rules_of(grid, metrics, by_machine, resampled, years_of(result))


def stability_table(result: StudyResult, metrics: pd.DataFrame | None = None) -> pd.DataFrame:
    """How many resamples pick each configuration that no veto excludes, and what it scores.

    Returns
    -------
    DataFrame
        ``configuration, picked`` (number of resamples), ``n_resamples, within_noise`` (whether its
        criterion less that of the chosen one has a 5 % quantile <= 0), ``chosen``, criterion and
        scores; most often picked first. No rows if the study's rule has no resamples.
    """
    grid = grid_table(result, metrics)
    resampled = resampled_criteria(result.criteria, result.candidates)
    choice = pick(grid, result.run["settings"].get("rule", Rule.GUARDED), resampled)
    columns = ["configuration", "picked", "n_resamples", "within_noise", "chosen"]
    columns += [name for name in ("criterion_dev", "dev_score", "eval_score") if name in grid]
    if resampled is None or choice.agreement is None:
        return pd.DataFrame(columns=columns)
    names = grid["configuration"]
    allowed = names.map(choice.criterion).notna() & ~names.isin(choice.vetoed)
    table = grid[allowed].sort_values("criterion_dev", kind="stable").set_index("configuration")
    samples = pd.DataFrame(resampled, index=names).loc[table.index].round(CRITERION_DIGITS)
    samples = samples.dropna(axis=1)
    picked = samples.idxmin().value_counts()  # of equal ones that of smaller criterion
    margins = samples.sub(samples.loc[choice.config]).quantile(NOISE_QUANTILE, axis=1)
    table = table.assign(
        picked=picked.reindex(table.index, fill_value=0),
        n_resamples=samples.shape[1],
        within_noise=margins <= 0,
        chosen=table.index == choice.config,
    )
    return table.sort_values("picked", ascending=False, kind="stable").reset_index()[columns]


def years_of(result: StudyResult) -> dict[str, int | None]:
    """The year whose rules hold for each set."""
    return {each: result.year(each) for each in result.sets}


def _grid(
    result: StudyResult, metrics: pd.DataFrame | None, veto: Viability | None
) -> pd.DataFrame:
    grid = grid_of(result.candidates, metrics, result.criteria, years_of(result))
    if veto is not None:
        known = pd.Series(100 * veto.score, index=list(veto.configs))
        grid["pseudo_score"] = known.reindex(result.candidates).to_numpy()
        grid["viable"] = ~grid["configuration"].isin(veto.reasons)
    return grid


def _veto(result: StudyResult) -> tuple[Viability | None, str]:
    return label_free_veto(result.criteria, result.candidates, result.run["machines"])


def _explained(choice: Choice, grid: pd.DataFrame, veto: Viability | None, note: str) -> Choice:
    """The choice with the values behind its vetoes, and with warnings about the label-free one."""
    reasons = {} if veto is None else veto.reasons
    rows = grid.set_index("configuration")
    vetoed = {}
    for name, by in choice.vetoed.items():
        if "dev_score" in rows:
            values = (
                f"{rows['dev_score'][name]:.2f}, at or below {rows['dev_score'].quantile(0.1):.2f}"
            )
            by = by.replace("dev-score veto", f"dev-score veto ({values})")
        vetoed[name] = by.replace("label-free veto", f"label-free veto ({reasons.get(name)})")
    warnings = list(choice.warnings)
    if choice.rule in (Rule.GUARDED, Rule.LABEL_FREE):
        warnings += [text for text in (note, *(veto.warnings if veto else ())) if text]
    elif choice.config in reasons:
        warnings.append(
            f"{choice.config} is excluded by the label-free veto, which the rule {choice.rule} "
            f"does not read: {reasons[choice.config]}. The rule guarded reads it."
        )
    return replace(choice, vetoed=vetoed, warnings=tuple(warnings))


# Functions of tables


def pick(
    grid: pd.DataFrame, rule: Rule | str = Rule.GUARDED, resampled: Float64s | None = None
) -> Choice:
    """Choose a configuration from the table of a grid.

    Parameters
    ----------
    grid : DataFrame
        ``configuration`` and, as far as they are known, ``criterion_dev``, ``criterion_paper``,
        ``dev_score`` and ``viable``. No other column is read.
    rule : Rule or its value
    resampled : (C, R), optional
        The criterion in R resamples.

    Returns
    -------
    Choice
        As :func:`daco.method.selection.choose`. Where nothing is known that a veto could use,
        ``guarded`` takes only the paper's pool of nine, which are known to detect something.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.choice import pick
    >>> grid = pd.DataFrame({"configuration": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...     "dev_score": [58.7, 56.3, 50.4], "criterion_dev": [0.62, 0.49, 0.45]})
    >>> pick(grid).config, pick(grid, "criterion").config
    ('conf-soft-m0-k1', 'ldn-diff-K16')
    """
    rule = parse_rule(rule)
    names = grid["configuration"].tolist()
    paper = rule is Rule.PAPER and "criterion_paper" in grid
    criterion = grid.get("criterion_paper" if paper else "criterion_dev", np.nan)
    table = pd.DataFrame({"config": names, "criterion": criterion}, index=grid.index)
    vetoes = [name for name in ("dev_score", "viable") if name in grid]
    table[vetoes] = grid[vetoes]
    if rule is not Rule.GUARDED:
        return choose(table, rule, resampled=resampled)
    if table["criterion"].isna().all():
        if PAPER_CONFIG not in names and "dev_score" in table:
            return choose(table, Rule.DEV)
        if PAPER_CONFIG not in names:
            return Choice(names[0], rule, "the first of the grid: nothing is known", names[0])
    elif not vetoes and (pool := [names.index(name) for name in _pool_within(names)]):
        table = table.iloc[pool]
        resampled = None if resampled is None else resampled[pool]
    return choose(table, rule, resampled=resampled)


def _pool_within(names: Sequence[str]) -> list[str]:
    """The paper's pool of nine for choosing without labels, as far as it is among `names`."""
    return [config.name for config in blind_pool() if config.name in names]


def per_machine_choice(
    metrics: pd.DataFrame, by_machine: pd.DataFrame, pool: Sequence[str]
) -> pd.DataFrame:
    """The paper's blind rule: each machine takes the smallest criterion of a pool.

    ``metrics`` and ``by_machine`` are as in `rules_of`, the pool is in tie-breaking order. Every
    machine of ``metrics`` gets a row ``set, machine, section, configuration, criterion``; without a
    criterion it takes the fixed default, or the first of a pool without it.
    """
    fallback = PAPER_CONFIG if PAPER_CONFIG in pool else pool[0]
    rows = by_machine[by_machine["configuration"].isin(pool)].dropna(subset="criterion")
    rows = rows.assign(
        criterion=rows["criterion"].round(CRITERION_DIGITS),
        order=rows["configuration"].map({name: at for at, name in enumerate(pool)}),
    )
    best = rows.sort_values(["criterion", "order"]).drop_duplicates(MACHINE)
    machines = metrics[MACHINE].drop_duplicates()
    chosen = machines.merge(best.drop(columns="order"), on=MACHINE, how="left")
    return chosen.fillna({"configuration": fallback})


def rules_of(
    grid: pd.DataFrame,
    metrics: pd.DataFrame,
    by_machine: pd.DataFrame,
    resampled: Float64s | None = None,
    years: Years | None = None,
) -> pd.DataFrame:
    """What each rule picks, and what that scores.

    Parameters
    ----------
    grid : DataFrame
        As `pick` reads it; ``eval_score`` is read for the rows ``random`` and ``oracle`` alone.
    metrics : DataFrame
        ``set, machine, section, configuration`` and the metrics in percent.
    by_machine : DataFrame
        ``set, machine, section, configuration, criterion``.
    resampled : (C, R), optional
    years : mapping of set to year, optional

    Returns
    -------
    DataFrame
        ``rule, reads, configuration, criterion_dev``, the scores of both sets with ``low`` and
        ``high``, intervals over machines, ``n_dev_machines`` and ``n_machines`` (of the evaluation,
        or of development without evaluation labels), ``agreement`` (the share of the resamples that
        pick the configuration; nan for a default that is kept within the noise) and ``stability``,
        the same in words. ``random`` is the mean of all candidates.
    """
    rows: list[dict[str, Any]] = []
    for rule in Rule:
        with suppress(InputError):  # the grid lacks what it reads, or its veto leaves nothing
            choice = pick(grid, rule, resampled)
            reads = _READS_DEV.get(rule, "nothing") if "dev_score" in grid else "nothing"
            agreement = choice.agreement if choice.config == choice.pick else None
            row = {"rule": rule.value, "reads": reads, "configuration": choice.config}
            rows.append(row | {"agreement": agreement, "stability": choice.stability})
    picks = {"fixed": PAPER_CONFIG, "blend": DEFAULT_CONFIG}
    criteria = grid.set_index("configuration").get("criterion_dev", pd.Series(dtype=float))
    pool = _pool_within(grid["configuration"].tolist())
    if pool and len(by_machine):
        chosen = per_machine_choice(metrics, by_machine, pool)
        own = metrics.merge(chosen[[*MACHINE, "configuration"]]).assign(configuration=PER_MACHINE)
        metrics = pd.concat([metrics, own], ignore_index=True)
        criteria[PER_MACHINE] = chosen.loc[chosen["set"] == "dev", "criterion"].mean()
        picks[PER_MACHINE] = PER_MACHINE
    picks["random"] = ""
    rows += [{"rule": key, "reads": "nothing", "configuration": picks[key]} for key in picks]
    if "eval_score" in grid:
        best = grid["configuration"].iloc[int(grid["eval_score"].argmax())]
        rows.append({"rule": "oracle", "reads": "evaluation labels", "configuration": best})
    table = pd.DataFrame(rows, columns=["rule", "reads", "configuration", "agreement", "stability"])
    metrics = metrics[metrics["configuration"].isin(table["configuration"])]
    table = table[table["configuration"].isin(["", *metrics["configuration"]])]
    scores = _scores(metrics, years)
    scores.loc[""] = grid.reindex(columns=["dev_score", "eval_score"]).mean()
    table = table.join(scores, on="configuration").fillna({"stability": ""})
    table["criterion_dev"] = table["configuration"].map(criteria)
    return table[_RULES].reset_index(drop=True)


def _scores(metrics: pd.DataFrame, years: Years | None) -> pd.DataFrame:
    """Scores of both sets by configuration, with intervals over machines and their numbers."""
    parts = []
    for each in ("dev", "eval"):
        rows = metrics[metrics["set"] == each]
        year = (years or {}).get(each)
        known = rows.dropna(subset=official_quantities(rows, year), how="all")
        part = score_estimates(known, year).astype({"n": "Int64"})
        names = {"value": f"{each}_score", "low": f"{each}_low", "high": f"{each}_high"}
        parts.append(part.rename(columns=names | {"n": f"n_{each}_machines"}))
    table = pd.concat(parts, axis=1)
    return table.assign(n_machines=table["n_eval_machines"].fillna(table["n_dev_machines"]))
