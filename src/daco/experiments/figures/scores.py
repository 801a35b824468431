"""Scores of clips with their thresholds, and the false-alarm rates that came of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, StepPatch

from daco.errors import InputError
from daco.experiments.figures.style import (
    ANOMALY,
    DOMAINS,
    INK,
    MUTED,
    NORMAL,
    TEXT_WIDTH,
    TRAIN,
    number_panels,
    panel_grid,
    panels,
    shorten,
    show_reason,
    system_looks,
    with_style,
)
from daco.experiments.grid_table import require_known
from daco.experiments.highlights import false_alarm_rate, imbalances, shown_config
from daco.experiments.veto import ROLES
from daco.text import quantity
from daco.validation import Float64s

if TYPE_CHECKING:
    from daco.experiments.study_tables import MachineScores, StudyTables

_BINS = 28
_TAIL = 0.01  # share of clips that may lie beyond the shown range, in its last bin
_PER_ROW = 3
_FEW = 20  # clips that are better shown one by one
_FILLS = {  # colour and opacity; 0 is an outline
    "training": (TRAIN, 0.55),
    "normal": (NORMAL, 0.45),
    "anomaly": (ANOMALY, 0.0),
    "unknown": (INK, 0.25),
}


@with_style
def plot_distributions(
    result: StudyTables, machine: str | None = None, config: str | None = None, ax: Any = None
) -> Figure:
    """Plot histograms of scores: training normals (each left out once), test normals, anomalies.

    Parameters
    ----------
    result : StudyTables
        With the scores of its machines.
    machine : str, optional
        One machine; by default all, as small multiples.
    config : str, optional
        By default the chosen configuration, or the fixed default where none was chosen.
    ax : Axes, optional
        For one machine.

    Returns
    -------
    Figure
    """
    machines = result.machine_scores()
    if not machines:
        raise InputError(
            "This result has no scores of single clips. Read it from its run's folder."
        )
    if machine is not None:
        require_known([machine], [m.title for m in machines], "The study")
        machines = [m for m in machines if m.title == machine]
    elif ax is not None and len(machines) > 1:
        raise InputError("One Axes shows one machine. Name it with 'machine'.")
    if ax is not None or len(machines) == 1:
        figure, axes = panels(ax, 1, TEXT_WIDTH / 2, 1.9, left=0.55, top=0.3)
    else:
        inches = {"left": 0.5, "right": 0.1, "top": 0.25, "bottom": 0.55, "gap": 0.5, "below": 0.5}
        columns = min(len(machines), _PER_ROW)
        figure, axes = panel_grid(len(machines), columns, TEXT_WIDTH, 1.15, inches)
    config, rate = config or shown_config(result), false_alarm_rate(result)
    for each, scores in zip(axes, machines, strict=False):
        draw_distribution(each, scores, config, rate)
    if ax is None:
        handles = [
            Patch(facecolor=TRAIN, alpha=0.55, label="training normals"),
            Patch(facecolor=NORMAL, alpha=0.45, label="test normals"),
            Patch(facecolor="none", edgecolor=ANOMALY, linewidth=1.2, label="test anomalies"),
            Line2D([], [], color=INK, linewidth=1.0, label="threshold of a clip of this domain"),
        ]
        figure.legend(handles=handles, loc="lower center", ncols=4)
    return figure


def draw_distribution(
    ax: Axes, machine: MachineScores, config: str, rate: float, title: str | None = None
) -> None:
    """Draw one machine: a row of histograms for each domain, with the threshold of its clips."""
    if config not in machine.configs:
        show_reason(ax, f"not scored with {config}")
        return
    own, scores = machine.own_of(config), machine.of(config)
    limits = {}
    if config in machine.decided:
        limits = machine.reference_of(config).domain_thresholds(rate)
    edges = _edges(np.concatenate([own, scores]), list(limits.values()), config)
    rows = dict(reversed(scores_by_domain(machine, config).items()))  # from the bottom
    unknown = scores[machine.labels < 0]
    if len(unknown):
        rows["unknown"] = {"unknown": unknown}
    for row, (name, parts) in enumerate(rows.items()):
        for kind, values in parts.items():
            _histogram(ax, values, edges, row, *_FILLS[kind])
        ax.axhline(row, color=MUTED, linewidth=0.7, zorder=3.5)
        if name in limits:
            ax.vlines(limits[name], row, row + 0.95, color=INK, linewidth=1.0, zorder=4)
        place: Any = ((0, row + 0.35), (-4, 0), ("axes fraction", "data"), "offset points")
        ax.annotate(name, *place, ha="right", va="center", color=MUTED, fontsize=7)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(-0.06, len(rows))
    ax.yaxis.set_visible(False)
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
    ax.set_title(shorten(machine.title) if title is None else title, fontweight="bold")


def scores_by_domain(machine: MachineScores, config: str) -> dict[str, dict[str, Float64s]]:
    """Scores of each domain's training normals, test normals and test anomalies."""
    own, scores = machine.own_of(config), machine.of(config)
    names = set(machine.own_domains.tolist()) | (set(machine.domains.tolist()) - {""})
    return {
        name: {
            "training": own[machine.own_domains == name],
            "normal": scores[(machine.domains == name) & (machine.labels == 0)],
            "anomaly": scores[(machine.domains == name) & (machine.labels == 1)],
        }
        for name in sorted(names)
    }


def _histogram(
    ax: Axes, values: Float64s, edges: Float64s, row: int, colour: str, alpha: float
) -> None:
    """Steps as high as 0.9 rows at the largest share of clips; alpha 0 is an outline.

    A few clips would make blocks that look like many: each has a tick instead.
    """
    values = np.clip(values, edges[0], edges[-1])
    if len(values) < _FEW:
        ax.vlines(values, row, row + 0.3, color=colour, linewidth=1.2, zorder=2.5)
        return
    counts, _ = np.histogram(values, edges)
    filled: Any = {"color": colour, "alpha": alpha, "linewidth": 0}
    outline: Any = {"fill": False, "edgecolor": colour, "linewidth": 1.2, "zorder": 3}
    heights = row + 0.9 * counts / counts.max()
    steps = StepPatch(heights, edges, baseline=row, **(filled if alpha else outline))
    ax.add_artist(steps)  # not `ax.stairs`: the limits are known, and computing them is slow


def _edges(values: Float64s, limits: Sequence[float], config: str) -> Float64s:
    """Bins over all but the outermost scores, and over the thresholds."""
    if config.startswith("conf-"):
        return np.linspace(0.0, 1.0, _BINS + 1)
    low, high = np.quantile(values, [_TAIL / 2, 1 - _TAIL / 2])
    low, high = min(low, *limits, low), max(high, *limits, high)
    room = 0.03 * (high - low) or 1.0
    return np.linspace(low - room, high + room, _BINS + 1)


@with_style
def plot_coverage(result: StudyTables, ax: Any = None, *, split: str | None = None) -> Figure:
    """Plot realised against nominal false-alarm rate by domain, and the domains' difference.

    Both are means over the machines of `split`.

    Parameters
    ----------
    result : StudyTables
    ax : two Axes, optional
        By default a new figure as wide as a page.
    split : {"dev", "eval"}, optional
        By default the evaluation machines, where their labels are known.

    Returns
    -------
    Figure
    """
    figure, axes = panels(ax, 2, TEXT_WIDTH, 3.0, bottom=0.82, gap=0.6)
    for each, panel in zip(axes, ("realised", "imbalance"), strict=True):
        draw_coverage(each, result, panel, split)
    number_panels(axes)
    return figure


def draw_coverage(ax: Axes, result: StudyTables, panel: str, split: str | None = None) -> None:
    """Draw the realised rate by system and domain, or the imbalance of the domains by system."""
    table = result.coverage
    if table.empty:
        show_reason(ax, "no labelled test normals")
        return
    present = set(table["split"])
    if split is not None and split not in present:
        raise InputError(f"There is no coverage of split {split!r}. There is of {sorted(present)}.")
    split = split or ("eval" if "eval" in present else "dev")
    rows = table[table["split"] == split]
    looks = system_looks(rows["system"])
    if panel == "realised":
        for (system, domain), group in rows.groupby(["system", "domain"], sort=False):
            mean = group.groupby("nominal_fpr")["empirical_fpr"].mean()
            colour = DOMAINS.get(str(domain), DOMAINS["target"]).colour
            look = looks[str(system)]
            label = f"{domain}, {look.title}"
            ax.plot(mean.index, mean, label=label, **look.style(3.5, color=colour))
    else:
        for system, line in imbalances(rows).items():
            ax.plot(line.index, line, label=looks[system].title, **looks[system].style(3.5))
    ax.set_xlim(0, 0.55)
    ax.set_ylim(0, None)
    ax.set_xlabel("nominal false-alarm rate")
    ax.set_ylabel("realised rate" if panel == "realised" else "difference between domains")
    kind = f"{ROLES.get(split, split)} machine"
    ax.set_title(f"mean over {quantity(rows['machine'].nunique(), kind)}")
    # below the axis, where no line runs
    ax.legend(loc="upper center", bbox_to_anchor=(0.46, -0.16), ncols=2)
    if panel == "realised":
        ax.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (1, 2)), linewidth=0.9, zorder=1)
