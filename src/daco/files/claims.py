"""A claim on a remote folder, where there are no locks: one run at a time writes there.

A run writes an object of its own into the folder and renews it; whoever then finds another that
was renewed lately gives way. So two runs that begin at once both give way, and the claim of a run
that was killed goes stale; on the computer where it ran, at once. A run that stands still for
longer than a claim lasts, as on a laptop that sleeps, can be overtaken: the shards that both write
are whole and, made with the same settings, the same.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import uuid
from collections.abc import Iterator

from daco.errors import DacoError, DataError
from daco.files.remote import RemotePath

BEAT = 15.0
"""Seconds after which a claim is renewed."""
LASTS = 60.0
"""Seconds for which a claim counts that nobody renews."""

_SUFFIX = ".claim"


@contextlib.contextmanager
def claimed(folder: RemotePath, out: RemotePath) -> Iterator[None]:
    """Keep a remote folder for this run; a DataError says who else is writing `out`."""
    mine = folder / f"{uuid.uuid4().hex}{_SUFFIX}"
    _renew(mine)
    try:
        other = _other(folder, mine)
        if other is not None:
            raise DataError(
                f"{out}: another run ({other}) is writing it, or was killed less than "
                f"{LASTS:.0f} s ago. Wait for it, end it, or choose another --out."
            )
        stop = threading.Event()
        renewing = threading.Thread(target=_keep, args=(mine, stop), daemon=True)
        renewing.start()
        try:
            yield
        finally:
            stop.set()
            renewing.join()
    finally:
        with contextlib.suppress(DacoError):
            mine.unlink(missing_ok=True)


def _renew(mine: RemotePath) -> None:
    said = {"host": socket.gethostname(), "pid": os.getpid(), "time": time.time()}
    mine.write_bytes(json.dumps(said).encode())


def _keep(mine: RemotePath, stop: threading.Event) -> None:
    while not stop.wait(BEAT):
        with contextlib.suppress(DacoError, FileNotFoundError):  # the run itself will notice
            _renew(mine)


def _other(folder: RemotePath, mine: RemotePath) -> str | None:
    """Who else holds a claim; stale ones are removed."""
    found = {
        name: status for name, status in folder.files(recursive=False) if name.endswith(_SUFFIX)
    }
    now = found[mine.name].st_mtime_ns / 1e9 if mine.name in found else 0
    for name, status in found.items():
        if name == mine.name:
            continue
        try:
            said = json.loads((folder / name).read_bytes())
            host, pid, written = str(said["host"]), int(said["pid"]), float(said["time"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            continue  # given up meanwhile, or not a claim
        # By the clock of the store, if it has one: those of two computers may differ.
        told = now and status.st_mtime_ns
        age = now - status.st_mtime_ns / 1e9 if told else time.time() - written
        if age < LASTS and not (host == socket.gethostname() and _is_gone(pid)):
            return f"process {pid} on {host}"
        with contextlib.suppress(DacoError):
            (folder / name).unlink(missing_ok=True)
    return None


def _is_gone(pid: int) -> bool:
    if sys.platform == "win32":
        return False  # asking there would end it
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return False
