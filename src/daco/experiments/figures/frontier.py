"""The balance frontier: mean source against mean target AUC along the prior strength m."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.experiments.figures.labels import label_points
from daco.experiments.figures.style import (
    COLUMN_WIDTH,
    MUTED,
    SPLITS,
    panels,
    say_nothing_to_show,
    styled,
)

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables


@styled
def plot_frontier(result: StudyTables, ax: Any = None) -> Figure:
    """Mean source against mean target AUC from the raw ranking to full equalisation (m = 0).

    Parameters
    ----------
    result : StudyTables
    ax : Axes, optional
        By default a new figure as wide as a column.
    """
    figure, axes = panels(ax, 1, COLUMN_WIDTH, 2.9)
    draw_frontier(axes[0], result)
    return figure


def draw_frontier(ax: Axes, result: StudyTables) -> None:
    """The curves of all splits with labels, and the diagonal of equal AUC."""
    table = result.frontier
    if table.empty:
        say_nothing_to_show(ax, "no labelled machines, so no frontier")
        return
    points: list[tuple[float, float]] = []
    along: list[tuple[float, float]] = []
    labels: list[str] = []
    colours: list[str] = []
    for split, rows in table.groupby("split", sort=False):
        look = SPLITS[str(split)]
        x = rows["mean_auc_source"].to_numpy(dtype=float)
        y = rows["mean_auc_target"].to_numpy(dtype=float)
        variants = [str(variant) for variant in rows["variant"]]
        curve = np.array([variant == "raw" or variant.startswith("daco") for variant in variants])
        ax.plot(
            x[curve],
            y[curve],
            color=look.colour,
            marker=look.marker,
            linestyle=look.line,
            markersize=4.5,
            label=look.title,
            zorder=3,
        )
        ax.plot(
            x[~curve],
            y[~curve],
            color=look.colour,
            marker=look.marker,
            fillstyle="none",
            linestyle="",
            markersize=5.5,
            zorder=3,
        )
        points += zip(x, y, strict=True)
        along += _along(x[curve], y[curve])
        labels += [_label(variant) for variant in variants]
        colours += [look.colour] * len(variants)
    xs, ys = np.array(points).T
    ax.set_xlim(*_padded(xs, 0.12))
    ax.set_ylim(*_padded(ys, 0.12))
    ax.axline((50, 50), slope=1, color=MUTED, linestyle=(0, (1, 2)), linewidth=0.9, zorder=1)
    ax.set_xlabel("mean AUC, source (%)")
    ax.set_ylabel("mean AUC, target (%)")
    ax.legend(loc="best")
    label_points(ax, xs, ys, labels, colours=colours, avoid=along)


def _along(x: Any, y: Any, steps: int = 8) -> list[tuple[float, float]]:
    """Places on the line through the points, which labels should leave free."""
    at = np.linspace(0, len(x) - 1, steps * len(x))
    index = np.arange(len(x))
    return list(zip(np.interp(at, index, x), np.interp(at, index, y), strict=True))


def _label(variant: str) -> str:
    if variant.startswith("daco-m"):
        return f"m={variant.removeprefix('daco-m')}"
    return {"ratio-soft": "median ratio"}.get(variant, variant)


def _padded(values: Any, share: float) -> tuple[float, float]:
    room = max(float(np.ptp(values)), 1.0) * share
    return float(np.min(values)) - room, float(np.max(values)) + room
