"""Criteria of a study by machine, by resample and by configuration, and the label-free veto.

The table of criteria has the columns ``set, machine, section, configuration, measure, split,
value``. Nothing here reads a label; official scores come from a table of metrics.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from daco.evaluation.official import official_quantities, official_scores
from daco.method.criterion import PAPER_SPLITS
from daco.method.selection import CRITERION_DIGITS
from daco.method.viability import INJECTED, PseudoScores, Viability, viability_veto
from daco.text import quantity
from daco.validation import Float64s

MACHINE = ["set", "machine", "section"]
Years = Mapping[str, int | None]
"""The year of the challenge whose rules hold, by set."""


def grid_of(
    candidates: Sequence[str],
    metrics: pd.DataFrame | None,
    criteria: pd.DataFrame,
    years: Years | None = None,
) -> pd.DataFrame:
    """Compute official scores and mean criteria of the candidates.

    Parameters
    ----------
    candidates : sequence of str
        The configurations, in tie-breaking order.
    metrics : DataFrame, optional
        ``set, machine, section, configuration`` and the metrics in percent. A machine counts in a
        score if it has metrics of all candidates.
    criteria : DataFrame
        ``set, machine, section, configuration, measure, split, value``.
    years : mapping of set to year, optional

    Returns
    -------
    DataFrame
        ``configuration`` and, as far as they are known, ``dev_score``, ``eval_score``,
        ``criterion_dev``, ``criterion_eval`` and ``criterion_paper``.

    Examples
    --------
    >>> import pandas as pd
    >>> from daco.experiments.criteria import grid_of
    >>> keys = {"set": "dev", "machine": "fan", "section": "00", "configuration": ["a", "b"]}
    >>> metrics = pd.DataFrame(keys | {"auc": [80.0, 60.0], "pauc": [60.0, 60.0]})
    >>> criteria = pd.DataFrame(keys | {"measure": "balance", "split": 0, "value": [0.5, 0.4]})
    >>> grid_of(["a", "b"], metrics, criteria)[["dev_score", "criterion_dev"]].round(1).values
    array([[68.6,  0.5],
           [60. ,  0.4]])
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
    return grid


def machine_criteria(criteria: pd.DataFrame) -> pd.DataFrame:
    """The criterion of each machine and configuration, the mean over splits.

    Returns ``set, machine, section, configuration, criterion``, in the order of the table.
    """
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
    """The label-free veto over development and evaluation machines alike, and a note about it.

    ``machines`` have ``set, machine, section`` and ``pseudo``, the facts about pseudo-anomalies, or
    None where there are too few clips. Those with injected faults count alone, where there are any,
    since sounds say more than moved vectors. Candidates without pseudo scores are not excluded.
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
        auc, pauc = (
            own[[f"pseudo_{name}_{domain}" for domain in facts["domains"]]].to_numpy(float)
            for name in ("auc", "pauc")
        )
        scores.append(
            PseudoScores(
                configs=tuple(own.index),
                basis=facts["basis"],
                domains=tuple(facts["domains"]),
                auc=auc,
                pauc=pauc,
                detectable=tuple(facts["detectable"]),
                plain=np.asarray(facts["plain"], float),
                warnings=tuple(facts["warnings"]),
            )
        )
    return viability_veto(scores), note
