"""create_app: the service as an ASGI application; serve: uvicorn until a signal."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator

import uvicorn
from anyio.to_thread import current_default_thread_limiter
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from daco.errors import InputError
from daco.monitoring.engine import Plant
from daco.monitoring.service import operation, report, revisions, routes, scoring
from daco.monitoring.service.access import Access
from daco.monitoring.service.connections import IDLE_SECONDS, Connections, limited_protocol
from daco.monitoring.service.context import FAILURES, Service, answer_failure, answer_invalid
from daco.monitoring.service.guard import Guard
from daco.monitoring.tables import ServiceConfig
from daco.version import __version__

SHUTDOWN_SECONDS = 30
BACKLOG = 1024

READING_THREADS = 12
"""Threads of routes that read from the database."""

_DESCRIPTION = """Judges recordings of machines, stores the results, and raises alarms.

Where tokens are configured, send `Authorization: Bearer TOKEN`, or open a session with
`POST /login`. A viewer reads; an operator also sends recordings, acknowledges, shelves and answers;
an administrator also deletes clips, takes machines out of service and tests messages. Every failure
is `{"detail": "a sentence"}`. Times are UTC, ISO 8601.
"""


def create_app(plant: Plant, connections: Connections | None = None) -> FastAPI:
    """Create the service as a FastAPI application over a plant.

    Parameters
    ----------
    plant : Plant
        Started with the application, and stopped with it.
    connections : Connections, optional
        Those of the server; the application tells them of its requests.

    Returns
    -------
    FastAPI
    """
    connections = connections or Connections()
    access = Access(plant.config.service.tokens)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = READING_THREADS
        service = Service(plant, access, connections)
        app.state.service = service
        await service.judge(plant.start)
        try:
            yield
        finally:
            service.is_ending = True
            await service.judge(plant.stop)
            service.close()

    app = FastAPI(
        title="daco",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # their scripts come from other sites; this works offline
        redoc_url=None,
    )
    for module in (scoring, routes, revisions, report, operation):
        app.include_router(module.router)
    app.mount("/static", StaticFiles(directory=operation.PAGE / "static"), name="static")
    app.add_exception_handler(RequestValidationError, answer_invalid)
    for kind in FAILURES:
        app.add_exception_handler(kind, answer_failure)

    def count(scope: Scope, status: int | None, seconds: float) -> None:
        app.state.service.metrics.count_request(scope, status, seconds)

    app.add_middleware(
        Guard,
        access=access,
        connections=connections,
        count=count,
        hosts=_host_names(plant.config.service),
    )
    return app


def _host_names(config: ServiceConfig) -> set[str] | None:
    """Names under which a service on a loopback address may be asked; None elsewhere: any."""
    if not config.on_loopback:
        return None
    own = f"[{config.host}]" if ":" in config.host else config.host
    return {"localhost", "127.0.0.1", "[::1]", own, *config.allowed_hosts}


def listening_socket(config: ServiceConfig) -> socket.socket:
    """A socket that listens on the address of the configuration; an InputError if it cannot."""
    host, port = config.host, config.port
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
            f"Cannot listen on {host} port {port} ({error.strerror or error}). Choose another "
            "address in daco.toml."
        ) from None
    listener.listen(BACKLOG)
    return listener


def serve(plant: Plant, listener: socket.socket) -> None:
    """Serve on a socket that is bound, until SIGTERM or SIGINT; running requests are finished."""
    limits = plant.config.service
    connections = Connections(limits.connections, limits.connections_per_address)
    config = uvicorn.Config(
        create_app(plant, connections),
        http=limited_protocol(connections),
        ws="none",
        loop="asyncio",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # the guard believes a proxy on this computer only
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=32_768,
    )
    uvicorn.Server(config).run(sockets=[listener])
