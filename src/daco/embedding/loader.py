"""Recordings decoded ahead of the network by threads, and put into batches of one length."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np

from daco.audio.decode import Waveforms
from daco.audio.formats import INT16_SCALE
from daco.embedding.frontend import MAX_SAMPLES
from daco.embedding.shards import Recording
from daco.files.remote import Location

_AT_ONCE = 8  # clips a thread takes at a time: handing over costs as much as reading one

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A recording's waveforms (16-bit as stored, or float32), or the reason why there are none.

    One for each network; near and far microphone, shape (2, samples), where the vectors of both
    are needed. ``quality`` is that of the recording, as text.
    """

    row: int
    recording: Recording
    waveforms: tuple[Waveforms, ...] = ()
    reason: str | None = None
    quality: str = ""


def load_ahead(
    items: Iterable[tuple[int, Location]],
    load: Callable[[int, Location], Loaded],
    *,
    workers: int,
    ahead: int,
    stop: threading.Event,
) -> Generator[Loaded, None, None]:
    """What `load` gives for each item, in order, with `workers` threads working ahead.

    Reading, hashing, libsndfile and soxr let other threads run while they work, so threads are
    enough. At most twice `ahead` recordings wait and as many as the threads have in hand, fewer
    where they are long. Once `stop` is set no more are given.
    """
    source = iter(items)
    waiting: deque[Future[list[Loaded]]] = deque()
    sizes: deque[int] = deque()
    largest = 0

    def load_some(some: list[tuple[int, Location]]) -> list[Loaded]:
        return [load(*item) for item in some if not stop.is_set()]

    pool = ThreadPoolExecutor(workers, thread_name_prefix="daco-loader")
    try:
        while True:
            # Until a size is known only the workers' own: the recordings may last an hour each.
            room = 4 * MAX_SAMPLES // largest if largest else 0
            room = max(workers, min(2 * ahead + workers, room))
            at_once = min(_AT_ONCE, max(1, room // (2 * workers)))
            while sum(sizes) + at_once <= room and (some := list(islice(source, at_once))):
                waiting.append(pool.submit(load_some, some))
                sizes.append(len(some))
            if not waiting:
                return
            found = waiting.popleft().result()
            sizes.popleft()
            for loaded in found:
                if stop.is_set():
                    return
                largest = max(largest, sum(wave.nbytes for wave in loaded.waveforms))
                yield loaded
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def batches(loaded: Iterable[Loaded], batch_size: int) -> Iterator[list[Loaded]]:
    """Batches of equal length; which clips share one depends on their order alone.

    Clips wait until their length has a full batch. Where there are many lengths, the one with
    most samples goes early, so that no more than `MAX_SAMPLES` (and four batches) wait.
    """
    buckets: dict[tuple[int, ...], list[Loaded]] = {}
    waiting = clips = 0
    for each in loaded:
        if not each.waveforms:
            continue
        sizes = tuple(wave.size for wave in each.waveforms)  # of both microphones
        buckets.setdefault(sizes, []).append(each)
        waiting += sum(sizes)
        clips += 1
        full = max(1, min(batch_size, MAX_SAMPLES // sum(sizes)))
        if len(buckets[sizes]) < full:
            if waiting <= MAX_SAMPLES and clips < 4 * batch_size:
                continue
            sizes = max(buckets, key=lambda key: (sum(key) * len(buckets[key]), key))
        batch = buckets.pop(sizes)
        waiting -= sum(sizes) * len(batch)
        clips -= len(batch)
        yield batch
    for sizes in sorted(buckets):
        yield buckets[sizes]


class BatchBuffers:
    """Two pieces of memory that batches are copied to in turn: fresh memory costs as much again.

    Parameters
    ----------
    int16 : bool
        Keep batches of 16-bit clips as they are; else all become float32.
    """

    def __init__(self, *, int16: bool) -> None:
        self._int16 = int16
        self._buffers = deque([np.empty(0, np.uint8), np.empty(0, np.uint8)])

    def stack(self, waves: Sequence[Waveforms]) -> Waveforms:
        """The waveforms, one row per clip, good until the call after the next."""
        keep = self._int16 and all(wave.dtype == np.int16 for wave in waves)
        dtype = np.dtype(np.int16 if keep else np.float32)
        shape = (len(waves), *waves[0].shape)
        n_bytes = len(waves) * waves[0].size * dtype.itemsize
        self._buffers.rotate()
        if self._buffers[0].size < n_bytes:
            self._buffers[0] = np.empty(n_bytes, np.uint8)
        stacked = self._buffers[0][:n_bytes].view(dtype).reshape(shape)
        for row, wave in zip(stacked, waves, strict=True):
            if keep or wave.dtype == np.float32:
                row[:] = wave
            else:
                np.multiply(wave, INT16_SCALE, out=row)  # exact, and what libsndfile gives
        return stacked


def prefetch(
    stream: Generator[Item, None, None], stop: threading.Event
) -> Generator[Item, None, None]:
    """The stream's items; a thread makes the next one while the caller works on one.

    When this ends, however it does, `stop` is set and the stream closed.
    """
    pool = ThreadPoolExecutor(1, thread_name_prefix="daco-batches")
    with contextlib.closing(stream):
        try:
            coming = pool.submit(next, stream, None)
            while (item := coming.result()) is not None:
                coming = pool.submit(next, stream, None)
                yield item
        finally:
            stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
