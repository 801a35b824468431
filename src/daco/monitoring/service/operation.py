"""Routes for live events, health, metrics and sessions, and the page at ``/``."""

from __future__ import annotations

from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from starlette.responses import FileResponse, StreamingResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from daco.monitoring.service.context import service_of
from daco.monitoring.service.events import MOST_STREAMS, Hub, Stream
from daco.monitoring.service.middleware import new_session, same_token, session_cookie
from daco.monitoring.service.schemas import Health, Login, Problem, busy, failures

PAGE = Path(str(files("daco.monitoring.service") / "page"))

router = APIRouter()


class EventResponse(StreamingResponse):
    """A stream of the hub, closed when the answer ends for whatever reason."""

    def __init__(self, hub: Hub, stream: Stream) -> None:
        super().__init__(
            hub.read(stream),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._leave = partial(hub.leave, stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client or the service ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@router.get(
    "/v1/events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"example": "id: 1f-7\nevent: clip\ndata: {...}\n\n"}},
            "description": "`clip` and `alarm` as in the history, `machine` as in the list, "
            "`model` when a model file was added, changed, removed or found broken, and `reset` "
            "when missed events are no longer known.",
        },
        **failures(401, 503),
    },
)
async def events(
    request: Request, last_event_id: Annotated[str | None, Header(max_length=64)] = None
) -> StreamingResponse:
    """Server-sent events from now on, or after the last one that the client received."""
    service = service_of(request)
    hub = service.hub
    if hub.streams >= MOST_STREAMS:
        raise busy("Too many event streams. Try again later.")
    stream = hub.open(last_event_id)
    try:
        await service.feed.attend()
    except BaseException:
        hub.leave(stream)
        raise
    return EventResponse(hub, stream)


@router.get(
    "/healthz",
    response_model=Health,
    responses={503: {"model": Health, "description": "It runs, but cannot score; see `reason`."}},
)
async def health(request: Request, response: Response) -> dict[str, Any]:
    """200 when recordings can be scored and stored; needs no token and reveals nothing else.

    Any answer means that the process runs: restart it when there is none. 503 means that it
    cannot score now, without workers or without its database, and becomes 200 by itself.
    """
    reason = await service_of(request).readiness.obstacle()
    response.status_code = 200 if reason is None else 503
    return {"live": True, "ready": reason is None, "reason": reason}


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **failures(401)},
)
async def metrics(request: Request) -> Response:
    """Requests, latencies, queues, workers, clips."""
    text = service_of(request).metrics.text()
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@router.post("/login", status_code=204, response_class=Response, responses=failures(401, 403))
async def login(request: Request, body: Login) -> Response:
    """Exchange the token for a cookie that scripts cannot read."""
    token = service_of(request).settings.token
    if token is None:
        return Response(status_code=204)
    if not same_token(body.token, token):
        raise Problem(401, "The token is missing or wrong.")
    cookie = session_cookie(new_session(token), secure=request.url.scheme == "https")
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@router.post("/logout", status_code=204, response_class=Response, responses=failures(401, 403))
async def logout(request: Request) -> Response:
    """Have the browser forget the cookie."""
    cookie = session_cookie("", secure=request.url.scheme == "https", seconds=0)
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@router.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """The page; it holds no data, and asks for a token where one is needed."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})


def static_files() -> StaticFiles:
    """The page's scripts, styles and pictures."""
    return StaticFiles(directory=PAGE / "static")
