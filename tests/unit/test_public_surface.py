"""What users import, and what importing costs them."""

from __future__ import annotations

import subprocess
import sys

import daco


def test_the_public_names_are_frozen():
    assert sorted(daco.__all__) == [
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
    for name in daco.__all__:
        assert getattr(daco, name) is not None
    assert set(daco.__all__) <= set(dir(daco))


def test_import_is_light():
    """The heavy packages load when they are needed, not before."""
    heavy = ["torch", "pyarrow", "pandas", "sklearn", "scipy", "numba", "typer", "soundfile"]
    heavy += ["matplotlib", "jinja2", "fsspec", "ray"]
    code = f"import sys, daco; print([m for m in {heavy} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_scoring_works_without_numba():
    code = (
        "import sys; sys.modules['numba'] = None\n"
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'numba' else find(n, *a)\n"
        "import numpy as np, daco\n"
        "bank = daco.NormalBank(np.random.default_rng(0).normal(size=(60, 4)), ['a', 'b'] * 30)\n"
        "assert np.isfinite(bank.balance(daco.paper_grid(), 2)).all()\n"
        "assert 'daco.method._kernels_numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
