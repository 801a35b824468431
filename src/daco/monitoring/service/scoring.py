"""``POST /v1/machines/{id}/score``: a recording in, a committed verdict out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.requests import ClientDisconnect, Request

from daco.audio.formats import READABLE
from daco.monitoring.engine import NoModelError
from daco.monitoring.judge import JudgeTimeoutError, UnusableRecordingError, WorkerLostError
from daco.monitoring.service.context import Operator, Service, TheMachine, TheService
from daco.monitoring.service.guard import READ_SECONDS, client_address
from daco.monitoring.service.problems import Problem, busy, failures, in_utc, too_large
from daco.monitoring.service.schemas import OneClip
from daco.monitoring.service.shares import LONG, Client
from daco.monitoring.store.records import BusyError, ConflictError, Recording, StoreError

LONGEST_NAME = 200
UPLOADS = "http:"
"""Prefix of the uploads' keys among the store's sources."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_AUDIO = re.compile(r"audio/[a-z0-9.+-]{1,64}|application/(octet-stream|ogg|x-flac)", re.ASCII)
_KEY = r"^[!-~]{1,200}$"
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"A recording: {READABLE}, recognised by its content.",
        "content": {
            "audio/wav": _BINARY,
            "audio/flac": _BINARY,
            "application/octet-stream": _BINARY,
        },
    }
}

router = APIRouter(tags=["scoring"])


@router.post(
    "/v1/machines/{machine}/score",
    response_model=OneClip,
    responses=failures(400, 401, 403, 404, 408, 409, 413, 415, 421, 422, 429, 500, 503, 504),
    openapi_extra=_BODY,
)
async def score_recording(
    request: Request,
    service: TheService,
    machine: TheMachine,
    person: Operator,
    name: Annotated[str | None, Query(description="What to call the recording.")] = None,
    recorded_at: Annotated[
        datetime | None,
        Query(description="When it was recorded: ISO 8601, UTC where no zone is given."),
    ] = None,
    record: Annotated[
        bool, Query(description="false: a trial, which is judged and not stored.")
    ] = True,
    idempotency_key: Annotated[
        str | None,
        Header(pattern=_KEY, description="The same recording with the same key is stored once."),
    ] = None,
) -> dict[str, Any]:
    """Judge a recording; the verdict is in the database before it is answered.

    It may be sent again after 503 and 504. With an Idempotency-Key it is stored and counted once,
    however often it is sent; the same key with another recording is answered with 409.
    """
    _check_type(request)
    declared = request.headers.get("content-length", "")
    is_long = not declared.isdigit() or len(declared) > 12 or int(declared) > LONG
    client = Client(person.name, client_address(request), is_long)
    with service.admission.one(client) as reserve:
        data = await read_body(request, reserve, service.config.max_upload)
        recording = Recording(
            machine.id,
            display_name(name),
            data,
            source_key=None if idempotency_key is None else f"{UPLOADS}{idempotency_key}",
            recorded_at=None if recorded_at is None else in_utc(recorded_at),
        )
        async with service.turns.one(client):
            return {"clip": await _judge(service, recording, record=record)}


def _check_type(request: Request) -> None:
    """A Problem for a body that cannot be a recording; its format is told by its content."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "Send the recording as it is, without a Content-Encoding.")
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if not _AUDIO.fullmatch(given):
        raise Problem(
            415,
            "Send one recording as audio/wav, audio/flac or application/octet-stream; curl: "
            '-H "Content-Type: audio/wav".',
        )


async def read_body(request: Request, reserve: Callable[[int], None], most: int) -> bytes:
    """The body; a Problem as soon as it is too large or too slow."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        if len(declared) > 12 or int(declared) > most:
            raise too_large(most)
        reserve(int(declared))
    body = bytearray()
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > most:
                    raise too_large(most)
                reserve(len(body))
    except TimeoutError:
        late = f"The body did not arrive within {READ_SECONDS:g} s."
        raise Problem(408, late, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise Problem(400, "The connection ended before the body did.") from None
    return bytes(body)


def display_name(given: str | None) -> str:
    """A client's name for its recording, as text to show: no folders, no control characters."""
    text = _CONTROL.sub("", (given or "")[:4096]).replace("\\", "/").rsplit("/", 1)[-1].strip()
    return text[:LONGEST_NAME] or "upload"


async def _judge(service: Service, recording: Recording, *, record: bool) -> dict[str, Any]:
    """Judge a recording, store the verdict unless it is a trial, and return the clip."""
    try:
        return await service.judge(service.overview.judged, recording, record)
    except UnusableRecordingError as error:
        service.metrics.refused.labels("unusable").inc()
        reason = error.reason.rstrip(".")
        raise Problem(400, f"The recording cannot be used: {reason}.") from None
    except ConflictError:
        raise Problem(409, "This Idempotency-Key was used before for another recording.") from None
    except (BusyError, WorkerLostError, NoModelError, StoreError) as error:
        service.metrics.refused.labels("busy").inc()
        raise busy(_NOT_NOW[type(error)]) from None
    except JudgeTimeoutError:
        service.metrics.refused.labels("too long").inc()
        raise Problem(504, "Judging the recording took too long.") from None


_NOT_NOW: dict[type[Exception], str] = {
    BusyError: "The service is busy. Try again in a moment.",
    WorkerLostError: "The workers that judged the recording ended. Try again in a moment.",
    NoModelError: "The model of this machine cannot be used at the moment. Try again later.",
    StoreError: "The verdict could not be stored. Try again in a moment.",
}
