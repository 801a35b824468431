"""The paper beside its artifacts: every printed figure, recomputed.

``printed.csv`` says what is printed where, a recipe how it is recomputed from the authors'
published artifacts, and :func:`check_paper` whether the two agree.
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
