"""Arrays on their way to a torch device, and how much fits there."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from daco.method.kernels import Array, require_torch
from daco.validation import Floats

if TYPE_CHECKING:
    import torch

_COPYING_THREADS = 4
_ELSEWHERE = 2**30


def require_device(device: str) -> None:
    """An error where torch is missing, or there is no such device with float64."""
    if device != "cpu":
        require_torch()
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
    return _ELSEWHERE if free is None else int(0.8 * free)
