"""What became of the false-alarm rate that was asked for, in each domain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.errors import InputError
from daco.experiments.figures.style import (
    DOMAINS,
    MUTED,
    TEXT_WIDTH,
    panels,
    say_nothing_to_show,
    styled,
    system_looks,
)

if TYPE_CHECKING:
    import pandas as pd

    from daco.experiments.study_tables import StudyTables


@styled
def plot_coverage(result: StudyTables, ax: Any = None, *, split: str | None = None) -> Figure:
    """Realised against nominal false-alarm rate by domain, and the imbalance between domains.

    Both are means over the machines of `split`.

    Parameters
    ----------
    result : StudyTables
    ax : two Axes, optional
        By default a new figure as wide as a page.
    split : {"dev", "eval"}, optional
        By default the evaluation machines, where their labels are known.
    """
    figure, axes = panels(ax, 2, TEXT_WIDTH, 3.0, bottom=0.82, gap=0.6)
    draw_realised(axes[0], result, split)
    draw_imbalance(axes[1], result, split)
    for letter, each in zip("ab", axes, strict=True):
        each.set_title(f"({letter}) {each.get_title(loc='left')}", loc="left")
        legend_below(each)
    return figure


def legend_below(ax: Axes) -> None:
    """The legend under the horizontal axis, where no line runs."""
    handles, labels = ax.get_legend_handles_labels()
    if handles:
        ax.legend(handles, labels, loc="upper center", bbox_to_anchor=(0.46, -0.16), ncols=2)


def draw_realised(ax: Axes, result: StudyTables, split: str | None = None) -> None:
    """Realised against nominal rate: a line for each system and domain."""
    rows = _rows(result, split)
    if rows is None:
        say_nothing_to_show(ax, "no labelled test normals")
        return
    looks = system_looks(rows["system"])
    for (system, domain), group in rows.groupby(["system", "domain"], sort=False):
        mean = group.groupby("nominal_fpr")["empirical_fpr"].mean()
        domain_look, look = DOMAINS.get(str(domain), DOMAINS["target"]), looks[str(system)]
        ax.plot(
            mean.index,
            mean,
            color=domain_look.colour,
            linestyle=look.line,
            marker=look.marker,
            markersize=3.5,
            fillstyle=look.fill,
            label=f"{domain}, {look.title}",
            zorder=3,
        )
    _finish(ax, "realised rate")
    ax.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (1, 2)), linewidth=0.9, zorder=1)
    ax.set_title(_over(rows))


def draw_imbalance(ax: Axes, result: StudyTables, split: str | None = None) -> None:
    """The mean over machines of the difference between the domains' rates."""
    rows = _rows(result, split)
    if rows is None:
        say_nothing_to_show(ax, "no labelled test normals")
        return
    looks = system_looks(rows["system"])
    for system, line in imbalances(rows).items():
        look = looks[system]
        ax.plot(
            line.index,
            line,
            color=look.colour,
            linestyle=look.line,
            marker=look.marker,
            markersize=3.5,
            fillstyle=look.fill,
            label=look.title,
            zorder=3,
        )
    _finish(ax, "difference between domains")
    ax.set_title(_over(rows))


def imbalances(rows: pd.DataFrame) -> dict[str, pd.Series[float]]:
    """By system: the mean over machines of highest less lowest rate, by nominal rate."""
    return {
        str(system): group.groupby(["nominal_fpr", "machine"])["empirical_fpr"]
        .agg(lambda rates: rates.max() - rates.min())
        .groupby("nominal_fpr")
        .mean()
        for system, group in rows.groupby("system", sort=False)
    }


def _rows(result: StudyTables, split: str | None) -> pd.DataFrame | None:
    """The rows of one split; an own choice falls to evaluation machines where there are any."""
    table = result.coverage
    if table.empty:
        return None
    present = set(table["split"])
    if split is not None and split not in present:
        raise InputError(f"There is no coverage of split {split!r}. There is of {sorted(present)}.")
    split = split or ("eval" if "eval" in present else "dev")
    return table[table["split"] == split]


def _over(rows: pd.DataFrame) -> str:
    count = rows["machine"].nunique()
    word = {"dev": "development", "eval": "evaluation"}.get(str(rows["split"].iloc[0]), "")
    return f"mean over {count} {word} machine{'s' if count != 1 else ''}"


def _finish(ax: Axes, ylabel: str) -> None:
    ax.set_xlim(0, 0.55)
    ax.set_ylim(0, None)
    ax.set_xlabel("nominal false-alarm rate")
    ax.set_ylabel(ylabel)
