"""create_app: the service as an ASGI application; serve: uvicorn until a signal."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse
from starlette.staticfiles import StaticFiles

from daco.errors import InputError
from daco.monitoring.service import people, routes, scoring
from daco.monitoring.service.context import run_service
from daco.monitoring.service.middleware import Guard, Metrics, bounded_protocol
from daco.monitoring.service.overview import Hub
from daco.monitoring.service.recordings import Recordings
from daco.monitoring.service.schemas import busy
from daco.monitoring.service.settings import Settings
from daco.monitoring.store import Store, StoreError
from daco.version import __version__

THREADS = 8
"""For reading from the database; more would only wait for each other."""

SHUTDOWN_SECONDS = 30
BACKLOG = 512

IDLE_SECONDS = 75
"""A connection may be idle. Well above the 10 s at which recorders send clips: a client that sends
just when its connection is closed has to send again."""

_DESCRIPTION = """Scores recordings of machines against models made by `daco fit`, stores the
verdicts, and raises alarms.

On a loopback address no token is needed. Elsewhere send `Authorization: Bearer TOKEN`, or open a
session with `POST /login`. Every failure is `{"detail": "a sentence"}`. Times are UTC, ISO 8601.
"""


def create_app(settings: Settings) -> FastAPI:
    """Create the service as a FastAPI application; its workers start and end with it.

    Parameters
    ----------
    settings : Settings

    Returns
    -------
    FastAPI
    """
    metrics = Metrics()
    hub = Hub(metrics.events_dropped.inc)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        async with run_service(settings, metrics, hub) as service:
            app.state.service = service
            yield

    app = FastAPI(
        title="daco",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # their scripts come from other sites; this works offline
        redoc_url=None,
    )
    for router in (scoring.router, people.router, routes.reading, routes.operation):
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=routes.PAGE / "static"), name="static")
    app.add_exception_handler(StoreError, _store_failed)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_middleware(
        Guard, settings=settings, metrics=metrics, is_full=lambda: app.state.service.pool.is_full
    )
    app.state.hub = hub
    return app


async def _store_failed(request: Request, error: Exception) -> JSONResponse:
    return busy("The database cannot be used at the moment.").response()


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    """Name the wrong parameter in a sentence, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:] if isinstance(part, str | int))
    return JSONResponse({"detail": f"{where[:80] or 'body'}: {first['msg'][:200]}."}, 422)


class Server(uvicorn.Server):
    """Closes event streams at shutdown, which would otherwise never end."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, end streams, and finish running requests."""
        if isinstance(self.config.app, FastAPI):
            self.config.app.state.hub.close()
        await super().shutdown(sockets)


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; an InputError if that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only on sockets created with IPPROTO_TCP; without it every answer
    # waits 40 ms for the acknowledgement of its head.
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
    """Serve on a socket until SIGTERM or SIGINT; running requests are finished.

    Parameters
    ----------
    settings : Settings
    listener : socket.socket
        A socket that is bound to an address.

    Raises
    ------
    DacoError
        The database or the folder for recordings cannot be used.
    """
    Store.open(settings.database).close()  # fail here with a sentence, not in uvicorn
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
