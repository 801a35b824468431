"""The service's side of `model_server`: the process itself, and a bounded pool of its workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from daco.detector.verdict import Verdict
from daco.monitoring.service.schemas import Problem, busy, not_found
from daco.monitoring.service.settings import Settings

LOAD_SECONDS = 120.0
"""In which one model must be loaded."""

_GRACE = 2.0  # seconds after a job's limit in which the kernel must have ended the worker
_BUFFER = 1 << 20
_LARGEST_REPLY = 1 << 26
_LARGEST_DESCRIPTION = 1 << 30  # names and hashes of a million normals are 120 MB
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_VERDICT = TypeAdapter(Verdict)

Reply = tuple[dict[str, Any], bytes]

log = logging.getLogger("daco.monitoring.service")


class WorkerLostError(Exception):
    """The worker ended during the job, or did not answer in time."""

    def __init__(self, timed_out: bool) -> None:
        super().__init__("timed out" if timed_out else "ended")
        self.timed_out = timed_out


class ModelServerLostError(Exception):
    """The process that holds the models has ended."""


class _Channel:
    """A connection on which messages are exchanged in turn, each within `seconds`."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        # The kernel's timeouts: neither a write to nor a read from a stopped process may last.
        timeout = struct.pack("ll", int(seconds), int(seconds % 1 * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
        self.connection = Connection(sock.detach())

    def send(self, header: dict[str, Any], *data: bytes) -> None:
        for each in (json.dumps(header).encode(), *data):
            self.connection.send_bytes(each)

    def receive(self, most: int = _LARGEST_REPLY) -> Reply:
        header = self.connection.recv_bytes(most)
        return json.loads(header), self.connection.recv_bytes(most)

    @property
    def has_ended(self) -> bool:
        return self.connection.poll()  # there is something to read although nothing was asked

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.close()


class ModelServer:
    """A running `daco.monitoring.service.model_server`; its methods block."""

    def __init__(self, settings: Settings, scratch: Path) -> None:
        self._lock = threading.Lock()
        ours, theirs = socket.socketpair()
        environment = {name: value for name, value in os.environ.items() if name != "DACO_TOKEN"}
        # -P: modules of the current folder must not be imported.
        command = [sys.executable, "-P", "-m", "daco.monitoring.service.model_server"]
        with theirs:
            self.process = subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env=environment | dict.fromkeys(_ONE_THREAD, "1"),
            )
        self._channel = _Channel(ours, LOAD_SECONDS)
        self._channel.send(
            {
                "weights": dict(settings.weights),
                "seconds": settings.job_seconds,
                "memory": settings.job_memory,
                "audio_limits": asdict(settings.audio_limits),
                "scratch": str(scratch),
            }
        )

    @property
    def is_alive(self) -> bool:
        """The process has not ended."""
        return self.process.poll() is None

    def load(self, machine: str, data: bytes) -> dict[str, Any]:
        """Load or replace a model; its description, or ``{"error": reason}`` and no change."""
        with self._requesting():
            self._channel.send({"do": "load", "machine": machine}, data)
            return self._channel.receive(_LARGEST_DESCRIPTION)[0]

    def drop(self, machine: str) -> None:
        """Forget a machine's model."""
        with self._requesting():
            self._channel.send({"do": "drop", "machine": machine})

    def fork(self, seconds: float) -> _Channel:
        """A channel to a new worker whose jobs may take `seconds`."""
        ours, theirs = socket.socketpair()
        with theirs, ours, self._requesting():
            self._channel.send({"do": "fork"})
            with socket.socket(fileno=os.dup(self._channel.connection.fileno())) as control:
                socket.send_fds(control, [b"F"], [theirs.fileno()])
            return _Channel(ours, seconds + _GRACE)

    @contextlib.contextmanager
    def _requesting(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except (OSError, EOFError):
                self.end(0)
                raise ModelServerLostError from None

    def end(self, patience: float = _GRACE) -> None:
        """Let the process end; workers go on until their channels are closed."""
        self._channel.close()
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class WorkerPool:
    """Hands jobs to workers; jobs wait in a bounded queue, and lost workers are replaced.

    `waiting` jobs may wait for one of `size` workers; each may wait and take `seconds`.
    """

    def __init__(
        self, size: int, waiting: int, seconds: float, on_restart: Callable[[], None] = lambda: None
    ) -> None:
        self.size, self.restarts = size, 0
        self._waiting, self._seconds, self._on_restart = waiting, seconds, on_restart
        self._server: ModelServer | None = None
        self._generation = 0  # grows with every change of the models
        self._idle: list[tuple[int, _Channel]] = []
        self._lock = threading.Lock()
        self._jobs = 0
        # One thread per worker: a thread that runs finds an idle worker or forks one.
        self._threads = ThreadPoolExecutor(size, thread_name_prefix="worker")

    @property
    def busy(self) -> int:
        """Workers that do a job."""
        return min(self._jobs, self.size)

    @property
    def queued(self) -> int:
        """Jobs that wait for a worker."""
        return max(0, self._jobs - self.size)

    @property
    def is_ready(self) -> bool:
        """Workers can be forked."""
        return self._server is not None and self._server.is_alive

    @property
    def is_full(self) -> bool:
        """The next job would be refused."""
        return self._jobs >= self.size + self._waiting

    async def score(self, machine: str, name: str, data: bytes) -> tuple[Verdict, str]:
        """The verdict on a recording, and its SHA-256; a Problem if there is none."""
        try:
            reply, _ = await self._run({"do": "score", "machine": machine, "name": name}, data)
        except WorkerLostError as lost:
            if lost.timed_out:
                seconds = f"{self._seconds:g} s"
                raise Problem(504, f"Scoring the recording took longer than {seconds}.") from None
            raise Problem(502, "The workers that scored the recording ended.") from None
        if "error" in reply:
            raise Problem(400, f"The recording cannot be used: {reply['error']}")
        if "unknown" in reply:
            raise not_found(f"There is no machine {machine!r} any more.")
        if "verdict" not in reply:
            raise Problem(500, "The service failed on this recording. See its log.")
        return _VERDICT.validate_python(reply["verdict"]), str(reply["sha256"])

    async def draw(self, path: Path, theme: str, sample_rate: int) -> bytes:
        """The spectrogram of a recording on disk as PNG; a Problem if there is none."""
        job = {"do": "draw", "path": str(path), "theme": theme, "sample_rate": sample_rate}
        try:
            reply, png = await self._run(job, b"")
        except WorkerLostError:
            raise not_found("There is no picture: drawing it took too long.") from None
        if not png:
            raise not_found(f"There is no picture: {reply.get('error', 'drawing it failed.')}")
        return png

    async def normals(self, machine: str) -> list[dict[str, Any]]:
        """The normals of a machine's model, the most suspicious first."""
        try:
            reply, _ = await self._run({"do": "normals", "machine": machine}, b"")
        except WorkerLostError:
            raise Problem(504, "Comparing the normals took too long.") from None
        if "normals" not in reply:
            raise not_found(f"There is no machine {machine!r} any more.")
        return list(reply["normals"])

    async def _run(self, job: dict[str, Any], data: bytes) -> Reply:
        """The reply of the next free worker; busy if too many jobs wait, or this one too long."""
        if self.is_full:
            raise busy()
        self._count(1)
        future = self._threads.submit(self._do, job, data)
        future.add_done_callback(lambda _: self._count(-1))
        # Only a job that still waits can be cancelled.
        impatience = asyncio.get_running_loop().call_later(self._seconds, future.cancel)
        task = asyncio.current_task()
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if task is not None and task.cancelling():
                raise  # the client has gone
            raise busy() from None
        except ModelServerLostError:
            raise busy() from None  # the registry starts another within a second
        finally:
            impatience.cancel()

    def _count(self, change: int) -> None:
        with self._lock:
            self._jobs += change

    def _do(self, job: dict[str, Any], data: bytes) -> Reply:
        """Have a job done; if its worker ends, by one more worker."""
        for attempt in (1, 2):
            generation, channel = self._take(new=attempt == 2)
            started = time.monotonic()
            try:
                channel.send(job, data)
                reply = channel.receive()
            except (OSError, EOFError):
                self._retire(channel)
                timed_out = time.monotonic() - started >= self._seconds
                if timed_out or attempt == 2:
                    raise WorkerLostError(timed_out) from None
                continue
            if "ends" in reply[0]:
                self._retire(channel)
            else:
                self._put(generation, channel)
            break
        return reply

    def _take(self, *, new: bool = False) -> tuple[int, _Channel]:
        """An idle worker that is alive, or a new one."""
        while True:
            with self._lock:
                if new or not self._idle:
                    server, generation = self._server, self._generation
                    break
                idle = self._idle.pop()
            if not idle[1].has_ended:
                return idle
            self._retire(idle[1])
        if server is None:
            raise ModelServerLostError
        return generation, server.fork(self._seconds)

    def _put(self, generation: int, channel: _Channel) -> None:
        """Keep an idle worker for the next job, unless it has old models."""
        with self._lock:
            if generation == self._generation and len(self._idle) < self.size:
                self._idle.append((generation, channel))
                return
        channel.close()

    def _retire(self, channel: _Channel) -> None:
        channel.close()
        self.restarts += 1
        self._on_restart()
        log.warning("a worker ended and is replaced")

    def refill(self) -> None:
        """Replace idle workers that ended, and fork missing ones."""
        for generation, channel in self._clear_idle():
            if channel.has_ended:
                self._retire(channel)
            else:
                self._put(generation, channel)
        for _ in range(self.size - self.busy - len(self._idle)):
            self._put(*self._take(new=True))

    def use(self, server: ModelServer | None) -> None:
        """Fork workers with the server's present models; old workers take no more jobs."""
        with self._lock:
            self._server, self._generation = server, self._generation + 1
        for _, channel in self._clear_idle():
            channel.close()
        if server is not None:
            self.refill()

    def _clear_idle(self) -> list[tuple[int, _Channel]]:
        with self._lock:
            idle, self._idle = self._idle, []
        return idle

    def close(self) -> None:
        """End all workers and the model server."""
        self._threads.shutdown(cancel_futures=True)
        server = self._server
        self.use(None)
        if server is not None:
            server.end()
