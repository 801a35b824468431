"""The transfer picture: what predicts the evaluation score, dev score or criterion."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from daco.evaluation.statistics import spearman
from daco.experiments.figures.labels import label_points
from daco.experiments.figures.style import (
    INK,
    TEXT_WIDTH,
    Look,
    look_of,
    panels,
    say_nothing_to_show,
    styled,
)
from daco.method.config import DEFAULT_CONFIG
from daco.method.grid_table import numbers

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

PREDICTORS = {"dev": "dev_omega", "criterion": "crit_dev"}
"""The two panels, and the column of the grid each has on its horizontal axis."""

_LEGEND_COLUMNS, _LEGEND_ROW = 6, 0.15  # inches

_SIGNALS = {"dev": "dev_score", "criterion": "criterion"}  # as in stats.json

_AXES = {
    "dev": "dev score (official, %)",
    "criterion": "criterion on dev machines (better to the right)",
}


@styled
def plot_transfer(result: StudyTables, ax: Any = None) -> Figure:
    """Two panels over all configurations: dev score, and criterion, against evaluation score.

    Parameters
    ----------
    result : StudyTables
    ax : two Axes, optional
        By default a new figure as wide as a page.

    Returns
    -------
    Figure
        Each point's ``gid`` is its panel and its row in the grid, such as ``"dev-0"``.
    """
    legend = legend_of(result.grid["config"])
    further = _LEGEND_ROW * (-(-len(legend) // _LEGEND_COLUMNS) - 1)
    figure, axes = panels(ax, 2, TEXT_WIDTH, 3.1 + further, bottom=0.62 + further, top=0.24)
    for letter, each, predictor in zip("ab", axes, PREDICTORS, strict=True):
        draw_transfer(each, result, predictor)
        each.set_title(f"({letter}) {each.get_title(loc='left')}", loc="left")
    if ax is None:
        figure.legend(handles=legend, loc="lower center", ncols=_LEGEND_COLUMNS)
    return figure


def draw_transfer(ax: Axes, result: StudyTables, predictor: str) -> None:
    """One panel: `predictor` is a key of `PREDICTORS`."""
    grid = result.grid
    column = PREDICTORS[predictor]
    names = [str(name) for name in grid["config"]]
    x, y = (
        numbers(name, grid[name], len(names), allow_nan=True)
        if name in grid
        else np.full(len(names), np.nan)
        for name in (column, "eval_omega")
    )
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        lacking = _AXES[predictor] if np.isfinite(y).any() else "evaluation score"
        say_nothing_to_show(ax, f"no {lacking}")
        return
    for row in np.flatnonzero(known):
        look = look_of(names[row])
        ax.plot(x[row], y[row], **marker_of(look), linestyle="", gid=f"{predictor}-{row}", zorder=3)
    if predictor == "criterion":
        ax.invert_xaxis()
    ax.margins(0.07, 0.1)
    ax.autoscale_view()
    ax.set_xlabel(_AXES[predictor])
    ax.set_ylabel("evaluation score (official, %)")
    ax.set_title(_correlation(result.stats, predictor, x, y))
    marked = {names.index(name): text for name, text in roles(result).items() if name in names}
    at = [row for row in marked if known[row]]
    ax.plot(
        x[at],
        y[at],
        marker="o",
        markersize=9.5,
        color=INK,
        fillstyle="none",
        markeredgewidth=0.9,
        linestyle="",
        zorder=4,
    )
    others = np.column_stack([x[known], y[known]])
    label_points(ax, x[at], y[at], [marked[row] for row in at], avoid=others, gap=2.5)


def roles(result: StudyTables) -> dict[str, str]:
    """Configurations that a rule picked, and what they are called in pictures."""
    found: dict[str, list[str]] = {}
    chosen = result.selection.get("chosen") or {}
    if chosen.get("config"):
        found.setdefault(chosen["config"], []).append("chosen")
    titles = {"dev score": "dev pick", "oracle": "oracle"}
    for row in result.selection.get("rows", []):
        if row.get("config") and row["rule"] in titles:
            found.setdefault(row["config"], []).append(titles[row["rule"]])
    if DEFAULT_CONFIG in set(result.grid["config"]):
        found.setdefault(DEFAULT_CONFIG, []).append("default")
    return {config: " = ".join(texts) for config, texts in found.items()}


def legend_of(configs: Iterable[str]) -> list[Line2D]:
    """A handle for each method among `configs`."""
    looks: dict[str, Look] = {}
    for config in configs:
        look = look_of(str(config))
        looks.setdefault(look.title, replace(look, fill="full"))
    return [
        Line2D([], [], **marker_of(look), linestyle="", label=name) for name, look in looks.items()
    ]


def marker_of(look: Look, size: float = 4.8) -> dict[str, Any]:
    """How Matplotlib is told to draw a point with this look."""
    return {
        "marker": look.marker,
        "markersize": size,
        "color": look.colour,
        "fillstyle": look.fill,
        "markeredgewidth": 0.9,
    }


def _correlation(stats: Mapping[str, Any], predictor: str, x: Any, y: Any) -> str:
    """Spearman's correlation with its interval over families, if the study has it."""
    known = (stats.get("signals") or {}).get(_SIGNALS[predictor]) or {}
    rho = known.get("rho")
    if rho is None:
        both = np.isfinite(x) & np.isfinite(y)
        sign = -1 if predictor == "criterion" else 1
        rho = spearman(sign * x[both], y[both]) if both.sum() > 2 else np.nan
    if np.isnan(rho):
        return "no correlation: too few configurations"
    block = known.get("family_block") or {}
    interval = ""
    if block.get("low") is not None:
        level = f"{100 * block['level']:.0f} %"
        interval = f", {level} [{block['low']:+.2f}, {block['high']:+.2f}]"
    return f"ρ = {rho:+.2f}{interval}".replace("-", "−")
