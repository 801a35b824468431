"""Connections that cannot be held for ever: a request's head must arrive in time.

uvicorn bounds only how long a connection may be idle between requests. A client that opens one
and says nothing, sends a head a byte at a time, or goes on with a body nobody reads after an early
answer, would otherwise hold it as long as it likes.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from daco.monitoring.service.problems import RETRY_SECONDS
from daco.monitoring.service.settings import Settings

_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: 46\r\nConnection: close\r\nRetry-After: %d\r\n\r\n"
    b'{"detail": "Too many connections. Try later."}' % RETRY_SECONDS
)


def bounded_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """The protocol of connections within the settings' bounds."""

    class BoundedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > settings.connections:
                transport.write(_FULL)
                transport.close()
                return
            self._set_deadline()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._lift_deadline()  # a request is being answered, within bounds of its own
            elif self._deadline is None:
                self._set_deadline()

        def on_response_complete(self) -> None:
            if self.conn.their_state is h11.SEND_BODY:
                self._set_deadline()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._lift_deadline()
            super().connection_lost(exc)

        def _set_deadline(self) -> None:
            """For a request's head, or for what is left of a body that was answered already."""
            self._lift_deadline()
            self._deadline = self.loop.call_later(settings.read_seconds, self._give_up)

        def _lift_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            self.transport.abort()

    return BoundedProtocol
