"""The service's side of its processes: a nursery that loads models, and the workers it forks."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from asyncio.subprocess import DEVNULL, Process, create_subprocess_exec
from dataclasses import asdict
from pathlib import Path
from typing import Any

from daco.service import wire
from daco.service.nursery import FORK
from daco.service.settings import Settings

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
    """The other side of `daco.service.nursery`: load models into it, then have workers forked."""

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
                    "daco.service.nursery",
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

    async def fork(self) -> Worker:
        """A new worker."""
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
        reader, writer = await asyncio.open_connection(sock=ours, limit=_BUFFER)
        return Worker(self, reader, writer)

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


class Worker:
    """The other side of `daco.service.worker`."""

    def __init__(
        self, nursery: Nursery, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.nursery = nursery
        self._reader, self._writer = reader, writer

    @property
    def is_gone(self) -> bool:
        """Its connection was closed from the other side."""
        return self._reader.at_eof() or self._writer.is_closing()

    async def do(self, header: dict[str, Any], payload: bytes, seconds: float) -> wire.Message:
        """The reply to a job."""
        try:
            async with asyncio.timeout(seconds + _GRACE):
                await wire.write(self._writer, header, payload)
                return await wire.read(self._reader)
        except TimeoutError:
            raise WorkerLostError(timed_out=True) from None
        except (OSError, EOFError):
            raise WorkerLostError(timed_out=False) from None

    def close(self) -> None:
        """Let the worker end."""
        self._writer.close()
