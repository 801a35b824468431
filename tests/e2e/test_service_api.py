"""The whole API under schemathesis: its document is true, and nothing it makes up is a 5xx."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import product

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance
from service_process import ServiceProcess, faulty

EXAMPLES = int(os.environ.get("DACO_API_EXAMPLES", "10"))
"""Requests that are made up for each route; more of them explore further."""


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    machines = {"press": {"alarm": "every", "healthy": "."}, "fan": {}}
    with ServiceProcess(folder, machines, {"keep_audio": "all", "adapt": True}) as running:
        for seed in range(3):
            running.score(faulty(seed))
        yield running


def test_every_answer_is_one_that_the_document_describes(service):
    schema = schemathesis.openapi.from_url(f"{service.url}/openapi.json")
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) > 25
    for operation, mode in product(operations, GenerationMode):

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            # No bytes that it makes up are a recording.
            refusing = [positive_data_acceptance] if case.path.endswith("/score") else []
            case.call_and_validate(timeout=60, excluded_checks=refusing)

        with suppress(Unsatisfiable):  # a route without parameters cannot be asked wrongly
            ask()
    assert "Traceback" not in service.log
    assert service.get("/healthz").json()["ready"]
