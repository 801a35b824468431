"""StudyResult: the tables of a study with its figures and its report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from daco.errors import InputError
from daco.experiments.study_tables import StudyTables

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class StudyResult(StudyTables):
    """What a study found, as tidy tables; see :class:`daco.experiments.study_tables.StudyTables`.

    The methods import matplotlib when they are called, so that reading tables stays light.
    """

    def plot_transfer(self) -> Figure:
        """Plot the evaluation score against the dev score and against the criterion."""
        from daco.experiments.figures import plot_transfer

        return plot_transfer(self)

    def plot_frontier(self) -> Figure:
        """Plot mean source AUC against mean target AUC along the prior strength m."""
        from daco.experiments.figures import plot_frontier

        return plot_frontier(self)

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
        return write_report(self, target)
