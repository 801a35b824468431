"""What users import, what importing costs them, and that the names in the docs exist."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys

import numpy as np
import pytest
import soundfile
from command_line import run
from shared_data import ROOT

import daco
from daco.commands import options
from daco.detector.decision import FALSE_ALARM_RATE
from daco.method.criterion import CHOICE_SPLITS

ROOMS = [module.name for module in pkgutil.iter_modules(daco.__path__) if module.ispkg]


def test_the_public_names_are_frozen():
    assert sorted(daco.__all__) == [
        "CalibrationDisplay",
        "CriterionDisplay",
        "DACo",
        "DacoError",
        "DacoWarning",
        "DomainCalibrator",
        "EmbeddingTable",
        "LabelFreeSearch",
        "NormalBank",
        "ScoreConfig",
        "ScoreDisplay",
        "StudyResult",
        "__version__",
        "backbones",
        "load",
        "machine_metrics",
        "official_score",
        "paper_grid",
        "study",
    ]
    for name in daco.__all__:
        assert getattr(daco, name) is not None
    assert set(daco.__all__) <= set(dir(daco))


def modules_after(code):
    code = f"import sys; {code}; print(*{{name.split('.')[0] for name in sys.modules}})"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    return set(result.stdout.decode().split())


def test_import_is_light():
    """The heavy packages load when they are needed, not before; the commands need typer."""
    heavy = {"numpy", "torch", "pyarrow", "pandas", "sklearn", "scipy", "numba", "soundfile"}
    heavy |= {"matplotlib", "jinja2", "fsspec", "upath", "ray"}
    assert not modules_after("import daco, daco.cli") & {"typer", "rich", *heavy}
    assert not modules_after("import daco.commands.app") & heavy


def test_defaults_that_the_commands_repeat_are_those_of_the_library():
    assert (options.SPLITS, options.FALSE_ALARM_RATE) == (CHOICE_SPLITS, FALSE_ALARM_RATE)


def test_scoring_a_recording_and_help_load_no_heavy_packages(tmp_path):
    """`benchmarks/startup.py` measures what that is worth."""
    rng = np.random.default_rng(0)
    for number in range(12):
        (tmp_path / "motor").mkdir(exist_ok=True)
        soundfile.write(tmp_path / "motor" / f"{number}.wav", 0.1 * rng.normal(size=16000), 16000)
    model, clip = tmp_path / "motor.daco", tmp_path / "motor" / "0.wav"
    run("fit", tmp_path / "motor", "--out", model)
    command = "import daco.cli; sys.argv = {}; sys.stdout = sys.stderr\ntry: daco.cli.main()\n"
    command += "except SystemExit: pass\nsys.stdout = sys.__stdout__"
    heavy = {"numba", "pandas", "matplotlib", "sklearn", "torch", "pyarrow", "joblib"}
    heavy |= {"fsspec", "upath"}
    for arguments, more in (
        (["daco", "score", str(model), str(clip)], set()),
        (["daco", "--help"], {"numpy", "scipy", "soundfile"}),
    ):
        assert not modules_after(f"exec({command.format(arguments)!r})") & (heavy | more)


def resolve(name):
    """Import the longest module that a dotted name begins with, and get the rest from it."""
    found = daco
    for part in name.split(".")[1:]:
        if inspect.ismodule(found) and not hasattr(found, part):
            importlib.import_module(f"{found.__name__}.{part}")
        found = getattr(found, part)


def test_every_dotted_name_of_docs_and_docstrings_exists():
    pytest.importorskip("torch", reason="some modules need PyTorch")
    pattern = re.compile(rf"\bdaco\.(?:{'|'.join(ROOMS)})\b(?:\.\w+)*")
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    names = {
        name: path.relative_to(ROOT)
        for path in pages
        for name in pattern.findall(path.read_text(encoding="utf-8"))
        if not name.endswith("_")  # the beginning of a formatted name
    }
    missing = {}
    for name, path in names.items():
        try:
            resolve(name)
        except (AttributeError, ModuleNotFoundError):
            missing[name] = str(path)
    assert missing == {}
