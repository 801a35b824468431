"""Routes for machines, clips, alarms, recordings, events, health and sessions, and the page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from daco.monitoring.service import schemas
from daco.monitoring.service.context import Service, TheMachine, TheService
from daco.monitoring.service.middleware import new_session, same_token, session_cookie
from daco.monitoring.service.overview import MOST_STREAMS, Hub, Stream
from daco.monitoring.service.recordings import MEDIA_TYPES, find_normals, sha256_of_recording
from daco.monitoring.service.registry import Machine
from daco.monitoring.service.schemas import Problem, busy, failures, not_found
from daco.monitoring.service.settings import MACHINE_ID

PAGE = Path(str(files("daco.monitoring.service") / "page"))
LARGEST_ID = 2**63 - 1
SAMPLE_RATE = 16000
"""Of pictures of clips whose machine has no network."""

reading = APIRouter(tags=["reading"], responses=failures(401, 404, 422, 503))
operation = APIRouter(tags=["operation"])

RowId = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]
Index = Annotated[int, PathParameter(ge=0, le=1_000_000, description="Row of the normal.")]
Theme = Annotated[Literal["light", "dark"], Query(description="Of the page it is shown on.")]
PageSize = Annotated[int, Query(ge=1, le=1000)]

_AUDIO: dict[int | str, dict[str, Any]] = {
    200: {"content": {"audio/wav": {}, "audio/flac": {}}, "description": "The recording."},
    206: {"description": "The part of it that a `Range` asked for."},
    416: {"description": "It has no such range."},
}
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {}}, "description": "Time to the right, mel bands upwards."}
}
_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {
        "content": {"text/event-stream": {"example": "id: 1f-7\nevent: clip\ndata: {...}\n\n"}},
        "description": "`clip` and `alarm` as in the history, `machine` as in the list, `model` "
        "when a model file was added, changed, removed or found broken, and `reset` when missed "
        "events are no longer known.",
    },
    **failures(401, 503),
}
_NOT_KEPT = {
    "alarms": "only those of anomalous clips are, and the oldest go first.",
    "all": "it was removed to make room for newer ones.",
    "none": "the service was started with --keep-audio none.",
}
# A clip's recording never changes; only this browser may keep it.
_CACHED = {"Cache-Control": "private, max-age=3600"}
# A row of the model is another normal once the model has changed.
_NOT_CACHED = {"Cache-Control": "private, no-cache"}


@reading.get("/v1/machines", response_model=schemas.Machines)
def list_machines(service: TheService) -> dict[str, Any]:
    """Every machine with its model, status, last clip, counts and drift; ordered by id."""
    problems = dict(service.registry.snapshot.problems)
    return {"machines": service.overview.machines(), "problems": problems}


@reading.get("/v1/machines/{machine}/history", response_model=schemas.History)
def list_clips(
    service: TheService,
    machine: TheMachine,
    limit: PageSize = 100,
    before: Annotated[
        int | None, Query(ge=1, le=LARGEST_ID, description="The `next` of the last page.")
    ] = None,
    since: Annotated[
        datetime | None,
        Query(description="ISO 8601; UTC where no zone is given.", examples=["2026-03-01T00:00Z"]),
    ] = None,
) -> dict[str, Any]:
    """A page of clips, the newest first."""
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    page = service.store.clips(machine.id, limit, before=before, since=since)
    return {
        "clips": [service.overview.clip(clip) for clip in page],
        "next": page[-1].id if len(page) == limit else None,
    }


@reading.get("/v1/clips/{clip_id}", response_model=schemas.OneClip)
def read_clip(service: TheService, clip_id: RowId) -> dict[str, Any]:
    """A stored clip."""
    stored = service.store.clip(clip_id)
    if stored is None:
        raise not_found(f"There is no clip {clip_id}.")
    return {"clip": service.overview.clip(stored)}


@reading.get("/v1/alarms", response_model=schemas.Alarms)
def list_alarms(
    service: TheService,
    machine: Annotated[
        str | None, Query(pattern=f"^{MACHINE_ID.pattern}$", description="Only of this machine.")
    ] = None,
    open_only: Annotated[
        bool, Query(alias="open", description="Only alarms that are not closed.")
    ] = False,
    limit: PageSize = 100,
    before: Annotated[
        int | None, Query(ge=1, le=LARGEST_ID, description="Only with a smaller id.")
    ] = None,
) -> dict[str, Any]:
    """Alarms, the newest first."""
    page = service.store.alarms(machine, open_only=open_only, limit=limit, before=before)
    return {"alarms": [alarm.to_dict() for alarm in page]}


@reading.get("/v1/clips/{clip_id}/audio", response_class=FileResponse, responses=_AUDIO)
def clip_audio(service: TheService, clip_id: RowId) -> FileResponse:
    """The recording as it was uploaded, where it was kept; ranges are supported."""
    path, _ = _clip_recording(service, clip_id)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_CACHED)


@reading.get("/v1/clips/{clip_id}/spectrogram.png", response_class=Response, responses=_PICTURE)
async def clip_picture(service: TheService, clip_id: RowId, theme: Theme = "light") -> Response:
    """The mel bands that the detector uses."""
    path, rate = await asyncio.to_thread(_clip_recording, service, clip_id)
    return await _picture(service, path, theme, rate, _CACHED)


@reading.get("/v1/machines/{machine}/normals", response_model=schemas.Normals)
async def list_normals(
    service: TheService,
    machine: TheMachine,
    limit: PageSize = 20,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """A page of the model's normals, the most suspicious first.

    `row` is that of `/normals/{index}`; `p_value` the share of the domain's normals that score as
    high as this one; `warning` says what is suspicious. `daco update --remove` removes one.
    """
    rows = await service.pool.normals(machine.id)
    end = offset + limit
    page = rows[offset:end]
    return {"normals": page, "total": len(rows), "next": end if end < len(rows) else None}


@reading.get(
    "/v1/machines/{machine}/normals/{index}/audio", response_class=FileResponse, responses=_AUDIO
)
def normal_audio(service: TheService, machine: TheMachine, index: Index) -> FileResponse:
    """A clip of the model, where the service was started with the folder of the normals.

    It is sent only if its content is the same as when the model was made.
    """
    path = _normal_recording(service, machine, index)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_NOT_CACHED)


@reading.get(
    "/v1/machines/{machine}/normals/{index}/spectrogram.png",
    response_class=Response,
    responses=_PICTURE,
)
async def normal_picture(
    service: TheService, machine: TheMachine, index: Index, theme: Theme = "light"
) -> Response:
    """The mel bands that the detector uses."""
    path = await asyncio.to_thread(_normal_recording, service, machine, index)
    return await _picture(service, path, theme, machine.sample_rate or SAMPLE_RATE, _NOT_CACHED)


async def _picture(
    service: Service, path: Path, theme: str, rate: int, headers: dict[str, str]
) -> Response:
    try:
        changed_ns = (await asyncio.to_thread(path.stat)).st_mtime_ns
    except OSError:
        raise not_found("The recording is no longer there.") from None
    png = await service.spectrograms.get(path, changed_ns, theme, rate)
    return Response(png, media_type="image/png", headers=headers)


def _clip_recording(service: Service, clip_id: int) -> tuple[Path, int]:
    """The path of a clip's recording, and the sample rate of its machine's network."""
    clip = service.store.clip(clip_id)
    if clip is None:
        raise not_found(f"There is no clip {clip_id}.")
    path = service.overview.recording_of(clip)
    if path is None or not path.is_file():
        reason = _NOT_KEPT[service.settings.keep_audio]
        raise not_found(f"The recording is not kept: {reason}")
    machine = service.registry.get(clip.machine)
    return path, (machine.sample_rate if machine else None) or SAMPLE_RATE


def _normal_recording(service: Service, machine: Machine, index: int) -> Path:
    if index >= len(machine.names):
        raise not_found(f"The model has {len(machine.names)} normals, counted from 0.")
    folder = service.settings.normals
    if folder is None:
        raise not_found(
            "The service does not know the folder of the normals: start it with --normals FOLDER."
        )
    if not machine.sha256s[index]:
        raise not_found(
            "The model does not hold the hash of this recording, so that it cannot be told from "
            "another of the same name: fit the model again."
        )
    candidates = find_normals(folder, machine.machine, machine.names[index])
    if not candidates:
        raise not_found("The recording of this normal is not in the folder of the normals.")
    for path in candidates:
        if sha256_of_recording(path) == machine.sha256s[index]:
            return path
    raise not_found(
        "The recording on disk is not the one in the model: it has the same name and other "
        "content. Put the normals of each machine into a folder with its name, within the folder "
        "of --normals."
    )


class EventResponse(StreamingResponse):
    """A stream of the hub, closed when the answer ends for whatever reason."""

    def __init__(self, hub: Hub, stream: Stream) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(hub.read(stream), media_type="text/event-stream", headers=headers)
        self._hub, self._stream = hub, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the client or the service ends."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._hub.leave(self._stream)


@operation.get("/v1/events", response_class=StreamingResponse, responses=_EVENTS)
async def events(
    service: TheService, last_event_id: Annotated[str | None, Header(max_length=64)] = None
) -> StreamingResponse:
    """Server-sent events from now on, or after the last one that the client received."""
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


@operation.get(
    "/healthz",
    response_model=schemas.Health,
    responses={
        503: {"model": schemas.Health, "description": "It runs, but cannot score; see `reason`."}
    },
)
async def health(service: TheService, response: Response) -> dict[str, Any]:
    """200 when recordings can be scored and stored; needs no token and reveals nothing else.

    Any answer means that the process runs: restart it when there is none. 503 means that it
    cannot score now, without workers or without its database, and becomes 200 by itself.
    """
    reason = await service.obstacle()
    response.status_code = 200 if reason is None else 503
    return {"live": True, "ready": reason is None, "reason": reason}


@operation.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **failures(401)},
)
async def metrics(service: TheService) -> Response:
    """Requests, latencies, queues, workers, clips."""
    content_type = "text/plain; version=0.0.4; charset=utf-8"
    return Response(service.metrics.text(), media_type=content_type)


@operation.post("/login", status_code=204, response_class=Response, responses=failures(401, 403))
async def login(request: Request, service: TheService, body: schemas.Login) -> Response:
    """Exchange the token for a cookie that scripts cannot read."""
    token = service.settings.token
    if token is None:
        return Response(status_code=204)
    if not same_token(body.token, token):
        raise Problem(401, "The token is missing or wrong.")
    cookie = session_cookie(new_session(token), secure=request.url.scheme == "https")
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@operation.post("/logout", status_code=204, response_class=Response, responses=failures(401, 403))
async def logout(request: Request) -> Response:
    """Have the browser forget the cookie."""
    cookie = session_cookie("", secure=request.url.scheme == "https", seconds=0)
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@operation.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """The page; it holds no data, and asks for a token where one is needed."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})
