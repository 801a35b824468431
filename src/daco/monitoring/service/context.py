"""Everything the routes need, made at the start of the service and closed at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request

from daco.monitoring.service.events import Hub
from daco.monitoring.service.feed import Feed
from daco.monitoring.service.gallery import Gallery
from daco.monitoring.service.health import Readiness
from daco.monitoring.service.machines import Registry
from daco.monitoring.service.metrics import Metrics
from daco.monitoring.service.overview import Overview
from daco.monitoring.service.pool import Pool
from daco.monitoring.service.recordings import Hashes, Recordings
from daco.monitoring.service.settings import Settings
from daco.monitoring.service.uploads import Admission
from daco.monitoring.service.writer import Writer
from daco.monitoring.store import Store

FORGET_SECONDS = 3600.0
"""Between two removals of clips that are older than they are to be kept."""

UPLOADS = "http:"
"""How the keys of uploads begin among the store's sources."""

log = logging.getLogger("daco.monitoring.service")


@dataclass(frozen=True)
class Service:
    """The parts of a running service."""

    settings: Settings
    store: Store
    metrics: Metrics
    hub: Hub
    feed: Feed
    pool: Pool
    registry: Registry
    writer: Writer
    recordings: Recordings | None
    hashes: Hashes
    overview: Overview
    gallery: Gallery
    readiness: Readiness
    admission: Admission


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service


@contextlib.asynccontextmanager
async def running(settings: Settings, metrics: Metrics, hub: Hub) -> AsyncIterator[Service]:
    """A service with its workers, its writer and what it does by itself."""
    store = await asyncio.to_thread(Store.open, settings.database, rule=settings.rule)
    scratch = Path(tempfile.mkdtemp(prefix="daco-serve-"))
    tasks: list[asyncio.Task[None]] = []
    pool = Pool(
        settings.workers, settings.waiting, settings.job_seconds, metrics.worker_restarts.inc
    )
    writer: Writer | None = None
    try:
        recordings = None
        if settings.clips is not None:
            recordings = Recordings(settings.clips, settings.audio_bytes)
        registry = Registry(
            settings,
            pool,
            scratch,
            lambda machine, change: hub.publish("model", {"machine": machine, "change": change}),
        )
        overview = Overview(store, registry, recordings, settings)
        feed = Feed(overview, hub)
        writer = Writer(store, feed.wake)
        await registry.refresh()
        service = Service(
            settings=settings,
            store=store,
            metrics=metrics,
            hub=hub,
            feed=feed,
            pool=pool,
            registry=registry,
            writer=writer,
            recordings=recordings,
            hashes=Hashes(),
            overview=overview,
            gallery=Gallery(pool),
            readiness=Readiness(store, pool, registry, hub),
            admission=Admission(settings.uploads, settings.buffered_bytes),
        )
        _watch(service)
        tasks = [asyncio.create_task(each) for each in (registry.watch(), feed.run())]
        if settings.keep_days is not None:
            tasks.append(asyncio.create_task(_forget(service, settings.keep_days)))
        yield service
    finally:
        hub.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if writer is not None:
            await writer.close()
        await pool.close()
        store.close()
        shutil.rmtree(scratch, ignore_errors=True)


def _watch(service: Service) -> None:
    gauge = service.metrics.watch
    gauge("daco_queue_depth", "Recordings that wait for a worker.", lambda: service.pool.queued)
    gauge("daco_workers_busy", "Workers at work.", lambda: service.pool.busy)
    gauge("daco_write_queue", "Clips that wait for a commit.", lambda: service.writer.queued)
    gauge("daco_uploads", "Uploads being received or scored.", lambda: service.admission.uploads)
    gauge("daco_upload_bytes", "Bytes they hold.", lambda: service.admission.bytes)
    gauge("daco_event_streams", "Event streams.", lambda: service.hub.streams)
    gauge("daco_models", "Models in use.", lambda: len(service.registry.snapshot.machines))
    kept = service.recordings
    if kept is not None:
        gauge("daco_kept_audio_bytes", "Bytes of kept recordings.", lambda: kept.bytes)


async def _forget(service: Service, days: float) -> None:
    """Remove clips and recordings that are older than they are to be kept."""
    while True:
        try:
            oldest = time.time() - days * 86400
            gone = await asyncio.to_thread(service.store.prune, keep_days=days)
            await asyncio.to_thread(_forget_keys, service.store)
            if service.recordings is not None:
                await asyncio.to_thread(service.recordings.remove, gone.audio_paths, oldest)
            if gone.clips:
                log.info("%d old clips were removed", gone.clips)
        except Exception as error:
            log.warning("old clips could not be removed: %s", error)
        await asyncio.sleep(FORGET_SECONDS)


def _forget_keys(store: Store) -> None:
    """The key of an upload is known for as long as its clip."""
    for each in store.machines_summary():
        store.forget_sources(each.machine, UPLOADS, lambda key: True)
