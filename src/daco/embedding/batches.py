"""One part of an embedding run: recordings read ahead, batches of one length, columns."""

from __future__ import annotations

import contextlib
import json
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from daco.audio.decode import Decoder, Waveforms, read_each
from daco.audio.formats import AudioLimits
from daco.audio.quality import quality_of
from daco.backbones.levels import LEVELS, levels_text
from daco.backbones.protocol import Backbone
from daco.data.parquet import column_name, vector_array
from daco.embedding.frontend import MAX_SAMPLES, decoder_of, embed_waves
from daco.embedding.output import HASHES, QUALITIES, REASON
from daco.embedding.parts import MISSING, Part
from daco.errors import AudioError, DacoError, DataError, InputError
from daco.files.hashing import sha256_of_bytes, sha256_of_file
from daco.files.remote import Location, explain_errors
from daco.validation import Float32s

_WHOLE = 1 << 26  # bytes up to which a local file is read at once
_AHEAD = 1 << 27  # bytes of recordings that are read ahead of the network


@dataclass(frozen=True, kw_only=True)
class Job:
    """How parts are made; `settings` is a hash of everything their vectors depend on."""

    readouts: tuple[str, ...]
    channel: int | str
    limits: AudioLimits
    batch_size: int
    workers: int
    skip: bool
    settings: str


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A recording's waveforms, one for each network, or the reason why there are none."""

    index: int
    sha256: str
    quality: str = ""
    waveforms: tuple[Waveforms, ...] = ()
    reason: str | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(wave.shape[-1] for wave in self.waveforms)

    @property
    def samples(self) -> int:
        return sum(wave.size for wave in self.waveforms)


def embed_part(
    job: Job,
    net: Backbone,
    root: Location,
    part: Part,
    done: Callable[[int], None] = lambda clips: None,
) -> pa.Table:
    """The columns of a part; a clip that was skipped has a reason and no other value."""
    decoders = [decoder_of(each, job.channel, job.limits) for each in net.networks]
    rows: list[dict[str, str | None]] = [
        {HASHES: "", QUALITIES: "", LEVELS: "", REASON: None} for _ in part.clips
    ]
    vectors: dict[str, Float32s] = {}

    def skip(index: int, reason: str) -> None:
        if not job.skip:
            advice = "Pass --on-error skip to leave such recordings out."
            raise AudioError(f"{reason} {advice}", path=root / part.clips[index].path)
        rows[index][REASON] = reason

    with contextlib.closing(_read_ahead(job, decoders, root, part)) as recordings:
        for block in _blocks(recordings, job.batch_size):
            for each in block:
                rows[each.index] |= {HASHES: each.sha256, QUALITIES: each.quality}
                if each.reason is not None:
                    skip(each.index, each.reason)
            for batch in _by_length(block):
                for index, found in _embed_batch(job, net, batch):
                    if isinstance(found, str):
                        skip(index, found)
                        continue
                    rows[index][LEVELS] = levels_text(found[LEVELS][None])[0]
                    for name in job.readouts:
                        _store(vectors, name, found[name], index, part, net)
            done(len(block))
    texts = {name: pa.array([row[name] for row in rows], pa.string()) for name in rows[0]}
    columns = {column_name(name, job.readouts): vector_array(vectors[name]) for name in vectors}
    return pa.table({**texts, **columns})


def _store(
    vectors: dict[str, Float32s], name: str, row: Float32s, index: int, part: Part, net: Backbone
) -> None:
    known = vectors.setdefault(name, np.zeros((len(part), len(row)), np.float32))
    if known.shape[1] != len(row):
        raise DataError(
            f"{part.clips[index].path}: readout {name!r} of {net.name} has {len(row)} values, but "
            f"{known.shape[1]} for earlier clips. Embed clips of different lengths separately."
        )
    known[index] = row


def _read_ahead(
    job: Job, decoders: Sequence[Decoder], root: Location, part: Part
) -> Generator[_Loaded, None, None]:
    """The recordings of a part in order; threads read those that come next.

    joblib's generators do not wait for the caller, so that recordings would fill the memory.
    """
    waiting: deque[tuple[int, Future[_Loaded]]] = deque()
    with ThreadPoolExecutor(job.workers, "daco-reader") as pool:
        try:
            for index, (clip, known) in enumerate(zip(part.clips, part.fingerprints, strict=True)):
                size = int(known.partition(" ")[0] or 0)
                path = root / clip.path
                waiting.append((size, pool.submit(_read, index, path, known, size, decoders)))
                while len(waiting) > 2 * job.batch_size or (
                    len(waiting) > job.workers and sum(size for size, _ in waiting) > _AHEAD
                ):
                    yield waiting.popleft()[1].result()
            while waiting:
                yield waiting.popleft()[1].result()
        finally:
            pool.shutdown(cancel_futures=True)


def _read(
    index: int, path: Location, known: str, size: int, decoders: Sequence[Decoder]
) -> _Loaded:
    content, sha256 = b"", ""
    with contextlib.suppress(FileNotFoundError, PermissionError, IsADirectoryError):
        if known != MISSING and 0 < size <= decoders[0].limits.bytes:
            if size <= _WHOLE or not isinstance(path, Path):
                with explain_errors(path):
                    content = path.read_bytes()
            sha256 = sha256_of_bytes(content) if content else sha256_of_file(path)
    try:
        sound, waveforms = read_each(decoders, path, content)
    except AudioError as error:
        return _Loaded(index, sha256, reason=error.reason)
    return _Loaded(index, sha256, json.dumps(quality_of(sound)), waveforms)


def _blocks(recordings: Iterator[_Loaded], batch_size: int) -> Iterator[list[_Loaded]]:
    """Consecutive recordings, as many as a batch may have, fewer where they are long."""
    block: list[_Loaded] = []
    for each in recordings:
        block.append(each)
        if len(block) == batch_size or sum(one.samples for one in block) > MAX_SAMPLES:
            yield block
            block = []
    if block:
        yield block


def _by_length(block: list[_Loaded]) -> Iterator[list[_Loaded]]:
    """The recordings of a block that have waveforms, in batches of one length."""
    for shape in sorted({each.shape for each in block if each.waveforms}):
        yield [each for each in block if each.waveforms and each.shape == shape]


def _embed_batch(
    job: Job, net: Backbone, batch: list[_Loaded]
) -> Iterator[tuple[int, dict[str, Float32s] | str]]:
    """The vectors of each clip by readout, or the reason why it has none."""
    waves = [np.stack(each) for each in zip(*(one.waveforms for one in batch), strict=True)]
    try:
        found = embed_waves(net, waves, (*job.readouts, LEVELS), job.channel)
    except DacoError as error:
        if len(batch) == 1:
            yield batch[0].index, error.reason
        else:  # one clip may be the cause
            for one in batch:
                yield from _embed_batch(job, net, [one])
        return
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
            raise
        raise InputError(
            f"{net.name} ran out of memory on a batch of {len(batch)} clips of "
            f"{waves[0].shape[-1]} samples. Choose a smaller --batch-size; finished work is kept."
        ) from None
    for at, one in enumerate(batch):
        rows = {name: vectors[at] for name, vectors in found.items()}
        if all(np.isfinite(row).all() for row in rows.values()):
            yield one.index, rows
        else:
            yield one.index, f"its {net.name} embedding contains NaN or infinity"
