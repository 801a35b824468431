"""How all pictures look: colours that colour-blind readers can distinguish, shapes, sizes, files.

Nothing uses pyplot, so drawing a picture changes nothing in the caller's session.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from itertools import cycle
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from daco.errors import ConfigError, InputError
from daco.files.atomic import atomic_write
from daco.method.config import ScoreConfig
from daco.text import printable

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
"""Every colour of the pictures by name; the page replaces them by its own in dark mode."""

INK, MUTED, GRID, PAPER = (PALETTE[name] for name in ("ink", "muted", "grid", "paper"))
TRAIN, NORMAL, ANOMALY = (PALETTE[name] for name in ("silver", "green", "orange"))

COLUMN_WIDTH = 3.4
"""Inches: one column of a two-column paper, and one panel of the report."""

TEXT_WIDTH = 7.1
"""Inches: the whole page."""

_SETTINGS: Any = mpl.rc_params_from_file(
    Path(__file__).with_name("daco.mplstyle"), use_default_template=False
)

Fill = Literal["full", "none", "left"]


@dataclass(frozen=True)
class Look:
    """How one kind of thing is drawn; no two kinds differ in colour alone."""

    title: str
    colour: str
    marker: str = "o"
    fill: Fill = "full"
    line: str = "-"

    def style(self, size: float, **changes: Any) -> dict[str, Any]:
        """Arguments of :meth:`Axes.plot` for a line with markers of this size."""
        return {
            "color": self.colour,
            "marker": self.marker,
            "fillstyle": self.fill,
            "linestyle": self.line,
            "markersize": size,
            "zorder": 3,
            **changes,
        }


SPLITS = {
    "dev": Look("development machines", PALETTE["slate"], "o"),
    "eval": Look("evaluation machines", PALETTE["plum"], "^", line="--"),
}
DOMAINS = {"source": Look("source", PALETTE["blue"]), "target": Look("target", PALETTE["orange"])}
_SYSTEMS = {
    "raw": Look("raw, paper's rule", INK, "o", "none", "--"),
    "daco-m0": Look("m=0, paper's rule", INK, "s", "full", "-"),
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
    "blend": Look("blend", PALETTE["indigo"], "h"),
    "blend-stack": Look("calibrated blend", PALETTE["indigo"], "d"),
    "ext": Look("external scores", PALETTE["wine"], "*"),
    "ext-stack": Look("calibrated external scores", PALETTE["wine"], "p"),
    "other": Look("other", MUTED, "X"),
}
"""By kind of configuration; the published ones first, as they were."""


def look_of(config: str) -> Look:
    """Colour and shape show the method, the filling its variant (full: soft, or LDN ratio).

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
    if parsed.assignment == "hard" or parsed.base.scorer == "ldn-diff":
        fill = "none"
    elif parsed.assignment == "oracle":
        fill = "left"
    return replace(METHODS[_kind(parsed)], fill=fill)


def _kind(config: ScoreConfig) -> str:
    stacked = "" if config.calibration is None else "-stack"
    if config.scorer == "knn":
        return config.calibration or "raw"
    if config.scorer.startswith("ldn"):
        return "stack" if stacked else "ldn"
    return config.scorer + stacked


def system_looks(systems: Iterable[str]) -> dict[str, Look]:
    """The systems of a coverage table: two by the paper's rule, the others by p-values."""
    names = list(dict.fromkeys(map(str, systems)))
    others = [name for name in names if name not in _SYSTEMS]
    markers = dict(zip(others, cycle("^vD*"), strict=False))
    return {
        name: _SYSTEMS.get(name) or Look(name, INK, markers[name], "full", "-.") for name in names
    }


def with_style(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with the pictures' settings, and leave the caller's as they were."""

    @wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        with mpl.rc_context(_SETTINGS), _any_script():
            return function(*args, **kwargs)

    return wrapper


def panels(
    ax: Any, count: int, width: float, height: float, **margins: float
) -> tuple[Figure, list[Axes]]:
    """The caller's Axes, or those of a new figure side by side, with margins in inches.

    Fixed margins hold the same text at every size, and a layout engine would draw everything
    twice.
    """
    if ax is not None:
        axes = list(ax) if hasattr(ax, "__iter__") else [ax]
        if len(axes) != count or not all(isinstance(each, Axes) for each in axes):
            raise InputError(f"This picture is drawn on {count} Axes. Got {ax!r}.")
        return figure_of(axes[0]), axes
    inches = {"left": 0.45, "right": 0.1, "bottom": 0.38, "top": 0.22, "gap": 0.5, **margins}
    panel = height - inches["bottom"] - inches["top"]
    return panel_grid(count, count, width, panel, {**inches, "below": 0})


def panel_grid(
    count: int, columns: int, width: float, height: float, inches: Mapping[str, float]
) -> tuple[Figure, list[Axes]]:
    """A new figure with rows of panels of this height.

    `inches` are the margins ``left``, ``right``, ``top`` and ``bottom``, and the distances
    between panels: ``gap`` beside, ``below`` under each other.
    """
    left, gap, below = inches["left"], inches["gap"], inches["below"]
    rows = -(-count // columns)
    total = inches["top"] + inches["bottom"] + rows * height + (rows - 1) * below
    figure = Figure(figsize=(width, total))
    panel = (width - left - inches["right"] - gap * (columns - 1)) / columns
    axes = []
    for at in range(count):
        row, column = divmod(at, columns)
        x = left + column * (panel + gap)
        y = total - inches["top"] - height - row * (height + below)
        axes.append(figure.add_axes((x / width, y / total, panel / width, height / total)))
    return figure, axes


def figure_of(ax: Axes) -> Figure:
    """The figure an Axes belongs to, also through subfigures."""
    parent: Figure | SubFigure | None = ax.get_figure(root=True)
    if not isinstance(parent, Figure):
        raise InputError("The Axes belong to no figure.")
    return parent


def shorten(name: str, length: int = 24) -> str:
    """A name that fits beside a point, without characters that cannot be printed."""
    name = printable(name)
    return name if len(name) <= length else name[: length - 1].rstrip() + "…"


def number_panels(axes: Iterable[Axes]) -> None:
    """Put (a), (b), ... before the titles."""
    for letter, ax in zip("abcdef", axes, strict=False):
        ax.set_title(f"({letter}) {ax.get_title(loc='left')}", loc="left")


def show_reason(ax: Axes, why: str) -> None:
    """An empty panel that states why it is empty."""
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
    options: Any = {"metadata": {"Software": None}}
    options["pil_kwargs"] = {"compress_level": 3}  # a tenth larger, twice as fast
    with _any_script():
        figure.savefig(stream, format="png", dpi=dpi, **options)
    return stream.getvalue()


def save_picture(figure: Figure, path: Path, salt: str = "calibration") -> None:
    """Write SVG or PNG, by the extension; the same picture gives the same bytes."""
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise InputError(f"{path}: a picture is .svg or .png. Give it one of these extensions.")
    content = svg_bytes(figure, salt) if kind == ".svg" else png_bytes(figure)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def _any_script() -> Iterator[None]:
    """Characters the font lacks become boxes in files, without a warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield
