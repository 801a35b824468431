"""The paper's printed figures, recomputed from its authors' artifacts.

Read ``artifacts`` (the authors' files) and ``printed`` (the figures as data) first. ``scores``,
``statistics`` and ``experiments`` hold the recipes that recompute figures, ``consistency`` those
that compare artifacts with each other. ``check`` compares printed with recomputed figures and
writes the document.
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
