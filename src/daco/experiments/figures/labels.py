"""Names beside points, where they hide neither points nor each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path
from numpy.typing import ArrayLike

from daco.experiments.figures.style import INK, MUTED, figure_of
from daco.validation import Float64s

_SIDES = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), (1, 1), (-1, 1), (1, -1), (-1, -1)], float)
_DISTANCES = (4.0, 8.0, 14.0, 22.0, 32.0)  # points; beyond the first a line leads to the name
_MARKER = 3.0  # half the room a marker takes, in points
_AIR = 2.0  # between two names

# What a place costs, in points of distance: for leaving the axes, for covering a name or a
# marker, and for each square point covered.
_OUTSIDE, _ON_NAME, _ON_MARKER, _NAME_AREA, _MARKER_AREA = 60.0, 8.0, 4.0, 1.0, 0.3


def label_points(
    ax: Axes,
    x: ArrayLike,
    y: ArrayLike,
    names: Sequence[str],
    *,
    avoid: ArrayLike = (),
    gap: float = 0.0,
    size: float = 6.5,
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
    font = FontProperties(size=size)
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
            fontsize=size,
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
