"""Writes a run folder with the present schema, and what is pinned of it, beside this file.

``PYTHONPATH=tests/helpers python tests/golden/run/make.py``, when the schema has a new number.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

os.environ["SOURCE_DATE_EPOCH"] = "1767323045"

from synthetic_machines import small_table

import daco

HERE = Path(__file__).parent
GRID = ["raw-k1", "conf-soft-m0-k1", "ratio-hard-k1", "conf-soft-m30-k1"]

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        tables = small_table("fan", "pump", "valve"), small_table("Sander", "ToothBrush")
        result = daco.study(*tables, grid=GRID, n_splits=3, workers=1, out=Path(folder) / "run")
        shutil.rmtree(HERE / "run", ignore_errors=True)
        shutil.copytree(Path(folder) / "run", HERE / "run")
    rules = result.rules().set_index("rule")
    pinned = {
        "candidates": result.candidates,
        "choices": {rule: result.choose(rule).config for rule in ("guarded", "label-free")},
        "eval_scores": rules["eval_score"].to_dict(),
        "dev_scores": rules["dev_score"].to_dict(),
    }
    (HERE / "run.json").write_text(json.dumps(pinned, indent=1) + "\n", encoding="utf-8")
