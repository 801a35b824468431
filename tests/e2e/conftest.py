"""A Ray cluster and a browser for all tests that need one; they take seconds to start."""

from __future__ import annotations

import pytest
from browser_pages import started_browser
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


@pytest.fixture(scope="module")
def browser():
    with started_browser() as started:
        yield started
