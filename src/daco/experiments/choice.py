"""Choosing a configuration from the tables of a study: by one rule, by all, and how stably.

A choice reads criteria, the label-free veto and, for some rules, the development scores; evaluation
scores are only looked up for configurations that were chosen before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from daco.errors import InputError
from daco.evaluation.official import official_quantities, official_scores, score_estimates
from daco.experiments.machine_data import MACHINE
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, blind_pool
from daco.method.criterion import PAPER_SPLITS
from daco.method.selection import (
    CRITERION_DIGITS,
    NOISE_QUANTILE,
    Choice,
    Rule,
    choose,
    parse_rule,
)
from daco.method.viability import INJECTED, PseudoScores, Viability, viability_veto
from daco.text import quantity
from daco.validation import Float64s

Years = Mapping[str, int | None]
"""The year of the challenge whose rules hold, by set."""

PER_MACHINE = "per-machine"
"""The paper's blind rule, which chooses for each machine from its own normals."""

READS_DEV = {
    Rule.GUARDED: "development labels (veto only)",
    Rule.PAPER: "development labels (veto only)",
    Rule.DEV: "development labels",
}
_RULES = [
    *("rule", "reads", "configuration", "criterion_dev", "dev_score", "dev_low", "dev_high"),
    *("eval_score", "eval_low", "eval_high", "n_dev_machines", "n_machines"),
    *("agreement", "stability"),
]


# Criteria by machine, by resample and by configuration


def grid_of(
    candidates: Sequence[str],
    metrics: pd.DataFrame | None,
    criteria: pd.DataFrame,
    years: Years | None = None,
    veto: Viability | None = None,
) -> pd.DataFrame:
    """The table of :meth:`StudyResult.grid`; without `metrics` it has no scores.

    A machine without the metrics of some candidate does not count, so that all are of the same.
    """
    names = list(candidates)
    grid = pd.DataFrame({"configuration": names})
    for each in ("dev", "eval"):
        if metrics is None:
            break
        year = (years or {}).get(each)
        rows = metrics[(metrics["set"] == each) & metrics["configuration"].isin(names)]
        known = rows[official_quantities(rows, year)].notna().any(axis=1)
        rows = rows[known.groupby([rows[name] for name in MACHINE]).transform("all")]
        scores = official_scores(rows, year).reindex(names)
        if scores.notna().all():
            grid[f"{each}_score"] = scores.to_numpy()
    by_machine = machine_criteria(criteria)
    tables = {each: by_machine[by_machine["set"] == each] for each in ("dev", "eval")}
    tables["paper"] = machine_criteria(_paper_splits(criteria[criteria["set"] == "dev"]))
    for each, table in tables.items():
        if len(table):
            means = table.groupby("configuration")["criterion"].mean(skipna=False)
            grid[f"criterion_{each}"] = means.reindex(names).round(CRITERION_DIGITS).to_numpy()
    if veto is not None:
        pseudo = pd.Series(100 * veto.score, index=list(veto.configs))
        grid["pseudo_score"] = pseudo.reindex(names).to_numpy()
        grid["viable"] = ~grid["configuration"].isin(veto.reasons)
    return grid


def machine_criteria(criteria: pd.DataFrame) -> pd.DataFrame:
    """The ``criterion`` of each machine and configuration, the mean over splits."""
    rows = criteria[criteria["measure"] == "balance"]
    keys = [*MACHINE, "configuration"]
    means = rows.groupby(keys, sort=False, observed=True)["value"].mean(skipna=False)
    return means.rename("criterion").reset_index()


def _paper_splits(criteria: pd.DataFrame) -> pd.DataFrame:
    """The paper's splits of each machine as balance: rows of their own, or the first ten."""
    own = criteria[criteria["measure"] == "paper"]
    has_own = criteria["machine"].isin(own["machine"])
    first = (criteria["measure"] == "balance") & (criteria["split"] < PAPER_SPLITS) & ~has_own
    return pd.concat([own.assign(measure="balance"), criteria[first]])


def resampled_criteria(criteria: pd.DataFrame, candidates: Sequence[str]) -> Float64s | None:
    """The criterion (C, R) in each resample, mean over development machines; None without."""
    rows = criteria[(criteria["measure"] == "resample") & (criteria["set"] == "dev")]
    if rows.empty:
        return None
    groups = rows.groupby(["configuration", "split"], observed=True)["value"]
    return groups.mean(skipna=False).unstack("split").reindex(list(candidates)).to_numpy(float)


def label_free_veto(
    criteria: pd.DataFrame, candidates: Sequence[str], machines: Sequence[Mapping[str, Any]]
) -> tuple[Viability | None, str]:
    """The label-free veto over machines of both sets, and a note about it.

    ``machines`` are those of ``run.json``. Those with injected faults count alone, where there are
    any, since sounds say more than moved vectors.
    """
    judged = [each for each in machines if each.get("pseudo")]
    if not judged:
        return None, "No machine has enough normals for the label-free veto."
    injected = [each for each in judged if each["pseudo"]["basis"] == INJECTED]
    note = ""
    if 0 < len(injected) < len(judged):
        note = (
            f"The label-free veto uses {quantity(injected, 'machine')} of {len(judged)}: faults "
            "were not injected into the others."
        )
    rows = criteria[criteria["measure"].str.startswith("pseudo_")]
    values = rows.set_index([*MACHINE, "configuration", "measure"])["value"].unstack("measure")
    scores = []
    for each in injected or judged:
        facts, own = each["pseudo"], values.loc[tuple(each[name] for name in MACHINE)]
        own = own.loc[[name for name in candidates if name in own.index]]
        areas = {
            name: own[[f"pseudo_{name}_{domain}" for domain in facts["domains"]]].to_numpy(float)
            for name in ("auc", "pauc")
        }
        facts = facts | {"plain": np.asarray(facts["plain"], float), "configs": own.index}
        lists = ("configs", "domains", "detectable", "warnings")
        scores.append(
            PseudoScores(**(facts | areas | {name: tuple(facts[name]) for name in lists}))
        )
    return viability_veto(scores), note


# Choices


def pick(
    grid: pd.DataFrame, rule: Rule | str = Rule.GUARDED, resampled: Float64s | None = None
) -> Choice:
    """Choose from the table of a grid, as :func:`daco.method.selection.choose`.

    Only ``criterion_dev``, ``criterion_paper``, ``dev_score`` and ``viable`` are read, as far as
    they are known. Where nothing is known that a veto could use, ``guarded`` takes only the paper's
    pool of nine, which are known to detect something.

    >>> grid = pd.DataFrame({"configuration": ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"],
    ...     "dev_score": [58.7, 56.3, 50.4], "criterion_dev": [0.62, 0.49, 0.45]})
    >>> pick(grid).config, pick(grid, "criterion").config
    ('conf-soft-m0-k1', 'ldn-diff-K16')
    """
    rule = parse_rule(rule)
    names = grid["configuration"].tolist()
    paper = rule is Rule.PAPER and "criterion_paper" in grid
    table = grid.reindex(columns=["configuration", "criterion_paper" if paper else "criterion_dev"])
    table.columns = ["config", "criterion"]
    vetoes = [name for name in ("dev_score", "viable") if name in grid]
    table[vetoes] = grid[vetoes]
    if rule is not Rule.GUARDED:
        return choose(table, rule, resampled=resampled)
    if table["criterion"].isna().all() and PAPER_CONFIG not in names:
        if "dev_score" in table:
            return choose(table, Rule.DEV)
        return Choice(names[0], rule, "the first of the grid: nothing is known", names[0])
    known = [names.index(name) for name in _pool_within(names)]
    if known and not vetoes and table["criterion"].notna().any():
        table = table.iloc[known]
        resampled = None if resampled is None else resampled[known]
    return choose(table, rule, resampled=resampled)


def _pool_within(names: Sequence[str]) -> list[str]:
    """The paper's pool of nine for choosing without labels, as far as it is among `names`."""
    return [config.name for config in blind_pool() if config.name in names]


def per_machine_choice(
    metrics: pd.DataFrame, by_machine: pd.DataFrame, pool: Sequence[str]
) -> pd.DataFrame:
    """The paper's blind rule: each machine takes the smallest criterion of a pool.

    Without a criterion it takes the fixed default, or the first of a pool without it.
    """
    rows = by_machine[by_machine["configuration"].isin(pool)].dropna(subset="criterion")
    rows = rows.assign(
        criterion=rows["criterion"].round(CRITERION_DIGITS),
        order=rows["configuration"].map(list(pool).index),
    )
    best = rows.sort_values(["criterion", "order"]).drop_duplicates(MACHINE)
    machines = metrics[MACHINE].drop_duplicates()
    chosen = machines.merge(best.drop(columns="order"), on=MACHINE, how="left")
    return chosen.fillna({"configuration": PAPER_CONFIG if PAPER_CONFIG in pool else pool[0]})


def explained(choice: Choice, grid: pd.DataFrame, veto: Viability | None, note: str) -> Choice:
    """The choice with the values behind its vetoes, and with warnings about the label-free one."""
    reasons = {} if veto is None else veto.reasons
    rows = grid.set_index("configuration")
    vetoed = {}
    for name, by in choice.vetoed.items():
        if "dev_score" in rows:
            limit = rows["dev_score"].quantile(0.1)
            values = f"{rows['dev_score'][name]:.2f}, at or below {limit:.2f}"
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


def rules_of(
    grid: pd.DataFrame,
    metrics: pd.DataFrame,
    by_machine: pd.DataFrame,
    resampled: Float64s | None = None,
    years: Years | None = None,
) -> pd.DataFrame:
    """The table of :meth:`StudyResult.rules`.

    ``eval_score`` of the grid is read for the rows ``random`` (the mean of all candidates) and
    ``oracle`` alone. `by_machine` has ``criterion`` by machine, `resampled` is (C, R).
    """
    rows: list[dict[str, Any]] = []
    for rule in Rule:
        with suppress(InputError):  # the grid lacks what it reads, or its veto leaves nothing
            choice = pick(grid, rule, resampled)
            row: dict[str, Any] = {"rule": rule.value, "configuration": choice.config}
            row["reads"] = READS_DEV.get(rule, "nothing") if "dev_score" in grid else "nothing"
            row["agreement"] = choice.agreement if choice.config == choice.pick else None
            rows.append(row | {"stability": choice.stability})
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
    table = pd.DataFrame(rows)
    metrics = metrics[metrics["configuration"].isin(table["configuration"])]
    table = table[table["configuration"].isin(["", *metrics["configuration"]])]
    scores = _scores(metrics, years)
    scores.loc[""] = grid.reindex(columns=["dev_score", "eval_score"]).mean()
    table = table.join(scores, on="configuration")
    table["criterion_dev"] = table["configuration"].map(criteria)
    return table.reindex(columns=_RULES).fillna({"stability": ""}).reset_index(drop=True)


def _scores(metrics: pd.DataFrame, years: Years | None) -> pd.DataFrame:
    """Scores of both sets by configuration, with intervals over machines and their numbers."""
    parts = []
    for each in ("dev", "eval"):
        rows = metrics[metrics["set"] == each]
        year = (years or {}).get(each)
        known = rows.dropna(subset=official_quantities(rows, year), how="all")
        part = score_estimates(known, year).astype({"n": "Int64"})
        part.columns = [f"{each}_score", f"{each}_low", f"{each}_high", f"n_{each}_machines"]
        parts.append(part)
    table = pd.concat(parts, axis=1)
    return table.assign(n_machines=table["n_eval_machines"].fillna(table["n_dev_machines"]))


def stability_of(grid: pd.DataFrame, rule: Rule | str, resampled: Float64s | None) -> pd.DataFrame:
    """The table of :meth:`StudyResult.stability`; no rows if the rule has no resamples."""
    choice = pick(grid, rule, resampled)
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
