"""Pictures of a study, drawn with Matplotlib: sharp in print and safe for the colour-blind.

Each function takes a :class:`~daco.experiments.StudyResult`, and Axes to draw on or makes a
figure of its own, and returns the Figure. What a result does not hold is said in the picture.
"""

from daco.experiments.figures.coverage import plot_coverage
from daco.experiments.figures.distributions import plot_distributions
from daco.experiments.figures.frontier import plot_frontier
from daco.experiments.figures.heat import plot_heat
from daco.experiments.figures.separability import plot_gain_separability
from daco.experiments.figures.transfer import plot_transfer
from daco.experiments.figures.vetoes import plot_vetoes

__all__ = [
    "plot_coverage",
    "plot_distributions",
    "plot_frontier",
    "plot_gain_separability",
    "plot_heat",
    "plot_transfer",
    "plot_vetoes",
]
