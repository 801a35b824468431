"""Where calibration pays: the gain of target AUC against how separable the domains are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.evaluation.statistics import spearman
from daco.experiments.figures.labels import label_points
from daco.experiments.figures.style import (
    COLUMN_WIDTH,
    MUTED,
    SPLITS,
    panels,
    say_nothing_to_show,
    shortened,
    styled,
)

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables


NAMED = 40
"""Machines beyond which names would hide the points."""


@styled
def plot_gain_separability(result: StudyTables, ax: Any = None) -> Figure:
    """Each machine's gain in target AUC (``conf-soft-m0-k1`` over ``raw-k1``) by separability.

    Separability is the balanced accuracy with which a training normal's nearest neighbour tells
    its domain. Circles are development machines, triangles evaluation machines.

    Parameters
    ----------
    result : StudyTables
    ax : Axes, optional
        By default a new figure as wide as a column.
    """
    figure, axes = panels(ax, 1, COLUMN_WIDTH, 2.9)
    draw_gain_separability(axes[0], result)
    return figure


def draw_gain_separability(ax: Axes, result: StudyTables) -> None:
    """The machines; named, unless there are too many."""
    wanted = ["separability_train", "target_auc_gain"]
    table = result.diagnostics
    if table.empty or not set(wanted) <= set(table):
        say_nothing_to_show(ax, "no diagnostics")
        return
    table = table.dropna(subset=wanted)
    if table.empty:
        say_nothing_to_show(ax, "no labelled machines, so no gain")
        return
    for split, rows in table.groupby("split", sort=False):
        look = SPLITS[str(split)]
        ax.plot(
            rows["separability_train"],
            rows["target_auc_gain"],
            linestyle="",
            marker=look.marker,
            color=look.colour,
            markersize=5,
            label=look.title,
            zorder=3,
        )
    x, y = (table[name].to_numpy(dtype=float) for name in wanted)
    room = max(float(np.ptp(x)), 0.1) * 0.14
    ax.set_xlim(x.min() - room, x.max() + room)
    ax.margins(y=0.15)
    ax.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
    ax.set_xlabel("domain separability of training normals")
    ax.set_ylabel("gain in target AUC (points)")
    if len(x) > 2 and np.ptp(x) and np.ptp(y):
        ax.set_title(f"ρ = {spearman(x, y):+.2f} over {len(x)} machines".replace("-", "−"))
    ax.legend(loc="best")
    if len(x) > NAMED:
        return
    colours = [SPLITS[str(split)].colour for split in table["split"]]
    names = [shortened(str(name)) for name in table["machine"]]
    zero_line = np.column_stack([np.linspace(*ax.get_xlim(), 60), np.zeros(60)])
    label_points(ax, x, y, names, colours=colours, avoid=zero_line)
