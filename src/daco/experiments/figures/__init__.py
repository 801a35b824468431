"""Pictures drawn with Matplotlib: sharp in print, and safe for colour-blind readers.

``style`` has colours, shapes and files; ``studies`` draws tables of a study, ``models`` single
models. Each function returns a new Figure.
"""

from daco.experiments.figures.studies import (
    plot_coverage,
    plot_decisions,
    plot_frontier,
    plot_machines,
    plot_stability,
    plot_transfer,
)

__all__ = [
    "plot_coverage",
    "plot_decisions",
    "plot_frontier",
    "plot_machines",
    "plot_stability",
    "plot_transfer",
]
