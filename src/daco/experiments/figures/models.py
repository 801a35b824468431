"""Pictures of one model: its scores in each domain, and which synthetic faults it detects."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.figure import Figure

from daco.detector.displays import ScoreDisplay
from daco.experiments.figures.style import (
    MUTED,
    PALETTE,
    Look,
    new_figure,
    shorten,
    with_style,
)

if TYPE_CHECKING:
    from daco.detector.model import MachineModel

TEXT_WIDTH = 7.1
"""Inches: the whole page of a paper."""

_COLOURS = ("blue", "orange", "green", "plum", "brown", "slate")
_MARKERS, _LINES = ("o", "s", "^", "D"), ("-", "--", "-.")
_DOTTED: Any = (0, (1, 2))


@with_style
def plot_scores(model: MachineModel) -> Figure:
    """Plot the reference scores of each domain, and the limit above which a clip is anomalous."""
    figure, ax = new_figure(2.9, TEXT_WIDTH)
    scores, limits = {}, {}
    for code, name in enumerate(model.domains):
        own = model.reference_scores[model.reference_domains == code]
        title = f"{shorten(name)} ({len(own)})"
        scores[title], limits[title] = own, model.thresholds[name]
    ScoreDisplay(scores, limits).plot(ax=ax)
    ax.set_title(f"{shorten(model.machine)}: {model.config}, rate {model.false_alarm_rate:g}")
    return figure


def _looks(domains: Sequence[str]) -> dict[str, Look]:
    """Colour, marker and line of each domain; no two differ in colour alone."""
    styles = zip(cycle(_COLOURS), cycle(_MARKERS), cycle(_LINES))
    return {
        name: Look(shorten(name), PALETTE[colour], marker, line)
        for name, (colour, marker, line) in zip(domains, styles, strict=False)
    }


@with_style
def plot_sensitivity(table: pd.DataFrame, machine: str, rate: float, caught: float = 0.9) -> Figure:
    """Detection rate against the fault level, a panel per kind of fault.

    The table is that of :mod:`daco.synthetic.sensitivity`; the share `caught` is drawn as a line. A
    curve that stays on its dotted line is a fault that is not detected at all.
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
