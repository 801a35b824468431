"""A published checkpoint and the folder that downloads put it into."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

WEIGHTS_DIR_VARIABLE = "DACO_WEIGHTS_DIR"


@dataclass(frozen=True)
class WeightSource:
    """One published checkpoint. ``urls`` are tried in order; ``size`` is in bytes."""

    name: str
    file_name: str
    urls: tuple[str, ...]
    sha256: str | None
    licence: str
    md5: str | None = None
    size: int | None = None


def weights_dir() -> Path:
    """The folder of downloaded checkpoints: ``$DACO_WEIGHTS_DIR``, else in the user's cache."""
    chosen = os.environ.get(WEIGHTS_DIR_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    cache = os.environ.get(variable)
    return (Path(cache) if cache else Path.home() / ".cache") / "daco" / "weights"
