"""``GET /v1/events``: what happens, as it happens."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Header, Request
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from daco.monitoring.service.context import service_of
from daco.monitoring.service.events import MOST_STREAMS, Hub, Stream
from daco.monitoring.service.problems import as_responses, busy

router = APIRouter(tags=["events"])


class EventResponse(StreamingResponse):
    """A stream of the hub, left when the answer ends, however that happens."""

    def __init__(self, hub: Hub, stream: Stream) -> None:
        super().__init__(
            hub.read(stream),
            media_type="text/event-stream",
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )
        self._leave = partial(hub.leave, stream)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events for as long as somebody listens."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


@router.get(
    "/v1/events",
    summary="Live events",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {"text/event-stream": {"example": "id: 1f-7\nevent: clip\ndata: {...}\n\n"}},
            "description": "`clip` and `alarm` as in the history, `machine` as in the list, "
            "`model` when a model file was added, changed, removed or found broken, and `reset` "
            "when what was missed is no longer known.",
        },
        **as_responses(401, 503),
    },
)
async def events(
    request: Request, last_event_id: Annotated[str | None, Header(max_length=64)] = None
) -> StreamingResponse:
    """Server-sent events from now on, or from the one that was seen last."""
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
