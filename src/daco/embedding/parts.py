"""Parts of an embedding run: 256 clips, embedded in batches and kept in a file of their own.

The name of a part is a hash of the settings and of its recordings' paths, sizes and times: a part
that exists under its name is what would be computed again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from daco.audio.decode import Decoder, read_each
from daco.audio.quality import quality_of
from daco.backbones.levels import LEVELS, levels_text
from daco.backbones.protocol import Backbone, is_out_of_memory
from daco.data.clips import Clip, ClipTable
from daco.data.parquet import column_name
from daco.embedding.frontend import decoder_of, embed_waves
from daco.errors import AudioError, DacoError, DataError, InputError
from daco.files.atomic import TEMPORARY, atomic_write, hold_lock, write_error
from daco.files.download import cache_dir
from daco.files.hashing import sha256_of_bytes
from daco.files.remote import Location, explain_errors, statuses
from daco.validation import Float32s

PART_SIZE = 256
"""Clips per part."""

HASHES = "audio_sha256"
"""The column with the SHA-256 of each recording."""

QUALITIES = "quality"
"""The column with the sample rate, length and problems of each recording, as JSON."""

REASON = "reason"
"""The column of a part that says why a clip was skipped."""

_TEXTS = (HASHES, QUALITIES, LEVELS, REASON)
_BLOCK_BYTES = 1 << 25  # of the files of one batch; those of the next one are read meanwhile

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


@dataclass(frozen=True, kw_only=True)
class Job:
    """How parts are made; a worker of a cluster loads the network by its name.

    `settings` is a hash of everything that the vectors depend on besides the recordings.
    """

    backbone: str
    precision: str
    device: str
    weights: str | None
    readouts: tuple[str, ...]
    channel: int | str
    batch_size: int
    workers: int
    settings: str


@dataclass(frozen=True, eq=False)
class _Recording:
    """What will be in the columns of a recording, and its waveforms, one for each network."""

    columns: dict[str, Any]
    waveforms: tuple[Float32s, ...] = ()


def embed_part(
    job: Job,
    net: Backbone,
    root: Location,
    part: Part,
    done: Callable[[int], None] = lambda clips: None,
) -> pa.Table:
    """The columns of a part; a clip that was skipped has a reason and no other value."""
    rows: list[dict[str, Any]] = []
    pool = ThreadPoolExecutor(job.workers, "daco-reader")
    try:
        for block in _read_ahead(pool, job, net, root, part):
            by_length = defaultdict(list)
            for each in block:
                by_length[tuple(wave.shape[-1] for wave in each.waveforms)].append(each)
            by_length.pop((), None)  # what cannot be decoded
            for _, batch in sorted(by_length.items()):
                _embed_batch(job, net, batch)
            rows += [each.columns for each in block]
            done(len(block))
    finally:
        pool.shutdown(cancel_futures=True)
    kinds = dict.fromkeys(_TEXTS, pa.string())
    kinds |= {column_name(each, job.readouts): pa.list_(pa.float32()) for each in job.readouts}
    columns = {name: [row.get(name) for row in rows] for name in kinds}
    return pa.table(columns, pa.schema(kinds))


def _read_ahead(
    pool: ThreadPoolExecutor, job: Job, net: Backbone, root: Location, part: Part
) -> Iterator[list[_Recording]]:
    """The recordings of each batch in order; threads read those of the next one meanwhile."""
    decoders = [decoder_of(each, job.channel) for each in net.networks]
    ahead = None
    for rows in _blocks(part, job.batch_size):
        following = [
            pool.submit(_read, root / part.clips[row].path, part.sizes[row], decoders)
            for row in rows
        ]
        if ahead is not None:
            yield [each.result() for each in ahead]
        ahead = following
    if ahead is not None:
        yield [each.result() for each in ahead]


def _blocks(part: Part, batch_size: int) -> Iterator[list[int]]:
    """Rows of consecutive clips, as many as a batch may have, fewer where files are large."""
    block: list[int] = []
    for row in range(len(part)):
        block.append(row)
        if len(block) == batch_size or sum(part.sizes[one] for one in block) > _BLOCK_BYTES:
            yield block
            block = []
    if block:
        yield block


def _read(path: Location, size: int, decoders: Sequence[Decoder]) -> _Recording:
    content = b""
    with contextlib.suppress(OSError), explain_errors(path):  # the decoder says what is wrong
        if 0 < size <= decoders[0].limits.bytes:
            content = path.read_bytes()
    sha256 = sha256_of_bytes(content) if content else ""
    try:
        sound, waveforms = read_each(decoders, path, content)
    except AudioError as error:
        return _Recording({HASHES: sha256, REASON: error.reason})
    return _Recording({HASHES: sha256, QUALITIES: json.dumps(quality_of(sound))}, waveforms)


def _embed_batch(job: Job, net: Backbone, batch: list[_Recording]) -> None:
    """Add the vectors and levels of each clip to its columns, or the reason why it has none."""
    waves = [np.stack(each) for each in zip(*(one.waveforms for one in batch), strict=True)]
    try:
        found = embed_waves(net, waves, (*job.readouts, LEVELS), job.channel)
    except DacoError as error:
        if len(batch) == 1:
            batch[0].columns[REASON] = error.reason
            return
        for one in batch:  # any of them may be the cause
            _embed_batch(job, net, [one])
        return
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"{net.name} ran out of memory on a batch of {len(batch)} clips of "
            f"{waves[0].shape[-1]} samples. Choose a smaller --batch-size; finished work is kept."
        ) from None
    finite = np.all([np.isfinite(vectors).all(axis=1) for vectors in found.values()], axis=0)
    columns: dict[str, Any] = {LEVELS: levels_text(found.pop(LEVELS))}
    columns |= {column_name(name, job.readouts): vectors for name, vectors in found.items()}
    for at, one in enumerate(batch):
        if finite[at]:
            one.columns.update({name: values[at] for name, values in columns.items()})
        else:
            one.columns[REASON] = f"its {net.name} embedding contains NaN or infinity"
