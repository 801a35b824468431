"""Chunks of machines on their way to a device, the next one while this one is worked on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from daco.compute.device import free_memory, full_precision
from daco.errors import InputError
from daco.validation import Floats

T = TypeVar("T")
Fetch = Callable[[slice, dict[str, Tensor]], None]

_COPYING_THREADS = 4
_WORKSPACE = {"cuda": 8 * 2**30}
_WORKSPACE_ELSEWHERE = 256 * 2**20


def chunk_size(device: torch.device, bytes_each: int) -> int:
    """How many machines are worked on at once, by what memory is free."""
    allowed = _WORKSPACE.get(device.type, _WORKSPACE_ELSEWHERE)
    if device.type == "cuda":
        free = int(0.8 * (free_memory(device) or 0))
        if bytes_each > free:
            raise InputError(
                f"A machine of this size needs about {bytes_each / 2**30:.1f} GiB on the device, "
                f"and {free / 2**30:.1f} are free. The CPU engine, daco.NormalBank, works block "
                "by block."
            )
        allowed = min(allowed, free)
    return max(1, allowed // bytes_each)


@contextmanager
def exactly(device: torch.device, n_machines: int) -> Iterator[None]:
    """Products in true float32, whatever the caller allows; too little memory is explained."""
    try:
        with full_precision(device):
            yield
    except torch.cuda.OutOfMemoryError:
        raise InputError(
            f"{device} ran out of memory with {n_machines} machines at once. Give a smaller "
            "chunk=, or stop what else runs there."
        ) from None


class Stager:
    """Copies arrays of machines to a device: through page-locked memory where there is a GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._on_gpu = device.type == "cuda"
        self._slots: list[dict[str, Tensor]] = [{}, {}]
        self._copied: list[Any] = [None, None]
        self._turn = 0
        if self._on_gpu:
            self._stream: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def load(self, parts: Mapping[str, Sequence[Floats]]) -> tuple[dict[str, Tensor], Any]:
        """The arrays of each part stacked on the device, and the event that says so."""
        if not self._on_gpu:
            return {name: torch.from_numpy(np.stack(part)) for name, part in parts.items()}, None
        slot, self._turn = self._turn, 1 - self._turn
        if self._copied[slot] is not None:
            self._copied[slot].synchronize()  # its memory is still being read
        with torch.cuda.device(self._device), torch.cuda.stream(self._stream):
            found = {
                name: self._locked(slot, name, part).to(self._device, non_blocking=True)
                for name, part in parts.items()
            }
            self._copied[slot] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied[slot].record(self._stream)
        return found, self._copied[slot]

    def _locked(self, slot: int, name: str, arrays: Sequence[Floats]) -> Tensor:
        """The arrays in page-locked memory, which is used again for later chunks."""
        first = arrays[0]
        kept = self._slots[slot].get(name)
        if kept is None or len(kept) < len(arrays):
            kept = torch.empty(
                (len(arrays), *first.shape),
                dtype=torch.from_numpy(np.empty(0, first.dtype)).dtype,
                pin_memory=True,
            )
            self._slots[slot][name] = kept
        into = kept[: len(arrays)]
        with ThreadPoolExecutor(_COPYING_THREADS) as pool:
            list(pool.map(np.copyto, into.numpy(), arrays))
        return into

    def arrive(self, found: dict[str, Tensor], copied: Any) -> dict[str, Tensor]:
        """Let the work that follows wait for the copies."""
        if copied is not None:
            stream = torch.cuda.current_stream(self._device)
            stream.wait_event(copied)
            for tensor in found.values():
                tensor.record_stream(stream)
        return found

    @contextmanager
    def fetching(self, out: dict[str, NDArray[Any]], n_machines: int) -> Iterator[Fetch]:
        """A function that files a chunk's results in ``out`` while the next chunk is computed."""
        stream: Any = None
        if self._on_gpu:
            stream = torch.cuda.Stream(self._device)  # type: ignore[no-untyped-call]
        waiting: list[Future[None]] = []

        def fetch(chunk: slice, found: dict[str, Tensor]) -> None:
            done: Any = None
            if self._on_gpu:
                done = torch.cuda.current_stream(self._device).record_event()
                for tensor in found.values():
                    tensor.record_stream(stream)
            if waiting:
                waiting.pop().result()
            for name, tensor in found.items():
                if name not in out:
                    dtype = torch.empty(0, dtype=tensor.dtype).numpy().dtype
                    out[name] = np.empty((n_machines, *tensor.shape[1:]), dtype)
            into = {name: torch.from_numpy(out[name][chunk]) for name in found}
            waiting.append(pool.submit(self.file, found, into, stream, done))

        with ThreadPoolExecutor(1) as pool:
            yield fetch
            waiting.pop().result()

    def file(
        self, found: dict[str, Tensor], into: dict[str, Tensor], stream: Any, done: Any
    ) -> None:
        """Copy results to the host once the work they come from is ``done``."""
        with torch.cuda.stream(stream):
            if done is not None:
                stream.wait_event(done)
            for name, tensor in found.items():
                into[name].copy_(tensor)


def ahead(load: Callable[[slice], T], chunks: Sequence[slice]) -> Iterator[tuple[slice, T]]:
    """What ``load`` gives for every chunk; one is loaded while the one before is used."""
    if len(chunks) == 1:
        yield chunks[0], load(chunks[0])
        return
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(load, chunks[0])
        for position, chunk in enumerate(chunks):
            loaded = waiting.result()
            if position + 1 < len(chunks):
                waiting = pool.submit(load, chunks[position + 1])
            yield chunk, loaded
