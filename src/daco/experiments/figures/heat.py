"""Per-machine results as a table with heat: chance is white, better is blue, worse is orange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from daco.evaluation.metrics import QUANTITIES
from daco.experiments.figures.style import (
    INK,
    MUTED,
    PAPER,
    TEXT_WIDTH,
    panels,
    say_nothing_to_show,
    shortened,
    styled,
)
from daco.method.grid_table import pivot_machines

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

CHANCE = 50.0
REACH = 45.0
"""Points away from chance where the colour is full."""

_COLOURS = LinearSegmentedColormap.from_list("daco", ["#f4a582", PAPER, "#92c5de"])
_TITLES = ("AUC source", "AUC target", "pAUC")


@styled
def plot_heat(result: StudyTables, configs: Sequence[str], ax: Any = None) -> Figure:
    """AUC of both domains and pAUC of every labelled machine under each of `configs`.

    Parameters
    ----------
    result : StudyTables
    configs : sequence of str
        Each takes three columns.
    ax : Axes, optional
        By default a new figure as wide as a page.
    """
    table = result.per_machine.dropna(subset=list(QUANTITIES))
    n_machines = len(table[["split", "machine"]].drop_duplicates())
    height = 0.75 + 0.2 * max(n_machines, 1)
    figure, (axes,) = panels(
        ax, 1, TEXT_WIDTH, height, left=1.35, top=0.55, bottom=0.05, right=0.05
    )
    if table.empty:
        say_nothing_to_show(axes, "no labelled machines")
        return figure
    names: list[str] = []
    blocks = []
    starts = []
    for split in dict.fromkeys(table["split"]):
        machines, _, values = pivot_machines(table, QUANTITIES, configs=configs, split=split)
        starts.append(len(names))
        names += machines
        blocks.append(values.reshape(len(machines), -1))
    grid = np.concatenate(blocks)
    axes.imshow(
        grid,
        aspect="auto",
        cmap=_COLOURS,
        vmin=CHANCE - REACH,
        vmax=CHANCE + REACH,
        interpolation="nearest",
        zorder=0,
    )
    for row, column in np.ndindex(grid.shape):
        axes.text(column, row, f"{grid[row, column]:.1f}", ha="center", va="center", fontsize=6.5)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color=INK, linewidth=0.8)
    for column in range(3, grid.shape[1], 3):
        axes.axvline(column - 0.5, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), [shortened(name, 18) for name in names])
    axes.set_xticks(range(grid.shape[1]), list(_TITLES) * len(configs))
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False, pad=2)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for at, config in enumerate(configs):
        axes.text(3 * at + 1, -1.55, config, ha="center", va="bottom", fontweight="bold", color=INK)
    axes.tick_params(axis="x", labelcolor=MUTED, labelsize=6.5)
    axes.tick_params(axis="y", labelcolor=INK)
    return figure
