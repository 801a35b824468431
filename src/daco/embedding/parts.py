"""Finished parts of an embedding run: one file for 256 clips, reused after a kill.

The name of a part is a hash of the settings and of its recordings' paths, sizes and times: a part
that exists under its name is what would be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from daco.data.clips import Clip, ClipTable
from daco.errors import DataError
from daco.files.atomic import TEMPORARY, atomic_write, hold_lock, write_error
from daco.files.download import cache_dir
from daco.files.hashing import sha256_of_bytes
from daco.files.remote import Location, statuses

PART_SIZE = 256
"""Clips per part."""

Fingerprint = tuple[int, int]
"""Size and time of the last change of a recording, in nanoseconds; zeros if there is none."""


def fingerprints(table: ClipTable) -> list[Fingerprint]:
    """The fingerprint of each recording, without reading it."""
    found = statuses(table.root, [clip.path for clip in table])
    return [(0, 0) if each is None else (each.st_size, each.st_mtime_ns) for each in found]


@dataclass(frozen=True)
class Part:
    """Consecutive clips of a table, the sizes of their files, and the name of the part's file."""

    clips: Sequence[Clip]
    sizes: Sequence[int]
    name: str

    def __len__(self) -> int:
        return len(self.clips)


def plan_parts(table: ClipTable, known: Sequence[Fingerprint], settings: str) -> list[Part]:
    """The parts of a table, given the fingerprints of its recordings."""
    parts = []
    for start in range(0, len(table), PART_SIZE):
        clips = table.clips[start : start + PART_SIZE]
        prints = known[start : start + PART_SIZE]
        text = json.dumps([settings, [clip.path for clip in clips], prints])
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        parts.append(Part(clips, [size for size, _ in prints], f"{name}.arrow"))
    return parts


def write_part(path: Path, content: pa.Table) -> None:
    """Write a finished part; after this a kill cannot lose it."""
    with (
        atomic_write(path) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, content.schema) as writer,
    ):
        writer.write_table(content)


def read_part(path: Path) -> pa.Table:
    """The content of a finished part, which stays on disk until it is used."""
    return pa.ipc.open_file(pa.memory_map(str(path))).read_all()


@contextlib.contextmanager
def part_folder(out: Location) -> Iterator[Path]:
    """``<out>.parts``, for this process alone; of a remote table, a folder in the user's cache.

    The folder stays if it holds finished parts when an error ends the block.
    """
    folder = cache_dir() / "parts" / sha256_of_bytes(str(out).encode())[:32]
    if isinstance(out, Path):
        folder = out.with_name(out.name + ".parts")
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(parents=not isinstance(out, Path), exist_ok=True)
            stack.enter_context(hold_lock(folder / "run.lock"))
            for leftover in folder.glob(f".*{TEMPORARY}"):
                leftover.unlink()
        except OSError as error:
            raise write_error(folder, error) from None
        except DataError:
            raise DataError(
                f"{out}: another run is writing it. Wait for it, end it, or choose another --out."
            ) from None
        finished = False
        try:
            yield folder
            finished = True
        finally:
            if finished or not any(folder.glob("*.arrow")):
                shutil.rmtree(folder, ignore_errors=True)
