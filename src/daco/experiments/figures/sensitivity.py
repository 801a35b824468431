"""What a model catches of synthetic faults: a panel per kind of fault, a line per domain."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from daco.experiments.figures.style import (
    DOMAINS,
    MUTED,
    PALETTE,
    PAPER,
    TEXT_WIDTH,
    Look,
    shortened,
    styled,
)
from daco.synthetic.sensitivity import CONFIDENCE

if TYPE_CHECKING:
    from daco.synthetic.sensitivity import Sensitivity

_PER_ROW = 3
_LOOKS = (("blue", "o", "-"), ("orange", "s", "--"), ("green", "^", "-."), ("plum", "D", ":"))
_PANEL, _LEFT, _RIGHT, _TOP, _BOTTOM = 1.2, 0.5, 0.12, 0.62, 0.72  # inches
_GAP, _BETWEEN = 0.2, 0.42
_X_LABEL = "fault level, dB relative to the recording"


@styled
def plot_sensitivity(found: Sensitivity) -> Figure:
    """Detection rate against fault level, in each domain, with its 95 % binomial interval.

    The dotted lines are the false alarms on the same recordings without a fault: a curve that
    stays on its dotted line is a fault that is not heard at all. A ring marks the level from
    which on at least the share that counts as caught is caught.

    Parameters
    ----------
    found : Sensitivity
    """
    columns = min(_PER_ROW, len(found.kinds))
    rows = -(-len(found.kinds) // columns)
    height = _TOP + _BOTTOM + rows * _PANEL + (rows - 1) * _BETWEEN
    figure = Figure(figsize=(TEXT_WIDTH, height))
    width = (TEXT_WIDTH - _LEFT - _RIGHT - (columns - 1) * _GAP) / columns
    looks = _looks(found.domains)
    axes: list[Axes] = []
    for at, kind in enumerate(found.kinds):
        row, column = divmod(at, columns)
        left = _LEFT + column * (width + _GAP)
        bottom = height - _TOP - _PANEL - row * (_PANEL + _BETWEEN)
        ax = figure.add_axes(
            (left / TEXT_WIDTH, bottom / height, width / TEXT_WIDTH, _PANEL / height)
        )
        _draw(ax, found, kind, looks)
        ax.tick_params(labelleft=column == 0)
        if column == 0:
            ax.set_ylabel("caught, %")
        ax.tick_params(labelbottom=at + columns >= len(found.kinds))
        axes.append(ax)
    figure.text(0.5, (_BOTTOM - 0.34) / height, _X_LABEL, ha="center", va="center")
    _finish(figure, axes[0], found, height)
    return figure


def _draw(ax: Axes, found: Sensitivity, kind: str, looks: dict[str, Look]) -> None:
    ax.axhline(100 * found.detect, color=MUTED, linewidth=0.7, zorder=1)
    for at, (domain, look) in enumerate(looks.items()):
        rates = [found.rate(kind, domain, level) for level in found.levels]
        shares = [100 * rate.share for rate in rates]
        low, high = zip(*(rate.interval for rate in rates), strict=True)
        ax.fill_between(
            found.levels,
            [100 * each for each in low],
            [100 * each for each in high],
            color=look.colour,
            alpha=0.12,
            linewidth=0,
            zorder=1,
        )
        ax.axhline(
            100 * found.false_alarm(domain).share,
            color=look.colour,
            linestyle=(0, (1, 2)),
            linewidth=1.0,
            zorder=2,
        )
        ax.plot(
            found.levels,
            shares,
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markersize=3,
            label=look.title,
            zorder=3,
        )
        level = found.caught_from(kind, domain)
        if level is not None:
            y = 100 * found.rate(kind, domain, level).share
            size = 8.5 + 2.5 * (at % 3)  # rings of two domains at one place stay apart
            ax.plot(
                [level],
                [y],
                "o",
                color=look.colour,
                markersize=size,
                markerfacecolor="none",
                markeredgewidth=1.1,
                clip_on=False,
                zorder=4,
            )
    span = max(found.levels[-1] - found.levels[0], 1.0)
    ax.set_xlim(found.levels[0] - 0.04 * span, found.levels[-1] + 0.04 * span)
    ax.set_xticks(_ticks(found.levels))
    ax.set_ylim(-3, 105)
    ax.set_yticks([0, 25, 50, 75, 100])
    ax.set_title(kind)


def _ticks(levels: tuple[float, ...]) -> list[float]:
    step = -(-len(levels) // 5)
    return list(levels)[::-1][::step][::-1]


def _finish(figure: Figure, first: Axes, found: Sensitivity, height: float) -> None:
    """Title and legend, which name what all panels share."""
    figure.text(
        _LEFT / TEXT_WIDTH,
        1 - 0.2 / height,
        f"{shortened(found.machine)}: recordings with a synthetic fault above the threshold for a "
        f"false-alarm rate of {found.false_alarm_rate:g}",
        va="center",
        fontsize=8.5,
    )
    handles, labels = first.get_legend_handles_labels()
    dotted = Line2D([], [], color=MUTED, linestyle=(0, (1, 2)), linewidth=1.0)
    thin = Line2D([], [], color=MUTED, linewidth=0.7)
    shade = Patch(color=MUTED, alpha=0.2, linewidth=0)
    ring = Line2D(
        [], [], color=MUTED, linestyle="", marker="o", markersize=7, markerfacecolor=PAPER
    )
    labels = [
        f"{label} ({clips})" for label, clips in zip(labels, found.clips.tolist(), strict=True)
    ]
    figure.legend(
        [*handles, shade, dotted, thin, ring],
        [
            *labels,
            f"{CONFIDENCE:.0%} interval",
            "false alarms, no fault",
            f"{100 * found.detect:g} %",
            "caught from here",
        ],
        loc="lower center",
        ncols=min(len(handles), 3) + 4,
        bbox_to_anchor=(0.5, 0.0),
    )


def _looks(domains: tuple[str, ...]) -> dict[str, Look]:
    """No domain is told by its colour alone."""
    looks = {}
    for at, domain in enumerate(domains):
        colour, marker, line = _LOOKS[at % len(_LOOKS)]
        shade = DOMAINS[domain].colour if set(domains) <= set(DOMAINS) else PALETTE[colour]
        looks[domain] = Look(shortened(domain), shade, marker, line=line)
    return looks
