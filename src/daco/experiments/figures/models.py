"""Pictures of one model: the calibration of its domains, and which synthetic faults it detects."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.experiments.figures.style import (
    DOMAINS,
    INK,
    MUTED,
    PALETTE,
    PAPER,
    Look,
    shorten,
    with_style,
)
from daco.method import paper
from daco.method.config import ScoreConfig
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

TEXT_WIDTH = 7.1
"""Inches: the whole page of a paper."""

_COLOURS = ("blue", "orange", "green", "plum", "brown", "slate")
_MARKERS, _LINES = ("o", "s", "^", "D"), ("-", "--", "-.")
_NAMED = 8  # domains in the legend
_DOTTED: Any = (0, (1, 2))
_THRESHOLD: Any = {"color": INK, "linewidth": 1.0, "linestyle": (0, (6, 2)), "zorder": 2}
_QUANTITIES = {"conf": "quantile", "ratio": "score / median", "zscore": "deviations"}


@with_style
def plot_calibration(model: MachineModel) -> Figure:
    """Plot the maps of the domains, and the normals' scores after them.

    Left, the calibrated score of each base score in each domain: its quantile among that domain's
    normals (``conf``; shrunk toward all normals together by a prior strength), or the score
    divided by the domain's median or in its deviations. Scores that are not calibrated are shown
    with the domains' quantiles too: where these differ, one threshold cannot serve both. Right,
    the share of each domain's reference scores above every final score.
    """
    figure = Figure(figsize=(TEXT_WIDTH, 2.9), layout="constrained")
    axes = figure.subplots(1, 2)
    looks = _looks(model.domains)
    _draw_maps(axes[0], model, looks)
    _draw_exceedance(axes[1], model, looks)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[:_NAMED], labels[:_NAMED], loc="outside lower center", ncols=4)
    return figure


def _looks(domains: Sequence[str]) -> dict[str, Look]:
    """Colour, marker and line of each domain; no two differ in colour alone."""
    usual = set(domains) <= set(DOMAINS)
    looks = {}
    for at, name in enumerate(domains):
        colour = DOMAINS[name].colour if usual else PALETTE[_COLOURS[at % len(_COLOURS)]]
        marker, line = _MARKERS[at % len(_MARKERS)], _LINES[at % len(_LINES)]
        looks[name] = Look(shorten(name), colour, marker, line)
    return looks


def _draw_maps(ax: Axes, model: MachineModel, looks: dict[str, Look]) -> None:
    config = ScoreConfig.parse(model.config)
    base = model.bank.leave_one_out(config.base.name)[:, 0]
    low, high = float(base.min()), float(base.max())
    margin = 0.35 * max(high - low, 1e-9)
    floor = -np.inf if config.base.signed else 0.0
    x = np.linspace(min(low, max(floor, low - margin)), high + margin, 400)
    if config.calibration in (None, "conf"):
        ax.set_ylim(0, 1.04)
        if len(looks) > 1:
            pooled = paper.quantile_map(base, x, signed=config.base.signed)
            ax.plot(x, pooled, ":", color=MUTED, linewidth=1.6, label="all normals together")
    threshold = ax.axvline if config.calibration is None else ax.axhline
    for number, value in enumerate(sorted(set(model.thresholds.values()))):
        threshold(value, label="_" * bool(number) + "threshold", **_THRESHOLD)
    for code, look in enumerate(looks.values()):
        part = base[model.clip_domains == code]
        mapped = _map_of(config, part, base)
        label = f"{look.title} ({len(part)})"
        ax.plot(x, mapped(x), color=look.colour, linestyle=look.line, label=label, zorder=3)
        ax.plot(part, mapped(part), "|", color=look.colour, markersize=5 - code % 2, zorder=3)
    ax.set_xlim(x[0], x[-1])
    ax.set_ylabel(_QUANTITIES.get(config.calibration or "", "quantile (not used)"))
    ax.set_xlabel(f"base score ({config.base.name})")
    ax.set_title(f"(a) {shorten(model.machine)}: calibrated score in each domain")


def _map_of(config: ScoreConfig, part: Float64s, base: Float64s) -> Callable[[Float64s], Float64s]:
    """The calibration of base scores in one domain."""
    if config.calibration == "ratio":
        return lambda scores: scores / max(float(np.median(part)), 1e-12)
    if config.calibration == "zscore":
        spread = (part if len(part) > 1 else base).std() + 1e-12
        return lambda scores: (scores - part.mean()) / spread
    m, signed = config.m or 0.0, config.base.signed
    return lambda scores: paper.shrunk_map(part, base, m, scores, signed)


def _draw_exceedance(ax: Axes, model: MachineModel, looks: dict[str, Look]) -> None:
    final, rate = model.reference_scores, model.false_alarm_rate
    for code, (name, look) in enumerate(looks.items()):
        own = final[model.reference_domains == code]
        label = f"{look.title}: {(own > model.thresholds[name]).mean():.3f} above"
        style: Any = {"color": look.colour, "linestyle": look.line, "label": label}
        ax.ecdf(own, complementary=True, zorder=3, **style)
    ax.axhline(rate, color=MUTED, linestyle=":", linewidth=1.0, zorder=1)
    for value in model.thresholds.values():
        ax.axvline(value, **_THRESHOLD)
    ax.margins(x=0.06)
    ax.set_ylim(0, 1.04)
    ax.set_xlabel("anomaly score")
    ax.set_ylabel("share of normals above")
    ax.set_title(f"(b) {model.config}: reference scores; rate {rate:g}")
    if len(looks) <= _NAMED:
        ax.legend(loc="upper right", frameon=True, framealpha=0.9, edgecolor=PAPER)


@with_style
def plot_sensitivity(table: pd.DataFrame, machine: str, rate: float, caught: float = 0.9) -> Figure:
    """Plot the detection rate against the fault level, a panel per kind of fault.

    Parameters
    ----------
    table : DataFrame
        ``fault``, ``domain``, ``level_db``, ``rate``, ``low`` and ``high``, the 95 % binomial
        interval. Rows with the fault ``""`` are the same recordings without a fault: a curve that
        stays on its dotted line is a fault that is not detected at all.
    machine : str
    rate : float
        The false-alarm rate of the model.
    caught : float
        The share of recordings that counts as caught, drawn as a line.

    Returns
    -------
    Figure
    """
    normal, faults = table[table["fault"] == ""], table[table["fault"] != ""]
    kinds = list(faults["fault"].unique())
    columns = min(3, len(kinds))
    rows = -(-len(kinds) // columns)
    figure = Figure(figsize=(TEXT_WIDTH, 1.0 + 1.5 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).ravel()
    looks = _looks(list(table["domain"].unique()))
    for ax, kind in zip(panels, kinds, strict=False):
        ax.axhline(100 * caught, color=MUTED, linewidth=0.7, zorder=1)
        for domain, look in looks.items():
            own = faults[(faults["fault"] == kind) & (faults["domain"] == domain)]
            low, high = 100 * own["low"], 100 * own["high"]
            shade: Any = {"color": look.colour, "alpha": 0.12, "linewidth": 0, "zorder": 1}
            ax.fill_between(own["level_db"], low, high, **shade)
            ax.plot(own["level_db"], 100 * own["rate"], label=look.title, **look.style(3))
            for alarms in normal.loc[normal["domain"] == domain, "rate"]:
                ax.axhline(100 * alarms, color=look.colour, linestyle=_DOTTED, linewidth=1.0)
        ax.set_ylim(-3, 105)
        ax.set_title(kind)
    for ax in panels[len(kinds) :]:
        ax.set_axis_off()
    for ax in panels[max(0, len(kinds) - columns) : len(kinds)]:  # nothing is below these
        ax.set_xlabel("fault level, dB relative to the recording")
        ax.tick_params(labelbottom=True)
    figure.supylabel("caught, %", fontsize=7.5)
    figure.suptitle(
        f"{shorten(machine)}: recordings with a synthetic fault that are caught, at a false-alarm "
        f"rate of {rate:g}\n(dotted: false alarms; shaded: 95 % interval over recordings)",
        fontsize=8,
    )
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure
