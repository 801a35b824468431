"""Finished pieces of an embedding run: one file per shard of clips, reused after a kill.

A shard is reused only if it was made with the same settings from the same recordings. A
recording is the same if its size and times are, or else its content hash; so neither a
changed file nor a changed network can leave a stale vector behind. Recordings and shards may lie
on remote file systems.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from daco.data.clips import ClipTable
from daco.data.parquet import vector_array
from daco.errors import DacoError, DataError, DownloadError
from daco.files.atomic import TEMPORARY, atomic_write, write_error
from daco.files.claims import claimed
from daco.files.lock import hold_lock
from daco.files.remote import REMOTE_THREADS, Location, RemotePath, Status
from daco.validation import Float32s

WHOLE = 1 << 24
"""Bytes of a file that is read in one go; each loading thread may hold one."""

Span = tuple[int, int]
"""First row of a shard in the clip table, and the one after its last."""

_VECTORS = "vectors."
_FETCHED = (
    1 << 30
)  # bytes of a remote file that is read at all: `daco.audio.decode` refuses larger ones
_SETTLED = 60.0  # seconds: stores tell times in whole ones, and by a clock of their own


class Recording(NamedTuple):
    """What a file was when it was read; all zero where there is no regular file."""

    size: int
    mtime_ns: int
    ctime_ns: int  # changes with the content even where a copy restored the mtime
    sha256: str


_NONE = Recording(0, 0, 0, "")


def stat_recording(path: Location) -> Recording:
    """Size and times of a file, without its hash."""
    if isinstance(path, RemotePath):
        return _stat_remote(path)
    try:
        found = path.stat()
    except (OSError, ValueError):
        return _NONE
    if not stat.S_ISREG(found.st_mode):
        return _NONE
    return Recording(found.st_size, found.st_mtime_ns, found.st_ctime_ns, "")


def hash_recording(path: Location) -> Recording:
    """Size, times and content hash of a file; the times are those from before reading it."""
    if isinstance(path, RemotePath):
        return read_recording(path)[0]
    recording = stat_recording(path)
    if recording == _NONE:  # to read from a pipe could take for ever
        return recording
    try:
        with path.open("rb") as file:
            return recording._replace(sha256=hashlib.file_digest(file, "sha256").hexdigest())
    except (OSError, ValueError):
        return recording


def read_recording(path: Location) -> tuple[Recording, bytes]:
    """As `hash_recording`, with the content that was hashed; b"" where that is large or bad."""
    if isinstance(path, RemotePath):
        return _fetch(path)
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


def _stat_remote(path: RemotePath) -> Recording:
    """Size and time; 0 for a time so recent that a later change could have the same."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return _NONE
    return _remote_recording(found) if stat.S_ISREG(found.st_mode) else _NONE


def _fetch(path: RemotePath) -> tuple[Recording, bytes]:
    try:
        found, data = path.fetch(_FETCHED)
    except FileNotFoundError:
        return _NONE, b""
    recording = _remote_recording(found)
    if not data:
        return recording, data
    return recording._replace(size=len(data), sha256=hashlib.sha256(data).hexdigest()), data


def _remote_recording(found: Status) -> Recording:
    settled = time.time() - found.st_mtime_ns / 1e9 > _SETTLED
    return Recording(found.st_size, found.st_mtime_ns if settled else 0, 0, "")


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
    vectors: dict[str, Float32s]
    settings: str


def shard_path(folder: Location, start: int, stop: int) -> Location:
    """Where a shard is kept."""
    return folder / f"{start:09d}-{stop:09d}.arrow"


def write_shard(folder: Location, shard: Shard) -> None:
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


def read_shard(folder: Location, start: int, stop: int) -> Shard:
    """A finished shard."""
    import pyarrow as pa

    path = shard_path(folder, start, stop)
    remote = isinstance(path, RemotePath)
    with pa.BufferReader(path.read_bytes()) if remote else pa.OSFile(str(path)) as source:
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


def read_shards(folder: Location, spans: Sequence[Span]) -> Iterator[Shard | None]:
    """Finished shards in this order, remote ones several at a time; None where one is missing."""

    def read(span: Span) -> Shard | None:
        try:
            return read_shard(folder, *span)
        except FileNotFoundError:
            return None

    if isinstance(folder, Path):
        yield from map(read, spans)
        return
    waiting: deque[Future[Shard | None]] = deque()
    with ThreadPoolExecutor(REMOTE_THREADS, thread_name_prefix="daco-shards") as pool:
        for span in spans:
            waiting.append(pool.submit(read, span))
            if len(waiting) > REMOTE_THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def reusable(
    folder: Location, table: ClipTable, spans: Sequence[Span], settings: str, *, skips: bool
) -> set[Span]:
    """The spans whose finished shards hold what embedding their clips again would give.

    Parameters
    ----------
    folder : path
        Of the shards.
    table : ClipTable
        All clips.
    spans : sequence of (start, stop)
        Rows of the clip table.
    settings : str
        What a shard must have been made with.
    skips : bool
        Whether a shard with skipped clips will do.
    """

    def check(span: Span) -> bool:
        return _is_reusable(folder, table, span, settings, skips)

    if isinstance(folder, RemotePath):
        there = {name for name, _ in folder.files(recursive=False)}
        spans = [span for span in spans if shard_path(folder, *span).name in there]
    if isinstance(folder, Path) and isinstance(table.root, Path):
        return {span for span in spans if check(span)}
    with ThreadPoolExecutor(REMOTE_THREADS, thread_name_prefix="daco-shards") as pool:
        return {span for span, good in zip(spans, pool.map(check, spans), strict=True) if good}


def _is_reusable(
    folder: Location, table: ClipTable, span: Span, settings: str, skips: bool
) -> bool:
    paths = [clip.path for clip in table.clips[slice(*span)]]
    try:
        shard = read_shard(folder, *span)
    except (OSError, ValueError, KeyError) as error:  # none, not ours, or damaged: make it again
        if isinstance(error, DacoError):
            raise
        return False
    if shard.settings != settings or list(shard.paths) != paths:
        return False
    if not skips and any(reason is not None for reason in shard.reasons):
        return False
    return all(
        _is_unchanged(table.root / path, recording)
        for path, recording in zip(paths, shard.recordings, strict=True)
    )


def _is_unchanged(path: Location, before: Recording) -> bool:
    now = stat_recording(path)
    timed = now.mtime_ns or now == _NONE
    if timed and now == before._replace(sha256=""):
        return True
    if now.size != before.size or not before.sha256:
        return False
    return hash_recording(path).sha256 == before.sha256


@contextlib.contextmanager
def shard_folder(out: Location) -> Iterator[Location]:
    """``<out>.shards`` for this process alone; what a killed run left half-written is removed.

    The folder is kept if it holds finished shards when an error ends the block. On a remote file
    system "alone" is what `daco.files.claims` can promise.
    """
    if isinstance(out, RemotePath):
        with _remote_folder(out) as remote:
            yield remote
        return
    folder = out.with_name(out.name + ".shards")
    owner = folder / "pid"
    with contextlib.ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            stack.enter_context(hold_lock(folder / "run", wait=0))
            for leftover in folder.glob(f".*{TEMPORARY}"):
                leftover.unlink()
            owner.write_text(str(os.getpid()))
        except DownloadError:
            raise DataError(
                f"{out}: another run (process {_pid(owner)}) is writing it. Wait for it, end it, "
                "or choose another --out."
            ) from None
        except OSError as error:
            raise write_error(folder, error) from None
        try:
            yield folder
        except BaseException:
            owner.unlink(missing_ok=True)
            if not any(folder.glob("*.arrow")):
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _remote_folder(out: RemotePath) -> Iterator[RemotePath]:
    folder = out.with_name(out.name + ".shards")
    with claimed(folder, out):
        try:
            yield folder
        except BaseException:
            with contextlib.suppress(DacoError):
                if not any(folder.glob("*.arrow")):
                    folder.rmtree()
            raise
        with contextlib.suppress(DacoError):  # the table is there, and that is what counts
            folder.rmtree()


def _pid(owner: Path) -> str:
    try:
        return owner.read_text().strip() or "unknown"
    except OSError:
        return "unknown"
