"""Which machines a report shows one by one, where there are too many to look at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from daco.evaluation.metrics import QUANTITIES, harmonic_mean
from daco.experiments.figures.distributions import shown_config

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import StudyTables

SHOWN = 40
"""Machines; more of them would fill a page that nobody reads, and take minutes to draw."""


def fewer_machines(result: StudyTables) -> StudyTables:
    """The result of up to `SHOWN` machines: those of the lowest score under the chosen one.

    Only tables of single machines are cut; what was found over all machines stays.
    """
    places = _shown(result)
    if places is None:
        return result
    return replace(
        result,
        per_machine=_of(result.per_machine, places),
        diagnostics=_of(result.diagnostics, places),
        machines=result.machine_scores(places),
    )


def said_of(result: StudyTables, before: str = "") -> str:
    """A sentence where not all machines are shown, after what comes before it; else nothing."""
    places = _shown(result)
    if places is None:
        return ""
    return (
        f"{before}Shown are the {len(places)} machines of {_count(result):,} that score lowest "
        f"under {shown_config(result)}; the files of the run have all of them."
    )


def _shown(result: StudyTables) -> set[tuple[str, str]] | None:
    if _count(result) <= SHOWN:
        return None
    table = result.per_machine
    rows = table[table["config"] == shown_config(result)]
    metrics = rows[list(QUANTITIES)].to_numpy(dtype=float)
    known = ~np.isnan(metrics).any(axis=1)
    scores = np.full(len(rows), np.inf)  # machines without labels come last
    scores[known] = harmonic_mean(metrics[known], axis=1)
    lowest = rows.iloc[np.argsort(scores, kind="stable")[:SHOWN]]
    return set(zip(lowest["split"], lowest["machine"], strict=True))


def _count(result: StudyTables) -> int:
    return len(result.per_machine[["split", "machine"]].drop_duplicates())


def _of(table: pd.DataFrame, places: set[tuple[str, str]]) -> pd.DataFrame:
    if table.empty:
        return table
    mine = [place in places for place in zip(table["split"], table["machine"], strict=True)]
    return table[mine]
