"""The torch device of a computation and the precision of its float32 products.

Importing this module imports torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from daco.errors import InputError


def torch_device(device: str) -> torch.device:
    """The torch device of a name, or an InputError where it cannot be used.

    >>> torch_device("cpu").type
    'cpu'
    """
    try:
        result = torch.device(device)
        torch.empty(0, device=result)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise InputError(
            f"The device {device!r} cannot be used: {reason}. Use device='cpu', or install a "
            "torch that supports it."
        ) from None
    return result


@contextmanager
def tf32(device: torch.device, allowed: bool) -> Iterator[None]:
    """Allow or forbid TF32 rounding of float32 products on a GPU, and restore the setting.

    Torch allows it for convolutions by default.
    """
    if device.type != "cuda":
        yield
        return
    cudnn: Any = torch.backends.cudnn
    holders: list[Any] = [torch.backends.cuda.matmul, cudnn]
    field: str = "allow_tf32"
    value: bool | str = allowed
    if hasattr(holders[0], "fp32_precision"):  # torch 2.9 and later; the old flags refuse a mixture
        holders = [torch.backends.cuda.matmul, cudnn.conv]
        field, value = "fp32_precision", "tf32" if allowed else "ieee"
    before = [getattr(holder, field) for holder in holders]
    try:
        for holder in holders:
            setattr(holder, field, value)
        yield
    finally:
        for holder, old in zip(holders, before, strict=True):
            setattr(holder, field, old)
