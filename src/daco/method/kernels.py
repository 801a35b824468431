"""The array kernels of the method, for NumPy arrays and for torch tensors.

Everything else in this room is written once, on top of the functions of `kernels(array)`. NumPy
arrays hold one machine; tensors have a leading axis of machines. Loops over NumPy arrays are
compiled by numba where it is installed; ``DACO_KERNELS=numpy`` or ``=numba`` forces one of the two.
All three agree to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from daco.errors import ConfigError, MissingExtraError

Array = Any
"""A NumPy array, or a torch tensor with a leading axis of machines."""

_forced: list[str] = []


def kernels(array: Array = None) -> ModuleType:
    """The module with the kernels for an array; those for NumPy arrays by default."""
    if is_tensor(array):
        return import_module("daco.method._kernels_torch")
    return _load(_forced[-1] if _forced else os.environ.get("DACO_KERNELS", "auto"))


def is_tensor(array: Array) -> bool:
    """Whether an array is a torch tensor; torch is not imported to find out."""
    return type(array).__module__.partition(".")[0] == "torch"


def require_torch() -> None:
    """An error with the pip command where PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(
            'A torch device needs PyTorch: pip install "daco-asd[torch]". The device "cpu" works '
            "without it."
        ) from None


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


def as_array(values: Any) -> Array:
    """A tensor as it is, anything else as a NumPy array."""
    return values if is_tensor(values) else np.asarray(values)
