"""The parts of a running service, what routes are given, and failures as sentences."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, HTTPException, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from daco.audio.formats import DEFAULT_LIMITS
from daco.errors import InputError
from daco.monitoring.engine import NoModelError, Plant
from daco.monitoring.judge import JudgeTimeoutError, UnusableRecordingError, WorkerLostError
from daco.monitoring.metrics import Metrics
from daco.monitoring.service.access import Access, may
from daco.monitoring.service.connections import Connections
from daco.monitoring.service.overview import Overview
from daco.monitoring.service.schemas import Detail
from daco.monitoring.service.shares import Admission, Turns
from daco.monitoring.service.sounds import picture
from daco.monitoring.store import BusyError, MissingRowError, Person, Store, StoreError
from daco.monitoring.tables import MachineConfig, Role

LARGEST_ID = 2**63 - 1

FRESH_SECONDS, ANSWER_SECONDS = 1.0, 2.0
"""How long the answer of a database check is used again, and in which it must arrive."""

MOST_PICTURES = 128
"""Spectrograms that are kept."""

LATER = {"Retry-After": "1"}
"""Headers of an answer after which the same request may succeed."""

log = logging.getLogger("daco.monitoring.service")

_MEANINGS = {
    400: "The request cannot be done; `detail` says why.",
    401: "The token is missing or wrong.",
    403: "The role does not allow it, or the request comes from another site's page.",
    404: "It does not exist, or is no longer kept.",
    408: "The body took too long to arrive.",
    409: "It cannot be done now: the alarm is over, or the key was used for another recording.",
    413: "The body is too large.",
    415: "The body is not of a type that can be a recording.",
    421: "The service is not known under this host name.",
    422: "A parameter is not of the right form.",
    429: "Too many wrong tokens came from the address; try again after `Retry-After` seconds.",
    500: "The service failed on this recording; see its log.",
    503: "The service is busy, or the model or the database cannot be used at the moment; try again"
    " after `Retry-After` seconds.",
    504: "Judging the recording took too long. It may be sent again.",
}

FAILURES: dict[type[Exception], tuple[int, str]] = {
    UnusableRecordingError: (400, "The recording cannot be used: {error}."),
    MissingRowError: (404, "{error}."),
    InputError: (409, "{error}."),
    BusyError: (503, "The service is busy. Try again in a moment."),
    WorkerLostError: (503, "The workers that did this ended. Try again in a moment."),
    NoModelError: (503, "The model of this machine cannot be used at the moment."),
    StoreError: (503, "The database cannot be used at the moment."),
    JudgeTimeoutError: (504, "It took too long. Try again."),
}
"""What is answered where a part of the plant fails; neither paths nor hosts are named."""


def failures(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the OpenAPI document describes failures with these statuses."""
    return {status: {"description": _MEANINGS[status], "model": Detail} for status in statuses}


async def answer_failure(request: Request, error: Exception) -> JSONResponse:
    """The answer for an error of `FAILURES` or a class derived from one."""
    kind = next(each for each in type(error).__mro__ if each in FAILURES)
    status, sentence = FAILURES[kind]
    detail = sentence.format(error=str(error).rstrip("."))
    return JSONResponse({"detail": detail}, status, LATER if status >= 500 else None)


async def answer_invalid(request: Request, error: Exception) -> JSONResponse:
    """Name the wrong parameter in a sentence, without repeating what was sent."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"][1:] if isinstance(part, str | int))
    return JSONResponse({"detail": f"{where[:80] or 'body'}: {first['msg'][:200]}."}, 422)


class Service:
    """The plant behind HTTP; made in the event loop."""

    def __init__(self, plant: Plant, access: Access, connections: Connections) -> None:
        self.plant, self.access, self.connections = plant, access, connections
        self.config = plant.config.service
        workers = self.config.workers
        self.admission, self.turns = Admission(), Turns(workers)
        self.overview = Overview(plant)
        self.metrics = Metrics(plant)
        gauge = self.metrics.add_gauge
        gauge("daco_uploads", "Uploads being received or judged.", lambda: self.admission.uploads)
        gauge("daco_upload_bytes", "Bytes they hold.", lambda: self.admission.bytes)
        gauge("daco_connections", "Open connections.", lambda: connections.total)
        self._judging = ThreadPoolExecutor(2 * workers + 2, "judging")
        # One picture at a time takes little from judging.
        self._drawing = ThreadPoolExecutor(1, "drawing")
        self._picture = lru_cache(MOST_PICTURES)(
            lambda path, changed_ns, rate: plant.judge.call(picture, path, rate, DEFAULT_LIMITS)
        )
        self._check: asyncio.Task[None] | None = None
        self._checked_at = -FRESH_SECONDS
        self._store_failed = False
        self.is_ending = False

    @property
    def store(self) -> Store:
        """The store of the plant."""
        return self.plant.store

    def close(self) -> None:
        """End the threads."""
        self._judging.shutdown()
        self._drawing.shutdown()

    async def judge(self, function: Callable[..., Any], *values: Any) -> Any:
        """Run a function that waits for the workers in a thread of its own kind."""
        return await asyncio.get_running_loop().run_in_executor(self._judging, function, *values)

    async def draw(self, path: Path, sample_rate: int) -> dict[str, Any]:
        """The spectrogram of a recording on disk, as `schemas.Picture`."""
        loop, changed_ns = asyncio.get_running_loop(), path.stat().st_mtime_ns
        return await loop.run_in_executor(
            self._drawing, self._picture, path, changed_ns, sample_rate
        )

    async def obstacle(self) -> str | None:
        """Why recordings cannot be judged now, without naming a path, a host or a database.

        However often it is asked, the database is written by one thread at a time.
        """
        if self.is_ending:
            return "The service is ending."
        if time.monotonic() - self._checked_at >= FRESH_SECONDS:
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._check_database())
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.shield(self._check)
            except TimeoutError:  # the check goes on, and the next request waits for the same
                return f"The database did not answer within {ANSWER_SECONDS:g} s."
        return "The database cannot be used." if self._store_failed else None

    async def _check_database(self) -> None:
        failed = False
        try:
            await asyncio.to_thread(self.store.check)
        except StoreError as error:
            failed = True
            if not self._store_failed:
                log.error("not ready: %s", error)
        if self._store_failed and not failed:
            log.info("ready: the database can be used again")
        self._store_failed, self._checked_at = failed, time.monotonic()


async def _service_of(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(_service_of)]
"""A parameter of a route: the service."""

_MACHINE_ID = PathParameter(
    pattern=r"^[\w.-]{1,100}$", description="The machine's name in daco.toml.", examples=["press"]
)


async def _machine_of(service: TheService, machine: Annotated[str, _MACHINE_ID]) -> MachineConfig:
    known = service.plant.config.machine.get(machine)
    if known is None:
        raise HTTPException(404, f"There is no machine {machine!r}.")
    return known


TheMachine = Annotated[MachineConfig, Depends(_machine_of)]
"""A parameter of a route: the machine in its path."""

RowId = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]


def _require(role: Role) -> Any:
    async def person_of(request: Request) -> Person:
        person: Person = request.scope["daco.person"]
        if not may(person, role):
            raise HTTPException(403, f"This needs the role {role}; {person.name} is {person.role}.")
        return person

    return Depends(person_of)


Viewer = Annotated[Person, _require("viewer")]
Operator = Annotated[Person, _require("operator")]
Administrator = Annotated[Person, _require("administrator")]
"""Parameters of a route: who asks; a failure where their role does not allow it."""


def in_utc(time: datetime | None) -> datetime | None:
    """A time in UTC, which is taken for one without a zone."""
    try:
        return time and (time if time.tzinfo else time.replace(tzinfo=UTC)).astimezone(UTC)
    except OverflowError:  # at the ends of the years 1 and 9999
        raise HTTPException(422, "There is no such time in UTC.") from None
