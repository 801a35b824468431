"""Many clips to an embedding table, in parts that survive a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from daco.audio.microphones import parse_channel
from daco.backbones import load
from daco.backbones.protocol import Backbone
from daco.compute import run
from daco.data.clips import ClipTable
from daco.embedding.output import Skipped, replaceable, skipped_before, write_table
from daco.embedding.parts import (
    REASON,
    Job,
    Part,
    embed_part,
    fingerprints,
    part_folder,
    plan_parts,
    read_part,
    write_part,
)
from daco.embedding.provenance import check_readouts, origin_of, settings_of
from daco.errors import DacoError, DataError, InputError
from daco.files.remote import REMOTE_THREADS, Location, is_folder, parse_location
from daco.validation import require_whole

BATCH_SIZE = 32
_THREADS = 6  # that read local recordings: on 16 cores, 8 and 16 were slower than 4 and 6

Progress = Callable[[int, int], None]


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
    skipped: Skipped
    seconds: float


def embed_clips(
    table: ClipTable,
    network: Any,
    out: Location | str,
    *,
    readouts: Sequence[str] | None = None,
    channel: int | str = 0,
    batch_size: int = BATCH_SIZE,
    workers: int | None = None,
    progress: Progress | None = None,
    engine: str = "local",
    weights: Path | str | None = None,
    device: str | None = None,
    verify: bool = False,
    force: bool = False,
) -> EmbedReport:
    """Embed all clips and write the table to `out`, in the order of the clip table.

    A clip that cannot be embedded is left out and listed. A finished table of the same recordings
    and settings stays as it is. Finished parts of 256 clips are kept in ``<out>.parts`` until the
    table is written (of a remote `out`, in the user's cache); the same call after an interruption
    continues from there. Parts of other settings, of another version of daco, or with recordings
    of other sizes or times are computed again, and always those of weights without a hash, such as
    a module in memory.

    Parameters
    ----------
    table : ClipTable
        The clips to embed.
    network : Backbone, str or object
        What :func:`daco.backbones.load` takes or returns. Each recording is decoded once for
        several networks.
    out : path or URL
        The Parquet file, written when all clips are embedded.
    readouts : sequence of str, optional
        The first becomes the column ``embedding``, each further one ``embedding.<readout>``.
        By default those of the network; ``mod+env`` stands for two.
    channel : int or str
        A channel, or a policy for two microphones (:func:`daco.audio.microphones.parse_channel`).
    batch_size : int
        Clips per forward pass, all of one length; fewer if their files are large.
    workers : int, optional
        Threads that read recordings; by default 6, or 16 if they are on a remote file system.
    progress : callable, optional
        Called with the number of clips done so far, and of all clips.
    engine : str
        ``local`` for this process, or a Ray cluster as in :func:`daco.compute.run`, whose workers
        load the network by its name.
    weights, device : path, str, optional
        The checkpoint and the device (``cpu`` or ``cuda``) of the workers of a cluster. A worker
        without that file searches its own weights folder.
    verify : bool
        Whether the recordings of a finished table are compared by their contents, not by their
        sizes and times.
    force : bool
        Whether a finished table is replaced.

    Returns
    -------
    EmbedReport

    Raises
    ------
    InputError
        The table at `out` is of other recordings or settings.
    DataError
        The output cannot be written, another run is writing it, or no clip could be embedded.
    """
    started = time.perf_counter()
    net = load(network)
    names = check_readouts(net, readouts)
    channel = parse_channel(channel)
    require_whole(batch_size, "batch_size")
    if workers is not None:
        require_whole(workers, "workers")
    if not len(table):
        raise DataError(f"There are no clips below {table.root}. Give a folder with recordings.")
    out = parse_location(out)
    stored = replaceable(out)
    place = net.device if engine == "local" else worker_device(net, device)
    origin = origin_of(net, names, channel, place)
    if stored and not force:
        skipped = skipped_before(table, out, stored, origin, verify=verify)
        clips = len(table) - len(skipped)
        return EmbedReport(out, clips, 0, clips, skipped, time.perf_counter() - started)
    threads = _THREADS if engine == "local" else 1
    job = Job(
        backbone=net.name,
        precision=net.precision,
        device=place,
        weights=None if weights is None else str(Path(weights).resolve()),
        readouts=names,
        channel=channel,
        batch_size=batch_size,
        workers=workers or (threads if isinstance(table.root, Path) else REMOTE_THREADS),
        settings=settings_of(net, origin),
    )
    known = fingerprints(table)
    parts = plan_parts(table, known, job.settings)
    with part_folder(out) as folder:
        remaining = [part for part in parts if not (folder / part.name).exists()]
        finished, embedded = len(table) - sum(map(len, remaining)), 0

        def advance(clips: int) -> None:
            nonlocal finished
            finished += clips
            if progress is not None:
                progress(finished, len(table))

        advance(0)
        for part, content in _contents(job, net, table.root, remaining, engine, advance):
            write_part(folder / part.name, content)
            embedded += content[REASON].null_count
        contents = [read_part(folder / part.name) for part in parts]
        skipped = write_table(table, known, contents, out, origin)
        del contents  # Windows removes no file that is mapped
    clips = len(table) - len(skipped)
    seconds = time.perf_counter() - started
    return EmbedReport(out, clips, embedded, clips - embedded, skipped, seconds)


def _contents(
    job: Job,
    net: Backbone,
    root: Location,
    parts: Sequence[Part],
    engine: str,
    advance: Callable[[int], None],
) -> Iterator[tuple[Part, pa.Table]]:
    """Each part with its columns, as they are finished, here or on a cluster."""
    if engine == "local":
        for part in parts:
            yield part, embed_part(job, net, root, part, advance)
        return
    items = ((part, (job, root.absolute(), part)) for part in parts)
    for part, content in run(_on_worker, items, engine=engine, gpus=job.device == "cuda"):
        if isinstance(content, DacoError):
            raise content
        yield part, content
        advance(len(part))


def worker_device(net: Backbone, device: str | None) -> str:
    """Where a worker computes; an error where it could not load the network by its name."""
    if device not in (None, "cpu", "cuda"):
        raise InputError(
            "On a Ray cluster the device is cpu or cuda: Ray gives every worker a GPU of its own. "
            f"Got {device!r} instead."
        )
    for each in net.networks:
        if each.has_weights and each.weights_sha256 is None and each.package is None:
            raise InputError(
                f"The weights of {each.name} are in memory only, so workers of a Ray cluster "
                "cannot load them. Write them to a file, and load the network from there."
            )
    return (device or "cpu") if any(each.has_weights for each in net.networks) else "cpu"


_network = lru_cache(maxsize=1)(load)  # a worker loads the network for its first part


def _on_worker(job: Job, root: Location, part: Part) -> pa.Table:
    if not is_folder(root):
        raise DataError(
            f"{root} is not a folder on every node of the cluster. Keep the recordings where all "
            "nodes see them under the same path."
        )
    file = job.weights if job.weights and Path(job.weights).exists() else None
    net = _network(job.backbone, file, job.device, job.precision)
    if settings_of(net, origin_of(net, job.readouts, job.channel, job.device)) != job.settings:
        raise DataError(
            f"A worker has other weights of {net.name}, or another package, than the computer that "
            "started the run. Put the same files on all nodes."
        )
    return embed_part(job, net, root, part)
