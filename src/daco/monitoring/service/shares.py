"""Fair shares of the service between clients: memory for uploads, and turns at the workers."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import NamedTuple

from daco.monitoring.store import BusyError

MOST_UPLOADS, MOST_BYTES = 64, 256_000_000
"""Uploads that are received or wait at one time, and the bytes they hold together."""

LONG = 2_000_000
"""Bytes from which a recording is long: about a minute. Long ones are a client of their own."""

TURN_SECONDS = 20.0
"""In which an upload must get its turn; then the service is busy."""


class Client(NamedTuple):
    """Who shares: a person at an address, with their long recordings apart from the others."""

    name: str
    address: str
    is_long: bool


class Admission:
    """Bounds the uploads that are received or waiting, and the bytes they hold together.

    A client may hold as much as is free, no more: whoever comes next finds as much left as the
    first one holds.
    """

    def __init__(self) -> None:
        self._uploads: Counter[Client] = Counter()
        self._bytes: Counter[Client] = Counter()

    @property
    def uploads(self) -> int:
        """Uploads that are received or wait."""
        return self._uploads.total()

    @property
    def bytes(self) -> int:
        """Bytes that they hold."""
        return self._bytes.total()

    @contextlib.contextmanager
    def one(self, client: Client) -> Iterator[Callable[[int], None]]:
        """Admit an upload; yields a function that reserves its size so far.

        Both raise a `BusyError` when the client has its share.
        """
        if self._uploads[client] >= MOST_UPLOADS - self.uploads:
            raise BusyError("Too many uploads.")
        self._uploads[client] += 1
        held = 0

        def reserve(size: int) -> None:
            nonlocal held
            more = max(0, size - held)
            if self._bytes[client] + more > MOST_BYTES - self.bytes:
                raise BusyError("Too many uploads.")
            self._bytes[client] += more
            held += more

        try:
            yield reserve
        finally:
            self._uploads[client] -= 1
            self._bytes[client] -= held
            if not self._uploads[client]:
                del self._uploads[client], self._bytes[client]


class Turns:
    """Lets a bounded number of recordings be judged at one time, and clients take turns.

    Long recordings never take the last worker.
    """

    def __init__(self, workers: int) -> None:
        self._free = 2 * workers + 2  # some wait for their commit while others are judged
        self._free_for_long = max(1, workers - 1)
        self._waiting: OrderedDict[Client, deque[asyncio.Future[None]]] = OrderedDict()

    @contextlib.asynccontextmanager
    async def one(self, client: Client) -> AsyncIterator[None]:
        """Wait for a turn; a `BusyError` where it takes too long."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._give()
        try:
            try:
                async with asyncio.timeout(TURN_SECONDS):
                    await turn  # cancelled with the request, and then skipped by `_give`
            except TimeoutError:
                raise BusyError("No turn came in time.") from None
            yield
        finally:
            if not turn.cancelled():
                self._free += 1
                self._free_for_long += client.is_long
            self._give()

    def _give(self) -> None:
        """Turns to those who wait, one client after the other."""
        while self._free:
            able = (each for each in self._waiting if not each.is_long or self._free_for_long)
            client = next(able, None)
            if client is None:
                return
            turn = self._waiting[client].popleft()
            self._waiting.move_to_end(client)
            if not self._waiting[client]:
                del self._waiting[client]
            if not turn.cancelled():
                self._free -= 1
                self._free_for_long -= client.is_long
                turn.set_result(None)
