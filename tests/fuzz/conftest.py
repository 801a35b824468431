"""The limits of the child process are those of Linux; elsewhere there is nothing to collect."""

import sys

import pytest

collect_ignore_glob = [] if sys.platform == "linux" else ["*.py"]


@pytest.fixture(scope="module")
def child(request):
    """A confined process for the kinds of inputs that a file of tests names."""
    from fuzz.harness import Child

    with Child(*request.module.KINDS) as started:
        yield started
