"""daco: first-shot anomalous sound detection from normal recordings alone.

The public surface is small and frozen by a test; everything else is importable from the
module that holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from daco.bank import NormalBank
from daco.config import ScoreConfig, paper_grid
from daco.errors import DacoError, DacoWarning
from daco.metrics import machine_metrics, official_score

if TYPE_CHECKING:
    from daco.detector import DACo, LabelFreeSearch

__version__ = "0.1.0"

__all__ = [
    "DACo",
    "DacoError",
    "DacoWarning",
    "LabelFreeSearch",
    "NormalBank",
    "ScoreConfig",
    "__version__",
    "machine_metrics",
    "official_score",
    "paper_grid",
]


def __getattr__(name: str) -> Any:
    # The estimators bring scikit-learn, a second of import that scoring does not need.
    if name in ("DACo", "LabelFreeSearch"):
        from daco import detector

        return getattr(detector, name)
    raise AttributeError(f"module 'daco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
