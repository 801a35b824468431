"""Tables about the choice: rules and what they pick, differences, configurations, statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from daco.errors import ConfigError
from daco.experiments.figures.style import look_of
from daco.experiments.report.table import Columns, ReportTable, columns_from, without_unknown
from daco.experiments.report.wording import RULES
from daco.experiments.tables import Key
from daco.method.config import DEFAULT_CONFIG, RAW_CONFIG, ScoreConfig
from daco.text import quantity

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import StudyTables

_STRENGTH = {
    "dev_score": "Does the dev score rise with m?",
    "eval_score": "Does the evaluation score rise with m?",
    "criterion": "Does the criterion improve with m?",
}
_SCORES: dict[Key, str] = {"dev_omega": "dev score", "eval_omega": "eval score"}
_CRITERIA: dict[Key, str] = {"crit_dev": "criterion, dev", "crit_eval": "criterion, eval"}


def selection_table(result: StudyTables) -> ReportTable:
    """What every rule picked, what labels it read, what the pick is worth."""
    rows = result.selection.get("rows") or []
    columns: Columns = {
        "rule": [row["rule"] for row in rows],
        "config": [row["config"] for row in rows],
        "eval_omega": [row["eval_omega"] for row in rows],
        "dev_omega": [row["dev_omega"] for row in rows],
        "crit_dev": [row["crit_dev"] for row in rows],
        "crit_eval": [row["crit_eval"] for row in rows],
        "labels": [row["labels"] for row in rows],
        "what it does": [_described(row) for row in rows],
    }
    return ReportTable(
        "selection",
        "What each rule picks, which labels it reads, and the official score (%) of the pick.",
        without_unknown(columns),
        titles={"config": "picks", "labels": "labels read", **_SCORES, **_CRITERIA},
        formats={"crit_dev": ".3f", "crit_eval": ".3f"},
    )


def _described(row: Mapping[str, Any]) -> str:
    text = RULES.get(row["rule"], "")
    return text if row.get("eval_sd") is None else f"{text} (sd {row['eval_sd']:.2f})"


def difference_table(result: StudyTables) -> ReportTable:
    """The chosen configuration against the others, with intervals."""
    rows = [d for d in result.selection.get("deltas") or [] if d["first"] != d["second"]]
    columns: Columns = {
        "against": [row.get("against") or row["second"] for row in rows],
        "config": [row["second"] for row in rows],
        "delta": [row["delta"] for row in rows],
        "low": [row["low"] for row in rows],
        "high": [row["high"] for row in rows],
        "loo_low": [row["loo_low"] for row in rows],
        "loo_high": [row["loo_high"] for row in rows],
        "method": [row["method"] for row in rows],
    }
    return ReportTable(
        "differences",
        "Evaluation score of the chosen configuration less that of another (points), with 95 % "
        "intervals. Machine jackknife: as if other machines had been drawn, by Student’s t; clip "
        "bootstrap: as if other clips of these machines had been. Least, most: when one machine is "
        "left out.",
        without_unknown(columns),
        titles={
            "config": "configuration",
            "method": "interval by",
            "delta": "difference",
            "loo_low": "least",
            "loo_high": "most",
        },
        formats=dict.fromkeys(("delta", "low", "high", "loo_low", "loo_high"), "+.2f"),
    )


def grid_table(result: StudyTables) -> ReportTable:
    """All configurations."""
    grid = result.grid
    columns: Columns = {"config": [str(name) for name in grid["config"]]}
    columns["method"] = [look_of(name).title for name in columns["config"]]
    columns["family"] = [family_of(name) for name in columns["config"]]
    for name in ("dev_omega", "eval_omega", "crit_dev", "crit_eval"):
        if name in grid:
            columns[name] = grid[name].tolist()
    return ReportTable(
        "configurations",
        "Every configuration: official scores (%) and the criterion (smaller is better).",
        columns,
        titles={
            "config": "configuration",
            **_SCORES,
            **_CRITERIA,
        },
        formats={"crit_dev": ".3f", "crit_eval": ".3f"},
    )


def family_of(name: str) -> str:
    """The family that block statistics resample; a name of the study's own is one by itself."""
    try:
        return ScoreConfig.parse(name).family
    except ConfigError:
        return name


def family_table(result: StudyTables) -> ReportTable:
    """Families of configurations, and of each the one of smallest criterion."""
    grid = result.grid
    names = [str(name) for name in grid["config"]]
    rows: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        rows.setdefault(family_of(name), []).append(at)
    known = [name for name in ("dev_omega", "eval_omega") if name in grid]
    order = "crit_dev" if "crit_dev" in grid and grid["crit_dev"].notna().any() else None
    columns: Columns = {}
    if len(rows) > 1:
        best = [_smallest(grid[order], mine) if order else mine[0] for mine in rows.values()]
        columns = {"family": list(rows), "count": [len(mine) for mine in rows.values()]}
        columns["config"] = [names[at] for at in best]
        if order:
            columns[order] = [grid[order].iloc[at] for at in best]
        for name in known:
            columns[name] = [grid[name].iloc[at] for at in best]
        for name in known:
            columns[f"{name}_range"] = [_range(grid[name].iloc[mine]) for mine in rows.values()]
    return ReportTable(
        "families",
        "Families, whose members differ in a number only (k, K, m) and are near copies: of each "
        "the configuration of smallest criterion with its scores (%), and the scores of all.",
        columns,
        titles={
            "count": "members",
            "config": "smallest criterion",
            **_CRITERIA,
            **_SCORES,
            "dev_omega_range": "dev, all",
            "eval_omega_range": "eval, all",
        },
        formats={"crit_dev": ".3f"},
    )


def _smallest(values: pd.Series, rows: list[int]) -> int:
    part = values.iloc[rows]
    return rows[int(part.fillna(float("inf")).to_numpy().argmin())]


def _range(values: pd.Series) -> str | None:
    known = values.dropna()
    if known.empty:
        return None
    low, high = f"{known.min():.1f}", f"{known.max():.1f}"
    return low if low == high else f"{low} to {high}"


def ldn_table(result: StudyTables) -> ReportTable:
    """E5: calibration against local density normalisation, and both."""
    grid = result.grid
    names = [str(name) for name in grid["config"]]
    local = [name for name in names if _is_ldn(name)]
    others = (RAW_CONFIG, "zscore-soft-k1", "ratio-soft-k1", DEFAULT_CONFIG)
    wanted = [name for name in others if name in names]
    columns: Columns = {}
    if local:
        at = [names.index(name) for name in [*wanted, *local]]
        columns = {"config": [names[row] for row in at]}
        columns["method"] = [look_of(name).title for name in columns["config"]]
        for name in ("dev_omega", "eval_omega", "crit_dev"):
            if name in grid:
                columns[name] = grid[name].iloc[at].tolist()
    return ReportTable(
        "ldn",
        "Calibration per domain (z-scores, ratios to the median, quantile maps), local density "
        "normalisation (LDN), and one on top of the other: official scores (%) and criterion.",
        columns,
        titles={"config": "configuration", **_SCORES, **_CRITERIA},
        formats={"crit_dev": ".3f"},
    )


def statistics_table(result: StudyTables) -> ReportTable:
    """Correlations in plain language."""
    rows = [row for row in _statistics(result.stats) if row[1] is not None or row[2] is not None]
    return ReportTable(
        "statistics",
        "Rank correlations (Spearman’s ρ; +1: both order the configurations alike) with 95 % "
        "intervals and two-sided p-values by permutation: all orderings are counted where they "
        "are few, else thousands are drawn.",
        columns_from(rows, ("question", "value", "low", "high", "p", "based on")),
        titles={"value": "ρ"},
        formats={"value": "+.2f", "low": "+.2f", "high": "+.2f", "p": "p"},
    )


def _statistics(stats: Mapping[str, Any]) -> Iterator[list[Any]]:
    signals = stats.get("signals") or {}
    for key, word in (("criterion", "the criterion"), ("dev_score", "the dev score")):
        if signals.get(key):
            yield from _signal(word, signals[key])
    for key, question in _STRENGTH.items():
        found = (stats.get("strength") or {}).get(key) or {}
        yield _row(question, found, f"{found.get('n')} quantile maps")
    found = stats.get("dev_and_eval_within_conformal_soft") or {}
    basis = f"{found.get('n')} quantile maps of one family"
    yield _row("Do dev and evaluation score agree in conf-soft?", found, basis)
    for key, question in (
        ("criterion_and_dev_score", "Does the criterion predict the dev score?"),
        ("gain_and_separability", "Does calibration gain more where domains are separable?"),
    ):
        found = stats.get(key) or {}
        machines = found.get("n_machines")
        basis = quantity(
            machines or found.get("n") or 0, "machine" if machines else "configuration"
        )
        yield _row(question, found, basis, found.get("p_naive"))


def _signal(word: str, signal: Mapping[str, Any]) -> Iterator[list[Any]]:
    """How far one signal predicts the evaluation score, from the plain to the strict answer."""
    whole = {"rho": signal["rho"], **(signal.get("family_block") or {})}
    basis = f"{quantity(signal['n'], 'configuration')}; families resampled"
    yield _row(f"Does {word} predict the evaluation score?", whole, basis)
    machines = signal.get("machine_bootstrap") or {}
    basis = f"{machines.get('n_dev')} and {machines.get('n_eval')} machines resampled"
    yield _row("… had other machines been recorded?", machines, basis)
    means = signal.get("family_means") or {}
    basis = f"{means.get('n_families')} family means permuted"
    yield _row("… between families alone?", means, basis, means.get("p_two_sided"))
    yield _row("… with any one family left out?", signal.get("leave_one_family_out") or {}, "range")
    for key, question in (
        ("conformal_only", "… among the quantile maps alone?"),
        ("without_conformal", "… without the quantile maps?"),
    ):
        found = signal.get(key) or {}
        yield _row(question, found, f"{found.get('n')} configurations")
    partial = signal.get("partial") or {}
    whole = partial.get("given_strength_and_family") or {}
    basis = "partial correlation; p counts near copies"
    yield _row("… beyond what m and the family tell?", whole, basis, whole.get("p_permutation"))
    inner = partial.get("conformal_given_strength_assignment_base") or {}
    basis = f"the same, of {inner.get('n')} configurations"
    question = "… among neighbours within the quantile maps?"
    yield _row(question, inner, basis, inner.get("p_permutation"))


def _row(
    question: str, found: Mapping[str, Any], basis: str, p_value: float | None = None
) -> list[Any]:
    return [question, found.get("rho"), found.get("low"), found.get("high"), p_value, basis]


def _is_ldn(name: str) -> bool:
    """Local density normalisation, as it is, under the default's calibration, or published."""
    try:
        config = ScoreConfig.parse(name)
    except ConfigError:
        return False
    if not config.scorer.startswith(("ldn", "dldn")):
        return False
    default = ScoreConfig.of(config.base, "conf", "soft", 0)
    published = config.scorer in ("ldn-ratio", "ldn-diff") and not config.bandwise
    return config.calibration is None or config == default or published
