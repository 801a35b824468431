"""The parts of a running service, and what routes ask for: the machine and the person."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, Request
from fastapi import Path as PathParameter

from daco.audio.formats import DEFAULT_LIMITS
from daco.errors import InputError
from daco.monitoring.config import MachineConfig
from daco.monitoring.engine import Plant
from daco.monitoring.metrics import Metrics
from daco.monitoring.service.access import Access, Role, may
from daco.monitoring.service.connections import Connections
from daco.monitoring.service.overview import Overview
from daco.monitoring.service.pictures import picture
from daco.monitoring.service.problems import Problem, busy, not_found
from daco.monitoring.service.shares import Admission, Turns
from daco.monitoring.store import MissingRowError, Person, Store, StoreError
from daco.monitoring.store.people import People

LARGEST_ID = 2**63 - 1

FRESH_SECONDS, ANSWER_SECONDS = 1.0, 2.0
"""How long the answer of a database check is used again, and in which it must arrive."""

READING_THREADS = 6
MOST_PICTURES = 128
"""Threads that read from the database, and spectrograms that are kept."""

log = logging.getLogger("daco.monitoring.service")


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
        self._reading = ThreadPoolExecutor(READING_THREADS, "reading")
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

    @property
    def people(self) -> People:
        """What people do."""
        return self.plant.store.people

    def close(self) -> None:
        """End the threads."""
        for threads in (self._judging, self._reading, self._drawing):
            threads.shutdown()

    async def judge(self, function: Callable[..., Any], *values: Any) -> Any:
        """Run a function that waits for the workers in a thread of its own kind."""
        return await asyncio.get_running_loop().run_in_executor(self._judging, function, *values)

    async def draw(self, path: Path, sample_rate: int) -> dict[str, Any]:
        """The spectrogram of a recording on disk, as `schemas.Picture`."""
        loop, changed_ns = asyncio.get_running_loop(), path.stat().st_mtime_ns
        return await loop.run_in_executor(
            self._drawing, self._picture, path, changed_ns, sample_rate
        )

    async def run(self, function: Callable[..., Any], *values: Any, **named: Any) -> Any:
        """Run a function in a thread; what it says about the request is answered as it is."""
        call = (lambda: function(*values, **named)) if named else (lambda: function(*values))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, call)
        except StoreError:
            raise busy("The database cannot be used at the moment.") from None
        except MissingRowError as error:
            raise not_found(str(error)) from None
        except InputError as error:
            raise Problem(409, str(error)) from None

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


def service_of(request: Request) -> Service:
    """The service that a request is for."""
    service: Service = request.app.state.service
    return service


TheService = Annotated[Service, Depends(service_of)]
"""A parameter of a route: the service."""


async def machine_of(
    service: TheService,
    machine: Annotated[
        str,
        PathParameter(
            pattern=r"^[\w.-]{1,100}$",
            description="The machine's name in daco.toml.",
            examples=["press"],
        ),
    ],
) -> MachineConfig:
    """The machine in a request's path; a Problem if there is none."""
    known = service.plant.config.machine.get(machine)
    if known is None:
        raise not_found(f"There is no machine {machine!r}.")
    return known


TheMachine = Annotated[MachineConfig, Depends(machine_of)]
"""A parameter of a route: the machine in its path."""

RowId = Annotated[int, PathParameter(ge=1, le=LARGEST_ID)]


def _require(role: Role) -> Callable[[Request], Person]:
    def person_of(request: Request) -> Person:
        person: Person = request.scope["daco.person"]
        if not may(person, role):
            raise Problem(403, f"This needs the role {role}; {person.name} is {person.role}.")
        return person

    return person_of


Viewer = Annotated[Person, Depends(_require("viewer"))]
Operator = Annotated[Person, Depends(_require("operator"))]
Administrator = Annotated[Person, Depends(_require("administrator"))]
"""Parameters of a route: who asks; a Problem where their role does not allow it."""
