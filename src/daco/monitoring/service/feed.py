"""From the database to the events: new clips and alarms of this process or any other.

What is told was read back from what is committed, so that clips of ``daco watch`` on the same
database appear as well. While nobody is looking nothing is read.
"""

from __future__ import annotations

import asyncio
import logging

from daco.monitoring.service.events import Hub
from daco.monitoring.service.overview import Overview
from daco.monitoring.store import StoredAlarm, StoredClip

QUIET_SECONDS = 2.0
"""Between two looks while this process stores nothing."""

BUSY_SECONDS = 0.25
"""Between two looks while it does."""

_PAGE = 200

log = logging.getLogger("daco.monitoring.service")


class Feed:
    """Publishes what is new since the last look."""

    def __init__(self, overview: Overview, hub: Hub) -> None:
        self._overview, self._hub = overview, hub
        self._seen: dict[str, int] | None = None
        self._open: dict[int, StoredAlarm] = {}
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    def wake(self) -> None:
        """Something was committed."""
        self._news.set()

    async def attend(self) -> None:
        """Somebody has begun to listen: from now on nothing is left out."""
        async with self._turn:
            if self._seen is None:
                self._seen, self._open = await asyncio.to_thread(self._start)

    async def run(self) -> None:
        """Look and publish until cancelled."""
        while True:
            await asyncio.sleep(BUSY_SECONDS)
            try:
                async with asyncio.timeout(QUIET_SECONDS - BUSY_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            async with self._turn:
                if not self._hub.streams:
                    self._seen = None
                if self._seen is None:
                    continue
                try:
                    await self._look(self._seen)
                except Exception as error:  # the database may be away for a while
                    log.warning("events wait: %s", error)

    async def _look(self, seen: dict[str, int]) -> None:
        clips, changed = await asyncio.to_thread(self._read, seen)
        for clip in clips:
            self._hub.publish("clip", self._overview.clip(clip))
        for alarm in changed:
            self._hub.publish("alarm", alarm.to_dict())
        touched = {clip.machine for clip in clips} | {alarm.machine for alarm in changed}
        for machine in await asyncio.to_thread(self._overview.machines, touched):
            self._hub.publish("machine", machine)

    def _start(self) -> tuple[dict[str, int], dict[int, StoredAlarm]]:
        store = self._overview.store
        seen = {each.machine: each.last.id for each in store.machines_summary() if each.last}
        return seen, {alarm.id: alarm for alarm in store.alarms(open_only=True, limit=_PAGE)}

    def _read(self, seen: dict[str, int]) -> tuple[list[StoredClip], list[StoredAlarm]]:
        store = self._overview.store
        clips: list[StoredClip] = []
        for each in store.machines_summary():
            if each.last is not None and each.last.id > seen.get(each.machine, 0):
                page = store.clips(each.machine, _PAGE, after=seen.get(each.machine, 0))
                clips += reversed(page)
                seen[each.machine] = page[0].id if page else each.last.id
        is_open = {alarm.id: alarm for alarm in store.alarms(open_only=True, limit=_PAGE)}
        changed = [alarm for number, alarm in is_open.items() if number not in self._open]
        for number in self._open.keys() - is_open.keys():
            if (alarm := store.alarm(number)) is not None:
                changed.append(alarm)
        self._open = is_open
        return sorted(clips, key=lambda clip: clip.id), sorted(changed, key=lambda a: a.id)
