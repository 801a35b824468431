"""Functions as tasks of a Ray cluster, behind Python's own interface for that."""

from __future__ import annotations

import errno
import pickle
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from daco.compute.cluster import connected, explained, slots
from daco.errors import DataError
from daco.files.atomic import unwritable
from daco.version import __version__

RETRIES = 5
"""How often a task is done again whose worker or node was lost."""


class RayExecutor(Executor):
    """Tasks of one CPU each. Whoever loses a node loses time: Ray does its tasks again.

    Parameters
    ----------
    ray : module
        Connected.
    workers : int or None
        Tasks at once at most; None for as many as the cluster has CPUs.
    """

    def __init__(self, ray: Any, workers: int | None = None) -> None:
        # Twice the CPUs, so that none of them waits for the next machine's vectors to arrive.
        self.ahead = workers or max(4, 2 * slots(ray))
        self._ray = ray
        self._task = ray.remote(num_cpus=1, max_retries=RETRIES)(_call)
        self._refs: dict[Future[Any], Any] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """As of any executor."""
        # Packed here, so that a worker with another daco can say so before it unpacks.
        packed = self._ray.cloudpickle.dumps((fn, args, kwargs))
        try:
            ref = self._task.remote(__version__, packed)
        except self._ray.exceptions.RayError as error:  # its store is full, and the disk behind it
            raise explained(error) from None
        future: Future[Any] = Future()
        self._refs[future] = ref
        ref.future().add_done_callback(lambda done: self._pass_on(done, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop what is still running, whatever is asked: nobody would collect it."""
        for ref in list(self._refs.values()):
            self._ray.cancel(ref, force=True)
        self._refs.clear()

    def _pass_on(self, done: Future[Any], future: Future[Any]) -> None:
        self._refs.pop(future, None)
        error = done.exception()
        if error is not None:
            future.set_exception(explained(error))
        elif isinstance(found := done.result(), _Refusal):
            future.set_exception(DataError(f"Ray worker on {found.host}: {found.reason}"))
        else:
            try:
                future.set_result(pickle.loads(found))
            except Exception as error:  # else whoever waits for it would wait for ever
                future.set_exception(error)


@contextmanager
def ray_pool(workers: int | None, address: str | None) -> Iterator[RayExecutor]:
    """An executor on the cluster at an address, see `daco.compute.cluster.connected`."""
    with connected(address) as ray:
        if not slots(ray):
            raise DataError("The Ray cluster has no CPU for tasks. Start a node that has some.")
        with RayExecutor(ray, workers) as pool:
            yield pool


@dataclass(frozen=True)
class _Refusal:
    """What is wrong with a worker; returned, because Ray wraps what is raised."""

    reason: str
    host: str


def _call(version: str, packed: bytes) -> Any:
    from threadpoolctl import threadpool_limits

    host = socket.gethostname()
    if version != __version__:
        return _Refusal(other_version(version), host)
    try:
        fn, args, kwargs = pickle.loads(packed)
        with threadpool_limits(1):  # as the processes of the engine local
            # Packed, because arrays that Ray unpacks itself stay in its store, and keep there all
            # that they were computed from: a thousand machines filled it.
            return pickle.dumps(fn(*args, **kwargs), protocol=pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return _Refusal(str(unwritable(Path(error.filename or "its disk"), error)), host)


def other_version(asked: str) -> str:
    """The sentence of a worker that has another daco than the computer that asks."""
    return (
        f"it has daco {__version__}, the computer that asks {asked}. Install the same version on "
        "all nodes."
    )
