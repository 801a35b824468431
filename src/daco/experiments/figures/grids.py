"""Configurations side by side: metrics of each machine as a heat map, and the two vetoes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from daco.evaluation.metrics import QUANTITIES
from daco.experiments.figures.style import (
    INK,
    MUTED,
    PALETTE,
    PAPER,
    TEXT_WIDTH,
    Look,
    look_of,
    number_panels,
    panels,
    shorten,
    show_reason,
    with_style,
)
from daco.experiments.highlights import chosen_config
from daco.method.grid_table import pivot_machines
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

CHANCE, FULL_COLOUR = 50.0, 45.0
"""Percent where the heat map is white, and points from there to its full colours."""

VETO_PANELS = {"pseudo": "pseudo score (label-free, %)", "dev": "dev score (official, %)"}
"""The panels of the vetoes' picture, and their horizontal axes."""

_COLOURS = LinearSegmentedColormap.from_list("daco", ["#f4a582", PAPER, "#92c5de"])
_TITLES = ("AUC source", "AUC target", "pAUC")
_CUT = PALETTE["orange"]
_ROW = 0.19  # inches


@with_style
def plot_heat(result: StudyTables, configs: Sequence[str], ax: Any = None) -> Figure:
    """Plot AUC of both domains and pAUC of every labelled machine under each of `configs`.

    Parameters
    ----------
    result : StudyTables
    configs : sequence of str
        Each takes three columns.
    ax : Axes, optional
        By default a new figure as wide as a page.

    Returns
    -------
    Figure
    """
    table = result.per_machine.dropna(subset=list(QUANTITIES))
    n_machines = len(table[["split", "machine"]].drop_duplicates())
    margins = {"left": 1.35, "top": 0.55, "bottom": 0.05, "right": 0.05}
    figure, (axes,) = panels(ax, 1, TEXT_WIDTH, 0.75 + 0.2 * max(n_machines, 1), **margins)
    if table.empty:
        show_reason(axes, "no labelled machines")
        return figure
    names: list[str] = []
    blocks, starts = [], []
    for split in dict.fromkeys(table["split"]):
        machines, _, values = pivot_machines(table, QUANTITIES, configs=configs, split=split)
        starts.append(len(names))
        names += machines
        blocks.append(values.reshape(len(machines), -1))
    grid = np.concatenate(blocks)
    low, high = CHANCE - FULL_COLOUR, CHANCE + FULL_COLOUR
    shades: Any = {"cmap": _COLOURS, "vmin": low, "vmax": high, "interpolation": "nearest"}
    axes.imshow(grid, aspect="auto", zorder=0, **shades)
    for row, column in np.ndindex(grid.shape):
        axes.text(column, row, f"{grid[row, column]:.1f}", ha="center", va="center", fontsize=6.5)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color=INK, linewidth=0.8)
    for column in range(3, grid.shape[1], 3):
        axes.axvline(column - 0.5, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(names)), [shorten(name, 18) for name in names])
    axes.set_xticks(range(grid.shape[1]), list(_TITLES) * len(configs))
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False, pad=2)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    for at, config in enumerate(configs):
        axes.text(3 * at + 1, -1.55, config, ha="center", va="bottom", fontweight="bold", color=INK)
    axes.tick_params(axis="x", labelcolor=MUTED, labelsize=6.5)
    axes.tick_params(axis="y", labelcolor=INK)
    return figure


@with_style
def plot_vetoes(result: StudyTables, ax: Any = None) -> Figure:
    """Plot pseudo scores, and dev scores, with their limits: two panels, a row for each method.

    Left of its line a configuration is cut by that veto, and drawn as a cross. The chosen one
    has a ring.

    Parameters
    ----------
    result : StudyTables
    ax : two Axes, optional
        By default a new figure as wide as a page.

    Returns
    -------
    Figure
    """
    height = veto_height(result)
    figure, axes = panels(ax, 2, TEXT_WIDTH, height, left=1.45, gap=0.25, bottom=0.4, top=0.26)
    for each, panel in zip(axes, VETO_PANELS, strict=True):
        draw_veto(each, result, panel)
    number_panels(axes)
    axes[1].tick_params(labelleft=False)
    return figure


def veto_height(result: StudyTables) -> float:
    """Height in inches of a panel with a row for each method."""
    return 0.75 + _ROW * len(_methods(result)[0])


def draw_veto(ax: Axes, result: StudyTables, panel: str) -> None:
    """Draw one panel of :func:`plot_vetoes`, a key of `VETO_PANELS`."""
    looks, rows = _methods(result)
    names = [str(name) for name in result.grid["config"]]
    values, limit, cut = _evidence(result, panel, names)
    ax.set_ylim(len(looks) - 0.4, -0.6)
    ax.set_yticks(range(len(looks)), [look.title for look in looks])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    if not np.isfinite(values).any():
        show_reason(ax, f"no {VETO_PANELS[panel]}")
        return
    y = rows + _spread(rows)
    is_cut = np.array([name in cut for name in names])
    for at in np.flatnonzero(np.isfinite(values) & ~is_cut):
        style = look_of(names[at]).style(3.6, linestyle="", markeredgewidth=0.7)
        ax.plot(values[at], y[at], **style)
    ax.plot(values[is_cut], y[is_cut], "x", color=_CUT, markersize=5, markeredgewidth=1.4, zorder=4)
    chosen = chosen_config(result)
    if chosen in names:
        row = names.index(chosen)
        ring: Any = {"markersize": 10, "fillstyle": "none", "markeredgewidth": 0.9}
        ax.plot(values[row], y[row], "o", color=INK, linestyle="", zorder=5, **ring)
    if limit is not None:
        ax.axvline(limit, color=_CUT, linewidth=1, linestyle=(0, (4, 2)), zorder=2)
    ax.margins(x=0.06)
    ax.set_xlabel(VETO_PANELS[panel])
    veto, without = (
        ("dev-score veto", "none") if panel == "dev" else ("label-free veto", "abstains")
    )
    n_cut = int(is_cut.sum())
    ax.set_title(f"{veto}: {without if limit is None and not n_cut else f'{n_cut} cut'}")
    ax.grid(axis="y", visible=False)
    for between in np.arange(0.5, len(looks) - 1):
        ax.axhline(between, color=MUTED, linewidth=0.3, alpha=0.5, zorder=1)


def _evidence(
    result: StudyTables, panel: str, names: Sequence[str]
) -> tuple[Float64s, float | None, set[str]]:
    """Scores, the limit, and the configurations that are cut."""
    unknown = np.full(len(names), np.nan)
    if panel == "dev":
        veto = result.selection.get("veto") or {}
        if "dev_omega" not in result.grid:
            return unknown, None, set()
        values = result.grid["dev_omega"].to_numpy(dtype=float)
        return values, veto.get("floor"), set(veto.get("removed") or ())
    label_free = result.selection.get("label_free_veto")
    if label_free is None:
        return unknown, None, set()
    scores = {row["config"]: row["pseudo_score"] for row in label_free["configs"]}
    values = np.array([scores.get(name, np.nan) for name in names], float)
    return values, label_free["limit"], set(label_free["cut"])


def _methods(result: StudyTables) -> tuple[list[Look], Float64s]:
    """The looks of the grid in its order, and the row of each configuration."""
    looks = [look_of(str(name)) for name in result.grid["config"]]
    by_title = {look.title: look for look in looks}
    order = list(by_title)
    return list(by_title.values()), np.array([order.index(look.title) for look in looks], float)


def _spread(rows: Float64s) -> Float64s:
    """Small steps up and down, so that equal scores in a row can be distinguished."""
    steps = np.zeros(len(rows))
    for row in np.unique(rows):
        at = np.flatnonzero(rows == row)
        if len(at) > 1:
            steps[at] = np.resize([0.0, -0.2, 0.2, -0.1, 0.1, -0.3, 0.3], len(at))
    return steps
