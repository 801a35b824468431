"""Pictures of a study, drawn with Matplotlib: sharp in print and safe for the colour-blind.

Each function takes a :class:`~daco.experiments.study_tables.StudyTables`, and Axes to draw on or
makes a figure of its own, and returns the Figure. What a result does not hold is stated in the
picture. Read ``style`` first; ``scatter``, ``scores`` and ``grids`` draw studies, ``models`` draws
single models.
"""

from daco.experiments.figures.grids import plot_heat, plot_vetoes
from daco.experiments.figures.scatter import plot_frontier, plot_gain_separability, plot_transfer
from daco.experiments.figures.scores import plot_coverage, plot_distributions

__all__ = [
    "plot_coverage",
    "plot_distributions",
    "plot_frontier",
    "plot_gain_separability",
    "plot_heat",
    "plot_transfer",
    "plot_vetoes",
]
