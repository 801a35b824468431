"""What takes long to start or to fit, made once in a process: a cluster, a browser, a model."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from browser_pages import started_browser
from command_line import run
from drill import NORMALS, write_normals
from ray_cluster import node_of, ray_cluster


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
