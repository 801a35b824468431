"""The paper's printed figures, recomputed from its authors' artifacts.

``printed.csv`` lists what is printed where, and names a recipe for each figure. Read
``printed`` (the data), ``artifacts`` (the authors' files) and ``recipe`` first; ``choices``,
``scores``, ``statistics`` and ``experiments`` hold the recipes in the paper's order,
``consistency`` those that compare artifacts with each other. ``check`` compares, ``document``
writes the result.
"""

from daco.paper.check import Finding, Status, check_paper, summary
from daco.paper.printed import PLACES, Erratum, Figure, Place, errata, figures

__all__ = [
    "PLACES",
    "Erratum",
    "Figure",
    "Finding",
    "Place",
    "Status",
    "check_paper",
    "errata",
    "figures",
    "summary",
]
