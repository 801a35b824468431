"""What figures and report show of a study: its choice, and a limited number of machines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from daco.detector.decision import FALSE_ALARM_RATE
from daco.evaluation.metrics import harmonic_mean
from daco.experiments.analysis import quantities_in
from daco.method.config import PAPER_CONFIG, RAW_CONFIG

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import StudyTables

SHOWN_MACHINES = 40
"""More machines would fill a page that nobody reads, and take minutes to draw."""


def chosen_config(result: StudyTables) -> str | None:
    """The configuration the study chose; None where the result holds no choice."""
    return (result.selection.get("chosen") or {}).get("config")


def shown_config(result: StudyTables) -> str:
    """The configuration that is shown: the chosen one, else the default, else the first."""
    names = result.grid["config"].tolist()
    default = PAPER_CONFIG if PAPER_CONFIG in names else str(names[0])
    return chosen_config(result) or default


def compared_configs(result: StudyTables) -> list[str]:
    """What is compared machine by machine: raw, default and shown, as far as the grid has them."""
    known = set(result.grid["config"])
    wanted = dict.fromkeys([RAW_CONFIG, PAPER_CONFIG, shown_config(result)])
    return [name for name in wanted if name in known]


def false_alarm_rate(result: StudyTables) -> float:
    """The rate the study's thresholds aim at."""
    return float(result.provenance.get("false_alarm_rate", FALSE_ALARM_RATE))


def roles(result: StudyTables) -> dict[str, str]:
    """Configurations that a rule picked, and what they are called."""
    titles = {"dev score": "dev pick", "oracle": "oracle"}
    picks = [(chosen_config(result), "chosen")]
    picks += [
        (row.get("config"), titles[row["rule"]])
        for row in result.selection.get("rows", [])
        if row["rule"] in titles
    ]
    if PAPER_CONFIG in set(result.grid["config"]):
        picks.append((PAPER_CONFIG, "default"))
    named: dict[str, list[str]] = {}
    for config, title in picks:
        if config:
            named.setdefault(config, []).append(title)
    return {config: " = ".join(texts) for config, texts in named.items()}


def imbalances(coverage: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """By system: the mean over machines of highest less lowest rate, by nominal rate."""
    return {
        str(system): group.groupby(["nominal_fpr", "machine"])["empirical_fpr"]
        .agg(lambda rates: rates.max() - rates.min())
        .groupby("nominal_fpr")
        .mean()
        for system, group in coverage.groupby("system", sort=False)
    }


def machines_of(table: pd.DataFrame, split: str) -> list[str]:
    """Names of the machines of a split, in order."""
    return list(dict.fromkeys(map(str, table["machine"][table["split"] == split])))


def limit_machines(result: StudyTables) -> StudyTables:
    """The result with up to `SHOWN_MACHINES` machines: those that score lowest when shown.

    Only tables of single machines are cut; what was computed over all machines stays.
    """
    shown = _shown_machines(result)
    if shown is None:
        return result
    return replace(
        result,
        per_machine=_rows_of(result.per_machine, shown),
        diagnostics=_rows_of(result.diagnostics, shown),
        machines=result.machine_scores(set(shown)),
    )


def limit_note(result: StudyTables) -> str:
    """A sentence where not all machines are shown; else nothing."""
    shown = _shown_machines(result)
    if shown is None:
        return ""
    return (
        f"Shown are the {len(shown)} machines of {_count(result):,} that score lowest under "
        f"{shown_config(result)}; the files of the run have all of them."
    )


def _shown_machines(result: StudyTables) -> list[tuple[str, str]] | None:
    """Split and name of the machines that are shown; None for all."""
    if _count(result) <= SHOWN_MACHINES:
        return None
    table = result.per_machine
    rows = table[table["config"] == shown_config(result)]
    metrics = rows[quantities_in(rows)].to_numpy(dtype=float)
    known = ~np.isnan(metrics).any(axis=1)
    scores = np.full(len(rows), np.inf)  # machines without labels come last
    scores[known] = harmonic_mean(metrics[known], axis=1)
    lowest = rows.iloc[np.argsort(scores, kind="stable")[:SHOWN_MACHINES]]
    return list(zip(lowest["split"], lowest["machine"], strict=True))


def _count(result: StudyTables) -> int:
    return len(result.per_machine[["split", "machine"]].drop_duplicates())


def _rows_of(table: pd.DataFrame, machines: Sequence[tuple[str, str]]) -> pd.DataFrame:
    if table.empty:
        return table
    return table[[key in machines for key in zip(table["split"], table["machine"], strict=True)]]
