"""Databases of both kinds."""

from __future__ import annotations

import pytest
from stores import BACKENDS, new_url


@pytest.fixture(params=BACKENDS)
def url(request, tmp_path):
    return new_url(request.param, tmp_path)
