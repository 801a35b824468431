"""Routes for machines, clips, alarms, changes, sounds, health and sessions, and the page."""

from __future__ import annotations

from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, Response

from daco.errors import AudioError
from daco.monitoring.config import MachineConfig
from daco.monitoring.models import ModelInUse
from daco.monitoring.service import schemas
from daco.monitoring.service.access import SESSION_SECONDS
from daco.monitoring.service.context import (
    LARGEST_ID,
    Administrator,
    RowId,
    Service,
    TheMachine,
    TheService,
    Viewer,
)
from daco.monitoring.service.guard import COOKIE, is_secure, person_of_token, session_cookie
from daco.monitoring.service.problems import Problem, busy, failures, in_utc, not_found
from daco.monitoring.service.sounds import MEDIA_TYPES, normal_recording

PAGE = Path(str(files("daco.monitoring.service") / "page"))
SAMPLE_RATE = 16000
"""Of pictures of clips whose machine has no model."""

reading = APIRouter(tags=["reading"], responses=failures(401, 403, 404, 421, 422, 429, 503))
operation = APIRouter(tags=["operation"])

Index = Annotated[int, PathParameter(ge=0, le=1_000_000, description="Row of the model.")]
PageSize = Annotated[int, Query(ge=1, le=1000)]
Before = Annotated[
    int | None, Query(ge=1, le=LARGEST_ID, description="Only smaller ids: the `next` of a page.")
]
Time = Annotated[datetime | None, Query(description="ISO 8601; UTC where no zone is given.")]

_AUDIO: dict[int | str, dict[str, Any]] = {
    200: {"content": {"audio/wav": {}, "audio/flac": {}}, "description": "The recording."},
    206: {"description": "The part of it that a `Range` asked for."},
    416: {"description": "It has no such range."},
}
_CSV: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}}}, "description": "The table."}
}
_NOT_KEPT = {
    "anomalous": "only recordings that sound different are, and the oldest go first.",
    "all": "it was removed to make room for newer ones.",
    "none": "keep_audio is none in daco.toml.",
}
# A clip's recording never changes; only this browser may keep it.
_CACHED = {"Cache-Control": "private, max-age=3600"}
# A row of the model is another recording once the model has changed.
_NOT_CACHED = {"Cache-Control": "private, no-cache"}


@reading.get("/v1/machines", response_model=schemas.Machines)
async def list_machines(service: TheService, _: Viewer) -> dict[str, Any]:
    """Every machine with its status, last clip, counts and problems; in the order of daco.toml."""
    last = (await service.run(service.store.changes)).last
    return {"machines": await service.run(service.overview.machines), "last": last}


@reading.get("/v1/changes", response_model=schemas.Changes)
async def list_changes(
    service: TheService,
    _: Viewer,
    after: Annotated[int, Query(ge=0, le=LARGEST_ID, description="The `last` of an answer.")],
) -> dict[str, Any]:
    """The clips, alarms and machines that have changed after a number."""
    return await service.run(service.overview.changes, after)


@reading.get("/v1/machines/{machine}/history", response_model=schemas.History)
async def list_clips(
    service: TheService,
    machine: TheMachine,
    _: Viewer,
    limit: PageSize = 100,
    before: Before = None,
    since: Time = None,
    until: Time = None,
) -> dict[str, Any]:
    """A page of clips, the last received first; with `since` or `until` the last recorded."""
    span = {"since": since and in_utc(since), "until": until and in_utc(until)}
    return await service.run(service.overview.history, machine.id, limit, before=before, **span)


@reading.get("/v1/machines/{machine}/history.csv", response_class=Response, responses=_CSV)
async def export_clips(
    service: TheService, machine: TheMachine, _: Viewer, since: Time = None, until: Time = None
) -> Response:
    """The last 10,000 clips of a time as a table for spreadsheets, the last recorded first."""
    span = {"since": since and in_utc(since), "until": until and in_utc(until)}
    table = await service.run(service.overview.table, machine.id, **span)
    name = {"Content-Disposition": f'attachment; filename="{quote(machine.id)}.csv"'}
    return Response(table, media_type="text/csv; charset=utf-8", headers=name)


@reading.get("/v1/machines/{machine}/trend", response_model=schemas.Trend)
async def read_trend(
    service: TheService,
    machine: TheMachine,
    _: Viewer,
    period: Literal["hour", "day"] = "day",
    since: Time = None,
    until: Time = None,
) -> dict[str, Any]:
    """Oddness and counts by hour or day of recording (UTC), and the notes of people."""
    span = (since and in_utc(since), until and in_utc(until))
    return {
        "points": await service.run(service.store.trend, machine.id, period, *span),
        "notes": await service.run(service.store.notes, machine.id),
    }


@reading.get("/v1/clips/{clip_id}", response_model=schemas.OneClip)
async def read_clip(service: TheService, clip_id: RowId, _: Viewer) -> dict[str, Any]:
    """A stored clip."""
    clip = await _clip(service, clip_id)
    return {"clip": await service.run(service.overview.clip, clip)}


@reading.get("/v1/alarms", response_model=schemas.Alarms)
async def list_alarms(
    service: TheService,
    _: Viewer,
    machine: Annotated[
        str | None, Query(pattern=r"^[\w.-]{1,100}$", description="Only of this machine.")
    ] = None,
    open_only: Annotated[
        bool, Query(alias="open", description="Without those that are over and acknowledged.")
    ] = False,
    limit: PageSize = 100,
    before: Before = None,
) -> dict[str, Any]:
    """Alarms, the newest first."""
    page = {"listed_only": open_only, "limit": limit, "before": before}
    return {"alarms": await service.run(service.store.alarms, machine, **page)}


@reading.get("/v1/clips/{clip_id}/audio", response_class=FileResponse, responses=_AUDIO)
async def clip_audio(service: TheService, clip_id: RowId, _: Viewer) -> FileResponse:
    """The recording as it arrived, where it was kept; ranges are supported."""
    path = await _clip_recording(service, clip_id)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_CACHED)


@reading.get("/v1/clips/{clip_id}/picture", response_model=schemas.Picture)
async def clip_picture(
    service: TheService, clip_id: RowId, _: Viewer, response: Response
) -> dict[str, Any]:
    """The spectrogram of a recording, as numbers."""
    clip = await _clip(service, clip_id)
    path = await _clip_recording(service, clip_id)
    machine = service.plant.config.machine.get(clip.machine)
    model = await service.run(service.plant.models.get, machine.id) if machine else None
    response.headers.update(_CACHED)
    return await _picture(service, path, model)


@reading.get("/v1/machines/{machine}/normals", response_model=schemas.Normals)
async def list_normals(
    service: TheService,
    machine: TheMachine,
    _: Viewer,
    limit: PageSize = 20,
    offset: Annotated[int, Query(ge=0, le=1_000_000)] = 0,
) -> dict[str, Any]:
    """A page of the model's healthy recordings, the most suspicious first.

    `row` is that of `/normals/{index}`; `p_value` the share of the condition's recordings that
    score as high; `warning` says what is suspicious. `daco update --remove` removes one.
    """
    rows = await service.judge(service.plant.judge.normals, await _model(service, machine))
    end = offset + limit
    page = rows[offset:end]
    return {"normals": page, "total": len(rows), "next": end if end < len(rows) else None}


@reading.get(
    "/v1/machines/{machine}/normals/{index}/audio", response_class=FileResponse, responses=_AUDIO
)
async def normal_audio(
    service: TheService, machine: TheMachine, index: Index, _: Viewer
) -> FileResponse:
    """A healthy recording of the model, where `healthy` is set for the machine in daco.toml.

    It is sent only if its content is the same as when the model was made.
    """
    model = await _model(service, machine)
    path = await service.run(normal_recording, machine, model, index)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_NOT_CACHED)


@reading.get("/v1/machines/{machine}/normals/{index}/picture", response_model=schemas.Picture)
async def normal_picture(
    service: TheService, machine: TheMachine, index: Index, _: Viewer
) -> dict[str, Any]:
    """The spectrogram of a healthy recording, as numbers."""
    model = await _model(service, machine)
    path = await service.run(normal_recording, machine, model, index)
    return await _picture(service, path, model)


@reading.get("/v1/audit", response_model=schemas.Audit)
async def list_audit(
    service: TheService, _: Administrator, limit: PageSize = 100, before: Before = None
) -> dict[str, Any]:
    """Who did what, the newest first."""
    return {"entries": await service.run(service.store.audit, limit, before)}


async def _clip(service: Service, clip_id: int) -> Any:
    clip = await service.run(service.store.clip, clip_id)
    if clip is None:
        raise not_found(f"There is no clip {clip_id}.")
    return clip


async def _clip_recording(service: Service, clip_id: int) -> Path:
    path = await service.run(service.plant.audio, await _clip(service, clip_id))
    if path is None or path.suffix.lower() not in MEDIA_TYPES:
        reason = _NOT_KEPT[service.config.keep_audio]
        raise not_found(f"The recording is not kept: {reason}")
    return path


async def _model(service: Service, machine: MachineConfig) -> ModelInUse:
    model = await service.judge(service.plant.models.get, machine.id)
    if model is None:
        raise busy("The model of this machine cannot be used at the moment.")
    return model


async def _picture(service: Service, path: Path, model: ModelInUse | None) -> dict[str, Any]:
    rate = (model.info.sample_rate if model else None) or SAMPLE_RATE
    try:
        return await service.draw(path, rate)
    except AudioError as error:
        raise Problem(404, f"There is no picture of this recording: {error.reason}") from None
    except FileNotFoundError:
        raise not_found("The recording is no longer there.") from None


@operation.get("/v1/session", response_model=schemas.Session, responses=failures(401, 421, 429))
async def read_session(service: TheService, who: Viewer) -> dict[str, Any]:
    """Who asks: the name of the token, and its role."""
    return {"name": who.name, "role": who.role, "needs_token": not service.access.is_open}


@operation.get(
    "/healthz",
    response_model=schemas.Health,
    responses={
        503: {"model": schemas.Health, "description": "It runs, but cannot judge; see `reason`."},
        **failures(421, 429, 401),
    },
)
async def health(service: TheService, response: Response) -> dict[str, Any]:
    """200 when recordings can be judged and stored; needs no token and reveals nothing else.

    It writes to the database. Any answer means that the process runs: restart it when there is
    none. 503 means that it cannot work now and becomes 200 by itself.
    """
    reason = await service.obstacle()
    response.status_code = 200 if reason is None else 503
    return {"live": True, "ready": reason is None, "reason": reason}


@operation.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **failures(401, 403, 421, 429, 503)},
)
async def metrics(service: TheService, _: Viewer) -> Response:
    """Numbers for Prometheus: each machine's state, oddness, age and alarms; queues; requests."""
    text = await service.run(service.metrics.text)
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


@operation.post(
    "/login",
    status_code=204,
    response_class=Response,
    responses=failures(400, 401, 403, 408, 413, 421, 422, 429),
)
async def login(request: Request, service: TheService, body: schemas.Login) -> Response:
    """Exchange a token for a session: a cookie that scripts cannot read."""
    if service.access.is_open:
        return Response(status_code=204)
    person = person_of_token(service.access, request, body.token)
    secret = service.access.open_session(person)
    cookie = session_cookie(secret, secure=is_secure(request), seconds=SESSION_SECONDS)
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@operation.post(
    "/logout", status_code=204, response_class=Response, responses=failures(401, 403, 421, 429)
)
async def logout(request: Request, service: TheService) -> Response:
    """End the session; its cookie is worth nothing any more."""
    service.access.close_session(request.cookies.get(COOKIE, ""))
    cookie = session_cookie("", secure=is_secure(request), seconds=0)
    return Response(status_code=204, headers={"Set-Cookie": cookie})


@operation.get("/", include_in_schema=False)
async def page() -> FileResponse:
    """The page; it holds no data, and asks for a token where one is needed."""
    return FileResponse(PAGE / "index.html", headers={"Cache-Control": "no-cache"})
