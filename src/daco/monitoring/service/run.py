"""Serve the application with uvicorn until a signal; work in progress is finished."""

from __future__ import annotations

import socket

import uvicorn
from fastapi import FastAPI

from daco.errors import InputError
from daco.monitoring.service.app import create_app
from daco.monitoring.service.connections import bounded_protocol
from daco.monitoring.service.recordings import Recordings
from daco.monitoring.service.settings import Settings
from daco.monitoring.store import Store

SHUTDOWN_SECONDS = 30
BACKLOG = 512

IDLE_SECONDS = 75
"""A connection may be idle. Well above the 10 s at which recorders send clips: a client that sends
just when its connection is closed has to send again."""


class Server(uvicorn.Server):
    """Ends event streams when it is told to end: they would go on for ever."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end streams, and finish what was begun."""
        if isinstance(self.config.app, FastAPI):
            self.config.app.state.hub.close()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket on an address, or an error that says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small pieces at once (TCP_NODELAY) only on sockets that say they are TCP; else
    # every answer waits 40 ms for the acknowledgement of its head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise InputError(
            f"Cannot listen on {host} port {port} ({error.strerror or error}). Choose another."
        ) from None
    listener.listen(BACKLOG)
    return listener


def serve(settings: Settings, listener: socket.socket) -> None:
    """Serve on a socket until SIGTERM or SIGINT.

    Raises
    ------
    DacoError
        The database or the folder for recordings cannot be used.
    """
    Store.open(settings.database).close()  # what is wrong with it is a sentence here
    if settings.clips is not None:
        Recordings(settings.clips, settings.audio_bytes)
    config = uvicorn.Config(
        create_app(settings),
        http=bounded_protocol(settings),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=32_768,
    )
    Server(config).run(sockets=[listener])
