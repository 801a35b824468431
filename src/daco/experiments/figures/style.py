"""How all pictures look: colours that colour-blind readers can distinguish, shapes, files.

Nothing uses pyplot, so drawing a picture changes nothing in the caller's session.
"""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.errors import ConfigError, InputError
from daco.files.atomic import atomic_write
from daco.method.config import ScoreConfig
from daco.text import printable

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
"""Every colour of the pictures by name."""

INK, MUTED = PALETTE["ink"], PALETTE["muted"]

WIDTH = 3.4
"""Inches: one column of a two-column paper, and one panel of the report."""

with_style = mpl.rc_context(fname=str(Path(__file__).with_name("daco.mplstyle")))
"""Decorator: the function runs with the pictures' settings, and leaves the caller's as they were"""


@dataclass(frozen=True)
class Look:
    """How one kind of thing is drawn; no two kinds differ in colour alone."""

    title: str
    colour: str
    marker: str = "o"
    line: str = "-"

    def style(self, size: float, **changes: Any) -> dict[str, Any]:
        """Arguments of :meth:`Axes.plot` for a line with markers of this size."""
        look = {"color": self.colour, "marker": self.marker, "linestyle": self.line}
        return {**look, "markersize": size, "zorder": 3, **changes}


SETS = {
    "dev": Look("development machines", PALETTE["slate"], "o"),
    "eval": Look("evaluation machines", PALETTE["plum"], "^", line="--"),
}
DOMAINS = {
    "source": Look("source", PALETTE["blue"], "o"),
    "target": Look("target", PALETTE["orange"], "s", line="--"),
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
"""By kind of configuration."""


def look_of(config: str) -> Look:
    """Colour and shape of a configuration, by its method."""
    try:
        parsed = ScoreConfig.parse(config)
    except ConfigError:
        return METHODS["other"]
    stacked = "" if parsed.calibration is None else "-stack"
    if parsed.scorer == "knn":
        return METHODS[parsed.calibration or "raw"]
    if parsed.scorer.startswith("ldn"):
        return METHODS["stack" if stacked else "ldn"]
    return METHODS[parsed.scorer + stacked]


def new_figure(height: float, width: float = WIDTH) -> tuple[Figure, Axes]:
    """A figure of this size in inches, and its axes."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def shorten(name: str, length: int = 24) -> str:
    """A name that fits beside a point, without characters that cannot be printed.

    >>> shorten("a very long name of a machine", 12)
    'a very long…'
    """
    name = printable(name)
    return name if len(name) <= length else name[: length - 1].rstrip() + "…"


def svg_bytes(figure: Figure, salt: str, *, transparent: bool = False) -> bytes:
    """The picture as SVG, the same bytes every time; `salt` keeps the ids of two pictures apart.

    Text is drawn as paths, which look the same in every program.
    """
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "path"}):
        metadata = {"Date": None, "Creator": None}
        return _saved(figure, "svg", metadata=metadata, transparent=transparent)


def png_bytes(figure: Figure) -> bytes:
    """The picture as PNG, sharp in print."""
    return _saved(figure, "png", dpi=200, metadata={"Software": None})


def save_picture(figure: Figure, path: Path) -> None:
    """Write SVG or PNG, by the extension; the same picture gives the same bytes."""
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise InputError(f"{path}: a picture is .svg or .png. Give it one of these extensions.")
    content = svg_bytes(figure, "calibration") if kind == ".svg" else png_bytes(figure)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _saved(figure: Figure, kind: str, **options: Any) -> bytes:
    stream = io.BytesIO()
    with warnings.catch_warnings():  # characters that the font lacks become boxes
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(stream, format=kind, **options)
    return stream.getvalue()
