"""Pictures of a study: each function takes one of its tables and returns a Figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.experiments.figures.style import (
    DOMAINS,
    INK,
    METHODS,
    MUTED,
    PALETTE,
    SETS,
    Look,
    look_of,
    new_figure,
    shorten,
    with_style,
)

SHOWN = 12
"""Configurations that a picture of the resamples names."""

_ROW = 0.17  # inches
_DOTTED: Any = (0, (1, 2))
_RING: Any = {"marker": "o", "markersize": 10, "fillstyle": "none", "markeredgewidth": 1.0}
_AXES = {
    "criterion_dev": "criterion on development machines (better to the right)",
    "dev_score": "score of the development machines, %",
}
_LABELS = {
    0: Look("normal clips", PALETTE["green"], "o"),
    1: Look("anomalies", PALETTE["orange"], "D"),
    -1: Look("clips without a label", MUTED, "s"),
}


@with_style
def plot_transfer(grid: pd.DataFrame, x: str, marked: Mapping[str, str] | None = None) -> Figure:
    """Evaluation score of every configuration against what was known before, the column `x`.

    The criterion is drawn from large to small, so that better is to the right. Configurations that
    are `marked` get a ring and their text.
    """
    figure, ax = new_figure(3.2)
    known = grid.dropna(subset=[x, "eval_score"])
    looks = known["configuration"].map(look_of)
    for look in [each for each in METHODS.values() if each in set(looks)]:
        rows = known[looks == look]
        ax.plot(rows[x], rows["eval_score"], label=look.title, **look.style(4.8, linestyle=""))
    for name, text in (marked or {}).items():
        rows = known[known["configuration"] == name]
        for place in zip(rows[x], rows["eval_score"], strict=True):
            ax.plot(*place, color=INK, zorder=4, **_RING)
            ax.annotate(text, place, (0, 7), textcoords="offset points", ha="center", zorder=5)
    if x == "criterion_dev":
        ax.invert_xaxis()
    ax.margins(0.1, 0.12)
    ax.set_xlabel(_AXES[x])
    ax.set_ylabel("score of the evaluation machines, %")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@with_style
def plot_frontier(frontier: pd.DataFrame) -> Figure:
    """AUC of both domains along the strength m of the calibration, by set of machines."""
    figure, ax = new_figure(3.2)
    for name, rows in frontier.groupby("set", sort=False):
        look = SETS[str(name)]
        line = rows[rows["m"].notna() | (rows["configuration"] == "raw-k1")]
        ax.plot(line["auc_source"], line["auc_target"], label=look.title, **look.style(4.5))
        for row in line.to_dict("records"):
            text = "raw" if np.isnan(row["m"]) else f"m={row['m']:g}"
            place = (row["auc_source"], row["auc_target"])
            ax.annotate(text, place, (5, 3), textcoords="offset points", fontsize=6)
        for row in rows.drop(line.index).to_dict("records"):
            label = f"{row['configuration']}, {look.title.split()[0]}"
            open_mark = look.style(5, linestyle="", fillstyle="none")
            ax.plot(row["auc_source"], row["auc_target"], label=label, **open_mark)
    ax.margins(0.16, 0.1)
    ax.set_xlabel("mean AUC of the source domain, %")
    ax.set_ylabel("mean AUC of the target domain, %")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@with_style
def plot_coverage(coverage: pd.DataFrame, level: float) -> Figure:
    """Realised false-alarm rates of both domains at a nominal level, a row for each way to decide.

    Small marks are machines, large ones their mean.
    """
    rows = coverage[np.isclose(coverage["level"], level)].set_index(["configuration", "decision"])
    kinds = rows.index.drop_duplicates().tolist()
    figure, ax = new_figure(0.9 + 0.42 * len(kinds))
    ax.axvline(100 * level, color=INK, linewidth=1, linestyle=_DOTTED, zorder=1)
    domains = sorted(rows["domain"].unique())
    for domain, shift in zip(domains, (-0.15, 0.15) if len(domains) > 1 else (0.0,), strict=False):
        look = DOMAINS.get(domain, Look(domain, INK))
        part = rows[rows["domain"] == domain]
        y = np.array([kinds.index(key) for key in part.index]) + shift
        small = look.style(2.6, linestyle="", alpha=0.4, markeredgewidth=0)
        ax.plot(100 * part["rate"], y, **small)
        means = part["rate"].groupby(level=[0, 1]).mean()
        y = np.array([kinds.index(key) for key in means.index]) + shift
        ax.plot(100 * means, y, label=f"{look.title} domain", **look.style(6, linestyle=""))
    ax.set_yticks(range(len(kinds)), [f"{shorten(name)}\n{how}" for name, how in kinds])
    ax.set_ylim(len(kinds) - 0.5, -0.5)
    ax.margins(x=0.04)
    ax.set_xlabel(f"false alarms, % of test normals (dotted: {100 * level:g} %)")
    ax.grid(axis="y", visible=False)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@with_style
def plot_machines(scores: pd.DataFrame) -> Figure:
    """Score of every machine (rows) under a few configurations (columns)."""
    figure, ax = new_figure(0.9 + _ROW * len(scores))
    looks = _distinct_looks([str(name) for name in scores])
    rows = np.arange(len(scores))
    ax.hlines(rows, scores.min(axis=1), scores.max(axis=1), color=PALETTE["silver"], linewidth=1)
    for name, look in looks.items():
        ax.plot(scores[name], rows, label=shorten(name), **look.style(4.8, linestyle=""))
    ax.axvline(50, color=MUTED, linewidth=1, linestyle=_DOTTED, zorder=1)
    _name_rows(ax, [str(name) for name in scores.index])
    ax.set_xlabel("score, % (dotted: chance)")
    figure.legend(loc="outside lower center", ncols=2)
    return figure


@with_style
def plot_decisions(clips: pd.DataFrame, p_values: str, rate: float) -> Figure:
    """P-values of the test clips of every machine: median and middle 80 % by label."""
    machines = clips["machine"].drop_duplicates().tolist()
    figure, ax = new_figure(0.9 + 1.6 * _ROW * len(machines))
    keys = [clips["machine"], clips["label"].fillna(-1).astype(int)]
    spread = clips.groupby(keys)[p_values].quantile(np.array([0.1, 0.5, 0.9])).unstack()
    for (label, look), shift in zip(_LABELS.items(), (-0.17, 0.17, 0), strict=True):
        rows = spread[spread.index.get_level_values("label") == label].dropna()
        if rows.empty:
            continue
        y = [machines.index(name) + shift for name in rows.index.get_level_values("machine")]
        ax.hlines(y, rows[0.1], rows[0.9], color=look.colour, linewidth=2.2, alpha=0.45)
        ax.plot(rows[0.5], y, label=look.title, **look.style(4.5, linestyle=""))
    ax.axvline(rate, color=INK, linewidth=1, linestyle=_DOTTED, zorder=1)
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_xlim(max(float(clips[p_values].min()), 1e-4) / 1.3, 1.15)
    ax.invert_xaxis()
    _name_rows(ax, machines)
    ax.set_xlabel(f"p-value (right of the dotted line, {rate:g}: anomalous)")
    figure.legend(loc="outside lower center", ncols=3)
    return figure


@with_style
def plot_stability(stability: pd.DataFrame) -> Figure:
    """How many resamples pick each configuration; the first rows of the table are drawn."""
    rows = stability[stability["picked"] > 0].head(SHOWN)
    figure, ax = new_figure(0.6 + _ROW * len(rows))
    looks = [look_of(str(name)) for name in rows["configuration"]]
    bars = ax.barh(range(len(rows)), rows["picked"], color=[look.colour for look in looks])
    ax.bar_label(bars, padding=3)
    _name_rows(ax, rows["configuration"].tolist())
    ax.margins(x=0.1)
    ax.set_xlabel("resamples that pick it")
    return figure


def _name_rows(ax: Axes, names: Sequence[str]) -> None:
    """Names of rows, from the top."""
    ax.set_yticks(range(len(names)), [shorten(name, 22) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.grid(axis="y", visible=False)


def _distinct_looks(names: Sequence[str]) -> dict[str, Look]:
    """The look of each configuration; markers that occur twice are replaced."""
    spare = iter("^vD*Xp")
    looks: dict[str, Look] = {}
    for name in names:
        look = look_of(name)
        taken = any(look.marker == each.marker for each in looks.values())
        marker = next(spare, "o") if taken else look.marker
        looks[name] = Look(name, look.colour, marker)
    return looks
