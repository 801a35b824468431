"""create_app: the service as an ASGI application."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import anyio.to_thread
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.responses import JSONResponse

from daco.monitoring.service.context import running
from daco.monitoring.service.events import Hub
from daco.monitoring.service.guard import Guard
from daco.monitoring.service.metrics import Metrics
from daco.monitoring.service.problems import busy
from daco.monitoring.service.routes import alarms, events, operation, page, reading, score, sounds
from daco.monitoring.service.settings import Settings
from daco.monitoring.store import StoreError
from daco.version import __version__

THREADS = 8
"""For reading from the database; more would only wait for each other."""

_DESCRIPTION = """Scores recordings of machines against models made by `daco fit`, keeps what was
found, and raises alarms.

On a loopback address no token is needed. Elsewhere send `Authorization: Bearer TOKEN`, or open a
session with `POST /login`. Every failure is `{"detail": "a sentence"}`. Times are UTC, ISO 8601.
"""


def create_app(settings: Settings) -> FastAPI:
    """The service for some settings; its workers start and end with the application."""
    metrics = Metrics()
    hub = Hub(metrics.events_dropped.inc)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
        async with running(settings, metrics, hub) as service:
            app.state.service = service
            yield

    app = FastAPI(
        title="daco",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # their scripts come from elsewhere, and this works offline
        redoc_url=None,
    )
    for each in (score, reading, sounds, alarms, events, operation, page):
        app.include_router(each.router)
    app.mount("/static", page.static_files(), name="static")
    app.add_exception_handler(StoreError, _database_is_away)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_middleware(
        Guard,
        settings=settings,
        metrics=metrics,
        is_full=lambda: app.state.service.pool.is_full,
    )
    app.state.hub = hub
    return app


async def _database_is_away(request: Request, error: Exception) -> JSONResponse:
    return busy("The database cannot be used at the moment.").response()


async def _not_valid(request: Request, error: Exception) -> JSONResponse:
    """What is wrong with the parameters, in a sentence; what was sent is not sent back."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:] if isinstance(part, str | int))
    return JSONResponse({"detail": f"{where[:80] or 'body'}: {first['msg'][:200]}."}, 422)
