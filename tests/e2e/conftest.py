"""What takes long to start or to fit, made once in a process: services, a browser, a model."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path

import pytest
from browser_pages import started_browser
from command_line import run
from drill import NORMALS, write_normals
from monitored_plant import TOKENS, machine_tables
from ray_cluster import node_of, ray_cluster
from receiver import receiving
from service_process import ServiceProcess


@pytest.fixture(scope="session")
def cluster():
    """A head with one CPU; a test adds the node that it needs."""
    with ray_cluster() as made:
        yield made


@pytest.fixture
def second(cluster):
    """A second node, gone when the test is."""
    with node_of(cluster) as node:
        yield node


@pytest.fixture(scope="module")  # it occupies the event loop, which other modules use
def browser():
    with started_browser() as started:
        yield started


@pytest.fixture(scope="session")
def drill(tmp_path_factory):
    """The folder of a machine's normals, and a model that was fitted to them."""
    root = write_normals(tmp_path_factory.mktemp("drill") / "drill", NORMALS)
    run("fit", root, "--out", root.parent / "drill.daco", "--false-alarm-rate", 0.2)
    return root, root.parent / "drill.daco"


@pytest.fixture
def model(drill, tmp_path):
    """A copy of the model, to be changed."""
    return Path(shutil.copy(drill[1], tmp_path / "drill.daco"))


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    """Many machines on loopback, and a web server that receives their messages."""
    root = tmp_path_factory.mktemp("plant")
    table = {"keep_audio": "all", "max_upload": "1 MB", "adapt": True}
    with receiving() as receiver:
        notify = {"webhook": receiver.url}
        with ServiceProcess(root, machine_tables(root), table, notify) as running:
            running.receiver, running.unused = receiver, count()
            yield running


@pytest.fixture
def machine(service):
    """A machine of its own for each test, so that they do not see each other's clips."""
    return f"machine-{next(service.unused):02}"


@pytest.fixture(scope="session")
def locked(tmp_path_factory):
    """Two machines on every address of this computer, with a token for each role."""
    table, machines = {"address": "0.0.0.0:0", "tokens": TOKENS}, {"press": {}, "fan": {}}
    with ServiceProcess(tmp_path_factory.mktemp("locked"), machines, table) as running:
        yield running
