"""Connections are limited per address before anything is read from them.

uvicorn accepts a protocol class as its option ``http``. The class here adds to uvicorn's own HTTP
protocol and uses nothing of it but asyncio's protocol methods. The application says when a request
of a connection begins and ends, by the address and port of the client.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

ALL, PER_ADDRESS = 512, 128
"""Connections that may be open at one time, and those of one address."""

HEAD_SECONDS = 20.0
"""In which the head of a request must have arrived."""

IDLE_SECONDS = 75
"""A connection may be idle between two requests. Well above the 10 s at which recorders send."""

GRACE_SECONDS = 1.0
"""A connection is not closed for another one before, as long as there are free ones at all."""

LOG_SECONDS = 60.0

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: 46\r\nConnection: close\r\nRetry-After: 1\r\n\r\n"
    b'{"detail": "Too many connections. Try later."}'
)

log = logging.getLogger("daco.monitoring.service")


class Connection:
    """One open connection, and what it is doing."""

    def __init__(self, transport: asyncio.Transport, head_seconds: float) -> None:
        self.transport, self._head_seconds = transport, head_seconds
        host, port, *_ = transport.get_extra_info("peername") or ("", 0)
        self.client = str(host), int(port)
        self.opened_at = time.monotonic()
        self.requests = 0
        self.answered = False
        self._deadline: asyncio.TimerHandle | None = None
        self.expect_head()

    def expect_head(self) -> None:
        """Close it unless a request begins in time; a deadline that runs is not moved."""
        if self._deadline is None:
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(self._head_seconds, self.transport.abort)

    def rest(self) -> None:
        """No deadline: a request is being answered, or uvicorn closes the idle connection."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class Connections:
    """All open connections, by address.

    A new connection beyond a limit closes the oldest one of the same address on which no request
    has begun, else the longest idle one; it is refused only if requests run on all of them.
    Half-open connections thus end each other, whoever opens them, and requests are not harmed.
    """

    def __init__(
        self, most: int = ALL, per_address: int = PER_ADDRESS, head_seconds: float = HEAD_SECONDS
    ) -> None:
        self._most, self._per_address, self._head_seconds = most, per_address, head_seconds
        self._open: dict[str, OrderedDict[int, Connection]] = {}
        self._logged_at: OrderedDict[str, float] = OrderedDict()
        self.total = self.closed = 0

    def add(self, transport: asyncio.Transport) -> Connection | None:
        """The connection, or None where it is one too many."""
        connection = Connection(transport, self._head_seconds)
        host, port = connection.client
        is_full = self.total >= self._most
        if is_full or len(self._open.get(host, ())) >= self._per_address:
            crowded = max(self._open, key=lambda each: len(self._open[each])) if is_full else host
            if not self._make_room(crowded, 0.0 if is_full else GRACE_SECONDS):
                connection.rest()
                return None
        self._open.setdefault(host, OrderedDict())[port] = connection
        self.total += 1
        return connection

    def remove(self, connection: Connection) -> None:
        """Forget a connection that has ended."""
        connection.rest()
        host, port = connection.client
        of_host = self._open.get(host, OrderedDict())
        if of_host.get(port) is connection:
            del of_host[port]
            self.total -= 1
            if not of_host:
                del self._open[host]

    def begin(self, client: Any) -> None:
        """A request of a client (the ``client`` of an ASGI scope) has begun."""
        if connection := self._find(client):
            connection.requests += 1
            connection.rest()

    def end(self, client: Any) -> None:
        """It has been answered."""
        if connection := self._find(client):
            connection.requests -= 1
            connection.answered = True
            self._open[connection.client[0]].move_to_end(connection.client[1])

    def _find(self, client: Any) -> Connection | None:
        return self._open.get(client[0], OrderedDict()).get(client[1]) if client else None

    def _make_room(self, host: str, grace: float) -> bool:
        """Close a connection of an address that nobody waits for, unless all are that young."""
        self._warn(host)
        waiting = [each for each in self._open[host].values() if not each.requests]
        if not waiting:
            return False
        oldest = next((each for each in waiting if not each.answered), waiting[0])
        if time.monotonic() - oldest.opened_at >= grace:
            self.remove(oldest)
            oldest.transport.abort()
            self.closed += 1
        return True

    def _warn(self, host: str) -> None:
        """Log that an address has too many connections, once in a while."""
        now = time.monotonic()
        if now - self._logged_at.get(host, -LOG_SECONDS) < LOG_SECONDS:
            return
        log.warning("%s has %d connections open; the oldest are closed", host, self._per_address)
        self._logged_at[host] = now
        self._logged_at.move_to_end(host)
        while len(self._logged_at) > self._most:
            self._logged_at.popitem(last=False)


def limited_protocol(connections: Connections) -> type[asyncio.Protocol]:
    """A protocol class for uvicorn's option ``http`` that limits connections."""

    class LimitedProtocol(H11Protocol):
        counted: Connection | None = None

        def connection_made(self, transport: Any) -> None:
            self.counted = connections.add(transport)
            if self.counted is None:
                transport.write(_FULL)
                transport.close()
            else:
                super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            if self.counted is not None:
                if not self.counted.requests:
                    self.counted.expect_head()
                super().data_received(data)

        def connection_lost(self, exc: Exception | None) -> None:
            if self.counted is not None:
                connections.remove(self.counted)
                super().connection_lost(exc)

    return LimitedProtocol
