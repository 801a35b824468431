"""Recordings decoded ahead of the network by threads, and put into batches of one length."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from daco.shards import Recording

MAX_SAMPLES = 1 << 25
"""Samples waiting for the network, and samples in one batch: 128 MiB each at most."""


@dataclass(frozen=True)
class Loaded:
    """A recording's waveform, or the reason why there is none."""

    row: int
    recording: Recording
    waveform: NDArray[np.float32] | None = None
    reason: str | None = None


def load_ahead(
    items: Iterable[tuple[int, Path]],
    load: Callable[[int, Path], Loaded],
    *,
    workers: int,
    ahead: int,
) -> Generator[Loaded, None, None]:
    """What `load` gives for each item, in order, with `workers` threads working ahead.

    libsndfile and soxr let other threads run while they work, so threads are enough. At most
    `ahead` recordings wait, fewer where they are long.
    """
    source = iter(items)
    waiting: deque[Future[Loaded]] = deque()
    longest = 0
    pool = ThreadPoolExecutor(workers, thread_name_prefix="daco-loader")
    try:
        while True:
            # Until a length is known only the workers' own: the recordings may last an hour each.
            room = max(workers, min(workers + ahead, MAX_SAMPLES // longest if longest else 0))
            while len(waiting) < room and (item := next(source, None)) is not None:
                waiting.append(pool.submit(load, *item))
            if not waiting:
                return
            loaded = waiting.popleft().result()
            if loaded.waveform is not None:
                longest = max(longest, loaded.waveform.size)
            yield loaded
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def batches(loaded: Iterable[Loaded], batch_size: int) -> Iterator[list[Loaded]]:
    """Batches of equal length; which clips share one depends on their order alone.

    Clips wait until their length has a full batch. Where there are many lengths, the one with
    most samples goes early, so that no more than `MAX_SAMPLES` (and four batches) wait.
    """
    buckets: dict[int, list[Loaded]] = {}
    waiting = clips = 0
    for each in loaded:
        if each.waveform is None:
            continue
        length = each.waveform.size
        buckets.setdefault(length, []).append(each)
        waiting += length
        clips += 1
        full = max(1, min(batch_size, MAX_SAMPLES // length))
        if len(buckets[length]) < full:
            if waiting <= MAX_SAMPLES and clips < 4 * batch_size:
                continue
            length = max(buckets, key=lambda size: (size * len(buckets[size]), size))
        batch = buckets.pop(length)
        waiting -= length * len(batch)
        clips -= len(batch)
        yield batch
    for length in sorted(buckets):
        yield buckets[length]
