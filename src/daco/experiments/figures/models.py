"""Pictures of one model: the calibration of its domains, and which synthetic faults it detects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from daco.experiments.figures.style import (
    DOMAINS,
    INK,
    MUTED,
    PALETTE,
    PAPER,
    TEXT_WIDTH,
    Look,
    panel_grid,
    panels,
    shorten,
    with_style,
)
from daco.experiments.thresholds import QuantileMap
from daco.method.config import ScoreConfig
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.detector.model import MachineModel
    from daco.synthetic.sensitivity import Sensitivity

_COLOURS = ("blue", "orange", "green", "plum", "brown", "slate")
_MARKERS = ("o", "s", "^", "D")
_NAMED = 8  # domains in the legend
_DOTTED: Any = (0, (1, 2))
_THRESHOLD: Any = {"color": INK, "linewidth": 1.0, "linestyle": (0, (6, 2)), "zorder": 2}


def _looks(domains: Sequence[str], lines: Sequence[str]) -> dict[str, Look]:
    """Colour, marker and line of each domain; no two differ in colour alone."""
    usual = set(domains) <= set(DOMAINS)
    looks = {}
    for at, name in enumerate(domains):
        colour = DOMAINS[name].colour if usual else PALETTE[_COLOURS[at % len(_COLOURS)]]
        marker, line = _MARKERS[at % len(_MARKERS)], lines[at % len(lines)]
        looks[name] = Look(shorten(name), colour, marker, line=line)
    return looks


@with_style
def plot_calibration(model: MachineModel) -> Figure:
    """Plot the maps of the domains, and the normals' scores after them.

    Left, the calibrated score of each base score in each domain: its quantile among that domain's
    normals (``conf``; shrunk toward all normals together by a prior strength), or the score
    divided by the domain's median or in its deviations. Scores that are not calibrated are shown
    with the domains' quantiles too: where these differ, one threshold cannot serve both. Right,
    the share of each domain's reference scores above every final score.
    """
    figure, axes = panels(None, 2, TEXT_WIDTH, 2.9, bottom=0.74, gap=0.62, left=0.5)
    looks = _looks(model.domains, ("-", "--", "-."))
    _draw_maps(axes[0], model, looks)
    _draw_exceedance(axes[1], model, looks)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[:_NAMED], labels[:_NAMED], loc="lower center", ncols=4)
    return figure


def _draw_maps(ax: Axes, model: MachineModel, looks: dict[str, Look]) -> None:
    config = ScoreConfig.parse(model.config)
    base = model.bank.leave_one_out(config.base.name)[:, 0]
    low, high = float(base.min()), float(base.max())
    margin = 0.35 * max(high - low, 1e-9)
    floor = -np.inf if config.base.signed else 0.0
    x = np.linspace(min(low, max(floor, low - margin)), high + margin, 400)
    pooled = QuantileMap.fit(base, signed=config.base.signed)
    quantiles = config.calibration in (None, "conf")
    if quantiles and len(looks) > 1:
        label = "all normals together"
        ax.plot(x, pooled(x), color=MUTED, linestyle=":", linewidth=1.6, label=label, zorder=2)
    threshold = ax.axvline if config.calibration is None else ax.axhline
    for number, value in enumerate(sorted(set(model.thresholds.values()))):
        threshold(value, label="_" * bool(number) + "threshold", **_THRESHOLD)
    for code, look in enumerate(looks.values()):
        part = base[model.clip_domains == code]
        mapped = _map_of(config, part, base, pooled)
        label = f"{look.title} ({len(part)})"
        ax.plot(x, mapped(x), color=look.colour, linestyle=look.line, label=label, zorder=3)
        ax.plot(part, mapped(part), "|", color=look.colour, markersize=5 - code % 2, zorder=3)
    ax.set_xlim(x[0], x[-1])
    if quantiles:
        ax.set_ylim(0, 1.04)
    kind = {"conf": "quantile", "ratio": "score / median", "zscore": "deviations"}
    ax.set_ylabel(kind.get(config.calibration or "", "quantile (not used)"))
    ax.set_xlabel(_base_title(config))
    ax.set_title(f"(a) {shorten(model.machine)}: calibrated score in each domain")


def _map_of(
    config: ScoreConfig, part: Float64s, base: Float64s, pooled: QuantileMap
) -> Callable[[Float64s], Float64s]:
    """The calibration of base scores in one domain."""
    if config.calibration == "ratio":
        return lambda scores: scores / max(float(np.median(part)), 1e-12)
    if config.calibration == "zscore":
        spread = (part if len(part) > 1 else base).std() + 1e-12
        return lambda scores: (scores - part.mean()) / spread
    own = QuantileMap.fit(part, signed=config.base.signed)
    size, strength = len(part), config.m
    return lambda scores: (size * own(scores) + strength * pooled(scores)) / (size + strength)


def _base_title(config: ScoreConfig) -> str:
    count = config.k
    if config.scorer not in ("knn", "ldn-ratio", "ldn-diff"):
        return f"base score ({config.base.name})"
    if config.scorer != "knn":
        return f"density-normalised distance ({config.scorer})"
    return "distance to the nearest normal" if count == 1 else f"distance to {count} normals"


def _draw_exceedance(ax: Axes, model: MachineModel, looks: dict[str, Look]) -> None:
    final, rate = model.reference_scores, model.false_alarm_rate
    low, high = float(final.min()), max(float(final.max()), *model.thresholds.values())
    room = 0.06 * max(high - low, 1e-9)
    handles = []
    for code, (name, look) in enumerate(looks.items()):
        own = np.sort(final[model.reference_domains == code])
        edges = np.concatenate([[low - room], own, [high + room]])
        above = np.append(1 - np.arange(len(own) + 1) / len(own), 0.0)
        label = f"{look.title}: {(own > model.thresholds[name]).mean():.3f} above"
        style: Any = {"color": look.colour, "linestyle": look.line, "label": label}
        handles += ax.step(edges, above, where="post", zorder=3, **style)
    ax.axhline(rate, color=MUTED, linestyle=":", linewidth=1.0, zorder=1)
    for value in model.thresholds.values():
        ax.axvline(value, **_THRESHOLD)
    ax.set_xlim(low - room, high + room)
    ax.set_ylim(0, 1.04)
    ax.set_xlabel("anomaly score")
    ax.set_ylabel("share of normals above")
    ax.set_title(f"(b) {model.config}: reference scores; rate {rate:g}")
    if len(handles) <= _NAMED:
        ax.legend(handles=handles, loc="upper right", frameon=True, framealpha=0.9, edgecolor=PAPER)


@with_style
def plot_sensitivity(result: Sensitivity) -> Figure:
    """Plot detection rate against fault level, in each domain, with its 95 % binomial interval.

    There is a panel per kind of fault. The dotted lines are the false alarms on the same
    recordings without a fault: a curve that stays on its dotted line is a fault that is not
    detected at all. A ring marks the level from which on enough recordings are detected.
    """
    columns = min(3, len(result.kinds))
    inches = {"left": 0.5, "right": 0.12, "top": 0.62, "bottom": 0.72, "gap": 0.2, "below": 0.42}
    figure, axes = panel_grid(len(result.kinds), columns, TEXT_WIDTH, 1.2, inches)
    looks = _looks(result.domains, ("-", "--", "-.", ":"))
    for at, (ax, kind) in enumerate(zip(axes, result.kinds, strict=True)):
        _draw_detection(ax, result, kind, looks)
        ax.tick_params(labelleft=at % columns == 0, labelbottom=at + columns >= len(result.kinds))
        if at % columns == 0:
            ax.set_ylabel("caught, %")
    height = figure.get_figheight()
    label = "fault level, dB relative to the recording"
    figure.text(0.5, (inches["bottom"] - 0.34) / height, label, ha="center", va="center")
    title = (
        f"{shorten(result.machine)}: recordings with a synthetic fault that are caught, at a "
        f"false-alarm rate of {result.false_alarm_rate:g}"
    )
    left = inches["left"] / TEXT_WIDTH
    figure.text(left, 1 - 0.2 / height, title, va="center", fontsize=8.5)
    handles, labels = axes[0].get_legend_handles_labels()
    ring: Any = {"marker": "o", "markersize": 7, "markerfacecolor": PAPER}
    labels = [f"{label} ({n})" for label, n in zip(labels, result.clips.tolist(), strict=True)]
    further = {
        "95% interval": Patch(color=MUTED, alpha=0.2, linewidth=0),
        "false alarms, no fault": Line2D([], [], color=MUTED, linestyle=_DOTTED, linewidth=1.0),
        f"{100 * result.detect:g} %": Line2D([], [], color=MUTED, linewidth=0.7),
        "caught from here": Line2D([], [], color=MUTED, linestyle="", **ring),
    }
    place: Any = {"loc": "lower center", "ncols": min(len(handles), 3) + 4}
    handles += further.values()
    figure.legend(handles, [*labels, *further], bbox_to_anchor=(0.5, 0.0), **place)
    return figure


def _draw_detection(ax: Axes, result: Sensitivity, kind: str, looks: dict[str, Look]) -> None:
    levels = result.levels
    ax.axhline(100 * result.detect, color=MUTED, linewidth=0.7, zorder=1)
    for at, (domain, look) in enumerate(looks.items()):
        rates = {level: result.rate(kind, domain, level) for level in levels}
        low, high = 100 * np.array([rate.interval for rate in rates.values()]).T
        ax.fill_between(levels, low, high, color=look.colour, alpha=0.12, linewidth=0, zorder=1)
        normal = 100 * result.false_alarm(domain).share
        ax.axhline(normal, color=look.colour, linestyle=_DOTTED, linewidth=1.0, zorder=2)
        shares = [100 * rate.share for rate in rates.values()]
        ax.plot(levels, shares, label=look.title, **look.style(3))
        level = result.caught_from(kind, domain)
        if level is not None:
            size = 8.5 + 2.5 * (at % 3)  # rings of two domains at one place stay apart
            ring: Any = {"markersize": size, "markerfacecolor": "none", "markeredgewidth": 1.1}
            share = 100 * rates[level].share
            ax.plot([level], [share], "o", color=look.colour, clip_on=False, zorder=4, **ring)
    room = 0.04 * max(levels[-1] - levels[0], 1.0)
    ax.set_xlim(levels[0] - room, levels[-1] + room)
    every = -(-len(levels) // 5)
    ax.set_xticks(list(levels)[::-1][::every])
    ax.set_ylim(-3, 105)
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.set_title(kind)
