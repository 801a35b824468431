"""Machines side by side: in processes of this computer, or as tasks of a Ray cluster."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from daco.compute import require_engine
from daco.errors import DacoError, DataError, InputError

MANY = 20
"""Machines from which on each is told in a line."""
WORTHWHILE = 40
"""Machines from which on processes are started unasked. An estimate: processes take seconds to
load, a machine of 1,000 normals 24 ms of a core to fit and 140 to choose for."""

SCORING = ("scipy.special", "daco.method.bank")
"""Modules that a worker needs to score machines."""

Key = TypeVar("Key")
Result = TypeVar("Result")


class _Processes(ProcessPoolExecutor):  # type: ignore[misc]
    ahead: int
    """How many machines may be on their way at once; see `outcomes`."""

    def end(self) -> None:
        """Kill the workers, whatever they do."""
        with suppress(AttributeError, queue.Empty):  # loky stumbles over what it has not sent yet
            while True:
                self._work_ids.get_nowait()
        self.shutdown(wait=True, kill_workers=True)


@contextmanager
def worker_pool(
    workers: int | None,
    engine: str = "local",
    address: str | None = None,
    modules: Sequence[str] = (),
) -> Iterator[Executor | None]:
    """Worker processes, one per core by default; None for one worker: work in this process.

    With the engine ``ray``, tasks on the cluster at `address`, one per CPU by default.

    Processes are started afresh: a fork of a process with threads may hang. They are joblib's
    because Python's own run the caller's script again, which breaks one that has no
    ``if __name__ == "__main__"``. They import `modules` at once, while the caller reads its data.
    """
    if workers is not None and workers < 1:
        raise InputError(f"The number of workers must be at least 1. Got {workers!r}.")
    if engine == "ray":
        from daco.compute.ray import ray_pool

        with ray_pool(workers, address) as tasks:
            yield tasks
        return
    require_engine(engine, address)
    count = _cores() if workers is None else workers
    if count == 1:
        yield None
        return
    pool = _Processes(count, initializer=_one_thread)
    pool.ahead = 3 * count
    try:
        with _deaf_to_interrupts():
            for _ in range(count):
                pool.submit(_import, modules)
        yield pool
    finally:
        # What is finished is filed, so that a worker may be stopped at any moment.
        pool.end()


def workers_for(machines: int, workers: int | None, engine: str) -> int | None:
    """The `workers` that were asked for; by default one here for few machines.

    >>> workers_for(2, None, "local"), workers_for(2, 4, "local"), workers_for(500, None, "local")
    (1, 4, None)
    """
    return 1 if workers is None and engine == "local" and machines < WORTHWHILE else workers


def outcomes(
    pool: Executor | None,
    work: Callable[..., Result],
    items: Iterable[tuple[Key, tuple[Any, ...]]],
) -> Iterator[tuple[Key, Result | DacoError]]:
    """What `work` makes of each item's arguments, or the error it raises, as it is finished.

    Items are taken one after the other as workers come free, so that neither this computer nor a
    cluster need hold those of all machines at once. A process that is killed ends all of them:
    whoever did it, such as a system short of memory, would do it again.

    >>> list(outcomes(None, divmod, [("a", (7, 2)), ("b", (9, 4))]))
    [('a', (3, 1)), ('b', (2, 1))]
    """
    if pool is None:
        for key, arguments in items:
            yield key, _attempt(work, *arguments)
        return
    waiting = iter(items)
    pending: dict[Future[Result | DacoError], Key] = {}
    ahead = getattr(pool, "ahead", 2 * _cores())
    while True:
        for key, arguments in islice(waiting, ahead - len(pending)):
            with _loss_told():
                future = pool.submit(_attempt, work, *arguments)
            pending[future] = key
        if not pending:
            return
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            with _loss_told():
                result = future.result()
            yield pending.pop(future), result


def _attempt(work: Callable[..., Result], *arguments: Any) -> Result | DacoError:
    """A machine's result; or what is wrong with the machine, so that others go on."""
    try:
        return work(*arguments)
    except DacoError as error:
        return error


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes begun here do not hear Ctrl-C, of which they would only print a traceback."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    from multiprocessing.resource_tracker import ensure_running

    ensure_running()  # the first process would start it, and it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _loss_told() -> Iterator[None]:
    try:
        yield
    except TerminatedWorkerError:
        raise DataError(
            "A worker process was killed, most often because the memory did not suffice. Run the "
            "same command again with fewer --workers; what a study has finished is kept."
        ) from None


def _one_thread() -> None:
    """The processes share the cores; a BLAS that spread over them would only get in the way."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        import_module(name)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
