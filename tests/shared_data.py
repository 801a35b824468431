"""Where tests find the conformance data that nobody here wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def shared(*parts: str) -> Path:
    """A path under ``$DACO_SHARED`` or ``../shared``; the test is skipped where there is none."""
    root = Path(os.environ.get("DACO_SHARED", ROOT.parent / "shared"))
    path = root.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"conformance data not found: {path} (set DACO_SHARED to its folder)")
    return path
