"""daco: first-shot anomalous sound detection from normal recordings alone.

The names in ``__all__`` are the public interface. Each is imported when it is first used, so that
``import daco`` loads no other package. Everything else is imported from the module that holds it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from daco.errors import DacoError, DacoWarning
from daco.version import __version__

if TYPE_CHECKING:
    from daco import backbones as backbones
    from daco.data.table import EmbeddingTable as EmbeddingTable
    from daco.detector.calibrator import DomainCalibrator as DomainCalibrator
    from daco.detector.displays import CalibrationDisplay as CalibrationDisplay
    from daco.detector.displays import CriterionDisplay as CriterionDisplay
    from daco.detector.displays import ScoreDisplay as ScoreDisplay
    from daco.detector.estimator import DACo as DACo
    from daco.detector.estimator import load as load
    from daco.detector.search import LabelFreeSearch as LabelFreeSearch
    from daco.evaluation.metrics import machine_metrics as machine_metrics
    from daco.evaluation.metrics import official_score as official_score
    from daco.experiments.result import StudyResult as StudyResult
    from daco.experiments.study import study as study
    from daco.method.bank import NormalBank as NormalBank
    from daco.method.config import ScoreConfig as ScoreConfig
    from daco.method.config import paper_grid as paper_grid

_MODULES = {
    "CalibrationDisplay": "daco.detector.displays",
    "CriterionDisplay": "daco.detector.displays",
    "DACo": "daco.detector.estimator",
    "DomainCalibrator": "daco.detector.calibrator",
    "EmbeddingTable": "daco.data.table",
    "LabelFreeSearch": "daco.detector.search",
    "NormalBank": "daco.method.bank",
    "ScoreConfig": "daco.method.config",
    "ScoreDisplay": "daco.detector.displays",
    "StudyResult": "daco.experiments.result",
    "load": "daco.detector.estimator",
    "machine_metrics": "daco.evaluation.metrics",
    "official_score": "daco.evaluation.metrics",
    "paper_grid": "daco.method.config",
    "study": "daco.experiments.study",
}
__all__ = ["DacoError", "DacoWarning", "__version__", "backbones", *_MODULES]


def __getattr__(name: str) -> Any:
    if name == "backbones":
        return import_module("daco.backbones")
    if name not in _MODULES:
        raise AttributeError(f"module 'daco' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
