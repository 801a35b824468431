"""render_html: one standalone HTML file from a summary and its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from daco.experiments.figures.grids import CHANCE, FULL_COLOUR
from daco.experiments.tables import written


def render_html(summary: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    """The report as one HTML file that needs nothing else: no network, fonts or scripts.

    Parameters
    ----------
    summary : mapping
        What :func:`~daco.experiments.report.summarise` returned, or ``report.json`` holds.
    figures : mapping
        SVG elements by name; a section without its picture says what is missing.
    """
    environment = Environment(
        loader=PackageLoader("daco.experiments.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cell": written,
        "day": _day,
        "heat": _heat,
        "percent": _percent,
        "tied": _tied,
    }
    # The pictures are our own drawings; the texts in them were escaped when they were made.
    pictures = {name: Markup(svg) for name, svg in figures.items()}
    return environment.get_template("report.html").render(**summary, figures=pictures)


def _heat(value: float | None) -> Markup:
    """A cell's tint: how far from chance, on which side."""
    if value is None:
        return Markup("")
    strength = min(abs(value - CHANCE) / FULL_COLOUR, 1.0)
    side = "above" if value >= CHANCE else "below"
    return Markup(f' class="number heat {side}" style="--heat:{strength:.2f}"')


def _percent(share: float | None) -> str:
    return "–" if share is None else _tied(f"{100 * share:.0f} %")


def _tied(text: str) -> str:
    """No line ends between a number and its percent sign."""
    return text.replace(" %", "\u00a0%")


def _day(created: str | None) -> str:
    """The date of a time stamp; what is not one stays as it is."""
    try:
        moment = datetime.fromisoformat(created or "")
    except ValueError:
        return created or ""
    return f"{moment.day} {moment:%B %Y}"
