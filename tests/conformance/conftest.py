"""The networks with golden weights: drawing and building one takes seconds."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session", params=["beats", "eat", "panns"])
def golden(request):
    """One network at a time, for the tests of all files."""
    from conformance.test_golden_backbones import Golden

    return Golden(request.param)
