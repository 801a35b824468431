"""The tables that the report of a study shows and an export writes, and their texts."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daco.detector.decision import is_anomalous
from daco.evaluation.intervals import too_few_machines
from daco.evaluation.official import machine_scores, score_estimates
from daco.experiments.choice import Years
from daco.experiments.figures.style import look_of
from daco.experiments.machine import P_VALUE
from daco.experiments.machine_data import SET_NAMES
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, RAW_CONFIG

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

TEXTS: Mapping[str, Any] = tomllib.loads(
    resources.files("daco.experiments").joinpath("templates/texts.toml").read_text("utf-8")
)
"""Names of rules and columns, formats of numbers, captions of tables and pictures."""

SHOWN_MACHINES = 40
"""More machines would fill a page that nobody reads: those that score lowest are shown."""

_DECIDED = {  # by label: columns for the number of clips, and for the share that is anomalous
    0: ("normals", "false_alarms"),
    1: ("anomalies", "detected"),
    -1: ("unlabelled", "anomalous"),
}


def rule_titles(rules: str) -> str:
    """Rules, separated by commas, as the page calls them."""
    return ", ".join(TEXTS["rules"].get(name, name) for name in rules.split(", "))


def as_texts(frame: pd.DataFrame, form: str = ".2f") -> pd.DataFrame:
    """The cells of a table as texts, below its headings; `form` is that of other numbers."""
    titles = [TEXTS["titles"].get(name, str(name).replace("_", " ")) for name in frame]
    cells = [
        [format_cell(value, TEXTS["formats"].get(name, form)) for value in frame[name]]
        for name in frame
    ]
    return pd.DataFrame(dict(zip(titles, cells, strict=True)))


def format_cell(value: object, form: str = ".2f") -> str:
    """A cell as text: a dash where nothing is known, a real minus, yes and no."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if value is None or value is pd.NA or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, float):
        return f"{value:{form}}".replace("-", "−")
    return str(value)


def tables_of(result: StudyResult) -> dict[str, pd.DataFrame]:
    """The tables of a study by name, with those columns that hold anything.

    Their captions are in ``TEXTS["tables"]``. A table has no rows where the study lacks what it
    needs, such as labels or a second domain.
    """
    choice, coverage, metrics = result.run["choice"], result.coverage(), result.metrics()
    metrics = metrics[metrics.filter(like="auc").notna().any(axis=1)]  # of labelled machines
    few = bool(too_few_machines(len(metrics[["set", "machine"]].drop_duplicates())))
    rules, grid = result.rules(), result.grid()
    rules.insert(1, "how", rules["rule"].map(TEXTS["how"]))
    grid.insert(1, "method", [look_of(name).title for name in grid["configuration"]])
    tables = {
        "rules": rules,
        "differences": result.differences(clips=few),
        "grid": grid,
        "vetoed": pd.DataFrame(choice["vetoed"].items(), columns=["configuration", "reason"]),
        "transfer": result.transfer(),
        "stability": result.stability(),
        "frontier": result.frontier(),
        "coverage": _mean_coverage(coverage),
        "coverage_by_machine": coverage,
        "decisions": _decisions(result, choice["config"]),
        "machines": _machines(metrics, choice["config"], result.years),
        "compared": _compared(metrics, result.compared, result.years),
    }
    return {name: frame.dropna(axis=1, how="all") for name, frame in tables.items()}


def shown_scores(metrics: pd.DataFrame, chosen: str, year: int | None) -> pd.DataFrame:
    """Scores of the machines (rows) of one set under a few configurations; the lowest if many.

    The score of a machine with several sections is that of all of them.
    """
    shown = metrics["configuration"].isin([RAW_CONFIG, PAPER_CONFIG, DEFAULT_CONFIG, chosen])
    scores = machine_scores(metrics[shown], year).T.dropna()
    lowest = scores[chosen].nsmallest(SHOWN_MACHINES).index if chosen in scores else scores.index
    return scores[scores.index.isin(lowest)]


def _machines(metrics: pd.DataFrame, chosen: str, years: Years) -> pd.DataFrame:
    """Metrics and scores of the machines that are shown."""
    parts = [metrics[:0]]
    for which, year in years.items():
        own = metrics[metrics["set"] == which]
        scores = shown_scores(own, chosen, year).rename_axis("machine")
        scores = scores.reset_index().melt("machine", value_name="score")
        parts.append(own.merge(scores))
    return pd.concat(parts).replace({"set": SET_NAMES})


def _compared(metrics: pd.DataFrame, names: Sequence[str], years: Years) -> pd.DataFrame:
    """Scores of what took part in no choice, with intervals over machines."""
    parts = []
    for which, year in years.items():
        own = metrics[(metrics["set"] == which) & metrics["configuration"].isin(names)]
        parts.append(score_estimates(own, year).reset_index().assign(set=SET_NAMES[which]))
    titles = {"value": "score", "low": "score_low", "high": "score_high", "n": "n_machines"}
    table = pd.concat(parts).rename(columns=titles)
    table = table.reindex(columns=["set", "configuration", *titles.values()])
    return table[table["n_machines"] > 0]


def _mean_coverage(coverage: pd.DataFrame) -> pd.DataFrame:
    """Realised rates, mean over machines, with the domains side by side."""
    if coverage.empty:
        return pd.DataFrame()
    keys = ["set", "configuration", "decision", "level", "domain"]
    means = coverage.groupby(keys, sort=False)["rate"].mean().unstack("domain").reset_index()
    return means.replace({"set": SET_NAMES}).rename_axis(columns=None)


def _decisions(result: StudyResult, chosen: str) -> pd.DataFrame:
    """How many test clips of each machine and domain are called anomalous."""
    if chosen not in result.decided:
        return pd.DataFrame()
    clips = result.test_clips
    p_values = clips[P_VALUE + chosen].to_numpy(float)
    clips = clips.assign(
        anomalous=is_anomalous(p_values, result.run["settings"]["false_alarm_rate"]),
        domain=clips["domain"].replace("", "unknown"),
        label=clips["label"].fillna(-1).astype(int),
    )
    keys = ["set", "machine", "section", "domain"]
    rows = []
    for key, part in clips.groupby(keys, sort=False):
        row: dict[str, Any] = dict(zip(keys, key, strict=True))
        for label, (count, share) in _DECIDED.items():
            flags = part.loc[part["label"] == label, "anomalous"]
            if len(flags):
                row |= {count: len(flags), share: float(flags.mean())}
        rows.append(row)
    return pd.DataFrame(rows).replace({"set": SET_NAMES})
