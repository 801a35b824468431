"""Machines side by side in processes; what is finished is filed, and found again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path

from joblib.externals.loky import ProcessPoolExecutor

from daco import __version__
from daco.engines import require_engine
from daco.errors import DacoError, InputError
from daco.experiments.inputs import MachineData
from daco.experiments.machine import Arrays, Settings, machine_file, read_arrays, write_arrays
from daco.kernels import use_kernels

# Loading compiled kernels takes a process about a second; they save 40 ms on 1,000 normals.
_FEW, _SMALL = 40, 2000

Work = Callable[[MachineData, Settings], Arrays]
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many machines are done, and how many there are."""


@contextmanager
def worker_pool(
    workers: int | None, engine: str = "local", address: str | None = None
) -> Iterator[Executor | None]:
    """Worker processes, one per core by default; None for one worker: work in this process.

    With the engine ``ray``, tasks on the cluster at `address`, one per CPU by default.

    Processes are started afresh: a fork of a process with threads may hang. They are joblib's
    because Python's own run the caller's script again, which breaks one that has no
    ``if __name__ == "__main__"``.
    """
    require_engine(engine, address)
    if engine == "ray":
        from daco.engines.tasks import ray_pool

        with ray_pool(workers, address) as tasks:
            yield tasks
        return
    count = _cores() if workers is None else workers
    if count < 1:
        raise InputError(f"The number of workers must be at least 1. Got {workers!r}.")
    if count == 1:
        yield None
        return
    pool = ProcessPoolExecutor(count, initializer=_one_thread)
    try:
        for _ in range(count):  # start them now: they load while the table is being read
            pool.submit(_warm_up)
        yield pool
    finally:
        # What is finished is filed, so that a worker may be stopped at any moment.
        pool.shutdown(wait=True, kill_workers=True)


def run_machines(
    work: Work,
    machines: Sequence[MachineData],
    settings: Settings,
    *,
    pool: Executor | None,
    folder: Path | None = None,
    stage: str = "machines",
    progress: Progress | None = None,
    quick: bool = False,
) -> list[Arrays]:
    """`work` for every machine, in their order; those filed under the same key are not redone.

    `quick` says that a machine takes less than loading compiled kernels: few of them are then
    worked on without, to the same bits.

    Raises
    ------
    DacoError
        Some machines failed; the message names them all. The others are filed.
    """
    keys = [f"{__version__}/{settings.key()}/{data.fingerprint()}" for data in machines]
    found: dict[int, Arrays] = {}
    files = [None if folder is None else machine_file(folder, m) for m in machines]
    for index, (file, key) in enumerate(zip(files, keys, strict=True)):
        earlier = None if file is None else read_arrays(file, key)
        if earlier is not None:
            found[index] = earlier
    report = progress or (lambda stage, done, total: None)
    report(stage, len(found), len(machines))
    failures: dict[int, DacoError] = {}
    todo = [index for index in range(len(machines)) if index not in found]
    few = quick and len(todo) <= _FEW and all(len(data.X) <= _SMALL for data in machines)
    if few:
        work = partial(_uncompiled, work)
    for index, outcome in _outcomes(pool, work, settings, {i: machines[i] for i in todo}):
        if isinstance(outcome, DacoError):
            failures[index] = outcome
        else:
            # Here, not in the worker: that may be on a computer without this folder.
            if (file := files[index]) is not None:
                write_arrays(file, outcome, keys[index])
            found[index] = outcome
        report(stage, len(found) + len(failures), len(machines))
    if failures:
        raise _failed(machines, failures, kept=folder is not None)
    return [found[index] for index in range(len(machines))]


def _outcomes(
    pool: Executor | None, work: Work, settings: Settings, machines: dict[int, MachineData]
) -> Iterator[tuple[int, Arrays | DacoError]]:
    if pool is None:
        for index, data in machines.items():
            yield index, _attempt(work, data, settings)
        return
    waiting = iter(machines.items())
    pending: dict[Future[Arrays | DacoError], int] = {}
    ahead = getattr(pool, "ahead", len(machines))  # a cluster need not hold all machines at once
    while True:
        for index, data in islice(waiting, ahead - len(pending)):
            pending[pool.submit(_attempt, work, data, settings)] = index
        if not pending:
            return
        done, _ = wait(pending, return_when=FIRST_COMPLETED)
        for future in done:
            yield pending.pop(future), future.result()


def _attempt(work: Work, data: MachineData, settings: Settings) -> Arrays | DacoError:
    """The machine's arrays; or what is wrong with the machine, so that others go on."""
    try:
        return work(data, settings)
    except DacoError as error:
        return error


def _uncompiled(work: Work, data: MachineData, settings: Settings) -> Arrays:
    with use_kernels(os.environ.get("DACO_KERNELS") or "numpy"):
        return work(data, settings)


def _failed(
    machines: Sequence[MachineData], failures: dict[int, DacoError], *, kept: bool
) -> DacoError:
    listed = [f"{machines[i].split} machine {machines[i].title}: {e}" for i, e in failures.items()]
    head = f"{len(failures)} of {len(machines)} machines could not be studied."
    tail = "The others are kept; the same command goes on from there." if kept else ""
    kind = type(next(iter(failures.values())))
    return kind("\n".join([head, *listed, tail]).rstrip())


def _one_thread() -> None:
    """The processes share the cores; a BLAS that spread over them would only get in the way."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)


def _warm_up() -> None:
    """Import what machines need; unpickling this function has done most of it."""
    import scipy.special  # noqa: F401


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
