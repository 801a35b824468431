"""Many clips to an embedding table: batches, reading ahead, shards that survive a kill.

The clips are worked off in shards of consecutive rows. A batch never crosses a shard, so a
run that was killed and resumed writes the same bytes as one that was not.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from daco import __version__
from daco.atomic import atomic_write
from daco.audio import DEFAULT_LIMITS, AudioLimits, parse_channel, read_audio
from daco.backbones.protocol import Backbone
from daco.clips import COLUMNS, Clip, ClipTable
from daco.errors import AudioError, DacoError, DataError, InputError
from daco.loader import Loaded, batches, load_ahead
from daco.shards import (
    Shard,
    hash_recording,
    is_reusable,
    read_shard,
    shard_folder,
    write_shard,
)
from daco.table import Matrix
from daco.tablefile import arrow_schema, attributes_text, column_name, parquet_writer, vector_array

BATCH_SIZE = 32
SHARD_SIZE = 256
"""Clips per shard: what a kill can cost, and the rows of a Parquet row group."""

Span = tuple[int, int]


@dataclass(frozen=True)
class EmbedReport:
    """What a run did: `embedded` clips now, `reused` ones of an earlier run, `skipped` ones."""

    out: Path
    clips: int
    embedded: int
    reused: int
    skipped: tuple[tuple[str, str], ...]
    seconds: float


@dataclass(frozen=True)
class _Run:
    """What stays the same over all shards."""

    table: ClipTable
    net: Backbone
    folder: Path
    readouts: tuple[str, ...]
    channel: int | str
    limits: AudioLimits
    batch_size: int
    workers: int
    skip: bool
    settings: str
    dims: dict[str, int] = field(default_factory=dict)


def embed_clips(
    table: ClipTable,
    net: Backbone,
    out: Path | str,
    *,
    readouts: Sequence[str] | None = None,
    channel: int | str = 0,
    batch_size: int = BATCH_SIZE,
    workers: int | None = None,
    shard_size: int = SHARD_SIZE,
    on_error: str = "fail",
    progress: Callable[[int, int], None] | None = None,
    limits: AudioLimits = DEFAULT_LIMITS,
) -> EmbedReport:
    """Embed all clips and write the table to `out`, in the order of the clip table.

    Finished shards are kept beside `out` in ``<out>.shards`` until the table is written. The
    same call after a kill goes on from there. Vectors are made again if the backbone, its
    weights, device or precision, the readouts, the channel, the version of daco or the
    recording changed; the batch size and the number of workers may change freely. Shards of a
    network whose weights have no hash (a state dict in memory) are never reused.

    Parameters
    ----------
    table : ClipTable
        What to embed.
    net : Backbone
        The frozen network.
    out : path
        The Parquet file; replaced in one step when all is done.
    readouts : sequence of str, optional
        The first becomes the column ``embedding``, each further one ``embedding.<readout>``;
        by default the network's own.
    channel : int or "mix"
    batch_size : int
        Clips per forward pass, all of one length; fewer where they are long.
    workers : int, optional
        Threads that decode ahead of the network; by default one per core, 16 at most.
    shard_size : int
        Clips per shard.
    on_error : {"fail", "skip"}
        Whether a clip that cannot be embedded ends the run or is left out and listed.
    progress : callable, optional
        Called with the clips done so far (reused ones at once) and the clips in all.
    limits : AudioLimits

    Raises
    ------
    AudioError
        With ``on_error="fail"``: names the first recording that cannot be embedded.
    DataError
        The output cannot be written, another run is writing it, or no clip could be embedded.
    """
    started = time.perf_counter()
    names = _checked_readouts(net, readouts)
    channel = parse_channel(channel)
    workers = _default_workers() if workers is None else workers
    _require_counts(batch_size=batch_size, workers=workers, shard_size=shard_size)
    if on_error not in ("fail", "skip"):
        raise InputError(f"on_error must be 'fail' or 'skip'. Got {on_error!r} instead.")
    if not len(table):
        raise DataError(f"There are no clips below {table.root}. Give a folder with recordings.")
    out = Path(out)
    origin = _origin(net, names, channel)
    settings = json.dumps([origin, repr(limits), _salt(net)], sort_keys=True)
    report_progress = progress or (lambda done, total: None)
    with shard_folder(out) as folder:
        skip = on_error == "skip"
        run = _Run(table, net, folder, names, channel, limits, batch_size, workers, skip, settings)
        spans = [(s, min(s + shard_size, len(table))) for s in range(0, len(table), shard_size)]
        todo = [span for span in spans if not _is_done(run, span)]
        fresh = sum(stop - start for start, stop in todo)
        reused = len(table) - fresh
        report_progress(reused, len(table))
        _embed_spans(run, todo, lambda done: report_progress(reused + done, len(table)))
        rows, skipped = _assemble(run, spans, out, origin)
    missed_now = sum(start <= row < stop for row, _, _ in skipped for start, stop in todo)
    return EmbedReport(
        out=out,
        clips=rows,
        embedded=fresh - missed_now,
        reused=rows - (fresh - missed_now),
        skipped=tuple((path, reason) for _, path, reason in skipped),
        seconds=time.perf_counter() - started,
    )


def _checked_readouts(net: Backbone, readouts: Sequence[str] | None) -> tuple[str, ...]:
    names = tuple(readouts or (net.default_readout,))
    for name in names:
        if name not in net.readouts:
            raise InputError(
                f"{net.name} has no readout {name!r}. It has {', '.join(net.readouts)}."
            )
    if len(set(names)) != len(names):
        raise InputError(f"A readout is named twice: {', '.join(names)}. Remove one of them.")
    return names


def _require_counts(**counts: int) -> None:
    for name, value in counts.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1. Got {value!r} instead.")


def _default_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(16, cores or 1)


def _origin(net: Backbone, readouts: tuple[str, ...], channel: int | str) -> dict[str, str]:
    """Where the vectors come from: the metadata of the table."""
    return {
        "backbone": net.name,
        "weights_sha256": net.weights_sha256 or "",
        "readouts": json.dumps(list(readouts)),
        "precision": net.precision,
        "device": str(net.device).partition(":")[0],
        "channel": str(channel),
        "sample_rate": str(net.sample_rate),
        "version": __version__,
    }


def _salt(net: Backbone) -> str:
    """Text that no later run will have, if the weights cannot be recognised by then."""
    recognisable = net.weights_sha256 is not None or net.name == "logmel"
    return "" if recognisable else os.urandom(16).hex()


def _is_done(run: _Run, span: Span) -> bool:
    paths = [clip.path for clip in run.table.clips[slice(*span)]]
    return is_reusable(run.folder, span, run.table.root, paths, run.settings, run.skip)


def _embed_spans(run: _Run, spans: list[Span], done: Callable[[int], None]) -> None:
    """Embed and keep one shard after the other; the next one is read meanwhile."""
    items = (
        (row, run.table.root / run.table.clips[row].path)
        for start, stop in spans
        for row in range(start, stop)
    )

    def load(row: int, path: Path) -> Loaded:
        recording = hash_recording(path)
        try:
            wave = read_audio(
                path, sample_rate=run.net.sample_rate, channel=run.channel, limits=run.limits
            )
        except AudioError as error:
            return Loaded(row, recording, reason=str(error).removeprefix(f"{path}: "))
        return Loaded(row, recording, wave)

    ahead = load_ahead(items, load, workers=run.workers, ahead=run.batch_size)
    finished = 0
    with contextlib.closing(ahead):
        for start, stop in spans:
            shard = _ShardInTheMaking(run, (start, stop))
            embedded = 0
            for batch in batches(shard.note(islice(ahead, stop - start)), run.batch_size):
                shard.embed(batch)
                embedded += len(batch)
                done(finished + embedded)
            write_shard(run.folder, shard.finish())
            finished += stop - start
            done(finished)  # with the skipped ones


class _ShardInTheMaking:
    """The recordings, reasons and vectors of one shard as they come in."""

    def __init__(self, run: _Run, span: Span) -> None:
        self.run, (self.start, self.stop) = run, span
        self.loaded: list[Loaded] = []
        self.reasons: list[str | None] = [None] * (self.stop - self.start)
        self.vectors: dict[str, Matrix] = {}

    def note(self, stream: Iterator[Loaded]) -> Iterator[Loaded]:
        """Pass the clips on, and keep what is known about their recordings."""
        for each in stream:
            self.loaded.append(Loaded(each.row, each.recording))  # without the waveform
            if each.reason is not None:
                self._miss(each.row, each.reason)
            yield each

    def embed(self, batch: list[Loaded]) -> None:
        """Put the vectors of a batch in their rows."""
        waves = np.stack([each.waveform for each in batch if each.waveform is not None])
        try:
            found = self.run.net.embed_many(waves, self.run.readouts)
        except DacoError as error:
            if len(batch) == 1:
                self._miss(batch[0].row, str(error))
            else:  # one clip may spoil it for all: find out which
                for each in batch:
                    self.embed([each])
            return
        except (MemoryError, RuntimeError) as error:
            if not isinstance(error, MemoryError) and type(error).__name__ != "OutOfMemoryError":
                raise
            raise InputError(
                f"{self.run.net.name} ran out of memory on a batch of {len(batch)} clips of "
                f"{waves.shape[1]} samples. Choose a smaller --batch-size; finished work is kept."
            ) from None
        rows = np.array([each.row for each in batch])
        finite = np.ones(len(batch), dtype=bool)
        for name in self.run.readouts:
            matrix = self._checked(name, found[name], rows)
            finite &= np.isfinite(matrix).all(axis=1)
        for row in rows[~finite].tolist():
            self._miss(row, f"the {self.run.net.name} embedding of it has NaN or inf")
        for name in self.run.readouts:
            self.vectors[name][rows[finite] - self.start] = found[name][finite]

    def _checked(self, name: str, matrix: NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
        dim = self.run.dims.setdefault(name, matrix.shape[1])
        if matrix.shape != (len(rows), dim):
            path = self.run.table.clips[int(rows[0])].path
            raise DataError(
                f"{path}: readout {name!r} of {self.run.net.name} has {matrix.shape[1]} values, "
                f"for clips before it {dim}. Embed clips of different lengths separately."
            )
        if name not in self.vectors:
            self.vectors[name] = np.zeros((self.stop - self.start, dim), np.float32)
        return matrix

    def _miss(self, row: int, reason: str) -> None:
        if not self.run.skip:
            path = self.run.table.root / self.run.table.clips[row].path
            raise AudioError(f"{path}: {reason}")
        self.reasons[row - self.start] = reason

    def finish(self) -> Shard:
        paths = [clip.path for clip in self.run.table.clips[self.start : self.stop]]
        recordings = [each.recording for each in self.loaded]
        return Shard(
            self.start,
            self.stop,
            paths,
            recordings,
            self.reasons,
            self.vectors,
            self.run.settings,
        )


def _assemble(
    run: _Run, spans: list[Span], out: Path, origin: dict[str, str]
) -> tuple[int, list[tuple[int, str, str]]]:
    """Write the table, shard by shard; its number of rows, and row, path and reason of skips."""
    import pyarrow as pa

    skipped: list[tuple[int, str, str]] = []
    dims: dict[str, int] = {}
    for span in spans:
        shard = read_shard(run.folder, *span)
        found = zip(range(*span), shard.paths, shard.reasons, strict=True)
        skipped += [(row, path, reason) for row, path, reason in found if reason is not None]
        for name, matrix in shard.vectors.items():
            if dims.setdefault(name, matrix.shape[1]) != matrix.shape[1]:
                raise DataError(
                    f"Readout {name!r} has {dims[name]} values for some clips and "
                    f"{matrix.shape[1]} for {shard.paths[0]} and others. Embed clips of "
                    "different lengths separately."
                )
    if len(skipped) == len(run.table):
        raise DataError(
            f"None of the {len(skipped)} clips could be embedded; "
            f"the first is {skipped[0][1]}: {skipped[0][2]}"
        )
    listed = [{"path": path, "reason": reason} for _, path, reason in skipped]
    schema = arrow_schema(dims, {**origin, "skipped": json.dumps(listed, ensure_ascii=False)})
    with (
        atomic_write(out, run.folder) as temporary,
        parquet_writer(temporary, schema) as writer,
    ):
        for span in spans:
            shard = read_shard(run.folder, *span)
            kept = np.array([reason is None for reason in shard.reasons])
            if not kept.any():
                continue
            clips = [
                clip for clip, keep in zip(run.table.clips[slice(*span)], kept, strict=True) if keep
            ]
            arrays = {
                name: pa.array(_values(clips, name), schema.field(name).type) for name in COLUMNS
            }
            for name, matrix in shard.vectors.items():
                arrays[column_name(name, dims)] = vector_array(matrix[kept])
            writer.write_table(pa.table(arrays, schema=schema))
    return len(run.table) - len(skipped), skipped


def _values(clips: list[Clip], name: str) -> list[Any]:
    if name == "attributes":
        return [attributes_text(clip.attributes) for clip in clips]
    return [getattr(clip, name) for clip in clips]
