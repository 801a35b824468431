"""The way to a Ray cluster, and what to say where there is none."""

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
from dataclasses import dataclass
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

_ADDRESS = re.compile(r"(ray://)?(\[[0-9a-fA-F:]+\]|[^\[\]:/\s]+):(\d{1,5})")
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_KEPT = "Then run the same command again: what embed and study have finished is kept."
# What answers at the two ports of a head, so that one is not taken for the other.
_CLIENT, _NODE = "/ray.rpc.RayletDriver/ClusterInfo", "/ray.rpc.NodeInfoGcsService/GetClusterId"


@contextmanager
def connected(address: str | None = None) -> Iterator[Any]:
    """The module `ray`, connected to a cluster; a connection made here ends with the block.

    Parameters
    ----------
    address : str or None
        ``host:6379`` from a node of the cluster, ``ray://host:10001`` from outside, ``auto`` for
        the cluster that this computer belongs to. None takes the connection there is, else
        ``$RAY_ADDRESS``, else starts Ray on this computer alone.
    """
    ray = _ray()
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
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # tells nobody that daco was run
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


def slots(ray: Any, kind: str = "CPU") -> int:
    """CPUs or GPUs of all living nodes together."""
    return int(ray.cluster_resources().get(kind, 0))


class LostWorkersError(DataError):
    """Workers of the cluster ended; others may do the work."""


def explained(error: BaseException) -> BaseException:
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
            f"files (/tmp/ray, unless it was told otherwise). {_KEPT}"
        )
    if kinds & {"OutOfMemoryError", "ObjectStoreFullError"}:
        return DataError(
            "A Ray worker ran out of memory. Give Ray fewer CPUs on that node, or choose a smaller "
            f"batch. {_KEPT}"
        )
    if kinds & _LOSSES:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        reason = lines[-1].strip().partition(". ")[0]
        return LostWorkersError(
            f"Ray lost its workers again and again ({reason.rstrip('.')}). Look at the memory of "
            f"its nodes. {_KEPT}"
        )
    return error


_LOSSES = {
    "ActorDiedError",
    "ActorUnavailableError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectLostError",
    "OwnerDiedError",
    "RayActorError",
    "WorkerCrashedError",
}


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise _missing() from None
    return ray


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
                raise _unconnected(where, error) from None
        time.sleep(attempt)


@contextmanager
def _news_on_stderr(ray: Any) -> Iterator[None]:
    """What Ray tells of lost nodes is printed where it does not get between results.

    There is no setting for that.
    """
    module = ray._private.worker
    before = getattr(module, "print_to_stdstream", None)

    def to_stderr(data: dict[str, Any], *options: Any, **named: Any) -> None:
        assert before is not None
        before({**data, "is_err": True}, *options, **named)

    if before is not None:
        module.print_to_stdstream = to_stderr
    try:
        yield
    finally:
        if before is not None:
            module.print_to_stdstream = before


def _disconnect(ray: Any) -> None:
    """Leave nothing initialised, also after a connection that failed half-way.

    In a client that did not come to be, the first call only ends the client mode.
    """
    for _ in range(2):
        with contextlib.suppress(ConnectionError):  # it may be gone already
            ray.shutdown()


def _is_too_busy(error: Exception) -> bool:
    """Whether the server for this client did not come up in the 30 s that Ray gives it."""
    return isinstance(error, ConnectionAbortedError) and "ersion mismatch" not in str(error)


def _require_reachable(address: str) -> None:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InputError(
            "The address of a Ray cluster is auto, host:6379 or ray://host:10001. "
            f"Got {address!r} instead."
        )
    host, port = found[2].strip("[]"), int(found[3])
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None
    if os.environ.get("RAY_USE_TLS", "0") != "1":  # else Ray has to find out by itself
        _require_ray_there(address, f"{found[2]}:{port}", client=found[1] is not None)


def _require_ray_there(address: str, target: str, *, client: bool) -> None:
    """An error where something else listens, or the other one of the two ports was given."""
    import grpc

    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=PATIENCE)
        except grpc.FutureTimeoutError:
            raise _unreachable(address, "something else answers there") from None
        try:
            channel.unary_unary(_NODE if client else _CLIENT)(b"", timeout=PATIENCE)
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.NOT_FOUND:  # of a client that it does not know
                return
    hint = (
        f"{target} is for nodes of the cluster: give it without ray:// on one of them, or the port "
        "of the Ray client, 10001 unless it was told otherwise"
        if client
        else f"{target} is for computers outside of the cluster: write ray://{target}"
    )
    raise InputError(f"{hint}.")


def _unreachable(address: str, reason: str) -> DataError:
    return DataError(
        f"There is no Ray cluster at {address} ({reason}). Start one with 'ray start --head', or "
        "correct the address."
    )


def _unconnected(address: str, error: Exception) -> DacoError:
    text = str(error)
    found = _VERSIONS.findall(text)
    if "ersion mismatch" in text and len(found) == 2:
        (ray, python), (own_ray, own_python) = found
        return DataError(
            f"The Ray cluster has Ray {ray} on Python {python}, this computer Ray {own_ray} on "
            f"Python {own_python}. Install the same versions here and there."
        )
    if _is_too_busy(error):
        return DataError(
            f"The Ray cluster at {address} is there, but {ATTEMPTS} times began no server for this "
            "computer. Try again when its head is less busy, or look at ray_client_server*.err in "
            "/tmp/ray/session_latest/logs there."
        )
    lines = text.strip().splitlines() or [type(error).__name__]
    reason = lines[0].partition(". ")[0].rstrip(".:")
    if address == "local":
        return DataError(
            f"Ray could not be started on this computer ({reason}). Look at the place for its "
            "files (/tmp/ray, unless $RAY_TMPDIR says otherwise), or use the engine local."
        )
    return _unreachable(address, reason)


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
    """An executor on the cluster at an address, see `connected`."""
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
        return _Refusal(str(write_error(Path(error.filename or "its disk"), error)), host)


def other_version(asked: str) -> str:
    """The sentence of a worker that has another daco than the computer that asks."""
    return (
        f"it has daco {__version__}, the computer that asks {asked}. Install the same version on "
        "all nodes."
    )
