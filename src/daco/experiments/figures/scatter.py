"""Scatter plots: what predicts the evaluation score, the balance frontier, gain by separability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from numpy.typing import ArrayLike

from daco.evaluation.statistics import spearman
from daco.experiments.figures.style import (
    COLUMN_WIDTH,
    INK,
    MUTED,
    SPLITS,
    TEXT_WIDTH,
    Look,
    figure_of,
    look_of,
    number_panels,
    panels,
    shorten,
    show_reason,
    with_style,
)
from daco.experiments.highlights import roles
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

TRANSFER_PANELS = {
    "dev": ("dev_omega", "dev score (official, %)", "dev_score"),
    "criterion": ("crit_dev", "criterion on dev machines (better to the right)", "criterion"),
}
"""Panels of the transfer picture: column of the grid, its axis, its signal in ``stats.json``."""

NAMED_MACHINES = 40
"""With more machines their names would hide the points."""

_LEGEND_COLUMNS, _LEGEND_ROW = 6, 0.15  # inches
_DOTTED: Any = (0, (1, 2))

_SIDES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)], float)
_DISTANCES = (4.0, 8.0, 14.0, 22.0, 32.0)  # points; beyond the first a line leads to the name
_MARKER = 3.0  # half the room a marker takes, in points
_AIR = 2.0  # between two names
_NAME_SIZE = 6.5

# What a place costs, in points of distance: for leaving the axes, for covering a name or a
# marker, and for each square point covered.
_OUTSIDE, _ON_NAME, _ON_MARKER, _NAME_AREA, _MARKER_AREA = 60.0, 8.0, 4.0, 1.0, 0.3


@with_style
def plot_transfer(result: StudyTables, ax: Any = None) -> Figure:
    """Plot dev score, and criterion, against evaluation score: two panels, all configurations.

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
    looks = {look.title: look for look in map(look_of, map(str, result.grid["config"]))}
    handles = [
        Line2D([], [], label=title, **_point(replace(look, fill="full")))
        for title, look in looks.items()
    ]
    further = _LEGEND_ROW * (-(-len(handles) // _LEGEND_COLUMNS) - 1)
    figure, axes = panels(ax, 2, TEXT_WIDTH, 3.1 + further, bottom=0.62 + further, top=0.24)
    for each, panel in zip(axes, TRANSFER_PANELS, strict=True):
        draw_transfer(each, result, panel)
    number_panels(axes)
    if ax is None:
        figure.legend(handles=handles, loc="lower center", ncols=_LEGEND_COLUMNS)
    return figure


def draw_transfer(ax: Axes, result: StudyTables, panel: str) -> None:
    """Draw one panel of :func:`plot_transfer`, a key of `TRANSFER_PANELS`."""
    column, label, signal = TRANSFER_PANELS[panel]
    names = [str(name) for name in result.grid["config"]]
    x, y = result.grid.reindex(columns=[column, "eval_omega"]).to_numpy(dtype=float).T
    known = np.isfinite(x) & np.isfinite(y)
    if not known.any():
        show_reason(ax, f"no {label if np.isfinite(y).any() else 'evaluation score'}")
        return
    for row in np.flatnonzero(known):
        ax.plot(x[row], y[row], gid=f"{panel}-{row}", **_point(look_of(names[row])))
    if panel == "criterion":
        ax.invert_xaxis()
    ax.margins(0.07, 0.1)
    ax.autoscale_view()
    ax.set_xlabel(label)
    ax.set_ylabel("evaluation score (official, %)")
    statistics = (result.stats.get("signals") or {}).get(signal) or {}
    sign = -1 if panel == "criterion" else 1
    ax.set_title(_correlation(statistics, sign * x[known], y[known]))
    marked = {names.index(name): text for name, text in roles(result).items() if name in names}
    at = [row for row in marked if known[row]]
    ring: Any = {"color": INK, "fillstyle": "none", "markeredgewidth": 0.9, "linestyle": ""}
    ax.plot(x[at], y[at], marker="o", markersize=9.5, zorder=4, **ring)
    others = np.column_stack([x[known], y[known]])
    label_points(ax, x[at], y[at], [marked[row] for row in at], avoid=others, gap=2.5)


def _point(look: Look) -> dict[str, Any]:
    return look.style(4.8, linestyle="", markeredgewidth=0.9)


def _correlation(statistics: Mapping[str, Any], x: Float64s, y: Float64s) -> str:
    """Spearman's correlation, with its interval over families where the study has it."""
    rho = statistics.get("rho")
    if rho is None:
        rho = spearman(x, y) if len(x) > 2 else np.nan
    if np.isnan(rho):
        return "no correlation: too few configurations"
    block = statistics.get("family_block") or {}
    interval = ""
    if block.get("low") is not None:
        level = f"{100 * block['level']:.0f} %"
        interval = f", {level} [{block['low']:+.2f}, {block['high']:+.2f}]"
    return f"ρ = {rho:+.2f}{interval}".replace("-", "−")


@with_style
def plot_frontier(result: StudyTables, ax: Any = None) -> Figure:
    """Plot mean source against mean target AUC from the raw ranking to full equalisation (m = 0).

    Parameters
    ----------
    result : StudyTables
    ax : Axes, optional
        By default a new figure as wide as a column.

    Returns
    -------
    Figure
    """
    figure, (ax,) = panels(ax, 1, COLUMN_WIDTH, 2.9)
    table = result.frontier
    if table.empty:
        show_reason(ax, "no labelled machines, so no frontier")
        return figure
    columns = ["mean_auc_source", "mean_auc_target"]
    lines = []
    for split, rows in table.groupby("split", sort=False):
        look = SPLITS[str(split)]
        points = rows[columns].to_numpy(dtype=float)
        is_curve = rows["variant"].str.match("raw$|daco").to_numpy()
        curve, apart = points[is_curve], points[~is_curve]
        ax.plot(*curve.T, label=look.title, **look.style(4.5))
        ax.plot(*apart.T, **look.style(5.5, fillstyle="none", linestyle=""))
        # Points along the curve, which labels should leave free.
        at = np.linspace(0, len(curve) - 1, 8 * len(curve))
        lines += [np.column_stack([np.interp(at, range(len(v)), v) for v in curve.T])]
    x, y = table[columns].to_numpy(dtype=float).T
    ax.set_xlim(*_padded(x))
    ax.set_ylim(*_padded(y))
    ax.axline((50, 50), slope=1, color=MUTED, linestyle=_DOTTED, linewidth=0.9, zorder=1)
    ax.set_xlabel("mean AUC, source (%)")
    ax.set_ylabel("mean AUC, target (%)")
    ax.legend(loc="best")
    titles = {"ratio-soft": "median ratio"}
    labels = [titles.get(name, name.replace("daco-m", "m=")) for name in table["variant"]]
    colours = [SPLITS[str(split)].colour for split in table["split"]]
    label_points(ax, x, y, labels, colours=colours, avoid=np.concatenate(lines))
    return figure


def _padded(values: Float64s) -> tuple[float, float]:
    room = 0.12 * max(float(np.ptp(values)), 1.0)
    return float(np.min(values)) - room, float(np.max(values)) + room


@with_style
def plot_gain_separability(result: StudyTables, ax: Any = None) -> Figure:
    """Plot each machine's gain in target AUC (``conf-soft-m0-k1`` over ``raw-k1``) by separability.

    Separability is the balanced accuracy with which a training normal's nearest neighbour
    predicts its domain. Circles are development machines, triangles evaluation machines.

    Parameters
    ----------
    result : StudyTables
    ax : Axes, optional
        By default a new figure as wide as a column.

    Returns
    -------
    Figure
    """
    figure, (ax,) = panels(ax, 1, COLUMN_WIDTH, 2.9)
    wanted = ["separability_train", "target_auc_gain"]
    table = result.diagnostics
    if table.empty or not set(wanted) <= set(table):
        show_reason(ax, "no diagnostics")
        return figure
    table = table.dropna(subset=wanted)
    if table.empty:
        show_reason(ax, "no labelled machines, so no gain")
        return figure
    for split, rows in table.groupby("split", sort=False):
        look = SPLITS[str(split)]
        ax.plot(*(rows[name] for name in wanted), label=look.title, **look.style(5, linestyle=""))
    x, y = table[wanted].to_numpy(dtype=float).T
    room = 0.14 * max(float(np.ptp(x)), 0.1)
    left, right = x.min() - room, x.max() + room
    ax.set_xlim(left, right)
    ax.margins(y=0.15)
    ax.axhline(0, color=MUTED, linewidth=0.8, zorder=1)
    ax.set_xlabel("domain separability of training normals")
    ax.set_ylabel("gain in target AUC (points)")
    if len(x) > 2 and np.ptp(x) and np.ptp(y):
        ax.set_title(f"ρ = {spearman(x, y):+.2f} over {len(x)} machines".replace("-", "−"))
    ax.legend(loc="best")
    if len(x) <= NAMED_MACHINES:
        colours = [SPLITS[str(split)].colour for split in table["split"]]
        names = [shorten(str(name)) for name in table["machine"]]
        zero_line = np.column_stack([np.linspace(left, right, 60), np.zeros(60)])
        label_points(ax, x, y, names, colours=colours, avoid=zero_line)
    return figure


# Names beside points, where they hide neither points nor each other


def label_points(
    ax: Axes,
    x: ArrayLike,
    y: ArrayLike,
    names: Sequence[str],
    *,
    avoid: ArrayLike = (),
    gap: float = 0.0,
    colours: Sequence[str] | None = None,
) -> None:
    """Write `names` at the points; call it when the limits of the axes are final.

    Each name in turn takes the place around its point that covers least. `avoid` holds further
    places, (n, 2) in data coordinates, that names should not cover; `gap` is further room in
    points around the named ones.
    """
    data = np.column_stack([np.asarray(x, float), np.asarray(y, float)])
    others = np.asarray(avoid, dtype=float).reshape(-1, 2)
    to_points = 72 / figure_of(ax).dpi
    every = ax.transData.transform(np.vstack([data, others])) * to_points
    markers = np.column_stack([every - _MARKER, every + _MARKER])
    frame = ax.transAxes.transform([(0, 0), (1, 1)]).ravel() * to_points
    font = FontProperties(size=_NAME_SIZE)
    taken = np.empty((0, 4))
    for at, name in enumerate(names):
        width, height, _ = text_to_path.get_text_width_height_descent(name, font, False)
        boxes, distances = _places(every[at], width, height, gap)
        outside = (boxes[:, :2] < frame[:2]).any(axis=1) | (boxes[:, 2:] > frame[2:]).any(axis=1)
        on_names = _overlaps(boxes + _AIR * np.array([-1, -1, 1, 1]), taken)
        on_markers = _overlaps(boxes, markers)
        cost = distances + _OUTSIDE * outside
        cost += _ON_NAME * (on_names > 0).sum(axis=1) + _NAME_AREA * on_names.sum(axis=1)
        cost += _ON_MARKER * (on_markers > 0).sum(axis=1) + _MARKER_AREA * on_markers.sum(axis=1)
        best = int(np.argmin(cost))
        box = boxes[best]
        taken = np.vstack([taken, box])
        if distances[best] > _DISTANCES[0]:
            end = np.clip(every[at], box[:2], box[2:])  # the nearest edge of the name
            line = ax.transData.inverted().transform(np.array([every[at], end]) / to_points)
            ax.plot(line[:, 0], line[:, 1], color=MUTED, linewidth=0.5, zorder=1.5)
        ax.annotate(
            name,
            (float(data[at, 0]), float(data[at, 1])),
            xytext=tuple((box[:2] - every[at]).tolist()),
            textcoords="offset points",
            fontsize=_NAME_SIZE,
            color=colours[at] if colours else INK,
            ha="left",
            va="bottom",
            annotation_clip=False,
        )


def _places(point: Float64s, width: float, height: float, gap: float) -> tuple[Float64s, Float64s]:
    """Boxes (left, bottom, right, top) around a point that a text may take; their distances."""
    sides = np.tile(_SIDES, (len(_DISTANCES), 1))
    distances = np.repeat(_DISTANCES, len(_SIDES))
    reach = np.where(sides.all(axis=1), 0.75, 1.0) * (distances + gap)  # corners are nearer
    corner = point + sides * reach[:, None] + (sides - 1) / 2 * (width, height)
    return np.hstack([corner, corner + np.array([width, height])]), distances


def _overlaps(boxes: Float64s, others: Float64s) -> Float64s:
    """The area that each of `boxes` shares with each of `others`: (boxes, others)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.asarray(np.clip(high - low, 0, None).prod(axis=2))
