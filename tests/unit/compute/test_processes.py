"""Worker processes live as long as their pool."""

from __future__ import annotations

import os
import sys
import time

import pytest

from daco.compute.processes import worker_pool


def keep_in_memory(megabytes):
    sys.daco_test_kept = b"x" * (megabytes * 10**6)
    time.sleep(1.1)  # loky looks at the memory once per second
    return os.getpid()


def test_a_process_that_needs_memory_is_not_replaced():
    pytest.importorskip("psutil", reason="loky measures memory with psutil")
    with worker_pool(2) as pool:
        first = {pool.submit(keep_in_memory, 0).result(timeout=60) for _ in range(2)}
        grown = [pool.submit(keep_in_memory, 400).result(timeout=60) for _ in range(4)]
        processes = set(pool._processes)
    assert {*first, *grown} <= processes
    assert len(processes) == 2
