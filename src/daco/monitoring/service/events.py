"""Events for those who are looking: server-sent, from what was committed, never holding it up.

A stream that is not read in time is closed; the browser connects again and says which event it
saw last. What happened since then is sent again, or, where that is no longer known, a ``reset``
tells it to fetch everything anew.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any

MOST_STREAMS = 64
BEHIND = 256
"""Events that a stream may be behind before it is closed."""

REMEMBERED = 1024
HEARTBEAT_SECONDS = 15.0
RECONNECT_MILLISECONDS = 2000

_END = None

Stream = asyncio.Queue[str | None]


class Hub:
    """Passes events on to all streams, and keeps the last ones for those who come back."""

    def __init__(self, on_drop: Callable[[], None] = lambda: None) -> None:
        self._streams: set[Stream] = set()
        self._run = secrets.token_hex(4)  # ids of an earlier process mean nothing here
        self._number = 0
        self._recent: deque[tuple[int, str]] = deque(maxlen=REMEMBERED)
        self._on_drop = on_drop
        self.is_closed = False

    @property
    def streams(self) -> int:
        """How many are looking."""
        return len(self._streams)

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to all streams; one that is too far behind is closed."""
        self._number += 1
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        event = f"id: {self._run}-{self._number}\nevent: {kind}\ndata: {text}\n\n"
        self._recent.append((self._number, event))
        for stream in list(self._streams):
            if stream.qsize() >= BEHIND:
                self._streams.discard(stream)
                stream.put_nowait(_END)
                self._on_drop()
            else:
                stream.put_nowait(event)

    def open(self, last_id: str | None = None) -> Stream:
        """A stream of the events from now on, and before them those after `last_id`."""
        stream: Stream = asyncio.Queue()
        for missed in self._missed(last_id):
            stream.put_nowait(missed)
        self._streams.add(stream)
        return stream

    async def read(self, stream: Stream) -> AsyncIterator[str]:
        """What is sent on a stream, until it or the service ends."""
        # At once, so that the other side knows it is connected.
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
        """Nobody reads a stream any more."""
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
        known = number.isascii() and number.isdigit() and len(number) < 16
        if run == self._run and known:
            seen = int(number)
            first = self._recent[0][0] if self._recent else self._number + 1
            if first - 1 <= seen <= self._number:
                return [event for each, event in self._recent if each > seen]
        return [f"id: {self._run}-{self._number}\nevent: reset\ndata: {{}}\n\n"]
