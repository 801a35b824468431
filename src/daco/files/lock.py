"""A lock beside a file, so that two processes do not write the same one at once."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from daco.errors import DownloadError

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl


@contextmanager
def hold_lock(path: Path, wait: float) -> Iterator[None]:
    """Hold ``<name>.lock``; whoever comes second waits, and then finds the file."""
    lock = path.with_name(path.name + ".lock")
    give_up = time.monotonic() + wait
    while True:
        handle = lock.open("ab")
        # The former holder may have removed the file between our opening and locking it.
        if _try_lock(handle) and _is_file(handle, lock):
            break
        handle.close()
        if time.monotonic() > give_up:
            raise DownloadError(
                f"Another process has been fetching {path.name} for more than "
                f"{wait:.0f} s. Wait for it or end it; its lock is {lock}."
            )
        time.sleep(0.1)
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file: a stale lock file locks nothing
            lock.unlink()
        handle.close()


def _try_lock(handle: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            msvcrt.locking(handle.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(handle.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _is_file(handle: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle.fileno()), path.stat())
    except FileNotFoundError:
        return False
