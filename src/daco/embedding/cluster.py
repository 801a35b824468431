"""Shards of an embedding run made by actors of a Ray cluster, each with a network of its own.

A shard is the unit of work: whoever makes it, its bytes are the same. So the driver hands out
the shards in order, and those of a lost worker again.
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
from daco.compute.ray import LostWorkersError, connected, explained, other_version, slots
from daco.data.clips import ClipTable
from daco.embedding.embed import Job, make_shards
from daco.embedding.shards import Recording, Shard, Span
from daco.errors import DacoError, DataError, InputError, WeightsError
from daco.files.atomic import write_error
from daco.files.remote import REMOTE_THREADS, Location
from daco.version import __version__

LOSSES = 5
"""How often a shard is begun before its clips are taken for the cause of the losses."""
PATIENCE = 120.0
"""Seconds to wait for a first worker."""


@dataclass(frozen=True)
class Recipe:
    """How a worker makes the network: nothing but names and a hash travel."""

    backbone: str
    weights: str | None = None
    weights_sha256: str | None = None
    device: str = "cpu"
    precision: str = "fp32"
    cores: int = 1
    version: str = __version__


class RayEmbedding:
    """The place of a run of `embed_clips` on a Ray cluster: one worker per CPU, or per GPU.

    On CPUs, PyTorch's last bits depend on its number of threads. A worker has one, or
    ``$OMP_NUM_THREADS`` and as many CPUs; a run here under the same setting writes the same bytes.

    Parameters
    ----------
    net : Backbone
        The network as it was loaded here, on whichever device.
    weights : path or None
        Its checkpoint. A worker that has no such file looks where it keeps its own; in either
        case the hash must be that of `net`.
    device : {"cpu", "cuda"}
        What a worker computes on.
    address : str or None
        See `daco.compute.ray.connected`.
    threads : int or None
        That read recordings, per worker.
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
        if not net.has_weights:
            device = "cpu"  # as on this computer
        elif net.weights_sha256 is None:
            raise InputError(
                f"The weights of {net.name} are in memory only, so workers of a Ray cluster cannot "
                "load them. Write them to a file, and load the network from there."
            )
        place = None if weights is None else str(Path(weights).resolve())
        self.device = device
        cores = int(found) if (found := os.environ.get("OMP_NUM_THREADS", "")).isdecimal() else 1
        self._recipe = Recipe(
            net.name, place, net.weights_sha256, device, net.precision, max(1, cores)
        )
        self._address = address
        self._threads = threads

    def shards(self, job: Job, table: ClipTable, spans: list[Span]) -> Iterator[Shard]:
        """The shards in the order in which they are finished."""
        remote = not isinstance(table.root, Path)
        usual = REMOTE_THREADS if remote else 4 if self.device == "cuda" else 1
        job = replace(job, workers=self._threads or usual)
        with connected(self._address) as ray:
            crew = _Crew(
                ray, self._recipe, job, ClipTable(_as_seen_by_all(table.root), table.clips)
            )
            with contextlib.closing(crew):
                yield from crew.work_off(spans)


class _Crew:
    """The workers of a run: starting, busy or idle; lost ones are replaced while there is work."""

    def __init__(self, ray: Any, recipe: Recipe, job: Job, table: ClipTable) -> None:
        self.ray, self.job, self.table = ray, job, table
        gpus = int(recipe.device == "cuda")
        self.kind = "GPU" if gpus else "CPU"
        self.cpus = 1 if gpus else recipe.cores
        self.actor = ray.remote(num_cpus=self.cpus, num_gpus=gpus, max_restarts=0)(Embedder)
        self.recipe = recipe
        self.starting: dict[Any, Any] = {}
        self.busy: dict[Any, tuple[Any, Span]] = {}
        self.idle: list[Any] = []
        self.stillborn = 0

    def work_off(self, spans: list[Span]) -> Iterator[Shard]:
        waiting, losses = deque(spans), Counter[Span]()
        failed: tuple[Span, DacoError] | None = None
        while waiting or self.busy:
            self._hand_out(waiting)
            done, _ = self.ray.wait([*self.busy, *self.starting], timeout=PATIENCE)
            if not done and not self.busy:
                raise self._nobody()
            for ref in done:
                if ref in self.starting:
                    self._welcome(ref)
                    continue
                actor, span = self.busy.pop(ref)
                try:
                    outcome = self.ray.get(ref)
                except self.ray.exceptions.RayTaskError as error:
                    raise explained(error) from None  # else a mistake of ours, with its traceback
                except self.ray.exceptions.RayError as error:
                    losses[span] += 1
                    if losses[span] == LOSSES:
                        raise explained(error) from None
                    waiting.appendleft(span)
                    self._dismiss(actor)
                    continue
                self.idle.append(actor)
                if isinstance(outcome, Shard):
                    self._require_seen(outcome)
                    yield replace(outcome, start=span[0], stop=span[1])
                elif failed is None or span < failed[0]:
                    failed = span, outcome
            if failed is not None:  # as in a run here, the first clip that is wrong is named
                waiting = deque(span for span in sorted(waiting) if span < failed[0])
                if not waiting and all(span > failed[0] for _, span in self.busy.values()):
                    raise failed[1]

    def close(self) -> None:
        """Let the workers go; the cluster may be used by others."""
        for actor in [*self.starting.values(), *self.idle, *(a for a, _ in self.busy.values())]:
            self._dismiss(actor)

    def _hand_out(self, waiting: deque[Span]) -> None:
        places = slots(self.ray, self.kind) // (1 if self.kind == "GPU" else self.cpus)
        wanted = min(max(1, places), len(waiting) + len(self.busy))
        for _ in range(wanted - len(self.starting) - len(self.busy) - len(self.idle)):
            actor = self.actor.remote(self.recipe)
            self.starting[actor.ready.remote(self.table.root)] = actor
        while waiting and self.idle:
            actor, span = self.idle.pop(), waiting.popleft()
            part = ClipTable(self.table.root, self.table.clips[slice(*span)])
            self.busy[actor.embed.remote(self.job, part)] = actor, span

    def _welcome(self, ref: Any) -> None:
        actor = self.starting.pop(ref)
        try:
            trouble = self.ray.get(ref)
        except self.ray.exceptions.RayTaskError as error:
            raise explained(error) from None
        except self.ray.exceptions.RayError as error:
            self.stillborn += 1
            trouble = explained(error)
            if self.stillborn == LOSSES or _is_lasting(error, trouble):
                raise trouble from None
            return
        if trouble is not None:
            raise trouble
        self.idle.append(actor)

    def _require_seen(self, shard: Shard) -> None:
        """Whoever leaves out what it cannot read must not leave out what it cannot see."""
        for path, recording, reason in zip(
            shard.paths, shard.recordings, shard.reasons, strict=True
        ):
            if reason and recording == Recording(0, 0, 0, "") and _is_seen(self.table.root / path):
                raise DataError(
                    f"{self.table.root / path} is here, but a worker of the Ray cluster does not "
                    "see it. Keep the recordings where all nodes see them under the same path."
                )

    def _nobody(self) -> DataError:
        return DataError(
            f"The Ray cluster gave no worker in {PATIENCE:.0f} s: it has {slots(self.ray)} CPUs "
            f"and {slots(self.ray, 'GPU')} GPUs, and a worker needs {self.cpus} CPU"
            f"{' and 1 GPU' if self.kind == 'GPU' else ''} of one node. Wait until others have "
            "finished, or start more nodes."
        )

    def _dismiss(self, actor: Any) -> None:
        with contextlib.suppress(Exception):  # it may be gone, and its node with it
            self.ray.kill(actor)


class Embedder:
    """What runs on a worker; it returns a user's mistakes, because Ray wraps what is raised."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._net: Backbone | None = None

    def ready(self, root: Location) -> DacoError | None:
        """Load the network; what is wrong with this worker, or None."""
        try:
            self._net = _network(self._recipe, root)
        except DacoError as error:
            return type(error)(f"Ray worker on {socket.gethostname()}: {error}")
        return None

    def embed(self, job: Job, table: ClipTable) -> Shard | DacoError:
        """All clips of a table, as one shard."""
        assert self._net is not None
        try:
            (shard,) = make_shards(job, self._net, table, [(0, len(table))])
            return shard
        except DacoError as error:
            return error
        except OSError as error:
            place = Path(error.filename) if error.filename else table.root
            trouble = write_error(place, error)
            return DataError(f"Ray worker on {socket.gethostname()}: {trouble}")


def _as_seen_by_all(root: Location) -> Location:
    """The folder of the recordings under a name that does not depend on where a process is."""
    return root.resolve()


def _is_seen(place: Location) -> bool:
    """Whether the folder of the recordings, or one of them, is there for this computer."""
    return place.exists()


def _is_lasting(error: BaseException, trouble: BaseException) -> bool:
    """Whether another worker would fare no better: it is not the loss of this one."""
    return trouble is not error and not isinstance(trouble, LostWorkersError)


def _network(recipe: Recipe, root: Location) -> Backbone:
    if recipe.version != __version__:
        raise DataError(other_version(recipe.version))
    if not _is_seen(root):
        raise DataError(
            f"{root} is not a folder there. Keep the recordings where all nodes see them under the "
            "same path."
        )
    file = recipe.weights if recipe.weights and Path(recipe.weights).exists() else None
    net = load(recipe.backbone, file, recipe.device, recipe.precision)
    if net.weights_sha256 != recipe.weights_sha256:
        raise WeightsError(
            f"its weights of {recipe.backbone} ({file or 'those downloaded there'}) have the "
            f"SHA-256 {str(net.weights_sha256)[:12]}, not {str(recipe.weights_sha256)[:12]}. Put "
            "the same file on all nodes."
        )
    _limit_threads(recipe)
    return net


def _limit_threads(recipe: Recipe) -> None:
    from threadpoolctl import threadpool_limits

    threadpool_limits(recipe.cores)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(recipe.cores)
