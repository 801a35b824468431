"""The parts of a running service, made at its start and closed at its end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Annotated

from fastapi import Depends, Request
from fastapi import Path as PathParameter

from daco.monitoring.service.middleware import Metrics
from daco.monitoring.service.overview import Feed, Hub, Overview
from daco.monitoring.service.recordings import Recordings
from daco.monitoring.service.registry import Machine, Registry
from daco.monitoring.service.schemas import busy, not_found
from daco.monitoring.service.settings import MACHINE_ID, Settings
from daco.monitoring.service.workers import WorkerPool
from daco.monitoring.store import Store, StoreError
from daco.monitoring.store.writing import Writer

PRUNE_SECONDS = 3600.0
"""Between two removals of clips that are older than `Settings.keep_days`."""

FRESH_SECONDS, ANSWER_SECONDS = 1.0, 2.0
"""How long the answer of a database check is used again, and in which it must arrive."""

MOST_PICTURES, MOST_WAITING = 128, 16
"""Spectrograms that are kept, and requests that may wait for one."""

UPLOADS = "http:"
"""Prefix of the uploads' keys among the store's sources."""

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


class SpectrogramCache:
    """Has one picture drawn at a time, so that they take little from scoring, and keeps them."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._kept: OrderedDict[tuple[Path, int, str, int], bytes] = OrderedDict()
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def get(self, path: Path, changed_ns: int, theme: str, sample_rate: int) -> bytes:
        """The PNG of a recording on disk that was last changed at `changed_ns`."""
        key = (path, changed_ns, theme, sample_rate)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        if self._waiting >= MOST_WAITING:
            raise busy()
        self._waiting += 1
        try:
            async with self._turn:
                if key not in self._kept:
                    self._kept[key] = await self._pool.draw(path, theme, sample_rate)
                    while len(self._kept) > MOST_PICTURES:
                        self._kept.popitem(last=False)
                return self._kept[key]
        finally:
            self._waiting -= 1


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
        self.spectrograms = SpectrogramCache(self.pool)
        self.admission = Admission(settings.uploads, settings.buffered_bytes)
        self.writer = Writer(store.add_many, self.feed.wake)
        self._check: asyncio.Task[None] | None = None
        self._checked_at = -FRESH_SECONDS
        self._store_failed = False
        gauge = metrics.add_gauge
        gauge("daco_queue_depth", "Recordings that wait for a worker.", lambda: self.pool.queued)
        gauge("daco_workers_busy", "Workers that do a job.", lambda: self.pool.busy)
        gauge("daco_write_queue", "Clips that wait for a commit.", lambda: self.writer.queued)
        gauge("daco_uploads", "Uploads being received or scored.", lambda: self.admission.uploads)
        gauge("daco_upload_bytes", "Bytes they hold.", lambda: self.admission.bytes)
        gauge("daco_event_streams", "Event streams.", lambda: hub.streams)
        gauge("daco_models", "Models in use.", lambda: len(self.registry.snapshot.machines))
        if (kept := self.recordings) is not None:
            gauge("daco_kept_audio_bytes", "Bytes of kept recordings.", lambda: kept.bytes)

    async def obstacle(self) -> str | None:
        """Why recordings cannot be scored now, without naming a path, a host or a database.

        However often it is asked, the database is checked by one thread at a time.
        """
        if self.hub.is_closed:
            return "The service is ending."
        if not self.registry.is_loaded:
            return "The models are not loaded yet."
        if not self.pool.is_ready:
            return "There is no worker."
        if time.monotonic() - self._checked_at >= FRESH_SECONDS:
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._check_database())
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.shield(self._check)
            except TimeoutError:  # the check goes on, and the next request waits for the same
                return f"The database did not answer within {ANSWER_SECONDS:g} s."
        return "The database cannot be used." if self._store_failed else None

    async def _check_database(self) -> None:
        failed = False
        try:
            await asyncio.to_thread(self.store.check)
        except StoreError as error:
            failed = True
            if not self._store_failed:
                log.error("not ready: %s", error)
        if self._store_failed and not failed:
            log.info("ready: the database can be used again")
        self._store_failed, self._checked_at = failed, time.monotonic()

    async def prune(self, days: float) -> None:
        """Remove clips and recordings that are older than `days`, periodically."""
        while True:
            try:
                oldest = time.time() - days * 86400
                pruned = await asyncio.to_thread(self.store.prune, keep_days=days)
                await asyncio.to_thread(self._forget_uploads)
                if self.recordings is not None:
                    await asyncio.to_thread(self.recordings.remove, pruned.audio_paths, oldest)
                if pruned.clips:
                    log.info("%d old clips were removed", pruned.clips)
            except Exception as error:
                log.warning("old clips could not be removed: %s", error)
            await asyncio.sleep(PRUNE_SECONDS)

    def _forget_uploads(self) -> None:
        """The key of an upload is known for as long as its clip."""
        for each in self.store.machines_summary():
            self.store.forget_sources(each.machine, UPLOADS, lambda key: True)


@contextlib.asynccontextmanager
async def run_service(settings: Settings, metrics: Metrics, hub: Hub) -> AsyncIterator[Service]:
    """A service with its workers, its writer and its background tasks."""
    store = await asyncio.to_thread(Store.open, settings.database, rule=settings.rule)
    scratch = Path(tempfile.mkdtemp(prefix="daco-serve-"))
    service = Service(settings, metrics, hub, store, scratch)
    tasks: list[asyncio.Task[None]] = []
    try:
        await service.registry.refresh()
        background = [service.registry.watch(), service.feed.run()]
        if settings.keep_days is not None:
            background.append(service.prune(settings.keep_days))
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


async def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]
"""A parameter of a route: the service."""


async def machine_of(
    service: TheService,
    machine: Annotated[
        str,
        PathParameter(
            pattern=f"^{MACHINE_ID.pattern}$",
            description="The stem of the model's file.",
            examples=["press"],
        ),
    ],
) -> Machine:
    """The machine in a request's path; a Problem if it is not served now."""
    known = service.registry.get(machine)
    if known is None:
        raise not_found(f"There is no machine {machine!r}.")
    return known


TheMachine = Annotated[Machine, Depends(machine_of)]
"""A parameter of a route: the machine in its path."""
