"""Whether recordings can be scored: workers, models and the database."""

from __future__ import annotations

import asyncio
import logging
import time

from daco.monitoring.service.events import Hub
from daco.monitoring.service.machines import Registry
from daco.monitoring.service.pool import Pool
from daco.monitoring.store import Store, StoreError

FRESH_SECONDS = 1.0
"""That the answer of the database holds: however often it is asked, one look at a time is taken."""

ANSWER_SECONDS = 2.0
"""In which the database must answer."""

log = logging.getLogger("daco.monitoring.service")


class Readiness:
    """What keeps the service from scoring; told without a path, a host or a name."""

    def __init__(self, store: Store, pool: Pool, registry: Registry, hub: Hub) -> None:
        self._store, self._pool, self._registry, self._hub = store, pool, registry, hub
        self._look: asyncio.Task[None] | None = None
        self._known: str | None = None
        self._good_until = 0.0

    async def obstacle(self) -> str | None:
        """A sentence, or None when recordings can be scored."""
        if self._hub.is_closed:
            return "The service is ending."
        if not self._registry.is_loaded:
            return "The models are not loaded yet."
        if not self._pool.is_ready:
            return "There is no worker."
        return await self._database()

    async def _database(self) -> str | None:
        if time.monotonic() >= self._good_until:
            if self._look is None or self._look.done():
                self._look = asyncio.create_task(self._take_a_look())
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.shield(self._look)
            except TimeoutError:  # the look goes on, and whoever asks next waits for the same
                return f"The database did not answer within {ANSWER_SECONDS:g} s."
        return self._known

    async def _take_a_look(self) -> None:
        self._known = await asyncio.to_thread(self._ask)
        self._good_until = time.monotonic() + FRESH_SECONDS

    def _ask(self) -> str | None:
        try:
            self._store.check()
        except StoreError as error:
            if self._known is None:
                log.error("not ready: %s", error)
            return "The database cannot be used."
        if self._known is not None:
            log.info("ready: the database can be used again")
        return None
