"""Recordings to listen to and to look at: kept clips, and the normals they resemble."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Request
from fastapi import Path as PathParameter
from starlette.responses import FileResponse, Response

from daco.monitoring.service.context import Service, service_of
from daco.monitoring.service.problems import as_responses, not_found
from daco.monitoring.service.recordings import find_normals, media_type_of
from daco.monitoring.service.routes.parameters import MachineId, RowId, Theme, machine_of

SAMPLE_RATE = 16000
"""Of pictures of clips whose machine has no network of its own."""

router = APIRouter(tags=["recordings"])

Index = Annotated[int, PathParameter(ge=0, le=1_000_000, description="Row of the normal.")]

_AUDIO: dict[int | str, dict[str, Any]] = {
    200: {"content": {"audio/wav": {}, "audio/flac": {}}, "description": "The recording."},
    206: {"description": "The part of it that a `Range` asked for."},
    416: {"description": "It has no such range."},
    **as_responses(401, 404, 422, 503),
}
_PICTURE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"image/png": {}}, "description": "Time to the right, mel bands upwards."},
    **as_responses(401, 404, 422, 503),
}
# What a clip sounds like never changes; only this browser may keep it.
_CACHED = {"Cache-Control": "private, max-age=3600"}
# A row of the model is another normal once the model has changed.
_NOT_CACHED = {"Cache-Control": "private, no-cache"}


@router.get(
    "/v1/clips/{clip_id}/audio",
    summary="A clip's recording",
    response_class=FileResponse,
    responses=_AUDIO,
)
def clip_audio(request: Request, clip_id: RowId) -> FileResponse:
    """The recording as it was uploaded, where it was kept; ranges are understood."""
    path, _ = _clip_recording(service_of(request), clip_id)
    return FileResponse(path, media_type=media_type_of(path), headers=_CACHED)


@router.get(
    "/v1/clips/{clip_id}/spectrogram.png",
    summary="A picture of a clip",
    response_class=Response,
    responses=_PICTURE,
)
async def clip_picture(request: Request, clip_id: RowId, theme: Theme = "light") -> Response:
    """The mel bands that the detector hears."""
    service = service_of(request)
    path, rate = await asyncio.to_thread(_clip_recording, service, clip_id)
    png = await service.gallery.spectrogram(path, theme=theme, sample_rate=rate)
    return Response(png, media_type="image/png", headers=_CACHED)


@router.get(
    "/v1/machines/{machine}/normals/{index}/audio",
    summary="A normal's recording",
    response_class=FileResponse,
    responses=_AUDIO,
)
def normal_audio(request: Request, machine: MachineId, index: Index) -> FileResponse:
    """A clip the model was made of, where the service was told where they lie.

    It is sent only if it holds what it held when the model was made.
    """
    path, _ = _normal_recording(service_of(request), machine, index)
    return FileResponse(path, media_type=media_type_of(path), headers=_NOT_CACHED)


@router.get(
    "/v1/machines/{machine}/normals/{index}/spectrogram.png",
    summary="A picture of a normal",
    response_class=Response,
    responses=_PICTURE,
)
async def normal_picture(
    request: Request, machine: MachineId, index: Index, theme: Theme = "light"
) -> Response:
    """The mel bands that the detector hears."""
    service = service_of(request)
    path, rate = await asyncio.to_thread(_normal_recording, service, machine, index)
    png = await service.gallery.spectrogram(path, theme=theme, sample_rate=rate)
    return Response(png, media_type="image/png", headers=_NOT_CACHED)


def _clip_recording(service: Service, clip_id: int) -> tuple[Path, int]:
    """Where a clip's recording lies, and the rate its machine hears at."""
    clip = service.store.clip(clip_id)
    if clip is None:
        raise not_found(f"There is no clip {clip_id}.")
    path = service.overview.recording_of(clip)
    if path is None or not path.is_file():
        keep = service.settings.keep_audio
        raise not_found(
            "The recording is not kept: "
            + {
                "alarms": "only those of anomalous clips are, and the oldest go first.",
                "all": "it was removed to make room for newer ones.",
                "none": "the service was told to keep none.",
            }[keep]
        )
    machine = service.registry.get(clip.machine)
    return path, (machine.sample_rate if machine else None) or SAMPLE_RATE


def _normal_recording(service: Service, machine: str, index: int) -> tuple[Path, int]:
    known = machine_of(service, machine)
    if index >= len(known.names):
        raise not_found(f"The model has {len(known.names)} normals, counted from 0.")
    folder = service.settings.normals
    if folder is None:
        raise not_found(
            "Where the normals lie was not said: start the service with --normals FOLDER."
        )
    if not known.sha256s[index]:
        raise not_found(
            "The model does not hold the hash of this recording, so that it cannot be told from "
            "another of the same name: fit the model again."
        )
    found = find_normals(folder, known.machine, known.names[index])
    if not found:
        raise not_found("The recording of this normal is not in the folder of the normals.")
    for path in found:
        if service.hashes.of(path) == known.sha256s[index]:
            return path, known.sample_rate or SAMPLE_RATE
    raise not_found(
        "The recording on disk is not the one in the model: it has the same name and other "
        "content. Put the normals of each machine into a folder with its name, within the folder "
        "of --normals."
    )
