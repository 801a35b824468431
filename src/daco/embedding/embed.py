"""Many clips to an embedding table: batches, reading ahead, shards that survive a kill.

The clips are worked off in shards of consecutive rows. A batch never crosses a shard, so a
run that was killed and resumed writes the same bytes as one that was not. The network runs in
the calling thread; others read the clips, put batches together and write finished shards.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from daco.audio.decode import Waveforms, read_each
from daco.audio.formats import DEFAULT_LIMITS, AudioLimits
from daco.audio.microphones import parse_channel
from daco.audio.quality import quality_of
from daco.backbones import load
from daco.backbones.levels import LEVELS
from daco.backbones.protocol import Backbone
from daco.data.clips import ClipTable
from daco.embedding.frontend import decoder_of, embed_waves
from daco.embedding.loader import BatchBuffers, Loaded, batches, load_ahead, prefetch
from daco.embedding.output import parquet_file, write_table
from daco.embedding.provenance import check_readouts, origin_of, salt_of
from daco.embedding.shards import (
    Recording,
    Shard,
    Span,
    read_recording,
    reusable_spans,
    shard_folder,
    write_shard,
)
from daco.errors import AudioError, DacoError, DataError, InputError
from daco.files.remote import REMOTE_THREADS, Location
from daco.validation import Float32s, Indices, require_whole

BATCH_SIZE = 32
SHARD_SIZE = 256
"""Clips per shard: a kill costs the one begun and the one being written at most."""


@dataclass(frozen=True)
class EmbedReport:
    """The result of `embed_clips`.

    Attributes
    ----------
    out : path
        The table.
    clips, embedded, reused : int
        Number of all clips, of those embedded now, and of those from an earlier run.
    skipped : pairs of str
        Paths of clips that were left out, with the reasons.
    seconds : float
        Duration of the run.
    """

    out: Location
    clips: int
    embedded: int
    reused: int
    skipped: tuple[tuple[str, str], ...]
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Job:
    """How shards are made; `settings` is everything their vectors depend on."""

    readouts: tuple[str, ...]
    channel: int | str
    limits: AudioLimits
    batch_size: int
    workers: int
    skip: bool
    settings: str


class Engine(Protocol):
    """Makes shards outside this process, with networks of its own on a device."""

    device: str

    def shards(self, job: Job, table: ClipTable, spans: list[Span]) -> Iterator[Shard]:
        """The shards of these spans, in any order."""


def embed_clips(
    table: ClipTable,
    network: Any,
    out: Location | str,
    *,
    readouts: Sequence[str] | None = None,
    channel: int | str = 0,
    batch_size: int = BATCH_SIZE,
    workers: int | None = None,
    shard_size: int = SHARD_SIZE,
    on_error: str = "fail",
    progress: Callable[[int, int], None] | None = None,
    limits: AudioLimits = DEFAULT_LIMITS,
    engine: Engine | None = None,
) -> EmbedReport:
    """Embed all clips and write the table to `out`, in the order of the clip table.

    Finished shards are kept beside `out` in ``<out>.shards`` until the table is written; the same
    call after an interruption continues from there. Embeddings are computed again if the backbone,
    its weights, device or precision, the readouts, the channel, the version of daco or the
    recording changed. The batch size and the number of workers may change. Shards of a network
    whose weights have no hash (a state dict in memory) are never reused.

    Parameters
    ----------
    table : ClipTable
        The clips to embed.
    network : Backbone, str or object
        The frozen network, or several (:class:`daco.backbones.several.Networks`), for which each
        recording is decoded once; or what :func:`daco.backbones.load` takes: a name, a torch
        module, or any object with a ``sample_rate`` and ``embed(waveforms)``. The memory of the
        waveforms is used again for later batches.
    out : path or URL
        The Parquet file, which is replaced when all clips are embedded.
    readouts : sequence of str, optional
        The first becomes the column ``embedding``, each further one ``embedding.<readout>``.
        By default those of the network; ``mod+env`` stands for two.
    channel : int or str
        The channel to embed, or a policy for two microphones:
        :func:`daco.audio.microphones.parse_channel`.
    batch_size : int
        Clips per forward pass, all of one length; 32 by default, fewer if they are long.
    workers : int, optional
        Threads that decode recordings; by default one per core, 6 at most, and 16 if the recordings
        are on a remote file system.
    shard_size : int
        Clips per shard; 256 by default.
    on_error : {"fail", "skip"}
        Whether a clip that cannot be embedded ends the run, or is left out and listed.
    progress : callable, optional
        Called with the number of clips done so far, and of all clips.
    limits : AudioLimits
        The largest recording to decode.
    engine : Engine, optional
        Where the shards are computed, such as `daco.embedding.cluster.RayEmbedding`; by default
        in this process. `network` then only describes the embeddings.

    Returns
    -------
    EmbedReport

    Raises
    ------
    AudioError
        With ``on_error="fail"``: names the first recording that cannot be embedded.
    DataError
        The output cannot be written, another run is writing it, or no clip could be embedded.
    """
    started = time.perf_counter()
    net = load(network)
    names = check_readouts(net, readouts)
    channel = parse_channel(channel)
    workers = _default_workers(table.root) if workers is None else workers
    counts = {"batch_size": batch_size, "workers": workers, "shard_size": shard_size}
    for name, count in counts.items():
        require_whole(count, name)
    if on_error not in ("fail", "skip"):
        raise InputError(f"on_error must be 'fail' or 'skip'. Got {on_error!r} instead.")
    if not len(table):
        raise DataError(f"There are no clips below {table.root}. Give a folder with recordings.")
    out = parquet_file(out)
    origin = origin_of(net, names, channel, None if engine is None else engine.device)
    settings = json.dumps([origin, repr(limits), salt_of(net), LEVELS], sort_keys=True)
    report_progress = progress or (lambda done, total: None)
    with shard_folder(out) as folder:
        job = Job(
            readouts=(*names, LEVELS),
            channel=channel,
            limits=limits,
            batch_size=batch_size,
            workers=workers,
            skip=on_error == "skip",
            settings=settings,
        )
        spans = [(s, min(s + shard_size, len(table))) for s in range(0, len(table), shard_size)]
        done = reusable_spans(folder, table, spans, settings, skips=job.skip)
        remaining = [span for span in spans if span not in done]
        fresh = sum(stop - start for start, stop in remaining)
        reused = len(table) - fresh
        report_progress(reused, len(table))

        def done_now(clips: int) -> None:
            report_progress(reused + clips, len(table))

        if remaining:
            shards = (
                make_shards(job, net, table, remaining, done_now)
                if engine is None
                else engine.shards(job, table, remaining)
            )
            _write_shards(shards, folder, done_now)
        rows, skipped = write_table(table, folder, spans, out, origin, settings)
    begun = {start for start, _ in remaining}
    missed_now = sum(row - row % shard_size in begun for row, _, _ in skipped)
    return EmbedReport(
        out=out,
        clips=rows,
        embedded=fresh - missed_now,
        reused=rows - (fresh - missed_now),
        skipped=tuple((path, reason) for _, path, reason in skipped),
        seconds=time.perf_counter() - started,
    )


def _default_workers(root: Location) -> int:
    if not isinstance(root, Path):
        return REMOTE_THREADS  # they wait for answers, not for a core
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(6, cores or 1)  # on 16 cores, 8 and 16 threads were slower than 4 and 6


def make_shards(
    job: Job,
    net: Backbone,
    table: ClipTable,
    spans: list[Span],
    done: Callable[[int], None] = lambda clips: None,
) -> Iterator[Shard]:
    """The shards of these spans, embedded here; the recordings of later ones are read meanwhile.

    `done` is called with the number of clips embedded, after every batch.
    """
    stop = threading.Event()
    embedded = finished = 0
    batches_ahead = prefetch(_batches(job, net, table, spans, stop), stop)
    with contextlib.closing(batches_ahead) as stream:
        for builder, rows, waves in stream:
            if len(rows):
                builder.embed(rows, waves)
                embedded += len(rows)
                done(embedded)
            else:
                embedded = finished = finished + builder.stop - builder.start  # and the skipped
                yield builder.shard()


def _write_shards(shards: Iterator[Shard], folder: Location, done: Callable[[int], None]) -> None:
    """Write each shard while the next is made, one at a time: a kill must not cost more."""
    finished = 0
    written: Future[None] | None = None
    with ThreadPoolExecutor(1, "daco-writer") as writer, contextlib.ExitStack() as stack:
        if isinstance(shards, Generator):  # its threads end now, not when it is collected
            stack.callback(shards.close)
        for shard in shards:
            if written is not None:
                written.result()
            written = writer.submit(write_shard, folder, shard)
            finished += shard.stop - shard.start
            done(finished)
        if written is not None:
            written.result()


def _batches(
    job: Job, net: Backbone, table: ClipTable, spans: list[Span], stop: threading.Event
) -> Generator[tuple[_ShardBuilder, Indices, list[Waveforms]], None, None]:
    """The batches of each shard, rows and waveforms, and one without rows at its end."""
    decoders = [decoder_of(each, job.channel, job.limits) for each in net.networks]

    def load(row: int, path: Location) -> Loaded:
        recording, content = read_recording(path)
        try:
            sound, waveforms = read_each(decoders, path, content)
            return Loaded(row, recording, waveforms, quality=json.dumps(quality_of(sound)))
        except AudioError as error:
            return Loaded(row, recording, reason=error.reason)

    dims: dict[str, int] = {}
    items = ((row, table.root / table.clips[row].path) for span in spans for row in range(*span))
    buffers = [BatchBuffers(int16=each.takes_int16) for each in net.networks]
    ahead = load_ahead(items, load, workers=job.workers, ahead=job.batch_size, stop=stop)
    with contextlib.closing(ahead):
        for span in spans:
            builder = _ShardBuilder(job, net, table, span, dims)
            clips = builder.record(islice(ahead, span[1] - span[0]))
            for batch in batches(clips, job.batch_size):
                rows = np.array([each.row for each in batch])
                stacked = zip(*(each.waveforms for each in batch), strict=True)
                waves = [buffer.stack(w) for buffer, w in zip(buffers, stacked, strict=True)]
                batch.clear()  # and with it the memory of its recordings
                yield builder, rows, waves
            yield builder, np.empty(0, np.intp), []


class _ShardBuilder:
    """Collects what is known of the clips of one shard; `dims` is shared by all."""

    def __init__(
        self, job: Job, net: Backbone, table: ClipTable, span: Span, dims: dict[str, int]
    ) -> None:
        self.job, self.net, self.table, self.dims = job, net, table, dims
        self.start, self.stop = span
        self.recordings: list[Recording] = []
        self.qualities: list[str] = []
        self.reasons: list[str | None] = [None] * (self.stop - self.start)
        self.vectors: dict[str, Float32s] = {}

    def record(self, stream: Iterator[Loaded]) -> Iterator[Loaded]:
        """Pass the clips on, and store what is known about their recordings."""
        for each in stream:
            self.recordings.append(each.recording)
            self.qualities.append(each.quality)
            if each.reason is not None:
                self._skip(each.row, each.reason)
            yield each

    def embed(self, rows: Indices, waves: Sequence[Waveforms]) -> None:
        """Put the vectors of a batch in their rows; `waves` has an array for each network."""
        try:
            found = embed_waves(self.net, waves, self.job.readouts, self.job.channel)
        except DacoError as error:
            if len(rows) == 1:
                self._skip(int(rows[0]), error.reason)
            else:  # one clip may be the cause: find out which
                for index in range(len(rows)):
                    one = slice(index, index + 1)
                    self.embed(rows[one], [each[one] for each in waves])
            return
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
                raise
            raise InputError(
                f"{self.net.name} ran out of memory on a batch of {len(rows)} clips of "
                f"{waves[0].shape[-1]} samples. Choose a smaller --batch-size; finished work is "
                "kept."
            ) from None
        finite = np.ones(len(rows), dtype=bool)
        for name in self.job.readouts:
            self._check_size(name, found[name], rows)
            finite &= np.isfinite(found[name]).all(axis=1)
        for row in rows[~finite].tolist():
            self._skip(row, f"its {self.net.name} embedding contains NaN or infinity")
        for name in self.job.readouts:
            self.vectors[name][rows[finite] - self.start] = found[name][finite]

    def _check_size(self, name: str, matrix: Float32s, rows: Indices) -> None:
        dim = self.dims.setdefault(name, matrix.shape[1])
        if matrix.shape != (len(rows), dim):
            raise DataError(
                f"{self.table.clips[int(rows[0])].path}: readout {name!r} of {self.net.name} has "
                f"{matrix.shape[1]} values, but {dim} for earlier clips. Embed clips of different "
                "lengths separately."
            )
        if name not in self.vectors:
            self.vectors[name] = np.zeros((self.stop - self.start, dim), np.float32)

    def _skip(self, row: int, reason: str) -> None:
        if not self.job.skip:
            advice = "Pass --on-error skip to leave such recordings out."
            path = self.table.root / self.table.clips[row].path
            raise AudioError(f"{reason} {advice}", path=path)
        self.reasons[row - self.start] = reason

    def shard(self) -> Shard:
        """The shard, when all its batches are embedded."""
        return Shard(
            self.start,
            self.stop,
            [clip.path for clip in self.table.clips[self.start : self.stop]],
            self.recordings,
            self.qualities,
            self.reasons,
            self.vectors,
            self.job.settings,
        )
