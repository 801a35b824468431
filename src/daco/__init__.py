"""daco: first-shot anomalous sound detection from normal recordings alone.

The public surface is small and frozen by a test; everything else is importable from the
module that holds it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daco.errors import DacoError, DacoWarning
from daco.evaluation.metrics import machine_metrics, official_score
from daco.method.bank import NormalBank
from daco.method.config import ScoreConfig, frontier_grid, paper_grid
from daco.version import __version__

if TYPE_CHECKING:
    from daco import backbones
    from daco.data.table import EmbeddingTable
    from daco.detector.estimator import DACo, LabelFreeSearch
    from daco.experiments.result import StudyResult
    from daco.experiments.run import study

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
        return getattr(import_module("daco.detector.estimator"), name)
    if name == "EmbeddingTable":
        return import_module("daco.data.table").EmbeddingTable
    if name == "StudyResult":
        return import_module("daco.experiments.result").StudyResult
    if name == "study":
        return import_module("daco.experiments.run").study
    if name == "backbones":
        return import_module("daco.backbones")
    raise AttributeError(f"module 'daco' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
