"""StudyResult: the tables of a study with its figures and its report."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from daco.errors import InputError
from daco.experiments.study_tables import StudyTables
from daco.experiments.tables import format_cell
from daco.text import html_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class ReportPath(type(Path())):  # type: ignore[misc]
    """The path of a report; a notebook shows the page itself."""

    def _repr_html_(self) -> str:
        page = escape(self.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 80vh; border: 0"></iframe>'


class StudyResult(StudyTables):
    """The tables, figures and report of a study, made by :func:`daco.study`.

    ``StudyResult.read(folder)`` reads a finished run. The attributes that are not listed here are
    those of :class:`daco.experiments.study_tables.StudyTables`.

    Attributes
    ----------
    grid, per_machine : DataFrame
        Results by configuration, and by machine and configuration.
    selection : dict
        The chosen configuration, and the choice of every rule.

    Examples
    --------
    >>> import daco, pandas as pd
    >>> grid = pd.DataFrame({"config": ["raw-k1"], "crit_dev": [0.6], "dev_omega": [58.0]})
    >>> daco.StudyResult(grid, pd.DataFrame({"split": ["dev"], "machine": ["fan"]})).grid.shape
    (1, 3)
    """

    def plot_transfer(self) -> Figure:
        """Plot the evaluation score against the dev score and against the criterion."""
        from daco.experiments.figures import plot_transfer

        return plot_transfer(self)

    def plot_frontier(self) -> Figure:
        """Plot mean source AUC against mean target AUC along the prior strength m."""
        from daco.experiments.figures import plot_frontier

        return plot_frontier(self)

    def _repr_html_(self) -> str:
        columns = ("rule", "config", "crit_dev", "crit_eval", "dev_omega", "eval_omega")
        headings = ("rule", "picks", "criterion dev", "criterion eval", "score dev", "score eval")
        rows = [[format_cell(row.get(name)) for name in columns] for row in self.selection["rows"]]
        chosen = self.selection["chosen"]
        return html_table(f"{chosen['config']}: {chosen['reason']}", headings, rows)

    def report(self, folder: Path | str | None = None) -> Path:
        """Write the report with its figures and tables, and return the path of its page.

        Parameters
        ----------
        folder : path, optional
            By default the folder of the run.
        """
        from daco.experiments.report import write_report

        target = self.folder if folder is None else Path(folder)
        if target is None:
            raise InputError("This study has no folder. Name one: result.report(folder).")
        return ReportPath(write_report(self, target))
