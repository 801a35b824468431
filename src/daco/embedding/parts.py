"""Finished parts of an embedding run: one file for 256 clips, reused after a kill.

The name of a part is a hash of the settings and of its recordings' paths, sizes and times: a part
that exists under its name is what would be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from daco.data.clips import Clip, ClipTable
from daco.errors import DacoError, DataError
from daco.files.atomic import TEMPORARY, LockedError, atomic_write, hold_lock, write_error
from daco.files.remote import Location, listing_of

PART_SIZE = 256
"""Clips per part."""

MISSING = ""
"""The fingerprint of a recording that does not exist or is not a regular file."""


def fingerprints(table: ClipTable) -> list[str]:
    """Size and time of the last change of each recording, without reading it."""
    if isinstance(table.root, Path):
        top = os.fspath(table.root)
        return [_local_fingerprint(os.path.join(top, clip.path)) for clip in table.clips]
    paths = [clip.path for clip in table.clips]
    known = listing_of(table.root, paths)
    return [_fingerprint(known[path]) if path in known else MISSING for path in paths]


def _local_fingerprint(path: str) -> str:
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return MISSING
    return _fingerprint(status) if stat.S_ISREG(status.st_mode) else MISSING


def _fingerprint(status: Any) -> str:
    return f"{status.st_size} {status.st_mtime_ns}"


@dataclass(frozen=True)
class Part:
    """Consecutive clips of a table from row `start` on, with their fingerprints."""

    start: int
    clips: Sequence[Clip]
    fingerprints: Sequence[str]
    name: str

    def __len__(self) -> int:
        return len(self.clips)


def plan_parts(table: ClipTable, known: Sequence[str], settings: str) -> list[Part]:
    """The parts of a table, given the fingerprints of its recordings."""
    parts = []
    for start in range(0, len(table), PART_SIZE):
        clips = table.clips[start : start + PART_SIZE]
        prints = known[start : start + PART_SIZE]
        text = json.dumps([settings, [clip.path for clip in clips], prints])
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        parts.append(Part(start, clips, prints, f"{name}.arrow"))
    return parts


def write_part(path: Location, content: pa.Table) -> None:
    """Write a finished part; after this a kill cannot lose it."""
    with (
        atomic_write(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, content.schema) as writer,
    ):
        writer.write_table(content)


def read_part(path: Location) -> pa.Table:
    """The content of a finished part; that of a local one stays on disk until it is used."""
    local = isinstance(path, Path)
    source = pa.memory_map(str(path)) if local else pa.BufferReader(path.read_bytes())
    return pa.ipc.open_file(source).read_all()


@contextlib.contextmanager
def part_folder(out: Location) -> Iterator[Location]:
    """``<out>.parts``, for this process alone where it is local.

    The folder stays if it holds finished parts when an error ends the block. Remote folders have
    no locks, but runs with the same settings write the same parts.
    """
    folder = out.with_name(out.name + ".parts")
    with contextlib.ExitStack() as stack:
        if isinstance(folder, Path):
            _lock(folder, out, stack)
        try:
            yield folder
        except BaseException:
            with contextlib.suppress(DacoError):
                if not any(folder.glob("*.arrow")):
                    _remove(folder)
            raise
        with contextlib.suppress(DacoError):  # the table is written, which is what counts
            _remove(folder)


def _lock(folder: Path, out: Location, stack: contextlib.ExitStack) -> None:
    try:
        folder.mkdir(exist_ok=True)
        stack.enter_context(hold_lock(folder / "run", wait=0))
        for leftover in folder.glob(f".*{TEMPORARY}"):
            leftover.unlink()
    except LockedError:
        raise DataError(
            f"{out}: another run is writing it. Wait for it, end it, or choose another --out."
        ) from None
    except OSError as error:
        raise write_error(folder, error) from None


def _remove(folder: Location) -> None:
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.rmtree()
