"""The two vetoes: what every configuration hears, what it scores on dev machines, who is cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.experiments.figures.style import (
    INK,
    MUTED,
    PALETTE,
    TEXT_WIDTH,
    Look,
    look_of,
    panels,
    say_nothing_to_show,
    styled,
)

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

PANELS = {"heard": "pseudo score (label-free, %)", "dev": "dev score (official, %)"}
"""The two panels, and their horizontal axes."""

CUT = PALETTE["orange"]
_ROW = 0.19  # inches


@styled
def plot_vetoes(result: StudyTables, ax: Any = None) -> Figure:
    """Two panels with a row for each method: pseudo scores, and dev scores, with their limits.

    Left of its line a configuration is cut by that veto, and drawn as a cross. The chosen one
    has a ring.

    Parameters
    ----------
    result : StudyTables
    ax : two Axes, optional
        By default a new figure as wide as a page.
    """
    height = veto_height(result)
    figure, axes = panels(ax, 2, TEXT_WIDTH, height, left=1.45, gap=0.25, bottom=0.4, top=0.26)
    for letter, each, panel in zip("ab", axes, PANELS, strict=True):
        draw_veto(each, result, panel)
        each.set_title(f"({letter}) {each.get_title(loc='left')}", loc="left")
    axes[1].tick_params(labelleft=False)
    return figure


def veto_height(result: StudyTables) -> float:
    """Inches: as high as there are methods."""
    return 0.75 + _ROW * len(_methods(result)[0])


def draw_veto(ax: Axes, result: StudyTables, panel: str) -> None:
    """One panel: a key of `PANELS`."""
    looks, rows = _methods(result)
    names = [str(name) for name in result.grid["config"]]
    values, limit, cut = _evidence(result, panel, names)
    ax.set_ylim(len(looks) - 0.4, -0.6)
    ax.set_yticks(range(len(looks)), [look.title for look in looks])
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    if not np.isfinite(values).any():
        say_nothing_to_show(ax, f"no {PANELS[panel]}")
        return
    y = rows + _spread(rows)
    gone = np.array([name in cut for name in names])
    for at in np.flatnonzero(np.isfinite(values) & ~gone):
        look = look_of(names[at])
        ax.plot(
            values[at],
            y[at],
            marker=look.marker,
            markersize=3.6,
            color=look.colour,
            fillstyle=look.fill,
            markeredgewidth=0.7,
            linestyle="",
            zorder=3,
        )
    ax.plot(values[gone], y[gone], "x", color=CUT, markersize=5, markeredgewidth=1.4, zorder=4)
    chosen = (result.selection.get("chosen") or {}).get("config")
    if chosen in names:
        place = values[names.index(chosen)], y[names.index(chosen)]
        ring: dict[str, Any] = {"markersize": 10, "fillstyle": "none", "markeredgewidth": 0.9}
        ax.plot(*place, "o", color=INK, linestyle="", zorder=5, **ring)
    if limit is not None:
        ax.axvline(limit, color=CUT, linewidth=1, linestyle=(0, (4, 2)), zorder=2)
    ax.margins(x=0.06)
    ax.set_xlabel(PANELS[panel])
    ax.set_title(_title(panel, int(gone.sum()), limit))
    ax.grid(axis="y", visible=False)
    for between in np.arange(0.5, len(looks) - 1):
        ax.axhline(between, color=MUTED, linewidth=0.3, alpha=0.5, zorder=1)


def _evidence(
    result: StudyTables, panel: str, names: Sequence[str]
) -> tuple[Any, float | None, set[str]]:
    """Scores, the limit, and the configurations that are cut."""
    unknown = np.full(len(names), np.nan)
    if panel == "heard":
        heard = result.selection.get("label_free_veto")
        if heard is None:
            return unknown, None, set()
        scores = {row["config"]: row["pseudo_score"] for row in heard["configs"]}
        values = np.array([scores.get(name, np.nan) for name in names], float)
        return values, heard["limit"], set(heard["cut"])
    veto = result.selection.get("veto") or {}
    if "dev_omega" not in result.grid:
        return unknown, None, set()
    values = result.grid["dev_omega"].to_numpy(dtype=float)
    return values, veto.get("floor"), set(veto.get("removed") or ())


def _methods(result: StudyTables) -> tuple[list[Look], Any]:
    """The looks of the grid in its order, and the row of each configuration."""
    looks = [look_of(str(name)) for name in result.grid["config"]]
    known = {look.title: look for look in looks}
    order = list(known)
    return list(known.values()), np.array([order.index(look.title) for look in looks], float)


def _spread(rows: Any) -> Any:
    """Small steps up and down, so that equal scores in a row can be told apart."""
    found = np.zeros(len(rows))
    for row in np.unique(rows):
        mine = np.flatnonzero(rows == row)
        if len(mine) > 1:
            found[mine] = np.resize([0.0, -0.2, 0.2, -0.1, 0.1, -0.3, 0.3], len(mine))
    return found


def _title(panel: str, n_cut: int, limit: float | None) -> str:
    word = "label-free veto" if panel == "heard" else "dev-score veto"
    if limit is None and not n_cut:
        return f"{word}: abstains" if panel == "heard" else f"{word}: none"
    return f"{word}: {n_cut} cut"
