"""Finished pieces of an embedding run: one file per shard of clips, reused after a kill.

A shard is reused only if it was made with the same settings from the same recordings. A
recording is the same if its size and times are, or else its content hash; so neither a
changed file nor a changed network can leave a stale vector behind.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from daco.atomic import TEMPORARY, atomic_write, unwritable
from daco.errors import DataError, DownloadError
from daco.locks import exclusive
from daco.table import Matrix
from daco.tablefile import vector_array

WHOLE = 1 << 24
"""Bytes of a file that is read in one go; each loading thread may hold one."""

Span = tuple[int, int]
"""First row of a shard in the clip table, and the one after its last."""

_VECTORS = "vectors."


class Recording(NamedTuple):
    """What a file was when it was read; all zero where there is no regular file."""

    size: int
    mtime_ns: int
    ctime_ns: int  # changes with the content even where a copy restored the mtime
    sha256: str


_NONE = Recording(0, 0, 0, "")


def stat_recording(path: Path) -> Recording:
    """Size and times of a file, without its hash."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return _NONE
    if not stat.S_ISREG(found.st_mode):
        return _NONE
    return Recording(found.st_size, found.st_mtime_ns, found.st_ctime_ns, "")


def hash_recording(path: Path) -> Recording:
    """Size, times and content hash of a file; the times are those from before reading it."""
    recording = stat_recording(path)
    if recording == _NONE:  # to read from a pipe could take for ever
        return recording
    try:
        with path.open("rb") as file:
            return recording._replace(sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except (OSError, ValueError):
        return recording


def read_recording(path: Path) -> tuple[Recording, bytes]:
    """As `hash_recording`, with the content that was hashed; b"" where that is large or bad."""
    recording = stat_recording(path)
    if 0 < recording.size <= WHOLE:
        try:
            with path.open("rb", buffering=0) as file:
                data = file.read(recording.size + 1)
        except (OSError, ValueError):
            return recording, b""
        if len(data) == recording.size:
            return recording._replace(sha256=hashlib.sha256(data).hexdigest()), data
    return hash_recording(path), b""


@dataclass(frozen=True)
class Shard:
    """Clips `start` to `stop` of a clip table, embedded or skipped.

    ``reasons`` has None for an embedded clip. ``vectors`` hold one row per clip, zeros for a
    skipped one, and are empty where all were skipped. ``settings`` is all that the vectors
    depend on, besides the recordings.
    """

    start: int
    stop: int
    paths: Sequence[str]
    recordings: Sequence[Recording]
    reasons: Sequence[str | None]
    vectors: dict[str, Matrix]
    settings: str


def shard_path(folder: Path, start: int, stop: int) -> Path:
    """Where a shard is kept."""
    return folder / f"{start:09d}-{stop:09d}.arrow"


def write_shard(folder: Path, shard: Shard) -> None:
    """Keep a finished shard; after this a kill cannot lose it."""
    import pyarrow as pa

    arrays = {
        "path": pa.array(shard.paths, pa.string()),
        "size": pa.array([each.size for each in shard.recordings], pa.int64()),
        "mtime_ns": pa.array([each.mtime_ns for each in shard.recordings], pa.int64()),
        "ctime_ns": pa.array([each.ctime_ns for each in shard.recordings], pa.int64()),
        "sha256": pa.array([each.sha256 for each in shard.recordings], pa.string()),
        "reason": pa.array(shard.reasons, pa.string()),
    }
    arrays |= {_VECTORS + name: vector_array(matrix) for name, matrix in shard.vectors.items()}
    table = pa.table(arrays).replace_schema_metadata({"settings": shard.settings})
    with (
        atomic_write(shard_path(folder, shard.start, shard.stop)) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def read_shard(folder: Path, start: int, stop: int) -> Shard:
    """A finished shard."""
    import pyarrow as pa

    with pa.OSFile(str(shard_path(folder, start, stop))) as source:
        table = pa.ipc.open_file(source).read_all()
    numbers = [table[name].to_pylist() for name in Recording._fields]
    vectors = {
        name.removeprefix(_VECTORS): table[name].chunk(0).flatten().to_numpy()
        for name in table.column_names
        if name.startswith(_VECTORS)
    }
    return Shard(
        start,
        stop,
        table["path"].to_pylist(),
        [Recording(*each) for each in zip(*numbers, strict=True)],
        table["reason"].to_pylist(),
        {name: values.reshape(len(table), -1) for name, values in vectors.items()},
        (table.schema.metadata or {}).get(b"settings", b"").decode(),
    )


def is_reusable(
    folder: Path,
    span: Span,
    root: Path,
    paths: Sequence[str],
    settings: str,
    skips: bool,
) -> bool:
    """True if a finished shard holds what embedding these clips again would give.

    Parameters
    ----------
    folder : Path
        Of the shards.
    span : (start, stop)
        The clips' rows in the clip table.
    root, paths : Path, sequence of str
        The clips' recordings.
    settings : str
        What the shard must have been made with.
    skips : bool
        Whether a shard with skipped clips will do.
    """
    if not shard_path(folder, *span).exists():
        return False
    try:
        shard = read_shard(folder, *span)
    except (OSError, ValueError, KeyError):  # not ours, or damaged: make it again
        return False
    if shard.settings != settings or list(shard.paths) != list(paths):
        return False
    if not skips and any(reason is not None for reason in shard.reasons):
        return False
    return all(
        _is_unchanged(root / path, recording)
        for path, recording in zip(paths, shard.recordings, strict=True)
    )


def _is_unchanged(path: Path, before: Recording) -> bool:
    now = stat_recording(path)
    if now == before._replace(sha256=""):
        return True
    if now.size != before.size or not before.sha256:
        return False
    return hash_recording(path).sha256 == before.sha256


@contextlib.contextmanager
def shard_folder(out: Path) -> Iterator[Path]:
    """``<out>.shards`` for this process alone; what a killed run left half-written is removed.

    The folder is kept if it holds finished shards when an error ends the block.
    """
    folder = out.with_name(out.name + ".shards")
    owner = folder / "pid"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            stack.enter_context(exclusive(folder / "run", wait=0))
            for leftover in folder.glob(f".*{TEMPORARY}"):
                leftover.unlink()
            owner.write_text(str(os.getpid()))
        except DownloadError:
            raise DataError(
                f"{out}: another run (process {_pid(owner)}) is writing it. Wait for it, end it, "
                "or choose another --out."
            ) from None
        except OSError as error:
            raise unwritable(folder, error) from None
        try:
            yield folder
        except BaseException:
            owner.unlink(missing_ok=True)
            if not any(folder.glob("*.arrow")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


def _pid(owner: Path) -> str:
    try:
        return owner.read_text().strip() or "unknown"
    except OSError:
        return "unknown"
