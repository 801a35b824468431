"""The connection to a Ray cluster, functions as its tasks, and messages for its failures."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import re
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from daco.errors import DacoError, DataError, InputError, MissingExtraError
from daco.files.atomic import write_error
from daco.version import __version__

PATIENCE = 5.0
"""Seconds until an address that does not answer counts as unreachable; Ray itself takes minutes."""
ATTEMPTS = 4
"""How often a connection is tried whose server was too busy to begin; each waits up to 30 s."""
RETRIES = 5
"""How often Ray repeats a task whose worker or node was lost."""

_ADDRESS = re.compile(r"(ray://)?(\[[0-9a-fA-F:]+\]|[^\[\]:/\s]+):(\d{1,5})")
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_KEPT = "Then run the same command again: embed and study keep finished work."
# What answers at the two ports of a head, so that one is not taken for the other.
_CLIENT, _NODE = "/ray.rpc.RayletDriver/ClusterInfo", "/ray.rpc.NodeInfoGcsService/GetClusterId"


@contextmanager
def connection(address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected to a cluster; a connection made here ends with the block.

    Parameters
    ----------
    address : str or None
        ``host:6379`` from a node of the cluster, ``ray://host:10001`` from outside, ``auto`` for
        the cluster that this computer belongs to. None takes the present connection, else
        ``$RAY_ADDRESS``, else starts Ray on this computer alone.
    """
    try:
        import ray
    except ImportError:
        raise _missing() from None
    if ray.is_initialized():
        if address is not None:
            raise InputError(
                "This process is connected to a Ray cluster already. Leave the address out to use "
                "it, or call ray.shutdown() first."
            )
        yield ray
        return
    where = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    if where == "local":
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        options["include_dashboard"] = False
    else:
        require_cluster(where)
    try:
        with _news_on_stderr(ray):
            _connect(ray, where, options)
            yield ray
    finally:
        _disconnect(ray)


def require_cluster(address: str | None = None) -> None:
    """An error where Ray is not installed, or nothing like it answers at the address."""
    if find_spec("ray") is None:
        raise _missing()
    where = address or os.environ.get("RAY_ADDRESS")
    if where and where not in ("auto", "local"):
        _require_reachable(where)


def _missing() -> MissingExtraError:
    return MissingExtraError(
        'The engine ray needs Ray: pip install "daco-asd[ray]". The engine local works without it.'
    )


def _connect(ray: Any, where: str, options: dict[str, Any]) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", "Ray Client connection timed out")
                ray.init(address=where, **options)
            return
        except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
            _disconnect(ray)
            if attempt == ATTEMPTS or not _is_too_busy(error):
                raise _connection_error(where, error) from None
        time.sleep(attempt)


def _disconnect(ray: Any) -> None:
    # Twice: for a client that failed to connect, the first call only ends the client mode.
    for _ in range(2):
        with contextlib.suppress(ConnectionError):
            ray.shutdown()


@contextmanager
def _news_on_stderr(ray: Any) -> Iterator[None]:
    """Print Ray's messages about lost nodes to stderr, for which it has no setting."""
    module = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)
    if before is None:
        yield
        return
    module.print_to_stdstream = lambda data, *args, **options: before(
        {**data, "is_err": True}, *args, **options
    )
    try:
        yield
    finally:
        module.print_to_stdstream = before


def _is_too_busy(error: Exception) -> bool:
    """Whether the server for this client did not start in the 30 s that Ray gives it."""
    return isinstance(error, ConnectionAbortedError) and "ersion mismatch" not in str(error)


def _require_reachable(address: str) -> None:
    """An error where nothing listens, something else does, or the wrong port was given."""
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise InputError(
            "The address of a Ray cluster is auto, host:6379 or ray://host:10001. "
            f"Got {address!r} instead."
        )
    host, port, target = match[2].strip("[]"), int(match[3]), f"{match[2]}:{match[3]}"
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None
    if os.environ.get("RAY_USE_TLS", "0") == "1":  # only Ray itself can tell then
        return
    import grpc

    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=PATIENCE)
        except grpc.FutureTimeoutError:
            raise _unreachable(address, "something else answers there") from None
        try:
            channel.unary_unary(_NODE if match[1] else _CLIENT)(b"", timeout=PATIENCE)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:  # of a client that it does not know
                return
    raise InputError(
        f"{target} is the port for nodes of the cluster. On a node, leave out ray://; on other "
        "computers, give the port of the Ray client, 10001 by default."
        if match[1]
        else f"{target} is the port for computers outside the cluster: write ray://{target}."
    )


def _unreachable(address: str, reason: str) -> DataError:
    return DataError(
        f"There is no Ray cluster at {address} ({reason}). Start one with 'ray start --head', or "
        "correct the address."
    )


def _connection_error(address: str, error: Exception) -> DacoError:
    text = str(error)
    versions = _VERSIONS.findall(text)
    if "ersion mismatch" in text and len(versions) == 2:
        (ray, python), (own_ray, own_python) = versions
        return DataError(
            f"The Ray cluster has Ray {ray} on Python {python}, this computer Ray {own_ray} on "
            f"Python {own_python}. Install the same versions on both."
        )
    if _is_too_busy(error):
        return DataError(
            f"The Ray cluster at {address} answers, but started no server for this computer in "
            f"{ATTEMPTS} attempts. Try again when its head is less busy, or read "
            "ray_client_server*.err in /tmp/ray/session_latest/logs on the head."
        )
    lines = text.strip().splitlines() or [type(error).__name__]
    reason = lines[0].partition(". ")[0].rstrip(".:")
    if address == "local":
        return DataError(
            f"Ray could not be started on this computer ({reason}). Check that "
            "Ray can write its files ($RAY_TMPDIR, by default /tmp/ray), or use the engine local."
        )
    return _unreachable(address, reason)


def slots(ray: Any, kind: str = "CPU") -> int:
    """CPUs or GPUs of all living nodes together."""
    return int(ray.cluster_resources().get(kind, 0))


def require_node(ray: Any, cpus: int, gpus: int = 0) -> None:
    """An error where no node is large enough for a worker, for which Ray would wait for ever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(n.get("CPU", 0) >= cpus and n.get("GPU", 0) >= gpus for n in nodes):
        raise DataError(
            f"No node of the Ray cluster is large enough for a worker, which needs {cpus} CPU"
            f"{' and 1 GPU' if gpus else ''}. All nodes together have {slots(ray)} CPUs and "
            f"{slots(ray, 'GPU')} GPUs. Start a larger node."
        )


def cluster_error(error: BaseException) -> BaseException:
    """One sentence for a failure of the cluster; any other error as it is."""
    kinds = {kind.__name__ for kind in type(error).__mro__}  # of what Ray wraps, too
    if "No module named 'daco" in str(error):
        return DataError(
            "A node of the Ray cluster has no daco, or another version. Install daco-asd[ray] "
            f"{__version__} on all of them."
        )
    if "OutOfDiskError" in kinds:
        return DataError(
            "The disk of a Ray node is full. Free some space on it, also where Ray keeps its own "
            f"files (/tmp/ray by default). {_KEPT}"
        )
    if kinds & {"OutOfMemoryError", "ObjectStoreFullError"}:
        return DataError(
            "A Ray worker ran out of memory. Give Ray fewer CPUs on that node, or choose a smaller "
            f"batch. {_KEPT}"
        )
    if "RayError" in kinds and "RayTaskError" not in kinds:  # an actor, its node or its result
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[-1].strip().partition(". ")[0]
        return DataError(
            f"Ray lost its workers repeatedly ({reason.rstrip('.')}). Check the memory of "
            f"its nodes. {_KEPT}"
        )
    return error


@contextmanager
def ray_pool(workers: int | None, address: str | None) -> Iterator[RayExecutor]:
    """Connect to a Ray cluster and yield an executor on it.

    Parameters
    ----------
    workers : int or None
        Most tasks at a time; None for twice as many as the cluster has CPUs.
    address : str or None
        ``host:6379`` from a node of the cluster, ``ray://host:10001`` from outside, ``auto`` for
        the cluster that this computer belongs to. None uses the present connection, else
        ``$RAY_ADDRESS``, else starts Ray on this computer alone.

    Yields
    ------
    executor : Executor
    """
    with connection(address) as ray:
        require_node(ray, 1)
        with RayExecutor(ray, workers) as pool:
            yield pool


class RayExecutor(Executor):
    """Functions as tasks of one CPU each; Ray repeats the tasks of a lost node.

    Parameters
    ----------
    ray : module
        Connected.
    workers : int or None
        The most tasks at once; None for twice as many as the cluster has CPUs, so that none of
        them waits for data.
    """

    def __init__(self, ray: Any, workers: int | None = None) -> None:
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
            raise cluster_error(error) from None
        future: Future[Any] = Future()
        self._refs[future] = ref
        ref.future().add_done_callback(lambda done: self._pass_on(done, future))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Cancel what is still running: nobody would collect it."""
        for ref in list(self._refs.values()):
            self._ray.cancel(ref, force=True)
        self._refs.clear()

    def _pass_on(self, done: Future[Any], future: Future[Any]) -> None:
        self._refs.pop(future, None)
        try:
            if (error := done.exception()) is not None:
                raise cluster_error(error)
            result = done.result()
            if isinstance(result, str):
                raise DataError(result)
            future.set_result(pickle.loads(result))
        except Exception as error:  # else a caller would wait for the result for ever
            future.set_exception(error)


def _call(version: str, packed: bytes) -> bytes | str:
    """The pickled result of a task; as text, what is wrong with the worker.

    Arrays that Ray unpacks itself stay in its store with all that they were computed from, until
    a thousand machines fill it: hence pickled. What is raised Ray would wrap.
    """
    from threadpoolctl import threadpool_limits

    worker = f"Ray worker on {socket.gethostname()}"
    if version != __version__:
        return f"{worker}: {other_version(version)}"
    try:
        fn, args, kwargs = pickle.loads(packed)
        with threadpool_limits(1):  # as the processes of the engine local
            return pickle.dumps(fn(*args, **kwargs), protocol=pickle.HIGHEST_PROTOCOL)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return f"{worker}: {write_error(Path(error.filename or 'its disk'), error)}"


def other_version(asked: str) -> str:
    """The message of a worker whose version of daco differs from that of the caller."""
    return (
        f"it has daco {__version__}, but daco {asked} started this run. Install the same version "
        "on all nodes."
    )
