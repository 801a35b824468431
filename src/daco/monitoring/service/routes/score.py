"""``POST /v1/machines/{id}/score``: a recording in, a committed verdict out."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import JSONResponse

from daco.audio.formats import READABLE
from daco.detector.verdict import Verdict
from daco.errors import DataError
from daco.monitoring.service.context import UPLOADS, Service, service_of
from daco.monitoring.service.pool import OverloadedError
from daco.monitoring.service.problems import Problem, as_responses, busy, not_found
from daco.monitoring.service.processes import WorkerLostError
from daco.monitoring.service.routes.parameters import MachineId, machine_of
from daco.monitoring.service.schemas import Scored, ScoredMany
from daco.monitoring.service.uploads import Upload, media_type, read_body, recordings_of
from daco.monitoring.store import NewClip, StoredClip, StoreError

router = APIRouter(tags=["scoring"])

_KEY = re.compile(r"[!-~]{1,200}", re.ASCII)
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"A recording: {READABLE}, told by its content.",
        "content": {
            "audio/wav": _BINARY,
            "audio/flac": _BINARY,
            "application/octet-stream": _BINARY,
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {
                        "file": {
                            "type": "array",
                            "maxItems": 16,
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                }
            },
        },
    }
}

log = logging.getLogger("daco.monitoring.service")


@router.post(
    "/v1/machines/{machine}/score",
    summary="Score a recording",
    response_model=Scored | ScoredMany,
    responses=as_responses(400, 401, 403, 404, 408, 409, 413, 415, 500, 502, 503, 504),
    openapi_extra=_BODY,
)
async def score(
    request: Request,
    machine: MachineId,
    name: Annotated[str | None, Query(description="What to call the recording.")] = None,
    idempotency_key: Annotated[
        str | None,
        Header(description="The same key with the same recording is stored and counted once."),
    ] = None,
) -> JSONResponse:
    """Judge a recording; the verdict is in the database before it is answered.

    A form with several files is answered with `clips` and `refused`, where `retry` says which
    files to send again, under another Idempotency-Key or all files under the same one; if all
    fail with the same status, with that status. Anything else is answered with `clip`. A single
    recording may be sent again after 502, 503 and 504.
    """
    service = service_of(request)
    machine_of(service, machine)
    media = media_type(request)
    if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
        raise Problem(400, "An Idempotency-Key is 1 to 200 printable characters, no spaces.")
    with service.admission.one() as share:
        body = await read_body(
            request, share, most=service.settings.max_body, seconds=service.settings.read_seconds
        )
        uploads = recordings_of(request, media, body, name)
        del body
        if len(uploads) == 1:
            clip = await _judge(service, machine, uploads[0], idempotency_key)
            return JSONResponse({"clip": clip})
        return JSONResponse(await _judge_all(service, machine, uploads, idempotency_key))


async def _judge_all(
    service: Service, machine: str, uploads: list[Upload], key: str | None
) -> dict[str, Any]:
    """One after the other, so that a form takes no more of the workers than a single file.

    Once the service is busy, the rest is not tried: each could wait as long as a job may.
    """
    clips: list[dict[str, Any]] = []
    refused: list[tuple[Upload, Problem]] = []
    for number, upload in enumerate(uploads):
        if refused and refused[-1][1].status == 503:
            refused.append((upload, refused[-1][1]))
            continue
        try:
            one_key = None if key is None else f"{key}#{number}"
            clips.append(await _judge(service, machine, upload, one_key))
        except Problem as problem:
            refused.append((upload, problem))
    if not clips and len({problem.status for _, problem in refused}) == 1:
        raise refused[0][1]
    return {
        "clips": clips,
        "refused": [
            {
                "name": upload.name,
                "status": problem.status,
                "detail": problem.detail,
                "retry": problem.retry,
            }
            for upload, problem in refused
        ],
    }


async def _judge(service: Service, machine: str, upload: Upload, key: str | None) -> dict[str, Any]:
    """A recording's clip, once it is stored."""
    verdict, sha256 = await _verdict(service, machine, upload)
    received_at = datetime.now(UTC)
    path = await _keep(service, verdict, sha256, upload.data)
    source = None if key is None else f"{UPLOADS}{key}"
    try:
        added = await service.writer.add(
            NewClip(
                verdict,
                machine,
                received_at,
                source_key=source,
                audio_sha256=sha256,
                audio_path=path,
            )
        )
    except StoreError:
        service.metrics.refused.labels("not stored").inc()
        raise busy("The verdict could not be stored. Try again in a moment.") from None
    if added is None:
        return await asyncio.to_thread(_stored_before, service, machine, str(source))
    service.metrics.scored(machine, verdict.alarm)
    stored = StoredClip(
        **{**vars(verdict), "machine": machine},
        id=added.clip_id,
        received_at=received_at,
        recorded_at=None,
        audio_sha256=sha256,
        audio_path=path,
    )
    return service.overview.clip(stored, alarm_id=added.opened)


async def _verdict(service: Service, machine: str, upload: Upload) -> tuple[Verdict, str]:
    job = {"job": "score", "machine": machine, "name": upload.name}
    refused = service.metrics.refused
    try:
        said, _ = await service.pool.do(job, upload.data)
    except OverloadedError:
        refused.labels("busy").inc()
        raise busy() from None
    except WorkerLostError as lost:
        refused.labels("worker lost").inc()
        if lost.timed_out:
            seconds = f"{service.settings.job_seconds:g} s"
            raise Problem(504, f"Listening to the recording took longer than {seconds}.") from None
        raise Problem(502, "The workers that listened to the recording ended.") from None
    if "error" in said:
        refused.labels("unusable").inc()
        raise Problem(400, f"The recording cannot be used: {said['error']}")
    if "gone" in said:
        raise not_found(f"There is no machine {machine!r} any more.")
    if "verdict" not in said:
        refused.labels("failed").inc()
        raise Problem(500, "The service failed on this recording. Its log says more.")
    reasons = tuple(said["verdict"]["reasons"])
    return Verdict(**{**said["verdict"], "reasons": reasons}), said["sha256"]


async def _keep(service: Service, verdict: Verdict, sha256: str, data: bytes) -> str | None:
    """The name under which the recording is kept, if it is to be."""
    keep = service.settings.keep_audio
    if service.recordings is None or not (keep == "all" or (keep == "alarms" and verdict.alarm)):
        return None
    try:
        return await asyncio.to_thread(service.recordings.keep, sha256, data)
    except DataError as error:  # a full disk must not stop the alarms
        log.error("a recording could not be kept: %s", error)
        return None


def _stored_before(service: Service, machine: str, source: str) -> dict[str, Any]:
    clip = service.store.clip_of(machine, source)
    if clip is None:
        raise Problem(409, "This recording was scored before and is no longer kept.")
    return service.overview.clip(clip)
