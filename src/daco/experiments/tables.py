"""The tables that the report of a study shows and an export writes, and their texts."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import pandas as pd

from daco.detector.decision import FALSE_ALARM_RATE, is_anomalous
from daco.evaluation.intervals import too_few_machines
from daco.evaluation.official import official_scores, score_estimate
from daco.experiments.analysis import differences_table, frontier_table, transfer_of
from daco.experiments.choice import grid_table, rules_table, stability_table
from daco.experiments.criteria import Years, machine_criteria
from daco.experiments.figures.style import look_of
from daco.experiments.run_files import P_VALUE
from daco.method.config import DEFAULT_CONFIG, PAPER_CONFIG, RAW_CONFIG

if TYPE_CHECKING:
    from daco.experiments.result import StudyResult

TEXTS: Mapping[str, Any] = tomllib.loads(
    resources.files("daco.experiments").joinpath("templates/texts.toml").read_text("utf-8")
)
"""Names of rules and columns, formats of numbers, captions of tables and pictures."""

SHOWN_MACHINES = 40
"""More machines would fill a page that nobody reads: those that score lowest are shown."""

SET_NAMES = {"dev": "development", "eval": "evaluation"}
_DECIDED = {  # by label: columns for the number of clips, and for the share that is anomalous
    0: ("normals", "false_alarms"),
    1: ("anomalies", "detected"),
    -1: ("unlabelled", "anomalous"),
}


def tables_of(result: StudyResult) -> dict[str, pd.DataFrame]:
    """The tables of a study by name, with those columns that hold anything.

    Their captions are in ``TEXTS["tables"]``. A table has no rows where the study lacks what it
    needs, such as labels or a second domain.
    """
    choice, coverage, metrics = choice_of(result), result.coverage(), result.metrics()
    grid, rules = grid_table(result, metrics), rules_table(result, metrics)
    stability = stability_table(result, metrics)
    metrics = metrics[metrics.filter(like="auc").notna().any(axis=1)]  # of labelled machines
    years = {which: result.year(which) for which in result.sets}
    few = bool(too_few_machines(len(metrics[["set", "machine"]].drop_duplicates())))
    differences = differences_table(result, metrics=metrics, rules=rules, clips=few)
    rules.insert(1, "how", rules["rule"].map(TEXTS["how"]))
    grid.insert(1, "method", [look_of(name).title for name in grid["configuration"]])
    tables = {
        "rules": rules,
        "differences": differences,
        "grid": grid,
        "vetoed": pd.DataFrame(choice["vetoed"].items(), columns=["configuration", "reason"]),
        "transfer": transfer_of(grid, metrics, machine_criteria(result.criteria), years=years),
        "stability": stability,
        "frontier": frontier_table(metrics),
        "coverage": _mean_coverage(coverage),
        "coverage_by_machine": coverage,
        "decisions": _decisions(result, choice["config"]),
        "machines": _machines(metrics, choice["config"], years),
        "compared": _compared(metrics, result.compared, years),
    }
    return {name: frame.dropna(axis=1, how="all") for name, frame in tables.items()}


def choice_of(result: StudyResult) -> dict[str, Any]:
    """What the study chose, and why."""
    return result.run.get("choice") or result.choose().to_dict()


def false_alarm_rate(result: StudyResult) -> float:
    """The rate at which the study decides."""
    return float(result.run["settings"].get("false_alarm_rate", FALSE_ALARM_RATE))


def machine_scores(machines: pd.DataFrame, which: str) -> pd.DataFrame:
    """Scores of the machines of a set, one column per configuration, from the table of machines."""
    rows = machines[machines["set"] == SET_NAMES[which]] if len(machines) else machines
    if rows.empty:
        return pd.DataFrame()
    scores = rows.drop_duplicates(["machine", "configuration"])
    order = scores["machine"].unique()
    wide = scores.pivot(index="machine", columns="configuration", values="score")
    return wide.loc[order, scores["configuration"].unique()]


def _machines(metrics: pd.DataFrame, chosen: str, years: Years) -> pd.DataFrame:
    """Metrics and score of each machine under a few configurations; the lowest if there are many.

    The score of a machine with several sections is that of all of them.
    """
    shown = [RAW_CONFIG, PAPER_CONFIG, DEFAULT_CONFIG, chosen]
    metrics = metrics[metrics["configuration"].isin(shown)]
    machine = ["set", "machine"]
    groups = metrics.groupby(machine, sort=False)
    scores = {key: official_scores(part, years[str(key[0])]) for key, part in groups}
    if not scores:
        return metrics
    column = pd.concat(scores, names=machine).dropna().rename("score").reset_index()
    lowest = column[column["configuration"] == chosen].nsmallest(SHOWN_MACHINES, "score")
    return metrics.merge(column).merge(lowest[machine]).replace({"set": SET_NAMES})


def _compared(metrics: pd.DataFrame, names: Sequence[str], years: Years) -> pd.DataFrame:
    """Scores of what took part in no choice, with intervals over machines."""
    rows = []
    groups = metrics[metrics["configuration"].isin(names)].groupby(["set", "configuration"])
    for key, part in groups:
        which, name = map(str, key)
        score = score_estimate(part, years[which])
        if score.n:
            rows.append([SET_NAMES[which], name, score.value, score.low, score.high, score.n])
    columns = ["set", "configuration", "score", "score_low", "score_high", "n_machines"]
    return pd.DataFrame(rows, columns=columns)


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
        anomalous=is_anomalous(p_values, false_alarm_rate(result)),
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
