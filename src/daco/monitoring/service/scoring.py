"""``POST /v1/machines/{id}/score``: a recording in, a committed verdict out."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Query, Request
from starlette.requests import ClientDisconnect

from daco.audio.formats import READABLE
from daco.errors import DacoError
from daco.monitoring.judge import JudgeTimeoutError, UnusableRecordingError
from daco.monitoring.service.access import client_address
from daco.monitoring.service.context import Operator, TheMachine, TheService, failures, in_utc
from daco.monitoring.service.guard import READ_SECONDS, too_large
from daco.monitoring.service.schemas import OneClip
from daco.monitoring.service.shares import LONG, Client
from daco.monitoring.store import Recording

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
        "content": dict.fromkeys(("audio/wav", "audio/flac", "application/octet-stream"), _BINARY),
    }
}

router = APIRouter(tags=["scoring"])


@router.post(
    "/v1/machines/{machine}/score",
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
) -> OneClip:
    """Judge a recording; the verdict is in the database before it is answered.

    It may be sent again after 503 and 504. With an Idempotency-Key it is stored and counted once,
    however often it is sent; the same key with another recording is answered with 409.
    """
    _check_type(request)
    declared = request.headers.get("content-length", "")
    size = int(declared[:20]) if declared.isascii() and declared.isdigit() else None
    is_long = size is None or size > LONG
    client = Client(person.name, client_address(request), is_long)
    try:
        with service.admission.one(client) as reserve:
            data = await _read_body(request, size, reserve, service.config.max_upload)
            recording = Recording(
                machine.id,
                display_name(name),
                data,
                source_key=None if idempotency_key is None else f"{UPLOADS}{idempotency_key}",
                recorded_at=in_utc(recorded_at),
            )
            async with service.turns.one(client):
                clip = await service.judge(service.overview.judged, recording, record)
                return OneClip(clip=clip)
    except DacoError as error:
        reasons = {UnusableRecordingError: "unusable", JudgeTimeoutError: "too long"}
        service.metrics.refused.labels(reasons.get(type(error), "busy")).inc()
        raise


def display_name(given: str | None) -> str:
    """A client's name for its recording, as text to show: no folders, no control characters."""
    text = _CONTROL.sub("", (given or "")[:4096]).replace("\\", "/").rsplit("/", 1)[-1].strip()
    return text[:LONGEST_NAME] or "upload"


def _check_type(request: Request) -> None:
    """Raise 415 for a body that cannot be a recording; its format is told by its content."""
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise HTTPException(415, "Send the recording as it is, without a Content-Encoding.")
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if not _AUDIO.fullmatch(given):
        raise HTTPException(
            415,
            "Send one recording as audio/wav, audio/flac or application/octet-stream; curl: "
            '-H "Content-Type: audio/wav".',
        )


async def _read_body(
    request: Request, size: int | None, reserve: Callable[[int], None], most: int
) -> bytes:
    """The body; 413 or 408 as soon as it is too large or too slow."""
    if (size or 0) > most:
        raise too_large(most)
    reserve(size or 0)
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
        raise HTTPException(408, late, {"Connection": "close"}) from None
    except ClientDisconnect:
        raise HTTPException(400, "The connection ended before the body did.") from None
    return bytes(body)
