"""The pages of the manual, and what runs their code."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

from shared_data import ROOT

DOCS = ROOT / "docs"


def _load_notebook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_notebook", DOCS / "notebook.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for their own module
    spec.loader.exec_module(module)
    return module


notebook = _load_notebook()
