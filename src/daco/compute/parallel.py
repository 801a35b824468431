"""One function over many items: in this process, in others, or on a Ray cluster, by joblib."""

from __future__ import annotations

import logging
import os
import signal
import socket
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import islice
from multiprocessing.resource_tracker import ensure_running
from typing import Any, TypeVar
from urllib.parse import urlsplit

from daco.errors import DacoError, DataError, InputError, MissingExtraError
from daco.version import __version__

WORTHWHILE = 40
"""Machines from which on processes are started by default: they take seconds to load."""

_ATTEMPTS = 3  # at items whose Ray workers were lost, and at a connection that a cluster ends
_PATIENCE = 5.0  # seconds until an address counts as unreachable; Ray itself takes minutes
_HERE = ("local", "threads")

Key = TypeVar("Key")
Result = TypeVar("Result")


def run(
    function: Callable[..., Result],
    items: Iterable[tuple[Key, tuple[Any, ...]]],
    *,
    jobs: int | None = None,
    engine: str = "local",
    gpus: bool = False,
) -> Iterator[tuple[Key, Result | DacoError]]:
    """Call a function for each item, and yield the results as they finish.

    Items are taken as workers become free, so that they need not be in memory all at once.

    Parameters
    ----------
    function : callable
        For processes and clusters, a function of a module.
    items : iterable of (key, arguments)
        A name of your choice, and the tuple of arguments of the function.
    jobs : int, optional
        Workers; by default one per core of this computer or of the cluster. One local worker is
        this process itself.
    engine : str
        ``local`` for processes of this computer, ``threads`` for threads of this process, ``ray``
        for the Ray cluster of ``$RAY_ADDRESS`` or else one on this computer, or the address of a
        cluster, such as ``ray://head:10001``.
    gpus : bool
        Whether every worker of a Ray cluster has a GPU of its own.

    Yields
    ------
    key : object
    result : object or DacoError
        What the function returned, or the `DacoError` that it raised.

    Raises
    ------
    DataError
        A worker process was killed, or the cluster cannot be used.

    Examples
    --------
    >>> from daco.compute import run
    >>> list(run(divmod, [("a", (7, 2)), ("b", (9, 4))], jobs=1))
    [('a', (3, 1)), ('b', (2, 1))]
    """
    require_engine(engine)
    if jobs is not None and jobs < 1:
        raise InputError(f"The number of workers must be at least 1. Got {jobs!r}.")
    if jobs == 1 and engine in _HERE:
        return ((key, _attempt(function, *arguments)) for key, arguments in items)
    from joblib import delayed

    keys: dict[int, Key] = {}  # stay here: only what the function needs is sent

    def tasks() -> Iterator[Any]:
        for number, (key, arguments) in enumerate(items):
            keys[number] = key
            yield delayed(_call)(__version__, number, function, *arguments)

    here = engine in _HERE
    results = _run_here(tasks(), jobs, engine) if here else _run_on_ray(tasks(), jobs, engine, gpus)
    return ((keys.pop(number), result) for number, result in results)


def require_engine(engine: str) -> None:
    """An error where the engine is unknown, or where no cluster answers at its address.

    >>> require_engine("local")
    """
    if engine in _HERE:
        return
    if engine != "ray" and not engine.startswith("ray://"):
        raise InputError(
            "The engine must be local, ray, or the address of a Ray cluster such as "
            f"ray://head:10001. Got {engine!r} instead."
        )
    try:
        import_module("ray")
    except ImportError:
        raise MissingExtraError(
            'The engine ray needs Ray: pip install "daco-asd[ray]". The engine local works '
            "without it."
        ) from None
    address = os.environ.get("RAY_ADDRESS", "") if engine == "ray" else engine
    if address in ("", "auto", "local"):
        return
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        socket.create_connection((parts.hostname, parts.port), timeout=_PATIENCE).close()
    except (OSError, OverflowError, TypeError, ValueError) as error:
        raise _unusable(address, error) from None


def jobs_for(machines: int, jobs: int | None, engine: str) -> int | None:
    """The `jobs` that were asked for; by default one here for few machines.

    >>> jobs_for(2, None, "local"), jobs_for(2, 4, "local"), jobs_for(500, None, "local")
    (1, 4, None)
    """
    return 1 if jobs is None and engine == "local" and machines < WORTHWHILE else jobs


def _run_here(tasks: Iterator[Any], jobs: int | None, engine: str) -> Iterator[Any]:
    """Results of processes or threads, each with one thread of BLAS, as they share the cores."""
    from joblib import Parallel, parallel_config
    from threadpoolctl import threadpool_limits

    # About results that nobody took after an error, and processes replaced as they grew.
    warnings.filterwarnings("ignore", category=UserWarning, module=r"joblib\.")
    options = {"n_jobs": jobs or -1, "return_as": "generator_unordered", "batch_size": 1}
    if engine == "threads":
        with threadpool_limits(1):
            yield from Parallel(backend="threading", **options)(tasks)
        return
    with parallel_config("loky", inner_max_num_threads=1):
        parallel = Parallel(**options)
    try:
        with _interrupts_blocked():
            results = parallel(tasks)
        yield from results
    except BrokenProcessPool:
        raise DataError(
            "A worker process was killed, probably because memory ran out. Run the same command "
            "again with fewer --workers; a study keeps finished work."
        ) from None


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Let processes that are started here ignore Ctrl-C, which is for this process alone."""
    if not hasattr(signal, "pthread_sigmask"):  # on Windows
        yield
        return
    ensure_running()  # else the first process starts it, and it lets the signal through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_on_ray(tasks: Iterator[Any], jobs: int | None, engine: str, gpus: bool) -> Iterator[Any]:
    """Results of a Ray cluster, two for each worker at a time: its backend has no generators.

    Where workers were lost, what they worked at is done again by those that are left.
    """
    ray: Any = import_module("ray")
    _connect(ray, engine)
    import_module("ray.util.joblib").register_ray()
    with ExitStack() as stack:
        parallel: Any = None
        while block := list(islice(tasks, 2 * _count_workers(ray, jobs, gpus))):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    if parallel is None:
                        workers = _ray_workers(_count_workers(ray, jobs, gpus), gpus)
                        parallel = stack.enter_context(workers)
                    results = parallel(block)
                    break
                except (ModuleNotFoundError, ray.exceptions.RayTaskError) as error:
                    reason = str(error).strip().splitlines()[-1].rstrip(".")
                    raise DataError(
                        f"A worker of the Ray cluster cannot work ({reason}). Install "
                        f"daco-asd[ray] {__version__} and the same packages on all nodes."
                    ) from None
                except (ray.exceptions.RayError, ValueError) as error:
                    # A node was switched off; a ValueError tells that too few CPUs are left for a
                    # pool of the old size.
                    if attempt == _ATTEMPTS:
                        raise _unusable(engine, error) from None
                    with suppress(ray.exceptions.RayError, ValueError):
                        stack.close()
                    parallel = None
            yield from results


def _count_workers(ray: Any, jobs: int | None, gpus: bool) -> int:
    """One worker per CPU or GPU that the cluster has now, or `jobs` workers."""
    kind = "GPU" if gpus else "CPU"
    places = int(ray.cluster_resources().get(kind, 0))
    if not places:
        raise DataError(f"The Ray cluster has no {kind}. Start a node that has one.")
    return min(jobs or places, places)


def _ray_workers(count: int, gpus: bool) -> Any:
    """A joblib pool on the cluster."""
    from joblib import Parallel, parallel_config

    # Half a CPU each, so that they have places when up to half of the nodes are lost. joblib would
    # do the work of a single worker in this process: two share a single GPU.
    needs = {"num_gpus": 1 if count > 1 else 0.5} if gpus else {"num_cpus": 0.5}
    with parallel_config("ray", ray_remote_args=needs):
        return Parallel(n_jobs=max(2, count) if gpus else count, batch_size=1)


def _connect(ray: Any, engine: str) -> None:
    """Connect this process to the cluster, if it is not connected; Ray ends it with the process."""
    if ray.is_initialized():
        return
    address = os.environ.get("RAY_ADDRESS", "local") if engine == "ray" else engine
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    here = {"include_dashboard": False} if address == "local" else {}
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            ray.init(address or "local", logging_level=logging.ERROR, log_to_driver=False, **here)
            return
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            # A busy cluster may fail to start its process for a computer outside.
            if attempt == _ATTEMPTS or not isinstance(error, ConnectionAbortedError):
                raise _unusable(address, error) from None
            ray.shutdown()


def _unusable(address: str, error: Exception) -> DataError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = lines[-1] if lines[0].endswith(":") else lines[0]  # "...:" and a stack trace
    return DataError(
        f"The Ray cluster of {address} cannot be used ({reason.rstrip('.')}). Correct the "
        f"address, start one with 'ray start --head', or check the memory of its nodes. Run the "
        "same command again: embed and study keep finished work."
    )


def _call(version: str, number: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """The number of a task with its result; an error where the worker has another daco."""
    if version == __version__:
        return number, _attempt(function, *arguments)
    return number, DataError(
        f"A worker on {socket.gethostname()} has daco {__version__}, but daco {version} started "
        "this run. Install the same version on all nodes."
    )


def _attempt(function: Callable[..., Result], *arguments: Any) -> Result | DacoError:
    try:
        return function(*arguments)
    except DacoError as error:
        return error
