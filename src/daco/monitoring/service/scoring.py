"""``POST /v1/machines/{id}/score``: a recording in, a committed verdict out.

Bodies are read within bounds of size, time and memory, as one recording or as a form with several.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Header, Query
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from daco.audio.formats import READABLE
from daco.detector.verdict import Verdict
from daco.errors import DataError
from daco.monitoring.adaptation import Calibration
from daco.monitoring.service.context import UPLOADS, Service, TheMachine, TheService
from daco.monitoring.service.schemas import OneClip, Problem, ScoredClips, busy, failures, too_large
from daco.monitoring.store import NewClip, StoreError

LONGEST_NAME = 200
MOST_FILES = 16
MOST_FIELDS = 64
FORM = "multipart/form-data"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_AUDIO = re.compile(r"audio/[a-z0-9.+-]{1,64}|application/(octet-stream|ogg|x-flac)", re.ASCII)
_KEY = re.compile(r"[!-~]{1,200}", re.ASCII)
_REFUSED = {400: "unusable", 500: "failed", 502: "worker lost", 503: "busy", 504: "worker lost"}
_BINARY = {"type": "string", "format": "binary"}
_FILES = {"type": "array", "maxItems": MOST_FILES, "items": _BINARY}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _FILES}}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": f"A recording: {READABLE}, recognised by its content.",
        "content": {
            "audio/wav": {"schema": _BINARY},
            "audio/flac": {"schema": _BINARY},
            "application/octet-stream": {"schema": _BINARY},
            FORM: {"schema": _FORM},
        },
    }
}

log = logging.getLogger("daco.monitoring.service")

router = APIRouter(tags=["scoring"])


class Upload(NamedTuple):
    """A recording as it was sent, and the sender's name for it."""

    name: str
    data: bytes


@router.post(
    "/v1/machines/{machine}/score",
    response_model=OneClip | ScoredClips,
    responses=failures(400, 401, 403, 404, 408, 409, 413, 415, 500, 502, 503, 504),
    openapi_extra=_BODY,
)
async def score_recording(
    request: Request,
    service: TheService,
    machine: TheMachine,
    name: Annotated[str | None, Query(description="What to call the recording.")] = None,
    idempotency_key: Annotated[
        str | None,
        Header(description="The same key with the same recording is stored and counted once."),
    ] = None,
) -> dict[str, Any]:
    """Judge a recording; the verdict is in the database before it is answered.

    A form with several files is answered with `clips` and `refused`, where `retry` says which
    files to send again, under another Idempotency-Key or all files under the same one; if all
    fail with the same status, with that status. Anything else is answered with `clip`. A single
    recording may be sent again after 502, 503 and 504.
    """
    media = media_type(request)
    if idempotency_key is not None and not _KEY.fullmatch(idempotency_key):
        raise Problem(400, "An Idempotency-Key is 1 to 200 printable characters, no spaces.")
    settings = service.settings
    with service.admission.one() as reserve:
        body = read_body(request, reserve, most=settings.max_body, seconds=settings.read_seconds)
        if media == FORM:
            uploads = await read_form(request, body, name)
        else:
            chunks = [chunk async for chunk in body]
            uploads = [Upload(display_name(name), b"".join(chunks))]
        if len(uploads) == 1:
            return {"clip": await _judge(service, machine.id, uploads[0], idempotency_key)}
        return await _judge_all(service, machine.id, uploads, idempotency_key)


def media_type(request: Request) -> str:
    """The declared type of a body that can hold recordings; a Problem for any other.

    It only tells forms from recordings, whose format is recognised by their content.
    """
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "Send the recording as it is, without a Content-Encoding.")
    given = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if given != FORM and not _AUDIO.fullmatch(given):
        raise Problem(
            415,
            "Send the recording as audio/wav, audio/flac, application/octet-stream or the field "
            '"file" of multipart/form-data; curl: -H "Content-Type: audio/wav".',
        )
    return given


async def read_body(
    request: Request, reserve: Callable[[int], None], *, most: int, seconds: float
) -> AsyncGenerator[bytes, None]:
    """The body in pieces; a Problem as soon as it is too large or too slow."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit():
        if len(declared) > 18 or int(declared) > most:
            raise too_large(most)
        reserve(int(declared))
    size, loop = 0, asyncio.get_running_loop()
    deadline = loop.time() + seconds
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(deadline):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            late = f"The body did not arrive within {seconds:g} s."
            raise Problem(408, late, {"Connection": "close"}) from None
        except ClientDisconnect:
            raise Problem(400, "The connection ended before the body did.") from None
        size += len(chunk)
        if size > most:
            raise too_large(most)
        reserve(size)
        yield chunk


class _FormParser(MultiPartParser):
    """Starlette's parser; files stay in memory, which `Admission` bounds."""

    spool_max_size = 1 << 31
    ended = False

    def on_end(self) -> None:
        self.ended = True


async def read_form(
    request: Request, body: AsyncGenerator[bytes, None], name: str | None
) -> list[Upload]:
    """The files in the fields ``file`` of a form; other fields are ignored."""

    async def whole_body() -> AsyncGenerator[bytes, None]:
        async for chunk in body:
            yield chunk
        if not parser.ended:
            raise Problem(400, "The form was cut off.")

    parser = _FormParser(
        request.headers, whole_body(), max_files=MOST_FILES, max_fields=MOST_FIELDS
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Problem(413 if "Too many" in error.message else 400, error.message) from None
    files = [each for each in form.getlist("file") if isinstance(each, UploadFile)]
    uploads = [Upload(display_name(each.filename), await each.read()) for each in files]
    await form.close()
    if not uploads:
        raise Problem(400, 'The form has no file. Put the recordings into fields named "file".')
    if name is not None and len(uploads) == 1:
        return [Upload(display_name(name), uploads[0].data)]
    return uploads


def display_name(given: str | None) -> str:
    """A client's name for its recording, as text to show: no folders, no control characters."""
    text = _CONTROL.sub("", (given or "")[:4096]).replace("\\", "/").rsplit("/", 1)[-1].strip()
    return text[:LONGEST_NAME] or "upload"


async def _judge_all(
    service: Service, machine: str, uploads: list[Upload], key: str | None
) -> dict[str, Any]:
    """One after the other, so that a form takes no more of the workers than a single file.

    Once the service is busy, the rest is not tried: each could wait as long as a job may.
    """
    clips: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    problems: list[Problem] = []
    for number, (name, data) in enumerate(uploads):
        try:
            if problems and problems[-1].status == 503:
                raise problems[-1]
            one_key = None if key is None else f"{key}#{number}"
            clips.append(await _judge(service, machine, Upload(name, data), one_key))
        except Problem as problem:
            problems.append(problem)
            answer = {"status": problem.status, "detail": problem.detail, "retry": problem.retry}
            refused.append({"name": name, **answer})
    if not clips and len({problem.status for problem in problems}) == 1:
        raise problems[0]
    return {"clips": clips, "refused": refused}


async def _judge(service: Service, machine: str, upload: Upload, key: str | None) -> dict[str, Any]:
    """Score a recording, store the verdict, and return the clip."""
    try:
        verdict, sha256 = await service.pool.score(machine, upload.name, upload.data)
    except Problem as problem:
        if problem.status in _REFUSED:
            service.metrics.refused.labels(_REFUSED[problem.status]).inc()
        raise
    known, calibration = service.registry.get(machine), None
    if service.settings.adapt and known and known.model_sha256 == verdict.model_sha256:
        calibration = Calibration(known.reference, known.false_alarm_rate)
    new = NewClip(
        verdict,
        machine,
        datetime.now(UTC),
        source_key=None if key is None else f"{UPLOADS}{key}",
        audio_sha256=sha256,
        calibration=calibration,
    )
    try:
        if calibration:
            verdict = await asyncio.to_thread(service.store.preview, new)
        new = replace(new, audio_path=await _keep(service, verdict, sha256, upload.data))
        added = await service.writer.add(new)
    except StoreError:
        service.metrics.refused.labels("not stored").inc()
        raise busy("The verdict could not be stored. Try again in a moment.") from None
    if added is None:
        clip = await asyncio.to_thread(service.store.clip_of, machine, str(new.source_key))
        if clip is None:
            raise Problem(409, "This recording was scored before and is no longer kept.")
        return await asyncio.to_thread(service.overview.clip, clip)
    service.metrics.count_clip(machine, added.verdict.alarm)
    stored = replace(new, verdict=added.verdict).stored_as(added.clip_id)
    return service.overview.clip(stored, alarm_id=added.opened)


async def _keep(service: Service, verdict: Verdict, sha256: str, data: bytes) -> str | None:
    """The name under which the recording is kept, if the settings say so."""
    keep = service.settings.keep_audio
    if service.recordings is None or not (keep == "all" or (keep == "alarms" and verdict.alarm)):
        return None
    try:
        return await asyncio.to_thread(service.recordings.keep, sha256, data)
    except DataError as error:  # a full disk must not stop the alarms
        log.error("a recording could not be kept: %s", error)
        return None
