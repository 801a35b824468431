"""Server-sent events about committed clips and alarms; a slow client never delays the others.

`Feed` reads from the database what is new, so that clips of ``daco watch`` on the same database
appear as well; while no client is connected nothing is read. `Hub` sends events to all streams. A
stream that is not read in time is closed; the browser connects again and names the last event it
received. Missed events are sent again, or, where they are no longer known, a ``reset`` tells the
page to fetch everything.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

from daco.monitoring.service.overview import Overview
from daco.monitoring.store import StoredAlarm, StoredClip

MOST_STREAMS = 64
MOST_BEHIND = 256
"""Events that a stream may be behind before it is closed."""

REMEMBERED = 1024
HEARTBEAT_SECONDS = 15.0
RECONNECT_MILLISECONDS = 2000

QUIET_SECONDS, BUSY_SECONDS = 2.0, 0.25
"""Between two reads of the database while this process stores nothing, and while it does."""

_PAGE = 200
_END = None

Stream = asyncio.Queue[str | None]

log = logging.getLogger("daco.monitoring.service")


class Hub:
    """Sends events to all streams, and keeps the last ones for clients that reconnect."""

    def __init__(self, on_drop: Callable[[], None] = lambda: None) -> None:
        self._streams: set[Stream] = set()
        self._run = secrets.token_hex(4)  # ids of an earlier process are not valid here
        self._number = 0
        self._recent: deque[tuple[int, str]] = deque(maxlen=REMEMBERED)
        self._on_drop = on_drop
        self.is_closed = False

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to all streams; a stream that is too far behind is closed."""
        self._number += 1
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        event = f"id: {self._run}-{self._number}\nevent: {kind}\ndata: {text}\n\n"
        self._recent.append((self._number, event))
        for stream in list(self._streams):
            if stream.qsize() >= MOST_BEHIND:
                self._streams.discard(stream)
                stream.put_nowait(_END)
                self._on_drop()
            else:
                stream.put_nowait(event)

    def open(self, last_id: str | None = None) -> Stream:
        """A stream of the events from now on, after those that followed `last_id`."""
        stream: Stream = asyncio.Queue()
        for missed in self._missed(last_id):
            stream.put_nowait(missed)
        self._streams.add(stream)
        return stream

    async def read(self, stream: Stream) -> AsyncIterator[str]:
        """The text sent on a stream, until it or the service ends."""
        # Sent at once, so that the client knows it is connected.
        yield f"retry: {RECONNECT_MILLISECONDS}\n\n"
        while not self.is_closed:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    event = await stream.get()
            except TimeoutError:
                yield ": still here\n\n"
                continue
            if event is _END:
                return
            yield event

    def leave(self, stream: Stream) -> None:
        """Remove a stream that is no longer read."""
        self._streams.discard(stream)

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        for stream in self._streams:
            stream.put_nowait(_END)

    def _missed(self, last_id: str | None) -> list[str]:
        if not last_id:
            return []
        run, _, number = last_id.partition("-")
        is_number = number.isascii() and number.isdigit() and len(number) < 16
        if run == self._run and is_number:
            last = int(number)
            first = self._recent[0][0] if self._recent else self._number + 1
            if first - 1 <= last <= self._number:
                return [event for each, event in self._recent if each > last]
        return [f"id: {self._run}-{self._number}\nevent: reset\ndata: {{}}\n\n"]


class Feed:
    """Publishes the clips and alarms that are new in the database."""

    def __init__(self, overview: Overview, hub: Hub) -> None:
        self._overview, self._hub = overview, hub
        self._last_ids: dict[str, int] | None = None
        self._open: dict[int, StoredAlarm] = {}
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    def wake(self) -> None:
        """Say that something was committed."""
        self._news.set()

    async def attend(self) -> None:
        """A client has connected: from now on every new clip is published."""
        async with self._turn:
            if self._last_ids is None:
                self._last_ids, self._open = await asyncio.to_thread(self._start)

    async def run(self) -> None:
        """Read and publish until cancelled."""
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
                    self._last_ids = None
                if self._last_ids is None:
                    continue
                try:
                    for kind, data in await asyncio.to_thread(self._read, self._last_ids):
                        self._hub.publish(kind, data)
                except Exception as error:  # the database may be away for a while
                    log.warning("events wait: %s", error)

    def _start(self) -> tuple[dict[str, int], dict[int, StoredAlarm]]:
        store = self._overview.store
        last_ids = {each.machine: each.last.id for each in store.machines_summary() if each.last}
        return last_ids, {alarm.id: alarm for alarm in store.alarms(open_only=True, limit=_PAGE)}

    def _read(self, last_ids: dict[str, int]) -> list[tuple[str, dict[str, Any]]]:
        """The events since the last read, clips before alarms before machines."""
        store = self._overview.store
        clips: list[StoredClip] = []
        for each in store.machines_summary():
            if each.last is not None and each.last.id > last_ids.get(each.machine, 0):
                page = store.clips(each.machine, _PAGE, after=last_ids.get(each.machine, 0))
                clips += page
                last_ids[each.machine] = page[0].id if page else each.last.id
        is_open = {alarm.id: alarm for alarm in store.alarms(open_only=True, limit=_PAGE)}
        changed = [alarm for number, alarm in is_open.items() if number not in self._open]
        closed = (store.alarm(number) for number in self._open.keys() - is_open.keys())
        changed += [alarm for alarm in closed if alarm is not None]
        self._open = is_open
        clips.sort(key=lambda clip: clip.id)
        changed.sort(key=lambda alarm: alarm.id)
        touched = {clip.machine for clip in clips} | {alarm.machine for alarm in changed}
        return [
            *(("clip", self._overview.clip(clip)) for clip in clips),
            *(("alarm", alarm.to_dict()) for alarm in changed),
            *(("machine", machine) for machine in self._overview.machines(touched)),
        ]
