"""Many clips to an embedding table, in parts that survive a kill."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from daco.audio.formats import DEFAULT_LIMITS, AudioLimits
from daco.audio.microphones import parse_channel
from daco.backbones import load
from daco.backbones.protocol import Backbone
from daco.compute import run
from daco.data.clips import ClipTable
from daco.embedding.batches import Job, embed_part
from daco.embedding.output import parquet_file, write_table
from daco.embedding.parts import Part, fingerprints, part_folder, plan_parts, write_part
from daco.embedding.provenance import check_readouts, origin_of, settings_of
from daco.errors import DacoError, DataError, InputError
from daco.files.remote import REMOTE_THREADS, Location, is_folder
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
    skipped: tuple[tuple[str, str], ...]
    seconds: float


@dataclass(frozen=True)
class Recipe:
    """How a worker of a cluster loads the network; only names are sent to it."""

    backbone: str
    weights: str | None
    device: str
    precision: str


def embed_clips(
    table: ClipTable,
    network: Any,
    out: Location | str,
    *,
    readouts: Sequence[str] | None = None,
    channel: int | str = 0,
    batch_size: int = BATCH_SIZE,
    workers: int | None = None,
    on_error: str = "fail",
    progress: Progress | None = None,
    limits: AudioLimits = DEFAULT_LIMITS,
    engine: str = "local",
    weights: Path | str | None = None,
    device: str | None = None,
) -> EmbedReport:
    """Embed all clips and write the table to `out`, in the order of the clip table.

    Finished parts of 256 clips are kept in ``<out>.parts`` until the table is written (of a remote
    `out`, in the user's cache); the same call after an interruption continues from there.
    Embeddings are computed again if the backbone, its weights, device or precision, the readouts,
    the channel, the version of daco, or the size or time of a recording changed. Parts of a network
    whose weights have no hash (a state dict in memory) are never reused.

    Parameters
    ----------
    table : ClipTable
        The clips to embed.
    network : Backbone, str or object
        The frozen network, or several (:class:`daco.backbones.several.Networks`), for which each
        recording is decoded once; or what :func:`daco.backbones.load` takes: a name, a torch
        module, or any object with a ``sample_rate`` and ``embed(waveforms)``.
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
        Threads that read recordings; by default 6, or 16 if they are on a remote file system.
    on_error : {"fail", "skip"}
        Whether a clip that cannot be embedded ends the run, or is left out and listed.
    progress : callable, optional
        Called with the number of clips done so far, and of all clips.
    limits : AudioLimits
        The largest recording to decode.
    engine : str
        ``local`` for this process, or a Ray cluster as in :func:`daco.compute.run`, whose workers
        load the network by its name.
    weights, device : path, str, optional
        The checkpoint and the device (``cpu`` or ``cuda``) of the workers of a cluster. A worker
        without that file searches its own weights folder.

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
    require_whole(batch_size, "batch_size")
    if workers is not None:
        require_whole(workers, "workers")
    if on_error not in ("fail", "skip"):
        raise InputError(f"on_error must be 'fail' or 'skip'. Got {on_error!r} instead.")
    if not len(table):
        raise DataError(f"There are no clips below {table.root}. Give a folder with recordings.")
    out = parquet_file(out)
    place = net.device if engine == "local" else worker_device(net, device)
    job = Job(
        readouts=names,
        channel=channel,
        limits=limits,
        batch_size=batch_size,
        workers=workers or (_THREADS if isinstance(table.root, Path) else REMOTE_THREADS),
        skip=on_error == "skip",
        settings=settings_of(net, names, channel, limits, place),
    )
    known = fingerprints(table)
    parts = plan_parts(table, known, job.settings)
    with part_folder(out) as folder:
        finished = {path.name for path in folder.glob("*.arrow")}
        remaining = [part for part in parts if part.name not in finished]
        embedded = sum(map(len, remaining))
        done = _Counter(progress, len(table) - embedded, len(table))
        if engine == "local":
            for part in remaining:
                write_part(folder / part.name, embed_part(job, net, table.root, part, done))
        else:
            file = None if weights is None else str(Path(weights).resolve())
            recipe = Recipe(net.name, file, place, net.precision)
            items = ((part, (recipe, job, table.root.absolute(), part)) for part in remaining)
            for part, content in run(_on_worker, items, engine=engine, gpus=place == "cuda"):
                if isinstance(content, DacoError):
                    raise content
                write_part(folder / part.name, content)
                done(len(part))
        origin = origin_of(net, names, channel, place)
        skipped = write_table(table, known, folder, parts, out, origin, skip=job.skip)
    new = {part.start for part in remaining}
    missed = sum(row - row % len(parts[0]) in new for row, _, _ in skipped)
    clips = len(table) - len(skipped)
    return EmbedReport(
        out=out,
        clips=clips,
        embedded=embedded - missed,
        reused=clips - (embedded - missed),
        skipped=tuple((path, reason) for _, path, reason in skipped),
        seconds=time.perf_counter() - started,
    )


class _Counter:
    """Adds up finished clips, and reports them."""

    def __init__(self, progress: Progress | None, done: int, total: int) -> None:
        self._progress, self._done, self._total = progress, done, total
        self(0)

    def __call__(self, clips: int) -> None:
        self._done += clips
        if self._progress is not None:
            self._progress(self._done, self._total)


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


@lru_cache(maxsize=1)
def _network(recipe: Recipe) -> Backbone:
    """The network of a worker, loaded for its first part."""
    file = recipe.weights if recipe.weights and Path(recipe.weights).exists() else None
    return load(recipe.backbone, file, recipe.device, recipe.precision)


def _on_worker(recipe: Recipe, job: Job, root: Location, part: Part) -> pa.Table:
    if not is_folder(root):
        raise DataError(
            f"{root} is not a folder on every node of the cluster. Keep the recordings where all "
            "nodes see them under the same path."
        )
    net = _network(recipe)
    if settings_of(net, job.readouts, job.channel, job.limits, recipe.device) != job.settings:
        raise DataError(
            f"A worker has other weights of {net.name}, or another package, than the computer that "
            "started the run. Put the same files on all nodes."
        )
    workers = 1 if isinstance(root, Path) else job.workers
    return embed_part(replace(job, workers=workers), net, root, part)
