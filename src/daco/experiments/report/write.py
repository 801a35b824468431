"""write_report: report.json, report.html, figures and tables in a folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from daco.experiments.highlights import limit_machines
from daco.experiments.report.page import render_html
from daco.experiments.report.pictures import available_pictures, page_pictures, picture_files
from daco.experiments.report.summary import summarise, tables_of
from daco.experiments.study_tables import write_json
from daco.files.atomic import atomic_write, write_error

if TYPE_CHECKING:
    from daco.experiments.study_tables import StudyTables


def write_report(result: StudyTables, folder: Path | str) -> Path:
    """Write the report of a study; the path of its page is returned.

    Parameters
    ----------
    result : StudyTables
    folder : path
        Gets ``report.json``, ``report.html``, ``figures/*.svg|png`` and
        ``tables/*.md|tex|csv``: the same bytes for the same result. It is made where there is
        none; other files in it are left alone.
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
        for ending, text in table.files().items():
            _write(folder / "tables" / f"{table.name}.{ending}", text.encode())
    for name, content in picture_files(result, available_pictures(summary)):
        _write(folder / "figures" / name, content)
    page = folder / "report.html"
    _write(page, render_html(summary, page_pictures(result, summary)).encode())
    return page


def _write(path: Path, content: bytes) -> None:
    with atomic_write(path) as temporary:
        temporary.write_bytes(content)
