"""A lock beside a file, so that two processes do not write it at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from daco.errors import DownloadError


class LockedError(DownloadError):
    """Another process holds a lock for too long."""


@contextmanager
def hold_lock(path: Path, wait: float) -> Iterator[None]:
    """Hold ``<name>.lock``, for which a second process waits up to `wait` seconds.

    The empty lock file stays; a process that ends, in whatever way, gives up its lock.
    """
    from filelock import FileLock, Timeout

    lock = path.with_name(path.name + ".lock")
    try:
        held = FileLock(lock).acquire(timeout=wait, poll_interval=0.1)
    except Timeout:
        raise LockedError(
            f"Another process has been fetching {path.name} for more than {wait:.0f} s. Wait for "
            f"it or end it; its lock is {lock}."
        ) from None
    with held:
        yield
