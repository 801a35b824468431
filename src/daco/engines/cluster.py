"""The way to a Ray cluster, and what to say where there is none."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from daco.errors import DacoError, DataError, InputError, MissingExtraError

PATIENCE = 5.0
"""Seconds until an address that does not answer counts as unreachable; Ray itself takes minutes."""

_ADDRESS = re.compile(r"(?:ray://)?(\[[0-9a-fA-F:]+\]|[^\[\]:/\s]+):(\d{1,5})")
_VERSIONS = re.compile(r"Ray: (\S+)\s+Python: (\S+)")
_KEPT = "What is finished is kept: the same command goes on from there."


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
    elif where != "auto":
        _require_reachable(where)
    try:
        ray.init(address=where, **options)
    except (ConnectionError, TimeoutError, RuntimeError, ValueError) as error:
        raise _unconnected(where, error) from None
    try:
        yield ray
    finally:
        ray.shutdown()


def slots(ray: Any, kind: str = "CPU") -> int:
    """CPUs or GPUs of all living nodes together."""
    return int(ray.cluster_resources().get(kind, 0))


def explained(error: BaseException) -> BaseException:
    """One sentence for a failure of the cluster; any other error as it is."""
    kind = type(error).__name__
    if kind == "OutOfDiskError":
        return DataError(
            "The disk of a Ray worker is full. Free some space on it, also where Ray keeps its own "
            f"files (/tmp/ray, unless it was told otherwise). {_KEPT}"
        )
    if kind in ("OutOfMemoryError", "ObjectStoreFullError"):
        return DataError(
            "A Ray worker ran out of memory. Give Ray fewer CPUs on that node, or choose a smaller "
            f"batch. {_KEPT}"
        )
    if kind in _LOSSES:
        reason = (str(error).strip().splitlines() or [kind])[-1].strip().partition(". ")[0]
        return DataError(f"Ray lost its workers again and again ({reason.rstrip('.')}). {_KEPT}")
    return error


_LOSSES = (
    "ActorDiedError",
    "ActorUnavailableError",
    "LocalRayletDiedError",
    "NodeDiedError",
    "ObjectLostError",
    "OwnerDiedError",
    "RayActorError",
    "WorkerCrashedError",
)


def _ray() -> Any:
    try:
        import ray
    except ImportError:
        raise MissingExtraError(
            'The engine ray needs Ray: pip install "daco-asd[ray]". The engine local works '
            "without it."
        ) from None
    return ray


def _require_reachable(address: str) -> None:
    found = _ADDRESS.fullmatch(address)
    if found is None:
        raise InputError(
            "The address of a Ray cluster is auto, host:6379 or ray://host:10001. "
            f"Got {address!r} instead."
        )
    host, port = found[1].strip("[]"), int(found[2])
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise _unreachable(address, getattr(error, "strerror", None) or str(error)) from None


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
    lines = text.strip().splitlines() or [type(error).__name__]
    return _unreachable(address, lines[0].partition(". ")[0].rstrip("."))
