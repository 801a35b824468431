"""The parts of a running service, made at its start and closed at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated

from fastapi import Path as PathParameter
from fastapi import Request

from daco.monitoring.service.events import Feed, Hub
from daco.monitoring.service.metrics import Metrics
from daco.monitoring.service.overview import Overview, Readiness
from daco.monitoring.service.recordings import Recordings
from daco.monitoring.service.registry import Machine, Registry
from daco.monitoring.service.schemas import busy, not_found
from daco.monitoring.service.settings import MACHINE_ID, Settings
from daco.monitoring.service.spectrograms import SpectrogramCache
from daco.monitoring.service.workers import WorkerPool
from daco.monitoring.service.writer import Writer
from daco.monitoring.store import Store

PRUNE_SECONDS = 3600.0
"""Between two removals of clips that are older than `Settings.keep_days`."""

UPLOADS = "http:"
"""Prefix of the uploads' keys among the store's sources."""

MachineId = Annotated[
    str,
    PathParameter(
        pattern=f"^{MACHINE_ID.pattern}$",
        description="The stem of the model's file.",
        examples=["press"],
    ),
]

log = logging.getLogger("daco.monitoring.service")


class Admission:
    """Bounds the uploads that are received or waiting, and the bytes they hold together."""

    def __init__(self, most: int, most_bytes: int) -> None:
        self.uploads = 0
        self.bytes = 0
        self._most, self._most_bytes = most, most_bytes

    @contextlib.contextmanager
    def one(self) -> Iterator[Callable[[int], None]]:
        """Admit an upload; yields a function that reserves its size so far.

        Both are busy, at once, when there are too many uploads or bytes.
        """
        if self.uploads >= self._most:
            raise busy()
        self.uploads += 1
        held = 0

        def reserve(size: int) -> None:
            nonlocal held
            more = max(0, size - held)
            if self.bytes + more > self._most_bytes:
                raise busy()
            self.bytes += more
            held += more

        try:
            yield reserve
        finally:
            self.uploads -= 1
            self.bytes -= held


class Service:
    """The parts of a running service; made in its event loop."""

    def __init__(
        self, settings: Settings, metrics: Metrics, hub: Hub, store: Store, scratch: Path
    ) -> None:
        self.settings, self.metrics, self.hub, self.store = settings, metrics, hub, store
        self.recordings: Recordings | None = None
        if settings.clips is not None:
            self.recordings = Recordings(settings.clips, settings.audio_bytes)
        self.pool = WorkerPool(
            settings.workers, settings.waiting, settings.job_seconds, metrics.worker_restarts.inc
        )
        self.registry = Registry(
            settings,
            self.pool,
            scratch,
            lambda machine, change: hub.publish("model", {"machine": machine, "change": change}),
        )
        self.overview = Overview(store, self.registry, self.recordings, settings)
        self.feed = Feed(self.overview, hub)
        self.spectrograms = SpectrogramCache(self.pool.draw, busy)
        self.readiness = Readiness(store, self._obstacle)
        self.admission = Admission(settings.uploads, settings.buffered_bytes)
        self.writer = Writer(store, self.feed.wake)

    def _obstacle(self) -> str | None:
        if self.hub.is_closed:
            return "The service is ending."
        if not self.registry.is_loaded:
            return "The models are not loaded yet."
        return None if self.pool.is_ready else "There is no worker."


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service


def machine_of(service: Service, machine: str) -> Machine:
    """A machine that is served now; a Problem if there is none of that id."""
    known = service.registry.get(machine)
    if known is None:
        raise not_found(f"There is no machine {machine!r}.")
    return known


@contextlib.asynccontextmanager
async def running(settings: Settings, metrics: Metrics, hub: Hub) -> AsyncIterator[Service]:
    """A service with its workers, its writer and its background tasks."""
    store = await asyncio.to_thread(Store.open, settings.database, rule=settings.rule)
    scratch = Path(tempfile.mkdtemp(prefix="daco-serve-"))
    service = Service(settings, metrics, hub, store, scratch)
    tasks: list[asyncio.Task[None]] = []
    try:
        await service.registry.refresh()
        _add_gauges(service)
        background = [service.registry.watch(), service.feed.run()]
        if settings.keep_days is not None:
            background.append(_prune(service, settings.keep_days))
        tasks = [asyncio.create_task(each) for each in background]
        yield service
    finally:
        hub.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await service.writer.close()
        await asyncio.to_thread(service.pool.close)
        store.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _add_gauges(service: Service) -> None:
    gauge = service.metrics.add_gauge
    gauge("daco_queue_depth", "Recordings that wait for a worker.", lambda: service.pool.queued)
    gauge("daco_workers_busy", "Workers that do a job.", lambda: service.pool.busy)
    gauge("daco_write_queue", "Clips that wait for a commit.", lambda: service.writer.queued)
    gauge("daco_uploads", "Uploads being received or scored.", lambda: service.admission.uploads)
    gauge("daco_upload_bytes", "Bytes they hold.", lambda: service.admission.bytes)
    gauge("daco_event_streams", "Event streams.", lambda: service.hub.streams)
    gauge("daco_models", "Models in use.", lambda: len(service.registry.snapshot.machines))
    recordings = service.recordings
    if recordings is not None:
        gauge("daco_kept_audio_bytes", "Bytes of kept recordings.", lambda: recordings.bytes)


async def _prune(service: Service, days: float) -> None:
    """Remove clips and recordings that are older than so many days, again and again."""
    while True:
        try:
            oldest = time.time() - days * 86400
            pruned = await asyncio.to_thread(service.store.prune, keep_days=days)
            await asyncio.to_thread(_forget_uploads, service.store)
            if service.recordings is not None:
                await asyncio.to_thread(service.recordings.remove, pruned.audio_paths, oldest)
            if pruned.clips:
                log.info("%d old clips were removed", pruned.clips)
        except Exception as error:
            log.warning("old clips could not be removed: %s", error)
        await asyncio.sleep(PRUNE_SECONDS)


def _forget_uploads(store: Store) -> None:
    """The key of an upload is known for as long as its clip."""
    for each in store.machines_summary():
        store.forget_sources(each.machine, UPLOADS, lambda key: True)
