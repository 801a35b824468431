"""Work on many machines in parallel: in local processes, or as tasks of a Ray cluster."""

from __future__ import annotations

import os
import queue
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import islice
from typing import Any, TypeVar

from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from daco.compute import require_engine
from daco.errors import DacoError, DataError, InputError

MANY = 20
"""Machines from which on commands print one line for each."""
WORTHWHILE = 40
"""Machines from which on processes are started by default. An estimate: processes take seconds to
load, a machine of 1,000 normals 24 ms of a core to fit and 140 to choose for."""

SCORING = ("scipy.special", "daco.method.bank")
"""Modules that a worker needs to score machines."""

Key = TypeVar("Key")
Result = TypeVar("Result")


@contextmanager
def worker_pool(
    workers: int | None,
    engine: str = "local",
    address: str | None = None,
    modules: Sequence[str] = (),
) -> Iterator[Executor | None]:
    """Start worker processes, or connect to a Ray cluster.

    Local processes are joblib's, because Python's own would run the script of the caller again.

    Parameters
    ----------
    workers : int or None
        Number of processes; None is one per core.
    engine : {"local", "ray"}
        Where the workers are.
    address : str, optional
        The address of the Ray cluster, as in :func:`daco.compute.ray.ray_pool`.
    modules : sequence of str
        Modules that each local process imports when it starts, while the caller reads its data.

    Yields
    ------
    executor : Executor or None
        None if there is one local worker: `outcomes` then works in this process.
    """
    if workers is not None and workers < 1:
        raise InputError(f"The number of workers must be at least 1. Got {workers!r}.")
    if engine == "ray":
        from daco.compute.ray import ray_pool

        with ray_pool(workers, address) as tasks:
            yield tasks
        return
    require_engine(engine, address)
    count = usable_cores() if workers is None else workers
    if count == 1:
        yield None
        return
    pool = ProcessPoolExecutor(count, initializer=_prepare_worker)
    pool.ahead = 3 * count
    try:
        with _interrupts_blocked():
            for _ in range(count):
                pool.submit(_import, modules)
        yield pool
    finally:
        # What is finished is filed, so that a worker may be killed at any moment.
        with suppress(AttributeError, queue.Empty):  # loky fails on work that it has not sent yet
            while True:
                pool._work_ids.get_nowait()
        pool.shutdown(wait=True, kill_workers=True)


@contextmanager
def worker_threads(count: int) -> Iterator[Executor]:
    """Start threads of this process for work that NumPy does outside the interpreter."""
    from threadpoolctl import threadpool_limits

    pool = ThreadPoolExecutor(count, thread_name_prefix="daco-work")
    try:
        with threadpool_limits(1):
            yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def workers_for(machines: int, workers: int | None, engine: str) -> int | None:
    """The `workers` that were asked for; by default one here for few machines.

    >>> workers_for(2, None, "local"), workers_for(2, 4, "local"), workers_for(500, None, "local")
    (1, 4, None)
    """
    return 1 if workers is None and engine == "local" and machines < WORTHWHILE else workers


def outcomes(
    pool: Executor | None, work: Callable[..., Result], items: Iterable[tuple[Key, tuple[Any, ...]]]
) -> Iterator[tuple[Key, Result | DacoError]]:
    """Yield the result of `work`, or the `DacoError` that it raises, for each item.

    Items are taken as workers become free, so that they need not be in memory all at once. If a
    worker process is killed, for instance for lack of memory, the whole work ends.

    Parameters
    ----------
    pool : Executor or None
        What `worker_pool` yields.
    work : callable
        The function to call for each item.
    items : iterable of (key, arguments)
        A name of your choice, and the tuple of arguments of `work`.

    Yields
    ------
    key : object
    result : object or DacoError
        Pairs come in the order in which they finish.

    Examples
    --------
    >>> list(outcomes(None, divmod, [("a", (7, 2)), ("b", (9, 4))]))
    [('a', (3, 1)), ('b', (2, 1))]
    """
    if pool is None:
        for key, arguments in items:
            yield key, _attempt(work, *arguments)
        return
    waiting = iter(items)
    pending: dict[Future[Result | DacoError], Key] = {}
    ahead = getattr(pool, "ahead", 2 * usable_cores())
    while True:
        for key, arguments in islice(waiting, ahead - len(pending)):
            with _explain_loss():
                future = pool.submit(_attempt, work, *arguments)
            pending[future] = key
        if not pending:
            return
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            with _explain_loss():
                result = future.result()
            yield pending.pop(future), result


def _attempt(work: Callable[..., Result], *arguments: Any) -> Result | DacoError:
    try:
        return work(*arguments)
    except DacoError as error:
        return error


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Processes started here ignore Ctrl-C, for which they would only print a traceback."""
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
def _explain_loss() -> Iterator[None]:
    try:
        yield
    except TerminatedWorkerError:
        raise DataError(
            "A worker process was killed, probably because memory ran out. Run the same command "
            "again with fewer --workers; a study keeps finished work."
        ) from None


def _prepare_worker() -> None:
    """Use one thread of BLAS, because the processes share the cores, and as much memory as needed.

    Where psutil is installed, loky warns and replaces a process that grew by 300 MB since its
    first task. Libraries that the second task loads come close to that.
    """
    from joblib.externals.loky import process_executor
    from threadpoolctl import threadpool_limits

    process_executor._MAX_MEMORY_LEAK_SIZE = float("inf")
    threadpool_limits(1)


def _import(modules: Sequence[str]) -> None:
    for name in modules:
        import_module(name)


def usable_cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
