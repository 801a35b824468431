"""Real Ray clusters on this computer, that leave nothing behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path

import pytest

SMALL = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
PATIENCE = 120
"""Seconds for a node to come up: the computer may be busy with other things."""
SLOW = {"health_check_timeout_ms": 60_000, "health_check_initial_delay_ms": 30_000}
"""How late a node may answer before Ray gives it up; one that is switched off refuses at once."""


@contextlib.contextmanager
def ray_cluster(**head):
    """A cluster of one node; tests add others. Its ports and its folder are its own."""
    utils = pytest.importorskip("ray.cluster_utils", reason="Ray is not installed")
    import ray

    with contextlib.ExitStack() as cleanup:  # all of it, whatever fails
        patch = cleanup.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Else a server that Ray forks for a client may end at once, without a word.
        patch.setenv("GRPC_ENABLE_FORK_SUPPORT", "0")
        folder = tempfile.mkdtemp(prefix="daco-ray-")  # short: names of sockets may not be long
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        # `Cluster` writes its address into Ray's default folder, which exists only where Ray ran
        # before and may belong to another cluster.
        patch.setenv("RAY_TMPDIR", folder)
        (Path(folder) / "ray").mkdir()
        # The nodes see the environment of now; what they know of stores can be written later.
        patch.setenv("AWS_CONFIG_FILE", f"{folder}/aws.ini")
        cleanup.callback(_end_those_who_use, folder)
        made = _started(utils.Cluster, {**SMALL, **head, "temp_dir": folder})
        cleanup.callback(made.shutdown)
        cleanup.callback(ray.shutdown)
        cleanup.callback(ray.shutdown)  # the first one only ends a client that failed to connect
        made.aws_config = Path(folder) / "aws.ini"
        yield made


def _started(kind, head):
    for attempt in (1, 2, 3):
        port = _free_port()
        try:
            options = {**head, "include_dashboard": False, "ray_client_server_port": port}
            options["_system_config"] = SLOW
            made = kind(initialize_head=True, head_node_args=options)
        except Exception:  # such as another program's use of the port meanwhile
            _end_those_who_use(head["temp_dir"])
            if attempt == 3:
                raise
            continue
        made.client_port = port
        return made
    raise AssertionError


def _free_port():
    """A free port below those that systems give out: no other part of a cluster may get it."""
    for port in range(11000 + os.getpid() % 9000, 20000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port
    raise OSError("no port below 20000 is free")


@contextlib.contextmanager
def node_of(cluster, **options):
    """One more node, gone when the block ends."""
    node = cluster.add_node(**{**SMALL, **options})
    try:
        cluster.wait_for_nodes(timeout=PATIENCE)
        yield node
    finally:
        if node in cluster.worker_nodes:
            cluster.remove_node(node)


@contextlib.contextmanager
def address_for_client(cluster):
    """The address for computers outside, for one test at a time of this computer.

    Ray gives clients ports from 23000 on; two clusters that do so at once would mix them up.
    """
    everywhere = os.open(tempfile.gettempdir(), os.O_RDONLY)
    try:
        fcntl.flock(everywhere, fcntl.LOCK_EX)  # ends with the process, whatever becomes of it
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:  # its server starts after all others
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", cluster.client_port), timeout=1).close()
                break
            time.sleep(0.2)
        yield f"ray://127.0.0.1:{cluster.client_port}"
    finally:
        os.close(everywhere)


def processes_using(folder):
    """Those that are told of a folder, or have a file of it open."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # one that has just ended, or of somebody else
            told = folder in (entry / "cmdline").read_text()
            if told or any(folder in os.readlink(file) for file in (entry / "fd").iterdir()):
                found.append(int(entry.name))
    return [pid for pid in found if pid != os.getpid()]


def _end_those_who_use(folder):
    deadline = time.monotonic() + 10
    while (left := processes_using(folder)) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def workers_of(node):
    """The processes that a node has started, and what they say they do."""
    if not Path("/proc").is_dir():
        pytest.skip("what a node runs is only known on Linux")
    (raylet,) = node.all_processes["raylet"]
    pid = raylet.process.pid
    found = {}
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # one that has just ended
            found[int(child)] = Path(f"/proc/{child}/cmdline").read_text()
    return found


def switch_off(cluster, node):
    """End a node at once with all that runs on it; Ray's own way lets workers finish."""
    for pid in workers_of(node):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    cluster.remove_node(node, allow_graceful=False)
