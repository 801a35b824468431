"""Routes that read: machines, clips, alarms, recordings and spectrograms; and acknowledging."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, Response

from daco.errors import InputError
from daco.monitoring.service import schemas
from daco.monitoring.service.context import MachineId, Service, machine_of, service_of
from daco.monitoring.service.recordings import MEDIA_TYPES, find_normals, sha256_of_recording
from daco.monitoring.service.schemas import Problem, failures, not_found
from daco.monitoring.service.settings import MACHINE_ID

LARGEST_ID = 2**63 - 1
SAMPLE_RATE = 16000
"""Of pictures of clips whose machine has no network."""

router = APIRouter(responses=failures(401, 404, 422, 503))

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
_NOT_KEPT = {
    "alarms": "only those of anomalous clips are, and the oldest go first.",
    "all": "it was removed to make room for newer ones.",
    "none": "the service was started with --keep-audio none.",
}
# A clip's recording never changes; only this browser may keep it.
_CACHED = {"Cache-Control": "private, max-age=3600"}
# A row of the model is another normal once the model has changed.
_NOT_CACHED = {"Cache-Control": "private, no-cache"}


@router.get("/v1/machines", response_model=schemas.Machines)
def list_machines(request: Request) -> dict[str, Any]:
    """Every machine with its model, status, last clip, counts and drift; ordered by id."""
    service = service_of(request)
    problems = dict(service.registry.snapshot.problems)
    return {"machines": service.overview.machines(), "problems": problems}


@router.get("/v1/machines/{machine}/history", response_model=schemas.History)
def list_clips(
    request: Request,
    machine: MachineId,
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
    service = service_of(request)
    machine_of(service, machine)
    if since is not None and since.tzinfo is None:
        since = since.replace(tzinfo=UTC)
    page = service.store.clips(machine, limit, before=before, since=since)
    return {
        "clips": [service.overview.clip(clip) for clip in page],
        "next": page[-1].id if len(page) == limit else None,
    }


@router.get("/v1/clips/{clip_id}", response_model=schemas.OneClip)
def read_clip(request: Request, clip_id: RowId) -> dict[str, Any]:
    """A stored clip."""
    service = service_of(request)
    stored = service.store.clip(clip_id)
    if stored is None:
        raise not_found(f"There is no clip {clip_id}.")
    return {"clip": service.overview.clip(stored)}


@router.get("/v1/alarms", response_model=schemas.Alarms)
def list_alarms(
    request: Request,
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
    """schemas.Alarms, the newest first."""
    store = service_of(request).store
    page = store.alarms(machine, open_only=open_only, limit=limit, before=before)
    return {"alarms": [alarm.to_dict() for alarm in page]}


@router.post(
    "/v1/alarms/{alarm_id}/acknowledge",
    response_model=schemas.Acknowledged,
    responses=failures(400, 403),
)
async def acknowledge(
    request: Request, alarm_id: RowId, body: schemas.Acknowledgement
) -> dict[str, Any]:
    """Record who takes care of it; an open alarm is closed, and a new one needs new clips."""
    service = service_of(request)
    if await asyncio.to_thread(service.store.alarm, alarm_id) is None:
        raise not_found(f"There is no alarm {alarm_id}.")
    try:
        alarm = await asyncio.to_thread(
            service.store.acknowledge, alarm_id, body.by.strip(), body.comment
        )
    except InputError as error:
        raise Problem(400, str(error)) from None
    service.feed.wake()
    return {"alarm": alarm.to_dict()}


@router.get("/v1/clips/{clip_id}/audio", response_class=FileResponse, responses=_AUDIO)
def clip_audio(request: Request, clip_id: RowId) -> FileResponse:
    """The recording as it was uploaded, where it was kept; ranges are supported."""
    path, _ = _clip_recording(service_of(request), clip_id)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_CACHED)


@router.get("/v1/clips/{clip_id}/spectrogram.png", response_class=Response, responses=_PICTURE)
async def clip_picture(request: Request, clip_id: RowId, theme: Theme = "light") -> Response:
    """The mel bands that the detector uses."""
    service = service_of(request)
    path, rate = await asyncio.to_thread(_clip_recording, service, clip_id)
    return await _picture(service, path, theme, rate, _CACHED)


@router.get(
    "/v1/machines/{machine}/normals/{index}/audio", response_class=FileResponse, responses=_AUDIO
)
def normal_audio(request: Request, machine: MachineId, index: Index) -> FileResponse:
    """A clip of the model, where the service was started with the folder of the normals.

    It is sent only if its content is the same as when the model was made.
    """
    path, _ = _normal_recording(service_of(request), machine, index)
    return FileResponse(path, media_type=MEDIA_TYPES[path.suffix.lower()], headers=_NOT_CACHED)


@router.get(
    "/v1/machines/{machine}/normals/{index}/spectrogram.png",
    response_class=Response,
    responses=_PICTURE,
)
async def normal_picture(
    request: Request, machine: MachineId, index: Index, theme: Theme = "light"
) -> Response:
    """The mel bands that the detector uses."""
    service = service_of(request)
    path, rate = await asyncio.to_thread(_normal_recording, service, machine, index)
    return await _picture(service, path, theme, rate, _NOT_CACHED)


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


def _normal_recording(service: Service, machine: str, index: int) -> tuple[Path, int]:
    known = machine_of(service, machine)
    if index >= len(known.names):
        raise not_found(f"The model has {len(known.names)} normals, counted from 0.")
    folder = service.settings.normals
    if folder is None:
        raise not_found(
            "The service does not know the folder of the normals: start it with --normals FOLDER."
        )
    if not known.sha256s[index]:
        raise not_found(
            "The model does not hold the hash of this recording, so that it cannot be told from "
            "another of the same name: fit the model again."
        )
    candidates = find_normals(folder, known.machine, known.names[index])
    if not candidates:
        raise not_found("The recording of this normal is not in the folder of the normals.")
    for path in candidates:
        if sha256_of_recording(path) == known.sha256s[index]:
            return path, known.sample_rate or SAMPLE_RATE
    raise not_found(
        "The recording on disk is not the one in the model: it has the same name and other "
        "content. Put the normals of each machine into a folder with its name, within the folder "
        "of --normals."
    )
