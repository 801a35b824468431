"""Pictures of the report: files for print, and the same drawings inside the page."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import escape
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
from daco.experiments.figures.grids import VETO_PANELS, draw_veto, veto_height
from daco.experiments.figures.scatter import draw_transfer
from daco.experiments.figures.scores import draw_distribution, draw_imbalance, draw_realised
from daco.experiments.figures.style import (
    COLUMN_WIDTH,
    PALETTE,
    panels,
    png_bytes,
    svg_bytes,
    with_style,
)
from daco.experiments.highlights import (
    compared_configs,
    false_alarm_rate,
    limit_machines,
    shown_config,
)
from daco.experiments.tables import format_cell

if TYPE_CHECKING:
    from daco.experiments.study_tables import MachineScores, StudyTables

_NOISE = re.compile(
    r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>|<defs>\s*<style.*?</defs>"
    r"|<g id=\"[^\"]*\"\s*/>",
    re.DOTALL,
)
_OPENING = re.compile(r"<svg[^>]*?viewBox=\"([^\"]+)\"[^>]*>")
_GROUP = re.compile(r"<g id=\"([^\"]*)\">")
_POINT = re.compile(r"(dev|criterion)-(\d+)")


def available_pictures(summary: Mapping[str, Any]) -> set[str]:
    """The pictures that have something to show."""
    tables = summary["tables"]
    gains = tables.get("diagnostics", {"columns": [], "rows": []})
    titles = [column["title"] for column in gains["columns"]]
    known = {
        "transfer": any(point["eval_omega"] is not None for point in summary["points"]),
        "frontier": "frontier" in tables,
        "gain_separability": "target AUC gain" in titles,
        "coverage": "coverage" in tables,
        "distributions": bool(summary["distributions"]),
        "per_machine": "per_machine" in tables,
        "vetoes": summary["vetoes"] is not None,
    }
    return {name for name, present in known.items() if present}


def picture_files(result: StudyTables, names: set[str]) -> Iterator[tuple[str, bytes]]:
    """File names and contents of the pictures for print, as SVG and PNG."""
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
            yield f"{name}.svg", svg_bytes(figure, name)
            yield f"{name}.png", png_bytes(figure)


@with_style
def page_pictures(result: StudyTables, summary: Mapping[str, Any]) -> dict[str, str]:
    """SVG elements for the page by name: one panel each, so that a phone can stack them."""
    found = {}
    for panel in _panels(result, available_pictures(summary)):
        figure, (ax,) = panels(None, 1, panel.width, panel.height, **panel.margins)
        panel.draw(ax)
        found[panel.name] = _element(figure, panel.name, panel.label, summary["points"])
    return found


@dataclass(frozen=True)
class _Panel:
    """One picture of the page; sizes in inches."""

    name: str
    label: str
    draw: Callable[[Axes], Any]
    height: float = 2.9
    width: float = COLUMN_WIDTH
    margins: Mapping[str, float] = field(default_factory=dict)


def _panels(result: StudyTables, names: set[str]) -> Iterator[_Panel]:
    if "transfer" in names:
        for signal, word in (("dev", "dev score"), ("criterion", "criterion")):
            yield _Panel(
                f"transfer_{signal}",
                f"Evaluation score of every configuration against its {word}",
                partial(draw_transfer, result=result, predictor=signal),
            )
    if "frontier" in names:
        yield _Panel(
            "frontier",
            "Mean source AUC against mean target AUC along the prior strength m",
            partial(plot_frontier, result),
            margins={"top": 0.1},
        )
    if "vetoes" in names:
        for panel, axis in VETO_PANELS.items():
            yield _Panel(
                f"veto_{panel}",
                f"Every configuration by method and {axis}, with the limit of the veto",
                partial(draw_veto, result=result, panel=panel),
                height=veto_height(result),
                margins={"left": 1.45, "bottom": 0.4, "top": 0.24},
            )
    if "gain_separability" in names:
        yield _Panel(
            "gain_separability",
            "Gain in target AUC of each machine against the separability of its domains",
            partial(plot_gain_separability, result),
        )
    if "coverage" in names:
        for name, draw, label in (
            ("realised", draw_realised, "Realised against nominal false-alarm rate"),
            ("imbalance", draw_imbalance, "Difference of the domains’ false-alarm rates"),
        ):
            draw_panel = partial(draw, result=result)
            yield _Panel(f"coverage_{name}", label, draw_panel, 3.05, margins={"bottom": 0.85})
    if "distributions" in names:
        config, rate = shown_config(result), false_alarm_rate(result)
        machines = [m for m in limit_machines(result).machine_scores() if config in m.configs]
        for at, machine in enumerate(machines):
            yield _Panel(
                f"distribution_{at}",
                f"Scores of {machine.title} by domain, with the threshold",
                partial(_untitled, machine=machine, config=config, rate=rate),
                height=1.35,
                width=2.6,
                margins={"left": 0.5, "bottom": 0.22, "top": 0.04},
            )


def _untitled(ax: Axes, machine: MachineScores, config: str, rate: float) -> None:
    """The page writes the machine's name itself."""
    draw_distribution(ax, machine, config, rate)
    ax.set_title("")


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
