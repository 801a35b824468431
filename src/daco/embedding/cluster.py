"""Shards of an embedding run made by actors of a Ray cluster, each with a network of its own.

A shard is the unit of work, and its bytes do not depend on who makes it: the shard of a lost
actor is made again by another.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from daco.backbones import load
from daco.backbones.protocol import Backbone
from daco.compute.ray import RETRIES, cluster_error, connection, other_version, require_node, slots
from daco.data.clips import ClipTable
from daco.embedding.embed import Job, make_shards
from daco.embedding.shards import NO_RECORDING, Shard, Span
from daco.errors import DacoError, DataError, InputError, WeightsError
from daco.files.atomic import write_error
from daco.files.remote import REMOTE_THREADS, Location
from daco.version import __version__

PATIENCE = 120.0
"""Seconds that a cluster has to start a node that is large enough for a worker."""


@dataclass(frozen=True)
class Recipe:
    """How a worker loads the networks; only names and hashes are sent to it."""

    backbone: str
    weights: str | None = None
    weights_sha256: tuple[str | None, ...] = (None,)
    device: str = "cpu"
    precision: str = "fp32"
    cores: int = 1
    packages: tuple[str | None, ...] = (None,)
    version: str = __version__


class RayEmbedding:
    """An engine of `embed_clips` on a Ray cluster: one worker per CPU, or per GPU.

    On CPUs, the last bits of PyTorch's results depend on its number of threads. A worker has one
    thread, or ``$OMP_NUM_THREADS`` threads and as many CPUs; a local run with the same setting
    writes the same bytes.

    Parameters
    ----------
    net : Backbone
        The loaded network, or several, on any device.
    weights : path or None
        The checkpoint. A worker without that file searches its own weights folder; in both cases
        the hash must be that of `net`.
    device : {"cpu", "cuda"}
        Where a worker computes.
    address : str or None
        The address of the cluster; None uses ``$RAY_ADDRESS``, or starts Ray on this computer.
    threads : int or None
        Number of threads in each worker that read recordings.
    """

    def __init__(
        self,
        net: Backbone,
        *,
        weights: Path | str | None = None,
        device: str = "cpu",
        address: str | None = None,
        threads: int | None = None,
    ) -> None:
        if device not in ("cpu", "cuda"):
            raise InputError(
                f"On a Ray cluster the device is cpu or cuda: Ray gives every worker a GPU of its "
                f"own. Got {device!r} instead."
            )
        if not any(each.has_weights for each in net.networks):
            device = "cpu"  # as on this computer
        for each in net.networks:
            if each.has_weights and each.weights_sha256 is None and each.package is None:
                raise InputError(
                    f"The weights of {each.name} are in memory only, so workers of a Ray cluster "
                    "cannot load them. Write them to a file, and load the network from there."
                )
        self.device = device
        file = None if weights is None else str(Path(weights).resolve())
        threads_set = os.environ.get("OMP_NUM_THREADS", "")
        cores = max(1, int(threads_set)) if threads_set.isdecimal() else 1
        hashes = tuple(each.weights_sha256 for each in net.networks)
        packages = tuple(each.package for each in net.networks)
        self._recipe = Recipe(net.name, file, hashes, device, net.precision, cores, packages)
        self._address = address
        self._threads = threads

    def shards(self, job: Job, table: ClipTable, spans: list[Span]) -> Iterator[Shard]:
        """Yield the shards in the order in which they are finished."""
        local = isinstance(table.root, Path)
        usual = (4 if self.device == "cuda" else 1) if local else REMOTE_THREADS
        job = replace(job, workers=self._threads or usual)
        table = ClipTable(table.root.resolve(), table.clips)
        with connection(self._address) as ray:
            yield from _run_actors(ray, self._recipe, job, table, deque(spans))


def _run_actors(
    ray: Any, recipe: Recipe, job: Job, table: ClipTable, waiting: deque[Span]
) -> Iterator[Shard]:
    gpus = int(recipe.device == "cuda")
    cpus = 1 if gpus else recipe.cores
    kind = ray.remote(num_cpus=cpus, num_gpus=gpus)(Embedder)
    busy: dict[Any, tuple[Any, Span]] = {}
    idle: list[Any] = []
    losses = Counter[Span]()
    failed: tuple[Span, DacoError] | None = None
    try:
        while waiting or busy:
            places = max(1, slots(ray, "GPU") if gpus else slots(ray) // cpus)  # nodes may join
            while waiting and (idle or len(busy) < places):
                actor, span = idle.pop() if idle else kind.remote(recipe), waiting.popleft()
                part = ClipTable(table.root, table.clips[slice(*span)])
                busy[actor.embed.remote(job, part)] = actor, span
            while idle:  # their places may be needed by actors that were lost
                _kill(ray, idle.pop())
            done, _ = ray.wait(list(busy), timeout=PATIENCE)
            if not done:
                require_node(ray, cpus, gpus)
                continue
            actor, span = busy.pop(done[0])
            try:
                outcome = ray.get(done[0])
            except ray.exceptions.RayTaskError as error:
                raise cluster_error(error) from None
            except ray.exceptions.RayError as error:  # the actor or its node is gone
                losses[span] += 1
                if losses[span] == RETRIES:
                    raise cluster_error(error) from None
                _kill(ray, actor)
                waiting.appendleft(span)
                continue
            idle.append(actor)
            if isinstance(outcome, Shard):
                _require_visible(outcome, table.root)
                yield replace(outcome, start=span[0], stop=span[1])
            elif failed is None or span < failed[0]:  # as in a local run, the first clip is named
                failed = span, outcome
                waiting.clear()  # earlier shards are finished or being made
        if failed is not None:
            raise failed[1]
    finally:
        for actor in [*idle, *(actor for actor, _ in busy.values())]:
            _kill(ray, actor)


def _kill(ray: Any, actor: Any) -> None:
    with contextlib.suppress(Exception):  # it may be gone, and its node with it
        ray.kill(actor)


class Embedder:
    """The actor; it returns a user's mistakes, because Ray wraps what is raised."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._net: Backbone | None = None

    def embed(self, job: Job, table: ClipTable) -> Shard | DacoError:
        """All clips of a table as one shard, or what is wrong with them or with this worker."""
        worker = f"Ray worker on {socket.gethostname()}"
        try:
            if self._net is None:
                self._net = _load_network(self._recipe, table.root)
        except DacoError as error:
            return type(error)(f"{worker}: {error}")
        try:
            (shard,) = make_shards(job, self._net, table, [(0, len(table))])
            return shard
        except DacoError as error:
            return error
        except OSError as error:
            path = Path(error.filename) if error.filename else table.root
            return DataError(f"{worker}: {write_error(path, error)}")


def _load_network(recipe: Recipe, root: Location) -> Backbone:
    if recipe.version != __version__:
        raise DataError(other_version(recipe.version))
    if not root.exists():
        raise DataError(
            f"{root} is not a folder on this node. Keep the recordings where all nodes see them "
            "under the same path."
        )
    file = recipe.weights if recipe.weights and Path(recipe.weights).exists() else None
    net = load(recipe.backbone, file, recipe.device, recipe.precision)
    for each, wanted in zip(net.networks, recipe.weights_sha256, strict=True):
        if each.weights_sha256 != wanted:
            raise WeightsError(
                f"its weights of {each.name} ({file or 'those downloaded there'}) have the SHA-256 "
                f"{str(each.weights_sha256)[:12]}, not {str(wanted)[:12]}. Put the same file on "
                "all nodes."
            )
    for each, package in zip(net.networks, recipe.packages, strict=False):
        if each.package != package:
            raise DataError(
                f"{each.name} comes from {each.package} on this node, but from {package} on the "
                "computer that started the run. Install the same packages on both."
            )
    from threadpoolctl import threadpool_limits

    threadpool_limits(recipe.cores)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(recipe.cores)
    return net


def _require_visible(shard: Shard, root: Location) -> None:
    """An error where a worker skipped a clip only because it does not see the file."""
    for path, recording, reason in zip(shard.paths, shard.recordings, shard.reasons, strict=True):
        if reason and recording == NO_RECORDING and (root / path).exists():
            raise DataError(
                f"{root / path} is here, but a worker of the Ray cluster does not see it. Keep "
                "the recordings where all nodes see them under the same path."
            )
