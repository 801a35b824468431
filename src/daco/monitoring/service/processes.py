"""The service's side of its processes: a nursery that loads models, and the workers it forks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from daco.monitoring.service import wire
from daco.monitoring.service.nursery import FORK
from daco.monitoring.service.settings import Settings

LOAD_SECONDS = 120.0
"""In which one model must be loaded."""

_GRACE = 2.0  # the kernel ends a worker at its limit; this is for the news of it to arrive
_BUFFER = 1 << 20
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


class WorkerLostError(Exception):
    """The worker died on the job, or did not answer in time."""

    def __init__(self, timed_out: bool) -> None:
        super().__init__("timed out" if timed_out else "died")
        self.timed_out = timed_out


class NurseryLostError(Exception):
    """The process that loads models and forks workers has ended."""


class Nursery:
    """The other side of the nursery: load models into it, then have workers forked."""

    def __init__(self, process: Process, control: socket.socket) -> None:
        self.process = process
        self._control = control
        self._turn = asyncio.Lock()

    @classmethod
    async def start(cls, settings: Settings, scratch: Path) -> Nursery:
        """A new process without any model."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        environment = {name: value for name, value in os.environ.items() if name != "DACO_TOKEN"}
        environment |= dict.fromkeys(_ONE_THREAD, "1")
        with theirs:
            try:
                process = await create_subprocess_exec(
                    sys.executable,
                    "-P",  # modules of the current folder are not ours
                    "-m",
                    "daco.monitoring.service.nursery",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    stdin=DEVNULL,
                    env=environment,
                )
            except BaseException:
                ours.close()
                raise
        nursery = cls(process, ours)
        limits = asdict(settings.audio_limits)
        await nursery._say(
            {
                "weights": dict(settings.weights),
                "seconds": settings.job_seconds,
                "memory": settings.job_memory,
                "audio_limits": limits,
                "scratch": str(scratch),
            }
        )
        return nursery

    async def load(self, machine: str, data: bytes) -> wire.Message:
        """What is in a model file, or ``{"error": reason}``."""
        return await self._ask({"id": machine}, data)

    async def open(self) -> None:
        """No more models: from now on workers are forked."""
        await self._ask({"done": True})

    async def fork(self, make: Callable[[], Worker]) -> Worker:
        """A new worker, as `make` makes it."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        for end in (ours, theirs):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        with theirs:
            try:
                socket.send_fds(self._control, [FORK], [theirs.fileno()])
            except OSError:
                ours.close()
                raise NurseryLostError from None
        _, worker = await asyncio.get_running_loop().create_connection(make, sock=ours)
        return worker

    @property
    def is_alive(self) -> bool:
        """The process has not ended."""
        return self.process.returncode is None

    async def end(self) -> None:
        """Let the process end; its workers go on until their connections are closed."""
        self._control.close()
        try:
            async with asyncio.timeout(_GRACE):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the process now."""
        self._control.close()
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()

    async def _ask(self, header: dict[str, Any], payload: bytes = b"") -> wire.Message:
        try:
            async with asyncio.timeout(LOAD_SECONDS), self._turn:
                await self._say(header, payload)
                return await self._hear()
        except (OSError, TimeoutError):
            await self.kill()
            raise NurseryLostError from None

    async def _say(self, header: dict[str, Any], payload: bytes = b"") -> None:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(self._control, wire.pack(header, len(payload)))
        await loop.sock_sendall(self._control, payload)

    async def _hear(self) -> wire.Message:
        loop, got = asyncio.get_running_loop(), bytearray()
        while (message := wire.parse(got)) is None:
            chunk = await loop.sock_recv(self._control, _BUFFER)
            if not chunk:
                raise ConnectionError
            got += chunk
        return message


@dataclass(eq=False)
class Job:
    """What a worker is asked, and the promise of its reply."""

    header: dict[str, Any]
    payload: bytes = field(repr=False)
    reply: asyncio.Future[wire.Message]
    tries: int = 0


class Worker(asyncio.Protocol):
    """The other side of `daco.monitoring.service.worker`: it has one job or none.

    Parameters
    ----------
    nursery : Nursery
        That it came from.
    seconds : float
        For a job; the kernel ends the worker then, and if not, the connection is given up.
    on_free : callable
        Called with the worker when it has answered. The next job can be given there and then: a
        busy event loop would otherwise leave it idle for several rounds.
    on_lost : callable
        Called with the worker when its connection has ended, unless it was closed from here.
    """

    def __init__(
        self,
        nursery: Nursery,
        seconds: float,
        on_free: Callable[[Worker], None],
        on_lost: Callable[[Worker], None],
    ) -> None:
        self.nursery = nursery
        self.job: Job | None = None
        self.done = 0
        self._seconds, self._on_free, self._on_lost = seconds, on_free, on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._started = 0.0
        self._watchdog: asyncio.TimerHandle | None = None
        self._got = bytearray()
        self._is_closed = False

    @property
    def is_out_of_time(self) -> bool:
        """Its job has had all the time a job may have."""
        return self.job is not None and self._loop.time() - self._started >= self._seconds

    def give(self, job: Job) -> None:
        """Have a job done."""
        assert self._transport is not None
        self.job, self._started = job, self._loop.time()
        self._watchdog = self._loop.call_later(self._seconds + _GRACE, self._transport.abort)
        self._transport.write(wire.pack(job.header, len(job.payload)))
        self._transport.write(job.payload)

    def close(self) -> None:
        """Let the worker end."""
        self._is_closed = True
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there; the process may still be starting."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some of a reply."""
        self._got += data
        message = wire.parse(self._got)
        if message is None or self.job is None:
            return
        self._got.clear()
        self._stop_watchdog()
        job, self.job = self.job, None
        self.done += 1
        if not job.reply.done():  # else nobody waits any more
            job.reply.set_result(message)
        self._on_free(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The worker has ended."""
        self._stop_watchdog()
        if not self._is_closed:
            self._on_lost(self)

    def _stop_watchdog(self) -> None:
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
