"""Names of the files and columns of a run, and how ``run.json`` is written."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daco.files.atomic import atomic_write

CLIPS, CRITERIA, RUN, REPORT = "clips.parquet", "criteria.parquet", "run.json", "report.html"
P_VALUE = "p:"
"""Before the name of a configuration: the column with its p-values."""


def write_run(folder: Path, run: Mapping[str, Any]) -> None:
    """Write ``run.json``; the order of keys is kept."""
    text = json.dumps(run, indent=1, ensure_ascii=False, allow_nan=False)
    with atomic_write(folder / RUN) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")
