"""The array kernels of the method, for NumPy arrays and for torch tensors.

Everything else in this room is written once, on top of the functions of `kernels(array)`. NumPy
arrays hold one machine; tensors have a leading axis of machines. Loops over NumPy arrays are
compiled by numba where it is installed; ``DACO_KERNELS=numpy`` or ``=numba`` forces one of the two.
All three agree to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.errors import ConfigError, MissingExtraError
from daco.validation import Floats

if TYPE_CHECKING:
    import torch

Array = Any
"""A NumPy array, or a torch tensor with a leading axis of machines."""

_forced: list[str] = []
_COPYING_THREADS = 4
_MEMORY_ELSEWHERE = 2**30


def kernels(array: Array = None) -> ModuleType:
    """The module with the kernels for an array; those for NumPy arrays by default."""
    if is_tensor(array):
        return import_module("daco.method._kernels_torch")
    return _load(_forced[-1] if _forced else os.environ.get("DACO_KERNELS", "auto"))


def is_tensor(array: Array) -> bool:
    """Whether an array is a torch tensor; torch is not imported to find out."""
    return type(array).__module__.partition(".")[0] == "torch"


def require_torch(user: str) -> None:
    """Raise an error with the pip command where PyTorch is not installed."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtraError(f'{user} needs PyTorch: pip install "daco-asd[torch]".') from None


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


def require_device(device: str) -> None:
    """An error where torch is missing, or there is no such device with float64."""
    if device != "cpu":
        require_torch(f"The device {device!r}")
        from daco.compute.device import float64_device

        float64_device(device)


def load(arrays: Sequence[Floats], device: str) -> Array:
    """Arrays of equal shape as one tensor on a device, through page-locked memory to a GPU."""
    import torch

    place = torch.device(device)
    if place.type != "cuda":
        return torch.from_numpy(np.stack(arrays)).to(place)
    dtype = torch.from_numpy(np.empty(0, arrays[0].dtype)).dtype
    locked = torch.empty((len(arrays), *arrays[0].shape), dtype=dtype, pin_memory=True)
    with ThreadPoolExecutor(_COPYING_THREADS) as pool:
        list(pool.map(np.copyto, locked.numpy(), arrays))
    return locked.to(place, non_blocking=True)


def fetch(values: Array, into: NDArray[Any]) -> None:
    """Copy a tensor into an array of the same shape and type."""
    import torch

    torch.from_numpy(into).copy_(values)


def device_memory(device: torch.device) -> int:
    """Bytes that a computation on the device may take."""
    from daco.compute.device import free_memory

    free = free_memory(device)
    return _MEMORY_ELSEWHERE if free is None else int(0.8 * free)


def on_host(array: Array) -> NDArray[Any]:
    """An array, or a tensor of any device, as a NumPy array."""
    hosted: NDArray[Any] = kernels(array).to_host(array)
    return hosted
