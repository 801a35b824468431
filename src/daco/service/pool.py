"""Workers handed out to jobs: a bounded queue, and a new worker for each that died."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from daco.service import wire
from daco.service.processes import Nursery, NurseryLostError, Worker, WorkerLostError

log = logging.getLogger("daco.service")


class OverloadedError(Exception):
    """As many jobs are waiting as may wait."""


class Pool:
    """So many workers of the current nursery; jobs wait their turn in a bounded queue."""

    def __init__(
        self,
        size: int,
        waiting: int,
        seconds: float,
        on_restart: Callable[[], None] = lambda: None,
    ) -> None:
        self.size = size
        self.restarts = 0
        self._most_waiting = waiting
        self._seconds = seconds
        self._on_restart = on_restart
        self._nursery: Nursery | None = None
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._waiting: deque[asyncio.Future[Worker]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def queued(self) -> int:
        """Jobs that wait for a worker."""
        return len(self._waiting)

    @property
    def busy(self) -> int:
        """Workers at work."""
        return len(self._busy)

    @property
    def is_ready(self) -> bool:
        """There is a worker."""
        return bool(self._idle or self._busy)

    @property
    def is_full(self) -> bool:
        """The next job would be refused."""
        return not self._idle and len(self._waiting) >= self._most_waiting

    async def do(self, header: dict[str, Any], payload: bytes = b"") -> wire.Message:
        """Have a job done by the next free worker.

        A worker may die for reasons of its own, so that the job is given to one more.

        Raises
        ------
        OverloadedError
            At once, if too many jobs are waiting.
        WorkerLostError
            Two workers died on the job, or the time for it was over.
        """
        try:
            return await self._do_once(header, payload)
        except WorkerLostError as lost:
            if lost.timed_out:
                raise
        return await self._do_once(header, payload)

    async def _do_once(self, header: dict[str, Any], payload: bytes) -> wire.Message:
        worker = await self._take()
        started = asyncio.get_running_loop().time()
        try:
            reply = await worker.do(header, payload, self._seconds)
        except WorkerLostError as lost:
            self._bury(worker)
            elapsed = asyncio.get_running_loop().time() - started
            raise WorkerLostError(lost.timed_out or elapsed >= self._seconds) from None
        except BaseException:
            self._bury(worker)  # it is still at work for nobody
            raise
        self._busy.discard(worker)
        self._give(worker)
        return reply

    async def adopt(self, nursery: Nursery) -> None:
        """Go over to the workers of another nursery.

        From here on no job begins with an old worker; those at work finish what they have.
        """
        fresh = [await nursery.fork() for _ in range(self.size)]
        old, self._nursery = self._nursery, nursery
        retired, self._idle = self._idle, []
        for worker in retired:
            worker.close()
        for worker in fresh:
            self._give(worker)
        if old is not None:
            self._in_background(old.end())

    def replace_the_dead(self) -> None:
        """Replace workers that died while they had nothing to do."""
        dead = [worker for worker in self._idle if worker.is_gone]
        self._idle = [worker for worker in self._idle if not worker.is_gone]
        for worker in dead:
            self._bury(worker)

    async def close(self) -> None:
        """Let all workers and the nursery end."""
        nursery, self._nursery = self._nursery, None
        for worker in (*self._idle, *self._busy):
            worker.close()
        self._idle = []
        for waiting in self._waiting:
            waiting.cancel()
        if nursery is not None:
            await nursery.end()
        await asyncio.gather(*self._tasks)

    async def _take(self) -> Worker:
        while self._idle:
            worker = self._idle.pop()
            if not worker.is_gone:
                self._busy.add(worker)
                return worker
            self._bury(worker)
        if len(self._waiting) >= self._most_waiting:
            raise OverloadedError
        turn: asyncio.Future[Worker] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(self._seconds):
                return await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # given, but too late to be taken
                self._busy.discard(turn.result())
                self._give(turn.result())
            if isinstance(error, TimeoutError):
                raise OverloadedError from None
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)

    def _give(self, worker: Worker) -> None:
        """A free worker to whoever waits longest."""
        if worker.nursery is not self._nursery:
            worker.close()
            return
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                self._busy.add(worker)
                turn.set_result(worker)
                return
        self._idle.append(worker)

    def _bury(self, worker: Worker) -> None:
        """Close a worker's connection and have another forked in its place."""
        self._busy.discard(worker)
        worker.close()
        if worker.nursery is not self._nursery or self._nursery is None:
            return
        self.restarts += 1
        self._on_restart()
        log.warning("a worker ended and is replaced")
        self._in_background(self._fork(self._nursery))

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fork(self, nursery: Nursery) -> None:
        try:
            self._give(await nursery.fork())
        except NurseryLostError:
            log.error("the process that forks workers has ended")  # the registry starts another
