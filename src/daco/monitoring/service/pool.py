"""Workers handed out to jobs: a bounded queue, and a new worker for each that died."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from daco.monitoring.service import wire
from daco.monitoring.service.processes import (
    Job,
    Nursery,
    NurseryLostError,
    Worker,
    WorkerLostError,
)

_PAUSE = 1.0  # before a worker that never did anything is replaced: the next may do no better

log = logging.getLogger("daco.monitoring.service")


class OverloadedError(Exception):
    """As many jobs are waiting as may wait, or this one has waited too long."""


class Pool:
    """So many workers of the current nursery; jobs wait their turn in a bounded queue.

    Parameters
    ----------
    size : int
        Workers.
    waiting : int
        Jobs that may wait for one.
    seconds : float
        That a job may take, and that it may wait.
    on_restart : callable
        Called for each worker that died and is replaced.
    """

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
        self._waiting: deque[Job] = deque()
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
        if self.is_full:
            raise OverloadedError
        loop = asyncio.get_running_loop()
        job = Job(header, payload, loop.create_future())
        if self._idle:
            self._assign(self._idle.pop(), job)
        else:
            self._waiting.append(job)
        impatience = loop.call_later(self._seconds, self._give_up, job)
        try:
            return await job.reply
        finally:
            impatience.cancel()
            if job in self._waiting:  # whoever asked has gone before its turn
                self._waiting.remove(job)

    async def adopt(self, nursery: Nursery) -> None:
        """Go over to the workers of another nursery.

        From here on no job begins with an old worker; those at work finish what they have.
        """
        fresh = [await self._fork(nursery) for _ in range(self.size)]
        old, self._nursery = self._nursery, nursery
        retired, self._idle = self._idle, []
        for worker in retired:
            worker.close()
        for worker in fresh:
            self._free(worker)
        if old is not None:
            self._in_background(old.end())

    async def close(self) -> None:
        """Let all workers and the nursery end."""
        nursery, self._nursery = self._nursery, None
        unfinished = [worker.job for worker in self._busy if worker.job] + list(self._waiting)
        for worker in (*self._idle, *self._busy):
            worker.close()
        self._idle = []
        for job in unfinished:
            job.reply.cancel()
        if nursery is not None:
            await nursery.end()
        await asyncio.gather(*self._tasks)

    def _assign(self, worker: Worker, job: Job) -> None:
        self._busy.add(worker)
        worker.give(job)

    def _free(self, worker: Worker) -> None:
        """A worker without a job takes the one that waits longest."""
        self._busy.discard(worker)
        if worker.nursery is not self._nursery:
            worker.close()
        elif self._waiting:
            self._assign(worker, self._waiting.popleft())
        else:
            self._idle.append(worker)

    def _lost(self, worker: Worker) -> None:
        """A worker died: its job goes to another, once, and another takes its place."""
        self._busy.discard(worker)
        if worker in self._idle:
            self._idle.remove(worker)
        job = worker.job
        if job is not None and not job.reply.done():
            if worker.is_out_of_time or job.tries:
                job.reply.set_exception(WorkerLostError(worker.is_out_of_time))
            else:
                job.tries += 1
                self._retry(job)
        if self._nursery is not None and worker.nursery is self._nursery:
            self.restarts += 1
            self._on_restart()
            log.warning("a worker ended and is replaced")
            self._in_background(self._replace(self._nursery, 0.0 if worker.done else _PAUSE))

    def _retry(self, job: Job) -> None:
        if self._idle:
            self._assign(self._idle.pop(), job)
        else:
            self._waiting.appendleft(job)

    def _give_up(self, job: Job) -> None:
        """A job that still waits has waited too long."""
        if job in self._waiting:
            self._waiting.remove(job)
            job.reply.set_exception(OverloadedError())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _fork(self, nursery: Nursery) -> Worker:
        return await nursery.fork(lambda: Worker(nursery, self._seconds, self._free, self._lost))

    async def _replace(self, nursery: Nursery, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            self._free(await self._fork(nursery))
        except NurseryLostError:
            log.error("the process that forks workers has ended")  # the registry starts another
