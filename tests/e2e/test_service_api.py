"""The whole API under schemathesis: its document is true, and nothing it makes up is a 5xx."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import product

import hypothesis
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from hypothesis.stateful import run_state_machine_as_test
from schemathesis import GenerationMode
from service_process import ServiceProcess, faulty, normal

EXAMPLES = int(os.environ.get("DACO_API_EXAMPLES", "4"))
"""Requests that are made up for each route; more of them explore further."""

SETTINGS = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

for media_type in ("audio/wav", "audio/flac", "application/octet-stream"):
    schemathesis.openapi.media_type(media_type, st.sampled_from([normal(), faulty()]))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("api")
    machines = {"press": {"alarm": "every", "healthy": "."}, "fan": {}}
    with ServiceProcess(folder, machines, {"keep_audio": "all", "adapt": True}) as running:
        for seed in range(3):
            running.score(faulty(seed))
        yield running


@pytest.fixture(scope="module")
def schema(service):
    return schemathesis.openapi.from_url(f"{service.url}/openapi.json")


def test_every_answer_is_one_that_the_document_describes(service, schema):
    operations = [each.ok() for each in schema.get_all_operations()]
    assert len(operations) > 25
    for operation, mode in product(operations, GenerationMode):

        @settings(SETTINGS, phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate))
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case):
            case.call_and_validate(timeout=60)

        with suppress(Unsatisfiable):  # a route without parameters cannot be asked wrongly
            ask()
    assert "Traceback" not in service.log
    assert service.get("/healthz").json()["ready"]


def test_requests_that_follow_from_answers_are_answered_as_described(service, schema):
    """Clips are sent, read, answered and deleted, and alarms are acted upon, in any order."""
    machine = schema.as_state_machine()
    run_state_machine_as_test(machine, settings=settings(SETTINGS, stateful_step_count=10))
    assert "Traceback" not in service.log
    assert service.get("/healthz").json()["ready"]
