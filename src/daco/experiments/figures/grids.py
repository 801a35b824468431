"""Configurations side by side: metrics of each machine as a heat map, and the two vetoes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from daco.experiments.analysis import quantities_in, quantity_title
from daco.experiments.figures.style import (
    INK,
    MUTED,
    PALETTE,
    PAPER,
    TEXT_WIDTH,
    look_of,
    number_panels,
    panels,
    shorten,
    show_reason,
    with_style,
)
from daco.experiments.grid_table import pivot_machines
from daco.experiments.highlights import chosen_config
from daco.validation import Float64s, Indices

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

CHANCE, FULL_COLOUR = 50.0, 45.0
"""Percent where the heat map is white, and points from there to its full colours."""

VETO_PANELS = {"pseudo": "pseudo score (label-free, %)", "dev": "dev score (official, %)"}
"""The panels of the vetoes' picture, and their horizontal axes."""

_COLOURS = LinearSegmentedColormap.from_list("daco", ["#f4a582", PAPER, "#92c5de"])
_EXCLUDED = PALETTE["orange"]
_ROW = 0.19  # inches


@with_style
def plot_heat(result: StudyTables, configs: Sequence[str], ax: Any = None) -> Figure:
    """Plot the metrics of every labelled machine under each of `configs`.

    Parameters
    ----------
    result : StudyTables
    configs : sequence of str
        Each takes a column for every metric.
    ax : Axes, optional
        By default a new figure as wide as a page.

    Returns
    -------
    Figure
    """
    table = result.labelled
    quantities = quantities_in(table)
    n_machines = len(table[["split", "machine"]].drop_duplicates())
    margins = {"left": 1.35, "top": 0.55, "bottom": 0.05, "right": 0.05}
    figure, (axes,) = panels(ax, 1, TEXT_WIDTH, 0.75 + 0.2 * max(n_machines, 1), **margins)
    if table.empty:
        show_reason(axes, "no labelled machines")
        return figure
    names: list[str] = []
    blocks = []
    for split in dict.fromkeys(table["split"]):
        machines, _, values = pivot_machines(table, quantities, configs=configs, split=split)
        if names:
            axes.axhline(len(names) - 0.5, color=INK, linewidth=0.8)
        names += machines
        blocks.append(values.reshape(len(machines), -1))
    grid = np.concatenate(blocks)
    low, high = CHANCE - FULL_COLOUR, CHANCE + FULL_COLOUR
    shades: Any = {"cmap": _COLOURS, "vmin": low, "vmax": high, "interpolation": "nearest"}
    axes.imshow(grid, aspect="auto", zorder=0, **shades)
    for (row, column), value in np.ndenumerate(grid):
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", fontsize=6.5)
    width = len(quantities)
    for at, config in enumerate(configs):
        middle = width * at + (width - 1) / 2
        axes.text(middle, -1.55, config, ha="center", va="bottom", fontweight="bold", color=INK)
        if at:
            axes.axvline(width * at - 0.5, color=INK, linewidth=0.8)
    titles = [quantity_title(name) for name in quantities]
    axes.set_yticks(range(len(names)), [shorten(name, 18) for name in names])
    axes.set_xticks(range(grid.shape[1]), titles * len(configs))
    axes.tick_params(length=0, top=False, bottom=False, labeltop=True, labelbottom=False, pad=2)
    axes.tick_params(axis="x", labelcolor=MUTED, labelsize=6.5)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    return figure


@with_style
def plot_vetoes(result: StudyTables, ax: Any = None) -> Figure:
    """Plot pseudo scores, and dev scores, with their limits: two panels, a row for each method.

    Left of its line a configuration is excluded by that veto, and drawn as a cross. The chosen
    one has a ring.

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
    return 0.75 + _ROW * len({look_of(str(name)).title for name in result.grid["config"]})


def draw_veto(ax: Axes, result: StudyTables, panel: str) -> None:
    """Draw one panel of :func:`plot_vetoes`, a key of `VETO_PANELS`."""
    names = [str(name) for name in result.grid["config"]]
    looks = [look_of(name) for name in names]
    methods = list(dict.fromkeys(look.title for look in looks))
    values, limit, excluded = _evidence(result, panel, names)
    ax.set_ylim(len(methods) - 0.4, -0.6)
    ax.set_yticks(range(len(methods)), methods)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    if not np.isfinite(values).any():
        show_reason(ax, f"no {VETO_PANELS[panel]}")
        return
    rows = np.array([methods.index(look.title) for look in looks])
    y = rows + _spread(rows)
    crossed = np.isin(names, list(excluded))
    for at in np.flatnonzero(np.isfinite(values) & ~crossed):
        ax.plot(values[at], y[at], **looks[at].style(3.6, linestyle="", markeredgewidth=0.7))
    cross: Any = {"color": _EXCLUDED, "markersize": 5, "markeredgewidth": 1.4, "zorder": 4}
    ax.plot(values[crossed], y[crossed], "x", **cross)
    chosen = chosen_config(result)
    if chosen in names:
        row = names.index(chosen)
        ring: Any = {"markersize": 10, "fillstyle": "none", "markeredgewidth": 0.9}
        ax.plot(values[row], y[row], "o", color=INK, linestyle="", zorder=5, **ring)
    if limit is not None:
        ax.axvline(limit, color=_EXCLUDED, linewidth=1, linestyle=(0, (4, 2)), zorder=2)
    ax.margins(x=0.06)
    ax.set_xlabel(VETO_PANELS[panel])
    veto, none = ("dev-score veto", "none") if panel == "dev" else ("label-free veto", "abstains")
    count = int(crossed.sum())
    ax.set_title(f"{veto}: {none if limit is None and not count else f'{count} excluded'}")
    ax.grid(axis="y", visible=False)
    for between in np.arange(0.5, len(methods) - 1):
        ax.axhline(between, color=MUTED, linewidth=0.3, alpha=0.5, zorder=1)


def _evidence(
    result: StudyTables, panel: str, names: Sequence[str]
) -> tuple[Float64s, float | None, set[str]]:
    """Scores, the limit, and the configurations that are excluded."""
    if panel == "dev":
        veto = result.selection.get("veto") or {}
        values = result.grid.reindex(columns=["dev_omega"]).to_numpy(dtype=float)[:, 0]
        return values, veto.get("floor"), set(veto.get("removed") or ())
    veto = result.selection.get("label_free_veto") or {}
    scores = {row["config"]: row["pseudo_score"] for row in veto.get("configs") or ()}
    values = np.array([scores.get(name, np.nan) for name in names], float)
    return values, veto.get("limit"), set(veto.get("cut") or ())


def _spread(rows: Indices) -> Float64s:
    """Small steps up and down, so that equal scores in a row can be distinguished."""
    steps = np.zeros(len(rows))
    for row in np.unique(rows):
        at = np.flatnonzero(rows == row)
        if len(at) > 1:
            steps[at] = np.resize([0.0, -0.2, 0.2, -0.1, 0.1, -0.3, 0.3], len(at))
    return steps
