"""Where tests find the data that nobody here wrote."""

from __future__ import annotations

import atexit
import functools
import os
import tempfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"audio": "recordings", "embeddings": "embeddings"}
WHERE = "set DACO_SHARED to the folder that holds them"
PUBLISHED = ROOT / "tests" / "published" / "daco-experiments.zip"


def path_of(*parts: str) -> Path:
    """Where data that is not ours to give lies: under ``$DACO_SHARED`` or ``../shared``."""
    return Path(os.environ.get("DACO_SHARED", ROOT.parent / "shared")).joinpath(*parts)


def reason(*parts: str) -> str:
    """Why a test without that data is skipped."""
    kind = KINDS.get(parts[1], "weights") if parts[0] == "real" else "text"
    return f"needs {kind} of others: {WHERE}"


def shared(*parts: str) -> Path:
    """A path of the golden vectors, the published results, or the data that is not ours to give.

    ``golden`` and ``published`` are part of this repository. Recordings, their embeddings,
    weights and the paper's text are not, and the test is skipped where they are missing; mark
    several tests of one file with ``@pytest.mark.shared(*parts)``, to be skipped as one.
    """
    if parts[0] == "golden":
        return ROOT.joinpath("tests", *parts)
    if parts[:2] == ("published", "daco-experiments"):
        return _published().joinpath(*parts[2:])
    path = path_of(*parts)
    if not path.exists():
        pytest.skip(reason(*parts))
    return path


@functools.cache
def _published() -> Path:
    """The folder of the published results, unpacked once in a process."""
    folder = tempfile.TemporaryDirectory(prefix="daco-published-")
    atexit.register(folder.cleanup)
    with zipfile.ZipFile(PUBLISHED) as archive:
        archive.extractall(folder.name)
    inside = list(Path(folder.name).iterdir())
    return inside[0] if len(inside) == 1 else Path(folder.name)
