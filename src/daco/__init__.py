"""daco: first-shot anomalous sound detection from normal recordings alone.

The public surface is small and frozen by a test; everything else is importable from the
module that holds it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daco.bank import NormalBank
from daco.config import ScoreConfig, paper_grid
from daco.errors import DacoError, DacoWarning
from daco.grids import frontier_grid
from daco.metrics import machine_metrics, official_score

if TYPE_CHECKING:
    from daco import backbones
    from daco.detector import DACo, LabelFreeSearch
    from daco.experiments.result import StudyResult
    from daco.experiments.run import study
    from daco.table import EmbeddingTable

__version__ = "0.1.0"

__all__ = [
    "DACo",
    "DacoError",
    "DacoWarning",
    "EmbeddingTable",
    "LabelFreeSearch",
    "NormalBank",
    "ScoreConfig",
    "StudyResult",
    "__version__",
    "backbones",
    "frontier_grid",
    "machine_metrics",
    "official_score",
    "paper_grid",
    "study",
]


def __getattr__(name: str) -> Any:
    # What brings heavy packages is imported when it is first used; scoring does not need it.
    if name in ("DACo", "LabelFreeSearch"):
        return getattr(import_module("daco.detector"), name)
    if name == "EmbeddingTable":
        return import_module("daco.table").EmbeddingTable
    if name == "StudyResult":
        return import_module("daco.experiments.result").StudyResult
    if name == "study":
        return import_module("daco.experiments.run").study
    if name == "backbones":
        return import_module("daco.backbones")
    raise AttributeError(f"module 'daco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
