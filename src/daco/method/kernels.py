"""The two hot loops, chosen once: compiled by numba where it is installed, else NumPy.

``DACO_KERNELS=numpy`` or ``=numba`` forces one of them. They agree to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType

from daco.errors import ConfigError

_forced: list[str] = []


def kernels() -> ModuleType:
    """The module with ``subset_sums`` and ``scan_block``."""
    return _load(_forced[-1] if _forced else os.environ.get("DACO_KERNELS", "auto"))


@contextmanager
def use_kernels(name: str) -> Iterator[None]:
    """Force ``"numba"`` or ``"numpy"`` within a block; for tests and benchmarks."""
    _load(name)
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


@cache
def _load(name: str) -> ModuleType:
    if name not in ("auto", "numba", "numpy"):
        raise ConfigError(f"DACO_KERNELS must be 'auto', 'numba' or 'numpy'. Got {name!r}.")
    if name != "auto":
        return import_module(f"daco.method._kernels_{name}")
    try:
        return import_module("daco.method._kernels_numba")
    except (ImportError, RuntimeError):  # not installed, or no folder for its machine code
        return import_module("daco.method._kernels_numpy")
