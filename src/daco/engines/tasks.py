"""Functions as tasks of a Ray cluster, behind Python's own interface for that."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import Any

from daco.engines.cluster import connected, explained, slots
from daco.errors import InputError

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
        ref = self._task.remote(fn, args, kwargs)
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
        if error is None:
            future.set_result(done.result())
        else:
            future.set_exception(explained(error))


@contextmanager
def ray_pool(workers: int | None, address: str | None) -> Iterator[RayExecutor]:
    """An executor on the cluster at an address, see `daco.engines.cluster.connected`."""
    if workers is not None and workers < 1:
        raise InputError(f"The number of workers must be at least 1. Got {workers!r}.")
    with connected(address) as ray, RayExecutor(ray, workers) as pool:
        yield pool


def _call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):  # as the processes of the engine local
        return fn(*args, **kwargs)
