"""Finished parts of an embedding run: one file per shard of clips, reused after a kill.

A shard is reused only if it was made with the same settings from the same recordings: of the
same size and times, or else of the same SHA-256. Recordings and shards may be remote.
"""

from __future__ import annotations

import contextlib
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
from daco.errors import DacoError, DataError
from daco.files.atomic import TEMPORARY, LockedError, atomic_write, hold_lock, write_error
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.files.remote import REMOTE_THREADS, Location
from daco.validation import Float32s

WHOLE = 1 << 24
"""Bytes up to which a local file is read at once; each loading thread may hold one."""

Span = tuple[int, int]
"""First row of a shard in the clip table, and the one after its last."""

_VECTORS = "vectors."
_LARGEST = 1 << 30  # bytes of a remote file that is read: `daco.audio.decode` refuses larger ones
_SETTLED = 60.0  # seconds: stores give times in whole ones, and by a clock of their own


class Recording(NamedTuple):
    """What a file was when it was read; all zero where there is no regular file."""

    size: int
    mtime_ns: int
    ctime_ns: int  # changes with the content even where a copy restored the mtime
    sha256: str


NO_RECORDING = Recording(0, 0, 0, "")


def stat_recording(path: Location) -> Recording:
    """Size and times of a file, without its hash."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        if isinstance(error, DacoError):
            raise
        return NO_RECORDING
    if not stat.S_ISREG(status.st_mode):
        return NO_RECORDING
    if isinstance(path, Path):
        return Recording(status.st_size, status.st_mtime_ns, status.st_ctime_ns, "")
    return Recording(status.st_size, _settled(status.st_mtime_ns), 0, "")


def hash_recording(path: Location) -> Recording:
    """Size, times and content hash of a file; the times are those from before reading it."""
    if not isinstance(path, Path):
        return read_recording(path)[0]
    recording = stat_recording(path)
    if recording == NO_RECORDING:  # reading from a pipe could take for ever
        return recording
    try:
        return recording._replace(sha256=sha256_of_file(path))
    except (OSError, ValueError):
        return recording


def read_recording(path: Location) -> tuple[Recording, bytes]:
    """As `hash_recording`, with the content that was hashed; b"" where that is large or bad."""
    if not isinstance(path, Path):
        try:
            size, mtime_ns, data = path.fetch(_LARGEST)
        except FileNotFoundError:
            return NO_RECORDING, b""
        sha256 = sha256_of_bytes(data) if data else ""
        return Recording(len(data) or size, _settled(mtime_ns), 0, sha256), data
    recording = stat_recording(path)
    if 0 < recording.size <= WHOLE:
        try:
            with path.open("rb", buffering=0) as file:
                data = file.read(recording.size + 1)
        except (OSError, ValueError):
            return recording, b""
        if len(data) == recording.size:
            return recording._replace(sha256=sha256_of_bytes(data)), data
    return hash_recording(path), b""


def _settled(mtime_ns: int) -> int:
    """A remote time; 0 if it is so recent that a later change could have the same."""
    return mtime_ns if time.time() - mtime_ns / 1e9 > _SETTLED else 0


@dataclass(frozen=True)
class Shard:
    """Clips `start` to `stop` of a clip table, embedded or skipped.

    ``qualities`` are texts, "" for a skipped clip; ``reasons`` has None for an embedded one.
    ``vectors`` hold one row per clip, zeros for a skipped one, and are empty where all were
    skipped. ``settings`` is all that the vectors depend on, besides the recordings.
    """

    start: int
    stop: int
    paths: Sequence[str]
    recordings: Sequence[Recording]
    qualities: Sequence[str]
    reasons: Sequence[str | None]
    vectors: dict[str, Float32s]
    settings: str


def _shard_path(folder: Location, start: int, stop: int) -> Location:
    return folder / f"{start:09d}-{stop:09d}.arrow"


def write_shard(folder: Location, shard: Shard) -> None:
    """Write a finished shard; after this a kill cannot lose it."""
    import pyarrow as pa

    from daco.data.parquet import vector_array

    columns = zip(*shard.recordings, strict=True)
    arrays = {
        "path": pa.array(shard.paths, pa.string()),
        **{
            name: pa.array(values, pa.string() if name == "sha256" else pa.int64())
            for name, values in zip(Recording._fields, columns, strict=True)
        },
        "quality": pa.array(shard.qualities, pa.string()),
        "reason": pa.array(shard.reasons, pa.string()),
    }
    arrays |= {_VECTORS + name: vector_array(matrix) for name, matrix in shard.vectors.items()}
    table = pa.table(arrays).replace_schema_metadata({"settings": shard.settings})
    with (
        atomic_write(_shard_path(folder, shard.start, shard.stop)) as temporary,
        pa.OSFile(str(temporary), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)


def _read_shard(folder: Location, start: int, stop: int) -> Shard:
    import pyarrow as pa

    path = _shard_path(folder, start, stop)
    local = isinstance(path, Path)
    with pa.OSFile(str(path)) if local else pa.BufferReader(path.read_bytes()) as source:
        table = pa.ipc.open_file(source).read_all()
    columns = [table[name].to_pylist() for name in Recording._fields]
    vectors = {
        name.removeprefix(_VECTORS): table[name].chunk(0).flatten().to_numpy()
        for name in table.column_names
        if name.startswith(_VECTORS)
    }
    return Shard(
        start,
        stop,
        table["path"].to_pylist(),
        [Recording(*each) for each in zip(*columns, strict=True)],
        table["quality"].to_pylist(),
        table["reason"].to_pylist(),
        {name: values.reshape(len(table), -1) for name, values in vectors.items()},
        (table.schema.metadata or {}).get(b"settings", b"").decode(),
    )


def read_shards(folder: Location, spans: Sequence[Span]) -> Iterator[Shard | None]:
    """Finished shards in this order, remote ones several at a time; None where one is missing."""

    def read(span: Span) -> Shard | None:
        try:
            return _read_shard(folder, *span)
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


def reusable_spans(
    folder: Location, table: ClipTable, spans: Sequence[Span], settings: str, *, skips: bool
) -> set[Span]:
    """The spans whose finished shards hold what embedding their clips again would give.

    `skips` says whether a shard with skipped clips is accepted.
    """

    def is_reusable(span: Span) -> bool:
        paths = [clip.path for clip in table.clips[slice(*span)]]
        try:
            shard = _read_shard(folder, *span)
        except (OSError, ValueError, KeyError) as error:  # none, of another program, or damaged
            if isinstance(error, DacoError):
                raise
            return False
        return (
            shard.settings == settings
            and list(shard.paths) == paths
            and (skips or all(reason is None for reason in shard.reasons))
            and all(
                _is_unchanged(table.root / path, recording)
                for path, recording in zip(paths, shard.recordings, strict=True)
            )
        )

    if not isinstance(folder, Path):
        existing = {path.name for path in folder.glob("*.arrow")}
        spans = [span for span in spans if _shard_path(folder, *span).name in existing]
    if isinstance(folder, Path) and isinstance(table.root, Path):
        return {span for span in spans if is_reusable(span)}
    with ThreadPoolExecutor(REMOTE_THREADS, thread_name_prefix="daco-shards") as pool:
        checks = pool.map(is_reusable, spans)
        return {span for span, good in zip(spans, checks, strict=True) if good}


def _is_unchanged(path: Location, before: Recording) -> bool:
    now = stat_recording(path)
    if (now.mtime_ns or now == NO_RECORDING) and now == before._replace(sha256=""):
        return True
    if now.size != before.size or not before.sha256:
        return False
    return hash_recording(path).sha256 == before.sha256


@contextlib.contextmanager
def shard_folder(out: Location) -> Iterator[Location]:
    """``<out>.shards``, for this process alone where it is local.

    The folder stays if it holds finished shards when an error ends the block. Remote folders have
    no locks: two runs with the same settings write the same shards, other shards are noticed when
    the table is put together.
    """
    folder = out.with_name(out.name + ".shards")
    with contextlib.ExitStack() as stack:
        if isinstance(folder, Path):
            _lock_folder(folder, out, stack)
        try:
            yield folder
        except BaseException:
            with contextlib.suppress(DacoError):
                if not any(folder.glob("*.arrow")):
                    _remove(folder)
            raise
        with contextlib.suppress(DacoError):  # the table is written, which is what counts
            _remove(folder)


def _lock_folder(folder: Path, out: Location, stack: contextlib.ExitStack) -> None:
    owner = folder / "pid"
    try:
        folder.mkdir(exist_ok=True)
        stack.enter_context(hold_lock(folder / "run", wait=0))
        for leftover in folder.glob(f".*{TEMPORARY}"):
            leftover.unlink()
        owner.write_text(str(os.getpid()))
    except LockedError:
        pid = "unknown"
        with contextlib.suppress(OSError):
            pid = owner.read_text().strip() or pid
        raise DataError(
            f"{out}: another run (process {pid}) is writing it. Wait for it, end it, or choose "
            "another --out."
        ) from None
    except OSError as error:
        raise write_error(folder, error) from None


def _remove(folder: Location) -> None:
    if isinstance(folder, Path):
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.rmtree()
