"""How all pictures look: colours that colour-blind readers can tell apart, shapes, sizes, files.

No picture goes through pyplot, so that drawing one changes nothing in the caller's session.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from daco.errors import ConfigError, InputError
from daco.method.config import ScoreConfig

P = ParamSpec("P")
R = TypeVar("R")

PALETTE = {
    "ink": "#1c2430",
    "muted": "#5d6876",
    "grid": "#dfe4ea",
    "paper": "#ffffff",
    "blue": "#0072b2",
    "green": "#009e73",
    "rose": "#d0609f",
    "plum": "#7b2d8e",
    "orange": "#d55e00",
    "brown": "#7a4f00",
    "indigo": "#4848e0",
    "wine": "#a8003c",
    "slate": "#5f7088",
    "silver": "#9aa5b1",
}
"""Every colour of the pictures by name: the page swaps them for its own in the dark."""

INK, MUTED, GRID, PAPER = (PALETTE[name] for name in ("ink", "muted", "grid", "paper"))
TRAIN, NORMAL, ANOMALY = (PALETTE[name] for name in ("silver", "green", "orange"))

COLUMN_WIDTH = 3.4
"""Inches: one column of a two-column paper, and one panel of the report."""

TEXT_WIDTH = 7.1
"""Inches: the whole page."""

_SETTINGS: Any = {
    "font.family": "DejaVu Sans",  # comes with Matplotlib: the same picture everywhere
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "normal",
    "axes.labelsize": 7.5,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "text.color": INK,
    "text.parse_math": False,  # a machine may be called "$x$"
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "axes.unicode_minus": True,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.2,
    "lines.linewidth": 1.3,
    "lines.markersize": 4.5,
    "figure.dpi": 100,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}


Fill = Literal["full", "none", "left"]


@dataclass(frozen=True)
class Look:
    """How one kind of thing is drawn: no kind is told by its colour alone."""

    title: str
    colour: str
    marker: str = "o"
    fill: Fill = "full"
    line: str = "-"


SPLITS = {
    "dev": Look("development machines", PALETTE["slate"], "o"),
    "eval": Look("evaluation machines", PALETTE["plum"], "^", line="--"),
}
DOMAINS = {
    "source": Look("source", PALETTE["blue"]),
    "target": Look("target", PALETTE["orange"]),
}
_SYSTEMS = {
    "raw": Look("raw", INK, "o", "none", "--"),
    "daco-m0": Look("calibrated, m=0", INK, "s", "full", "-"),
}


METHODS = {
    "raw": Look("raw k-NN", INK, "o"),
    "conf": Look("quantile maps", PALETTE["blue"], "s"),
    "ratio": Look("median ratio", PALETTE["green"], "^"),
    "zscore": Look("z-score", PALETTE["rose"], "D"),
    "ldn": Look("LDN", PALETTE["orange"], "v"),
    "stack": Look("calibrated LDN", PALETTE["brown"], "P"),
    "varmin": Look("VarMin", PALETTE["plum"], ">"),
    "varmin-stack": Look("calibrated VarMin", PALETTE["plum"], "<"),
    "band": Look("band by band", PALETTE["indigo"], "h"),
    "band-stack": Look("calibrated band by band", PALETTE["indigo"], "d"),
    "mixed": Look("mixtures, fusion, PCA", PALETTE["wine"], "*"),
    "mixed-stack": Look("calibrated mixtures", PALETTE["wine"], "p"),
    "other": Look("other", MUTED, "X"),
}
"""By kind of configuration; the published ones first, as they were."""


def look_of(config: str) -> Look:
    """Colour and shape tell the method, the filling its variant (full: soft, or LDN ratio).

    Examples
    --------
    >>> from daco.experiments.figures.style import look_of
    >>> look_of("conf-hard-m0-k1")
    Look(title='quantile maps', colour='#0072b2', marker='s', fill='none', line='-')
    """
    try:
        parsed = ScoreConfig.parse(config)
    except ConfigError:
        return METHODS["other"]
    fill: Fill = "full"
    if parsed.assignment == "hard" or parsed.scorer == "ldn-diff":
        fill = "none"
    elif parsed.assignment == "oracle":
        fill = "left"
    return replace(METHODS[_kind(parsed)], fill=fill)


def _kind(config: ScoreConfig) -> str:
    stacked = "" if config.calibration is None else "-stack"
    if config.bandwise:
        return f"band{stacked}"
    if config.scorer == "knn":
        return config.calibration or "raw"
    if config.scorer.startswith(("ldn", "dldn")):
        return "stack" if stacked else "ldn"
    return ("varmin" if config.scorer.startswith("varmin") else "mixed") + stacked


def system_looks(systems: Iterable[str]) -> dict[str, Look]:
    """The systems of a coverage table: raw, calibrated, and what else was chosen."""
    names = dict.fromkeys(map(str, systems))
    return {name: _SYSTEMS.get(name, Look(name, INK, "^", "full", "-.")) for name in names}


def styled(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with the pictures' settings, and leave the caller's as they were."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(_SETTINGS), _any_script():
            return function(*args, **kwargs)

    return wrapper


def panels(
    ax: Any, count: int, width: float, height: float, **margins: float
) -> tuple[Figure, list[Axes]]:
    """The axes to draw on: the caller's, or those of a new figure with fixed margins.

    Margins are in inches, so that they hold the same text at every size; they take the place of
    a layout engine, which would draw everything twice.
    """
    if ax is not None:
        axes = list(ax) if hasattr(ax, "__iter__") else [ax]
        if len(axes) != count or not all(isinstance(each, Axes) for each in axes):
            raise InputError(f"This picture is drawn on {count} Axes. Got {ax!r}.")
        return figure_of(axes[0]), axes
    figure = Figure(figsize=(width, height))
    left, right = margins.get("left", 0.45), margins.get("right", 0.1)
    bottom, top = margins.get("bottom", 0.38), margins.get("top", 0.22)
    gap = margins.get("gap", 0.5)
    panel = (width - left - right - gap * (count - 1)) / count
    axes = [
        figure.add_axes(
            (
                (left + at * (panel + gap)) / width,
                bottom / height,
                panel / width,
                (height - bottom - top) / height,
            )
        )
        for at in range(count)
    ]
    return figure, axes


def figure_of(ax: Axes) -> Figure:
    """The figure an Axes is in, through subfigures."""
    parent: Figure | SubFigure | None = ax.get_figure(root=True)
    if not isinstance(parent, Figure):
        raise InputError("The Axes belong to no figure.")
    return parent


def shortened(name: str, length: int = 24) -> str:
    """A name that fits beside a point."""
    return name if len(name) <= length else name[: length - 1].rstrip() + "…"


def say_nothing_to_show(ax: Axes, why: str) -> None:
    """An empty panel that says why it is empty."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, why, transform=ax.transAxes, ha="center", va="center", color=MUTED, wrap=True)


def svg_bytes(figure: Figure, salt: str, *, text_as_paths: bool = True) -> bytes:
    """The picture as SVG, the same bytes every time; `salt` keeps the ids of two pictures apart.

    Text as paths looks the same in every program; as text it takes the fonts of the page.
    """
    settings: Any = {"svg.hashsalt": salt, "svg.fonttype": "path" if text_as_paths else "none"}
    stream = io.BytesIO()
    with mpl.rc_context(settings), _any_script():
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    return stream.getvalue()


def png_bytes(figure: Figure, dpi: int = 200) -> bytes:
    """The picture as PNG, sharp in print."""
    stream = io.BytesIO()
    with _any_script():
        figure.savefig(
            stream,
            format="png",
            dpi=dpi,
            metadata={"Software": None},
            pil_kwargs={"compress_level": 3},  # a tenth larger, twice as fast
        )
    return stream.getvalue()


@contextmanager
def _any_script() -> Iterator[None]:
    """Names in scripts the font lacks become boxes in files; that is no reason to warn."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
