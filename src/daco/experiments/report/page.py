"""render_html and write_report: one standalone HTML file, and the files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from daco.experiments.figures.grids import CHANCE, FULL_COLOUR
from daco.experiments.highlights import limit_machines
from daco.experiments.report.pictures import available_pictures, page_pictures, write_pictures
from daco.experiments.report.summary import summarise, tables_of
from daco.experiments.study_tables import write_json
from daco.experiments.tables import format_cell
from daco.files.atomic import atomic_write, write_error

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables


def write_report(result: StudyTables, folder: Path | str) -> Path:
    """Write the report of a study.

    Parameters
    ----------
    result : StudyTables
    folder : path
        The folder for ``report.json``, ``report.html``, ``figures/*.svg|png`` and
        ``tables/*.md|tex|csv``. It is created if needed; other files in it stay as they are. The
        same result gives the same bytes.

    Returns
    -------
    Path
        The path of the page.
    """
    folder = Path(folder)
    for part in (folder, folder / "figures", folder / "tables"):
        try:
            part.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(part, error) from None
    # The clips of the machines that are shown are read once, those of others never.
    result = replace(result, machines=list(limit_machines(result).machine_scores()))
    tables = tables_of(result)
    summary = summarise(result, tables)
    write_json(summary, folder / "report.json")
    for table in tables.values():
        for extension, text in table.files().items():
            _write(folder / "tables" / f"{table.name}.{extension}", text.encode())
    write_pictures(result, available_pictures(summary), folder / "figures")
    page = folder / "report.html"
    _write(page, render_html(summary, page_pictures(result, summary)).encode())
    return page


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)


def render_html(summary: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    """Render the report as one HTML file that needs no network, fonts or scripts.

    Parameters
    ----------
    summary : mapping
        What :func:`~daco.experiments.report.summarise` returned, or the content of ``report.json``.
    figures : mapping
        SVG elements by name; a section without its picture states what is missing.

    Returns
    -------
    str
    """
    environment = Environment(
        loader=PackageLoader("daco.experiments.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "cell": format_cell,
        "day": _day,
        "heat": _heat,
        "percent": _percent,
        "tied": _tied,
    }
    # The pictures are our own drawings; the texts in them were escaped when they were drawn.
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
