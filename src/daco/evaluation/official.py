"""Official metrics and scores of tables: one table of clips in, one row per machine out.

A table of clips has one row per test clip, its label and domain, and one column of scores for each
configuration or system. Metrics and scores are in percent. The rules of the years are
:data:`daco.evaluation.metrics.RULES`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from daco.data.clips import ONE_DOMAIN
from daco.errors import InputError
from daco.evaluation.intervals import t_quantiles
from daco.evaluation.metrics import EPSILON, grid_metrics, quantities_of, rule_of
from daco.validation import Float64s

_SECTION = ["set", "machine", "section"]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval over n machines; the ends are None for fewer than two."""

    value: float
    low: float | None
    high: float | None
    n: int

    def __str__(self) -> str:
        interval = "" if self.low is None else f" [{self.low:.2f}, {self.high:.2f}]"
        return f"{self.value:.2f}{interval}"


def metrics_table(
    clips: pd.DataFrame, configs: Sequence[str], year: int | None = None
) -> pd.DataFrame:
    """Compute the metrics of the year for each machine, section and configuration.

    Parameters
    ----------
    clips : DataFrame
        One row per clip with ``machine``, ``section``, ``domain``, ``label`` (1 is an anomaly) and
        the columns `configs`; ``set`` separates development and evaluation. Only rows of ``split``
        test count, where there is that column.
    configs : sequence of str
        Columns with scores, higher for more anomalous clips.
    year : int, optional
        Year of the challenge, see :func:`daco.evaluation.metrics.quantities_of`.

    Returns
    -------
    DataFrame
        ``set`` (if given), ``machine``, ``section``, ``configuration`` and the metrics in percent;
        nan where a label, a domain or a score is missing, or a domain has no normal clip.

    Examples
    --------
    >>> clips = pd.DataFrame({"machine": "fan", "section": "00", "label": [0, 0, 1, 1],
    ...     "domain": ["source", "target"] * 2, "a": [1, 3, 2, 4], "b": [1, 2, 3, 4]})
    >>> metrics_table(clips, ["a", "b"])[["configuration", "auc_source", "auc_target"]].values
    array([['a', 100.0, 50.0],
           ['b', 100.0, 100.0]], dtype=object)
    """
    test = clips[clips["split"] == "test"] if "split" in clips else clips
    keys = [name for name in _SECTION if name in test]
    parts = [pd.DataFrame(columns=[*keys, "configuration"])]
    for key, rows in test.groupby(keys, sort=False):
        columns: dict[str, Any] = dict(zip(keys, key, strict=True))
        metrics = _section_metrics(rows, configs, year)
        parts.append(pd.DataFrame(columns | {"configuration": list(configs)} | metrics))
    return pd.concat(parts[1:] or parts, ignore_index=True)


def _section_metrics(
    rows: pd.DataFrame, configs: Sequence[str], year: int | None
) -> dict[str, Float64s]:
    """The metrics of one section by name, one value in percent per configuration."""
    labels = rows["label"].fillna(-1).to_numpy(int)
    domains = rows["domain"].fillna("").to_numpy(str)
    quantities = quantities_of(year, set(domains))
    scores = rows[list(configs)].to_numpy(float)
    values = np.full((len(configs), len(quantities)), np.nan)
    known = np.isfinite(scores).all(axis=0)
    with suppress(InputError):  # a label is unknown, or a metric lacks its normals or anomalies
        if "" not in domains:
            values[known] = grid_metrics(scores[:, known], labels, domains, quantities).values
    return dict(zip(quantities, 100 * values.T, strict=True))


def official_quantities(metrics: pd.DataFrame, year: int | None = None) -> list[str]:
    """The columns of a table of metrics that count in the official score of the year."""
    names = map(str, metrics.columns)
    domains = [name.removeprefix("auc_") for name in names if name.startswith("auc_")]
    several = [name for name in quantities_of(year, domains) if name in metrics]
    single = [name for name in quantities_of(year, [ONE_DOMAIN]) if name in metrics]
    return list(dict.fromkeys(several + single))


def official_scores(metrics: pd.DataFrame, year: int | None = None) -> pd.Series:
    """Compute the official score of each configuration from a table of metrics.

    It is the harmonic mean over all machines, sections and metrics; in 2020 the arithmetic mean
    over the sections of a machine, then over machines. Machines without metrics do not count.

    Parameters
    ----------
    metrics : DataFrame
        As :func:`metrics_table` returns it, of one set.
    year : int, optional
        Year of the challenge.

    Returns
    -------
    Series
        The score in percent by configuration, in the order of the table; nan without metrics.

    Examples
    --------
    >>> metrics = pd.DataFrame({"machine": ["fan", "pump"], "section": "00", "configuration": "a",
    ...     "auc_source": [80.0, 70.0], "auc_target": [40.0, 60.0], "pauc": [50.0, 55.0]})
    >>> print(round(official_scores(metrics)["a"], 2))
    56.27
    """
    return _left_out(metrics, year)[0].rename("official_score")


def score_estimates(metrics: pd.DataFrame, year: int | None = None) -> pd.DataFrame:
    """Compute the official score of each configuration with its interval over machines.

    The interval leaves out each machine with all of its sections (jackknife), has the reach of
    Student's t, and is cut at 0 and 100. The result has ``value, low, high, n`` (machines) by
    configuration, in percent.
    """
    scores, left_out, known = _left_out(metrics, year)
    return _intervals(scores, left_out, known, least=0)


def score_estimate(metrics: pd.DataFrame, year: int | None = None) -> Estimate:
    """Compute `score_estimates` of the rows of one configuration."""
    if metrics["configuration"].nunique() > 1:
        raise InputError("This interval is of one configuration. Select its rows.")
    return _estimate(score_estimates(metrics, year))


def score_differences(metrics: pd.DataFrame, first: str, year: int | None = None) -> pd.DataFrame:
    """Compute the official score of configuration `first` minus that of each other one.

    The result has ``value, low, high, n`` by configuration, in points, paired: a machine is left
    out of both. Configurations without the machines of `first` are not in it.
    """
    scores, left_out, known = _left_out(metrics, year)
    same = (known == known.loc[first]).all(axis=1)
    others = [name for name in scores.index[same] if name != first]
    deltas = left_out.loc[first] - left_out.loc[others]
    return _intervals(scores[first] - scores[others], deltas, known.loc[others], least=-100)


def score_difference(
    first: pd.DataFrame, second: pd.DataFrame, year: int | None = None
) -> Estimate:
    """Compute the score of one configuration minus another's over the machines that both have.

    The arguments are rows of a table of metrics; n is 0 if no machine is in both.

    >>> first = pd.DataFrame({"machine": list("abc"), "section": "00", "configuration": "x",
    ...     "auc_source": [70, 80, 66], "auc_target": [60, 50, 61], "pauc": [55, 52, 58]})
    >>> print(score_difference(first, first.assign(auc_target=[50, 40, 55])))
    3.81 [0.10, 7.52]
    """
    one, two = (
        rows.dropna(subset=official_quantities(rows, year), how="all") for rows in (first, second)
    )
    section = ["machine", "section"]
    shared = one[section].merge(two[section])
    one, two = one.merge(shared), two.merge(shared)
    both = pd.concat([one.assign(configuration="1"), two.assign(configuration="2")])
    return _estimate(score_differences(both, "1", year) if len(both) else both)


def machine_scores(metrics: pd.DataFrame, year: int | None = None) -> pd.DataFrame:
    """The score of each machine (columns), sections merged, of each configuration (rows)."""
    return _score(*_machine_parts(metrics, year), year)


def _machine_parts(metrics: pd.DataFrame, year: int | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What machines (columns) add to the total and the weight of each configuration (rows).

    A harmonic mean is the weight over the total of the reciprocals, an arithmetic one the total
    of the machines' means over the weight. Both are nan where a machine has no metrics.
    """
    if "set" in metrics and metrics["set"].nunique() > 1:
        raise InputError("An official score is of one set. Select the rows of dev or eval.")
    values = metrics[official_quantities(metrics, year)].astype(float)
    keys = [metrics["configuration"], metrics["machine"]]
    if rule_of(year).mean == "harmonic":
        costs, counts = 1 / values.clip(lower=100 * EPSILON), values.notna()
        sections = pd.DataFrame({"total": costs.sum(axis=1), "weight": counts.sum(axis=1)})
        parts = sections.groupby(keys, sort=False).sum()
    else:
        parts = values.mean(axis=1).groupby(keys, sort=False).mean().to_frame("total")
        parts["weight"] = parts["total"].notna().astype(float)
    configs = metrics["configuration"].unique()
    total, weight = (parts[name].unstack("machine").reindex(configs) for name in parts)
    return total.where(weight > 0), weight.where(weight > 0)


def _score(total: Any, weight: Any, year: int | None) -> Any:
    return weight / total if rule_of(year).mean == "harmonic" else total / weight


def _left_out(
    metrics: pd.DataFrame, year: int | None
) -> tuple[pd.Series, pd.DataFrame, pd.DataFrame]:
    """The score of each configuration; its scores without each machine; which machines it has."""
    parts = _machine_parts(metrics, year)
    total, weight = (part.sum(axis=1) for part in parts)
    left_out = _score(-parts[0].sub(total, axis=0), -parts[1].sub(weight, axis=0), year)
    return _score(total, weight, year), left_out, parts[1].notna()


def _intervals(
    values: pd.Series, left_out: pd.DataFrame, known: pd.DataFrame, least: float
) -> pd.DataFrame:
    """Jackknife intervals with the reach of Student's t; nan for fewer than two machines."""
    n = known.sum(axis=1)
    reach = np.sqrt((n - 1).clip(0) * left_out.var(axis=1, ddof=0)) * t_quantiles(n)
    ends = {"low": (values - reach).clip(least), "high": (values + reach).clip(upper=100)}
    return pd.DataFrame({"value": values, **ends, "n": n})


def _estimate(rows: pd.DataFrame) -> Estimate:
    """The first row of a table of estimates; nan where it has none."""
    if rows.empty:
        return Estimate(float("nan"), None, None, 0)
    row = rows.iloc[0]
    low, high = (None if np.isnan(row[end]) else float(row[end]) for end in ("low", "high"))
    return Estimate(float(row["value"]), low, high, int(row["n"]))
