"""Pictures of the report: files for print, and the same drawings inside the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from daco.experiments.figures import (
    plot_coverage,
    plot_distributions,
    plot_frontier,
    plot_gain_separability,
    plot_heat,
    plot_transfer,
    plot_vetoes,
)
from daco.experiments.figures.grids import draw_veto, veto_height
from daco.experiments.figures.scatter import draw_transfer
from daco.experiments.figures.scores import draw_coverage, draw_distribution
from daco.experiments.figures.style import (
    COLUMN_WIDTH,
    PALETTE,
    panels,
    save_picture,
    svg_bytes,
    with_style,
)
from daco.experiments.highlights import (
    compared_configs,
    false_alarm_rate,
    limit_machines,
    shown_config,
)
from daco.experiments.report.table import TEXTS
from daco.experiments.tables import format_cell

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables

_NOISE = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>"
    r"|<g id=\"[^\"]*\"\s*/>",
    re.DOTALL,
)
_OPENING = re.compile(r"<svg[^>]*?viewBox=\"([^\"]+)\"[^>]*>")
_GROUP = re.compile(r"<g id=\"([^\"]*)\">")
_POINT = re.compile(r"(dev|criterion)-(\d+)")

_VETO = {"left": 1.45, "bottom": 0.4, "top": 0.24}
_COVERAGE = {"height": 3.05, "bottom": 0.85}
_SMALL = {"width": 2.6, "height": 1.35, "left": 0.5, "bottom": 0.22, "top": 0.04}
_PANELS: dict[str, tuple[str, Callable[..., Any], dict[str, float]]] = {
    "transfer_dev": ("transfer", partial(draw_transfer, panel="dev"), {}),
    "transfer_criterion": ("transfer", partial(draw_transfer, panel="criterion"), {}),
    "frontier": ("frontier", lambda ax, result: plot_frontier(result, ax), {"top": 0.1}),
    "veto_pseudo": ("vetoes", partial(draw_veto, panel="pseudo"), _VETO),
    "veto_dev": ("vetoes", partial(draw_veto, panel="dev"), _VETO),
    "gain_separability": (
        "gain_separability",
        lambda ax, result: plot_gain_separability(result, ax),
        {},
    ),
    "coverage_realised": ("coverage", partial(draw_coverage, panel="realised"), _COVERAGE),
    "coverage_imbalance": ("coverage", partial(draw_coverage, panel="imbalance"), _COVERAGE),
}
"""By name on the page: the picture a panel belongs to, its drawing, and its size in inches."""


def available_pictures(summary: Mapping[str, Any]) -> set[str]:
    """The pictures that have something to show."""
    tables = summary["tables"]
    titles = [column["title"] for column in tables.get("diagnostics", {}).get("columns", ())]
    known = {
        **{name: name in tables for name in ("frontier", "coverage", "per_machine")},
        "transfer": any(point["eval_omega"] is not None for point in summary["points"]),
        "gain_separability": "target AUC gain" in titles,
        "distributions": bool(summary["distributions"]),
        "vetoes": summary["vetoes"] is not None,
    }
    return {name for name, present in known.items() if present}


def write_pictures(result: StudyTables, names: set[str], folder: Path) -> None:
    """Write the pictures for print, as SVG and PNG."""
    few = limit_machines(result)
    plots: dict[str, Callable[[], Figure]] = {
        "transfer": lambda: plot_transfer(result),
        "frontier": lambda: plot_frontier(result),
        "gain_separability": lambda: plot_gain_separability(result),
        "per_machine": lambda: plot_heat(few, compared_configs(result)),
        "distributions": lambda: plot_distributions(few),
        "coverage": lambda: plot_coverage(result),
        "vetoes": lambda: plot_vetoes(result),
    }
    for name, plot in plots.items():
        if name in names:
            figure = plot()
            for extension in ("svg", "png"):
                save_picture(figure, folder / f"{name}.{extension}", salt=name)


@with_style
def page_pictures(result: StudyTables, summary: Mapping[str, Any]) -> dict[str, str]:
    """SVG elements for the page by name: one panel each, so that a phone can stack them."""
    available, elements = available_pictures(summary), {}

    def add(name: str, label: str, draw: Callable[[Axes], None], inches: dict[str, float]) -> None:
        size = {"width": COLUMN_WIDTH, "height": 2.9, **inches}
        figure, (ax,) = panels(None, 1, **size)
        draw(ax)
        elements[name] = _element(figure, name, label, summary["points"])

    for name, (picture, draw, inches) in _PANELS.items():
        if picture in available:
            height = {"height": veto_height(result)} if picture == "vetoes" else {}
            add(name, TEXTS["pictures"][name], partial(draw, result=result), {**inches, **height})
    config, rate = shown_config(result), false_alarm_rate(result)
    machines = [m for m in limit_machines(result).machine_scores() if config in m.configs]
    for at, machine in enumerate(machines):
        label = TEXTS["pictures"]["distribution"].format(machine=machine.title)
        drawing = partial(draw_distribution, machine=machine, config=config, rate=rate, title="")
        add(f"distribution_{at}", label, drawing, _SMALL)
    return elements


def _element(figure: Figure, name: str, label: str, points: Sequence[Mapping[str, Any]]) -> str:
    """The figure as an SVG element that takes its colours and fonts from the page."""
    figure.patch.set_visible(False)
    for ax in figure.axes:
        ax.patch.set_visible(False)
    svg = _NOISE.sub("", svg_bytes(figure, name, text_as_paths=False).decode())
    for colour, value in PALETTE.items():
        svg = svg.replace(value, f"var(--{colour})")
    svg = svg.replace("'DejaVu Sans'", "var(--sans)")
    role = "group" if name.startswith("transfer") else "img"
    opening = f'<svg class="picture" viewBox="\\1" role="{role}" aria-label="{escape(label)}">'
    svg = _OPENING.sub(opening, svg)
    svg = _GROUP.sub(lambda match: _group(match[1], points), svg)
    return re.sub(r">\s+<", "><", svg.strip())


def _group(identifier: str, points: Sequence[Mapping[str, Any]]) -> str:
    """A group without its id, which other pictures repeat; points get a label."""
    match = _POINT.fullmatch(identifier)
    if match is None:
        return "<g>"
    point = points[int(match[2])]
    parts = (
        f"{point['config']} ({point['method']})",
        f"dev score {format_cell(point['dev_omega'])}",
        f"evaluation score {format_cell(point['eval_omega'])}",
        f"criterion {format_cell(point['crit_dev'], '.3f')}",
        point["role"],
    )
    label = escape(", ".join(filter(None, parts)))
    return f'<g class="point" data-row="{match[2]}" tabindex="0" role="img" aria-label="{label}">'
