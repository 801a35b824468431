"""Scores of normal and anomalous clips by domain, with the one threshold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, StepPatch
from numpy.typing import NDArray

from daco.detector.thresholds import FALSE_ALARM_RATE, threshold_for
from daco.errors import InputError
from daco.experiments.figures.style import (
    ANOMALY,
    INK,
    MUTED,
    NORMAL,
    TEXT_WIDTH,
    TRAIN,
    panels,
    say_nothing_to_show,
    shortened,
    styled,
)
from daco.method.config import DEFAULT_CONFIG
from daco.method.grid_table import require_known

if TYPE_CHECKING:
    from daco.experiments.study_tables import MachineScores, StudyTables

_BINS = 28
_TAIL = 0.01  # share of clips that may lie beyond the shown range, in its last bin
_PER_ROW = 3
_FEW = 20  # clips that are better shown one by one


@styled
def plot_distributions(
    result: StudyTables,
    machine: str | None = None,
    config: str | None = None,
    ax: Any = None,
) -> Figure:
    """Histograms of scores: training normals (each left out once), test normals, anomalies.

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
        raise InputError("One Axes shows one machine. Say which with 'machine'.")
    config = config or shown_config(result)
    rate = false_alarm_rate(result)
    if ax is not None or len(machines) == 1:
        figure, axes = panels(ax, 1, TEXT_WIDTH / 2, 1.9, left=0.55, top=0.3)
    else:
        figure, axes = _small_multiples(len(machines))
    for each, scores in zip(axes, machines, strict=False):
        draw_distribution(each, scores, config, rate)
    if ax is None:
        figure.legend(handles=legend_of(), loc="lower center", ncols=4)
    return figure


def draw_distribution(ax: Axes, machine: MachineScores, config: str, rate: float) -> None:
    """One machine: a row of histograms for each domain, and the threshold through all."""
    if config not in machine.configs:
        say_nothing_to_show(ax, f"not scored with {config}")
        return
    own, scores = machine.own_of(config), machine.of(config)
    threshold = threshold_for(config, own, machine.own_domains, rate)
    edges = _edges(np.concatenate([own, scores, [threshold]]), config)
    domains = sorted(set(machine.own_domains.tolist()) | set(machine.domains.tolist()) - {""})
    rows = [_parts(machine, own, scores, domain) for domain in domains]
    unknown = scores[machine.labels < 0]
    if len(unknown):
        rows.insert(0, [(unknown, INK, 0.25)])
        domains.insert(0, "unknown")
    for row, (name, parts) in enumerate(zip(reversed(domains), reversed(rows), strict=True)):
        for values, colour, alpha in parts:
            _histogram(ax, values, edges, row, colour, alpha)
        ax.axhline(row, color=MUTED, linewidth=0.7, zorder=3.5)
        ax.annotate(
            name,
            (0, row + 0.35),
            (-4, 0),
            ("axes fraction", "data"),
            "offset points",
            ha="right",
            va="center",
            color=MUTED,
            fontsize=7,
        )
    ax.axvline(threshold, color=INK, linewidth=1.0, zorder=4)
    ax.set_xlim(edges[0], edges[-1])
    ax.set_ylim(-0.06, len(rows))
    ax.yaxis.set_visible(False)
    ax.grid(visible=False)
    ax.spines["left"].set_visible(False)
    ax.locator_params(axis="x", nbins=4)
    ax.set_title(shortened(machine.title), fontweight="bold")


def _parts(
    machine: MachineScores, own: NDArray[Any], scores: NDArray[Any], domain: str
) -> list[tuple[NDArray[Any], str, float]]:
    """Values, colour and opacity of the histograms in one domain's row."""
    here = machine.domains == domain
    return [
        (own[machine.own_domains == domain], TRAIN, 0.55),
        (scores[here & (machine.labels == 0)], NORMAL, 0.45),
        (scores[here & (machine.labels == 1)], ANOMALY, 0.0),
    ]


def legend_of() -> list[Any]:
    """What the fillings and the line mean."""
    return [
        Patch(facecolor=TRAIN, alpha=0.55, label="training normals"),
        Patch(facecolor=NORMAL, alpha=0.45, label="test normals"),
        Patch(facecolor="none", edgecolor=ANOMALY, linewidth=1.2, label="test anomalies"),
        Line2D([], [], color=INK, linewidth=1.0, label="threshold"),
    ]


def chosen_config(result: StudyTables) -> str | None:
    """The configuration the study chose; None where the result holds no choice."""
    return (result.selection.get("chosen") or {}).get("config")


def shown_config(result: StudyTables) -> str:
    """The configuration that pictures show: the chosen one, else the default, else the first."""
    names = result.grid["config"].tolist()
    default = DEFAULT_CONFIG if DEFAULT_CONFIG in names else str(names[0])
    return chosen_config(result) or default


def false_alarm_rate(result: StudyTables) -> float:
    """The rate the study's threshold asks for."""
    return float(result.provenance.get("false_alarm_rate", FALSE_ALARM_RATE))


def _histogram(
    ax: Axes, values: NDArray[Any], edges: NDArray[Any], row: int, colour: str, alpha: float
) -> None:
    """Steps as high as 0.9 rows where the share of clips is highest; alpha 0 is an outline.

    A few clips would make blocks that look like many: each has a tick instead.
    """
    values = np.clip(values, edges[0], edges[-1])
    if len(values) < _FEW:
        ax.vlines(values, row, row + 0.3, color=colour, linewidth=1.2, zorder=2.5)
        return
    counts, _ = np.histogram(values, edges)
    heights = row + 0.9 * counts / counts.max()
    if alpha:
        steps = StepPatch(heights, edges, baseline=row, color=colour, alpha=alpha, linewidth=0)
    else:
        steps = StepPatch(
            heights, edges, baseline=row, fill=False, edgecolor=colour, linewidth=1.2, zorder=3
        )
    ax.add_artist(steps)  # not `ax.stairs`: the limits are known, and finding them takes long


def _edges(values: NDArray[np.float64], config: str) -> NDArray[np.float64]:
    """Bins over all but the outermost scores; quantiles have their own natural range."""
    if config.startswith("conf-"):
        return np.linspace(0.0, 1.0, _BINS + 1)
    low, high = np.quantile(values, [_TAIL / 2, 1 - _TAIL / 2])
    low, high = min(low, values[-1]), max(high, values[-1])  # the threshold stays in sight
    room = 0.03 * (high - low) or 1.0
    return np.linspace(low - room, high + room, _BINS + 1)


def _small_multiples(count: int) -> tuple[Figure, list[Axes]]:
    rows, columns = math.ceil(count / _PER_ROW), min(count, _PER_ROW)
    left, gap, bottom, top, height = 0.5, 0.5, 0.45, 0.25, 1.15
    total = rows * (height + gap) - gap + bottom + top + 0.1
    figure = Figure(figsize=(TEXT_WIDTH, total))
    width = (TEXT_WIDTH - left - 0.1 - gap * (columns - 1)) / columns
    axes = []
    for at in range(count):
        row, column = divmod(at, _PER_ROW)
        x = left + column * (width + gap)
        y = total - top - (row + 1) * height - row * gap
        axes.append(
            figure.add_axes((x / TEXT_WIDTH, y / total, width / TEXT_WIDTH, height / total))
        )
    return figure, axes
