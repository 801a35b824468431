"""The calibration of one model: what each domain makes of a score, and where alarms begin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.errors import InputError
from daco.experiments.figures.style import (
    DOMAINS,
    INK,
    MUTED,
    PALETTE,
    PAPER,
    TEXT_WIDTH,
    Look,
    panels,
    png_bytes,
    styled,
    svg_bytes,
)
from daco.files.atomic import atomic_write
from daco.method.calibration import QuantileMap
from daco.method.config import ScoreConfig
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.detector.model import MachineModel


_COLOURS = ("blue", "orange", "green", "plum", "brown", "slate")
_LINES = ("-", "--", "-.")  # no domain is told by its colour alone
_POINTS = 400
_NAMED = 8  # domains in the legend
_SHORT = 24


@styled
def plot_calibration(model: MachineModel, ax: Any = None) -> Figure:
    """The maps of the domains, and the normals' scores after them.

    Left, what a base score becomes in each domain: its quantile among that domain's normals
    (``conf``; pulled toward all normals together by a prior strength), or the score over the
    domain's median or in its deviations. Scores that are not calibrated are shown with the
    domains' quantiles all the same: where these lie apart, one threshold cannot serve both.
    Right, the share of each domain's normals, each left out once, above every final score.

    Parameters
    ----------
    model : MachineModel
    ax : two Axes, optional
        By default a new figure as wide as a page.
    """
    figure, axes = panels(ax, 2, TEXT_WIDTH, 2.9, bottom=0.74, gap=0.62, left=0.5)
    looks = dict(zip(model.domains, _looks(model.domains), strict=True))
    _draw_maps(axes[0], model, looks)
    _draw_exceedance(axes[1], model, looks)
    if ax is None:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles[:_NAMED], labels[:_NAMED], loc="lower center", ncols=4)
    return figure


def save_picture(figure: Figure, path: Path) -> None:
    """Write SVG or PNG, by the ending; the same picture gives the same bytes."""
    kind = path.suffix.lower()
    if kind not in (".svg", ".png"):
        raise InputError(f"{path}: a picture is .svg or .png. Give it one of these endings.")
    content = svg_bytes(figure, "calibration") if kind == ".svg" else png_bytes(figure)
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def _draw_maps(ax: Axes, model: MachineModel, looks: dict[str, Look]) -> None:
    config = ScoreConfig.parse(model.config)
    base = model.bank.leave_one_out(config.base.name)[:, 0]
    parts = {name: base[model.clip_domains == code] for code, name in enumerate(model.domains)}
    quantiles = config.calibration in (None, "conf")
    low, high = float(base.min()), float(base.max())
    margin = 0.35 * max(high - low, 1e-9)
    floor = -np.inf if config.base.signed else 0.0
    x = np.linspace(min(low, max(floor, low - margin)), high + margin, _POINTS)
    pooled = QuantileMap.fit(base, signed=config.base.signed)
    if quantiles and len(parts) > 1:
        label = "all normals together"
        ax.plot(x, pooled(x), color=MUTED, linestyle=":", linewidth=1.6, label=label, zorder=2)
    _threshold_at(ax, model, vertical=config.calibration is None)
    lines = {name: _map_of(config, part, base, pooled) for name, part in parts.items()}
    for row, (name, part) in enumerate(parts.items()):
        look, mapped = looks[name], lines[name]
        label = f"{look.title} ({len(part)})"
        ax.plot(x, mapped(x), color=look.colour, linestyle=look.line, label=label, zorder=3)
        ax.plot(part, mapped(part), "|", color=look.colour, markersize=5 - row % 2, zorder=3)
    ax.set_xlim(x[0], x[-1])
    if quantiles:
        ax.set_ylim(0, 1.04)
    kind = {"conf": "quantile", "ratio": "score / median", "zscore": "deviations"}
    ax.set_ylabel(kind.get(config.calibration or "", "quantile (not used)"))
    ax.set_xlabel(_base_title(config))
    ax.set_title(f"(a) {_short(model.machine)}: what each domain makes of a score")


def _map_of(
    config: ScoreConfig, part: Float64s, base: Float64s, pooled: QuantileMap
) -> Callable[[Float64s], Float64s]:
    """What a base score becomes in one domain."""
    if config.calibration == "ratio":
        return lambda scores: scores / max(float(np.median(part)), 1e-12)
    if config.calibration == "zscore":
        spread = (part if len(part) > 1 else base).std() + 1e-12
        return lambda scores: (scores - part.mean()) / spread
    own = QuantileMap.fit(part, signed=config.base.signed)
    size, strength = len(part), config.prior_strength
    return lambda scores: (size * own(scores) + strength * pooled(scores)) / (size + strength)


def _draw_exceedance(ax: Axes, model: MachineModel, looks: dict[str, Look]) -> None:
    rates = model.leave_one_out_rates()
    final = model.own_scores
    low, high = float(final.min()), max(float(final.max()), model.threshold)
    room = 0.06 * max(high - low, 1e-9)
    for code, name in enumerate(model.domains):
        look = looks[name]
        own = np.sort(final[model.clip_domains == code])
        above = 1 - np.arange(len(own) + 1) / len(own)
        edges = np.concatenate([[low - room], own, [high + room]])
        ax.step(
            edges,
            np.append(above, 0.0),
            where="post",
            color=look.colour,
            linestyle=look.line,
            label=f"{look.title}: {rates[name]:.3f} above",
            zorder=3,
        )
    rate = model.false_alarm_rate
    ax.axhline(rate, color=MUTED, linestyle=":", linewidth=1.0, zorder=1)
    _threshold_at(ax, model, vertical=True)
    ax.set_xlim(low - room, high + room)
    ax.set_ylim(0, 1.04)
    ax.set_xlabel("anomaly score")
    ax.set_ylabel("share of normals above")
    ax.set_title(f"(b) {model.config}: normals, each left out; rate {rate:g}")
    handles = [each for each in ax.lines if not str(each.get_label()).startswith("_")]
    if len(model.domains) <= _NAMED:
        handles = handles[: len(model.domains)]
        ax.legend(handles=handles, loc="upper right", frameon=True, framealpha=0.9, edgecolor=PAPER)


def _threshold_at(ax: Axes, model: MachineModel, *, vertical: bool) -> None:
    draw = ax.axvline if vertical else ax.axhline
    style = {"color": INK, "linewidth": 1.0, "linestyle": (0, (6, 2)), "zorder": 2}
    draw(model.threshold, label="threshold", **style)  # type: ignore[arg-type]


def _base_title(config: ScoreConfig) -> str:
    count = config.neighbours
    if config.scorer == "knn" and not config.bandwise:
        return "distance to the nearest normal" if count == 1 else f"distance to {count} normals"
    if config.scorer in ("ldn-ratio", "ldn-diff") and not config.bandwise:
        return f"density-normalised distance ({config.scorer})"
    return f"base score ({config.base.name})"


def _looks(domains: tuple[str, ...]) -> list[Look]:
    titles = [_short(name) for name in domains]
    if set(domains) <= set(DOMAINS):
        colours = [DOMAINS[name].colour for name in domains]
    else:
        colours = [PALETTE[_COLOURS[at % len(_COLOURS)]] for at in range(len(domains))]
    lines = [_LINES[at % len(_LINES)] for at in range(len(domains))]
    return [Look(*each[:2], line=each[2]) for each in zip(titles, colours, lines, strict=True)]


def _short(name: str) -> str:
    plain = "".join(char if char.isprintable() else "�" for char in name)
    return plain if len(plain) <= _SHORT else f"{plain[: _SHORT - 1]}…"
