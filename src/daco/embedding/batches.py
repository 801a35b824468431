"""One part of an embedding run: recordings read ahead, batches of one length, columns."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from daco.audio.decode import Decoder, read_each
from daco.audio.formats import AudioLimits
from daco.audio.quality import quality_of
from daco.backbones.levels import LEVELS, levels_text
from daco.backbones.protocol import Backbone, is_out_of_memory
from daco.data.parquet import column_name, vector_array
from daco.embedding.frontend import decoder_of, embed_waves
from daco.embedding.parts import Part
from daco.errors import AudioError, DacoError, DataError, InputError
from daco.files.hashing import sha256_of_bytes
from daco.files.remote import Location, explain_errors
from daco.validation import Float32s

HASHES = "audio_sha256"
"""The column with the SHA-256 of each recording."""

QUALITIES = "quality"
"""The column with the sample rate, length and problems of each recording, as JSON."""

REASON = "reason"
"""The column of a part that says why a clip was skipped."""

_TEXTS = (HASHES, QUALITIES, LEVELS, REASON)
_BLOCK_BYTES = 1 << 25  # of the files of one batch; those of the next one are read meanwhile


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
    limits: AudioLimits
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
    texts = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in _TEXTS}
    return pa.table(texts | _vector_columns(rows, job.readouts))


def _read_ahead(
    pool: ThreadPoolExecutor, job: Job, net: Backbone, root: Location, part: Part
) -> Iterator[list[_Recording]]:
    """The recordings of each batch in order; threads read those of the next one meanwhile."""
    decoders = [decoder_of(each, job.channel, job.limits) for each in net.networks]
    submitted = (
        [pool.submit(_read, root / part.clips[row].path, part.sizes[row], decoders) for row in rows]
        for rows in _blocks(part, job.batch_size)
    )
    for block, _ in pairwise(chain(submitted, [[]])):
        yield [each.result() for each in block]


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
    with suppress(OSError), explain_errors(path):  # the decoder says what is wrong
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


def _vector_columns(rows: list[dict[str, Any]], readouts: Sequence[str]) -> dict[str, Any]:
    """One column for each readout; zeros where a clip has none. None, if no clip has any."""
    columns = {}
    for readout in readouts:
        name = column_name(readout, readouts)
        vectors = {at: row[name] for at, row in enumerate(rows) if name in row}
        if len({len(vector) for vector in vectors.values()}) > 1:
            raise different_lengths()
        if vectors:
            matrix: Float32s = np.zeros((len(rows), len(next(iter(vectors.values())))), np.float32)
            matrix[list(vectors)] = list(vectors.values())
            columns[name] = vector_array(matrix)
    return columns


def different_lengths() -> DataError:
    """The error of clips whose vectors cannot be in one table."""
    return DataError(
        "The vectors of clips have different lengths. Embed clips of different lengths separately."
    )
