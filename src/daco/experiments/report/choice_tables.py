"""Tables about the choice: rules and their picks, vetoes, configurations, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from daco.errors import ConfigError
from daco.experiments.figures.style import look_of
from daco.experiments.grid_table import viable_within
from daco.experiments.report.table import TEXTS, ReportTable, known_columns
from daco.experiments.tables import format_cell
from daco.experiments.veto import ROLES
from daco.method.config import PAPER_CONFIG, RAW_CONFIG, ScoreConfig
from daco.method.selection import CRITERION_DIGITS, Rule, choose

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

_SCORES = ("dev_omega", "eval_omega", "crit_dev")
_DEV_VETO, _LABEL_FREE_VETO = "dev-score veto", "label-free veto"
_OBEYED = {
    "paper": [_DEV_VETO],
    "dev": [_DEV_VETO],
    "faults": [_LABEL_FREE_VETO],
    "both": [_DEV_VETO, _LABEL_FREE_VETO],
}


def selection_table(result: StudyTables) -> ReportTable:
    """What every rule picked, which labels it read, what the pick scores."""
    rows = result.selection.get("rows") or []
    names = ["rule", "config", "eval_omega", "dev_omega", "crit_dev", "crit_eval", "labels"]
    frame = pd.DataFrame(rows, columns=names)
    frame["what it does"] = [
        TEXTS["selection"]["rules"].get(row["rule"], "")
        + ("" if row.get("eval_sd") is None else f" (sd {row['eval_sd']:.2f})")
        for row in rows
    ]
    return ReportTable("selection", frame.dropna(axis=1, how="all"))


def difference_table(result: StudyTables) -> ReportTable:
    """The chosen configuration against the others, with intervals."""
    rows = [
        {**delta, "against": delta.get("against") or delta["second"], "config": delta["second"]}
        for delta in result.selection.get("deltas") or []
        if delta["first"] != delta["second"]
    ]
    names = ["against", "config", "delta", "low", "high", "loo_low", "loo_high", "method"]
    return ReportTable("differences", pd.DataFrame(rows, columns=names).dropna(axis=1, how="all"))


def stability_table(result: StudyTables) -> ReportTable:
    """What resamples of splits and clips would have picked."""
    resamples = result.selection.get("resamples")
    if not resamples:
        return ReportTable("stability", pd.DataFrame())
    rows = [{"config": name, "picked": n} for name, n in resamples["picks"].items()]
    scores = _with_scores(result.grid, "crit_dev", "dev_omega", "eval_omega")
    return ReportTable("stability", pd.DataFrame(rows).merge(scores, on="config", how="left"))


# Configurations


def grid_table(result: StudyTables) -> ReportTable:
    """All configurations."""
    frame = _with_scores(result.grid, *_SCORES, "crit_eval")
    frame.insert(1, "method", [look_of(name).title for name in frame["config"]])
    frame.insert(2, "family", [family_of(name) for name in frame["config"]])
    return ReportTable("configurations", frame)


def _with_scores(grid: pd.DataFrame, *names: str) -> pd.DataFrame:
    return grid[["config", *(name for name in names if name in grid)]].astype({"config": str})


def family_of(name: str) -> str:
    """The family that block statistics resample; a name of the study's own is one by itself."""
    try:
        return ScoreConfig.parse(name).family
    except ConfigError:
        return name


def family_table(result: StudyTables) -> ReportTable:
    """Families of configurations, and of each the one of smallest criterion."""
    grid = result.grid.reset_index(drop=True)
    families = [family_of(str(name)) for name in grid["config"]]
    groups = grid.groupby(families, sort=False)
    if len(groups) == 1:
        return ReportTable("families", pd.DataFrame())
    scores = [name for name in ("dev_omega", "eval_omega") if name in grid]
    criterion = grid.get("crit_dev", pd.Series(np.nan, grid.index))
    best = criterion.fillna(np.inf).groupby(families, sort=False).idxmin()
    shown = ["config", "crit_dev", *scores] if criterion.notna().any() else scores
    frame = grid.loc[best, shown].set_axis(best.index)
    frame.insert(0, "count", groups.size())
    for name in scores:
        frame[f"{name}_range"] = groups[name].agg(_range)
    return ReportTable("families", frame.rename_axis("family").reset_index())


def _range(values: pd.Series) -> str | None:
    known = values.dropna()
    if known.empty:
        return None
    low, high = f"{known.min():.1f}", f"{known.max():.1f}"
    return low if low == high else f"{low} to {high}"


def ldn_table(result: StudyTables) -> ReportTable:
    """E5: calibration against local density normalisation, and both."""
    frame = _with_scores(result.grid, *_SCORES).set_index("config", drop=False)
    local = [name for name in frame.index if _is_ldn(name)]
    others = (RAW_CONFIG, "zscore-soft-k1", "ratio-soft-k1", PAPER_CONFIG)
    frame = frame.loc[[*(name for name in others if local and name in frame.index), *local]]
    frame.insert(1, "method", [look_of(name).title for name in frame.index])
    return ReportTable("ldn", frame)


def _is_ldn(name: str) -> bool:
    """Local density normalisation, calibrated or not."""
    try:
        config = ScoreConfig.parse(name)
    except ConfigError:
        return False
    return config.scorer.startswith("ldn")


# The two vetoes


def vetoes(result: StudyTables) -> dict[str, Any] | None:
    """What each veto excludes, and what the label-free one would pick; plain JSON."""
    veto = result.selection.get("label_free_veto")
    if veto is None:
        return None
    by_dev, label_free = _excluded(result)
    copied = ("basis", "limit", "median", "plain", "notes", "picks", "chosen_passes")
    return {
        "obeyed": _OBEYED[result.selection.get("guard", "both")],
        **{key: veto[key] for key in copied},
        "n_machines": len(veto["machines"]),
        "has_dev_veto": result.selection.get("veto") is not None,
        "n_dev": len(by_dev),
        "n_heard": len(label_free),
        "n_both": len(by_dev & label_free),
    }


def _excluded(result: StudyTables) -> tuple[set[str], set[str]]:
    """What the dev-score veto excludes, and what the label-free veto does."""
    dev, label_free = (result.selection.get(key) or {} for key in ("veto", "label_free_veto"))
    return set(dev.get("removed") or ()), set(label_free.get("cut") or ())


def veto_table(result: StudyTables) -> ReportTable:
    """Every configuration that a veto excludes."""
    veto = result.selection.get("label_free_veto")
    if veto is None:
        return ReportTable("vetoes", pd.DataFrame())
    by_dev, label_free = _excluded(result)
    frame = _with_scores(result.grid, *_SCORES)
    frame = frame[frame["config"].isin(by_dev | label_free)]
    words = {(True, True): "both", (True, False): _DEV_VETO, (False, True): _LABEL_FREE_VETO}
    by = [words[name in by_dev, name in label_free] for name in frame["config"]]
    scores = {row["config"]: row["pseudo_score"] for row in veto["configs"]}
    frame.insert(1, "by", by)
    frame.insert(2, "pseudo_score", frame["config"].map(scores))
    return ReportTable("vetoes", frame.dropna(axis=1, how="all"))


def role_table(result: StudyTables) -> ReportTable:
    """The label-free veto of development and evaluation machines, each by themselves."""
    by_role = (result.selection.get("label_free_veto") or {}).get("by_role") or {}
    rows = [
        {**veto, "split": ROLES.get(role, role), "count": len(veto["cut"])}
        for role, veto in by_role.items()
    ]
    names = ["split", "basis", "plain", "median", "limit", "count"]
    return ReportTable("vetoes_by_role", pd.DataFrame(rows, columns=names))


def form_table(result: StudyTables) -> ReportTable:
    """The other form of the dev-score veto: within delta points of the best dev score."""
    veto = result.selection.get("veto")
    if veto is None or not {"dev_omega", "crit_dev"} <= set(result.grid):
        return ReportTable("veto_forms", pd.DataFrame())
    grid = result.grid.dropna(subset=["dev_omega", "crit_dev"]).set_index("config", drop=False)
    grid["crit_dev"] = grid["crit_dev"].round(CRITERION_DIGITS)
    dev = grid["dev_omega"]
    rows: dict[str, dict[str, Any]] = {}
    for delta in sorted(set(dev.max() - dev)):
        mask = viable_within(dev, delta)
        kept = grid[mask]
        table = {"config": kept["config"], "criterion": kept["crit_dev"]}
        pick = choose(table, Rule.CRITERION).config
        rows.setdefault(pick, {"config": pick, "delta": delta, "count": int(mask.sum())})
    scores = known_columns(grid.loc[list(rows)], ["crit_dev", "dev_omega", "eval_omega"])
    note = ""
    if veto["floor"] is not None:
        points = format_cell(dev.max() - veto["floor"])
        note = f"The veto of this study keeps what is less than {points} points below."
    return ReportTable("veto_forms", pd.DataFrame(rows.values(), list(rows)).join(scores), note)


# Statistics


def statistics_table(result: StudyTables) -> ReportTable:
    """Correlations in plain language."""
    texts, rows = TEXTS["statistics"], []
    for key, word in (("criterion", "the criterion"), ("dev_score", "the dev score")):
        signal = (result.stats.get("signals") or {}).get(key)
        if signal:
            block = {"rho": signal["rho"], **(signal.get("family_block") or {}), "n": signal["n"]}
            signal = {**signal, "family_block": block}
            rows += [_answer(signal, **question, signal=word) for question in texts["signal"]]
    rows += [_answer(result.stats, **question) for question in texts["study"]]
    names = ["question", "value", "low", "high", "p", "based on"]
    return ReportTable("statistics", pd.DataFrame([row for row in rows if row], columns=names))


def _answer(
    stats: Mapping[str, Any], question: str, at: str, basis: str, p: str = "", signal: str = ""
) -> list[Any]:
    """A row of the table; empty where there is no answer."""
    for key in at.split("."):
        stats = stats.get(key) or {}
    numbers = [stats.get(key) for key in ("rho", "low", "high", p)]
    if numbers[:2] == [None, None]:
        return []
    return [question.format(signal=signal), *numbers, basis.format(**stats)]
