"""Databases of both kinds, and one event loop for the tests that are coroutines."""

from __future__ import annotations

import pytest
from stores import BACKENDS, new_url


@pytest.fixture(params=BACKENDS)
def url(request, tmp_path):
    return new_url(request.param, tmp_path)


@pytest.fixture
def anyio_backend():
    return "asyncio"
