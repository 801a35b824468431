"""What people decide on the page about a model, and the report of a shift, through HTTP."""

from __future__ import annotations

import pytest
from service_process import ServiceProcess, faulty, normal, wait_until


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("decisions")
    with ServiceProcess(folder, {"press": {"alarm": "every"}}, {"keep_audio": "all"}) as running:
        yield running


def revise(service, status=200, **body):
    with service.client() as client:
        answer = client.post("/v1/machines/press/model", json=body)
    assert answer.status_code == status, answer.text
    return answer.json().get("sentence", answer.json().get("detail"))


def score(service, data, name):
    return service.score(data, name=name).json()["clip"]["id"]


def normals(service):
    return service.get("/v1/machines/press/normals").json()["total"]


def test_healthy_recordings_are_added_removed_and_restored(service):
    added = [score(service, normal(100 + seed), f"new{seed}.wav") for seed in range(2)]
    assert "Added 2 healthy recordings; there are now 42." in revise(
        service, action="add", clips=added
    )
    wait_until(lambda: normals(service) == 42)
    assert "has all of these" in revise(service, 409, action="add", clips=added)
    assert "41 are left" in revise(service, action="remove", normals=["new0.wav"])
    revise(service, action="undo")
    wait_until(lambda: normals(service) == 42)
    assert "no normal called" in revise(service, 409, action="remove", normals=["none.wav"])


def test_the_alarm_limit_is_set_by_chosen_recordings(service):
    few = [score(service, normal(200 + seed), f"calm{seed}.wav") for seed in range(10)]
    assert "at least 10" in revise(service, 409, action="calibrate", clips=few[:3])
    assert "comes from 10 recordings" in revise(service, action="calibrate", clips=few)
    # The next recording is judged by another model: its moment is on the chart.
    notes = lambda: service.get("/v1/machines/press/trend").json()["notes"]  # noqa: E731
    score(service, normal(300), "later.wav")
    wait_until(lambda: score(service, normal(301), "more.wav") and notes())
    assert "alarm limit changed" in notes()[0]["text"]


def test_a_fault_is_never_learned(service):
    clip = score(service, faulty(), "fault.wav")
    with service.client() as client:
        client.post(f"/v1/clips/{clip}/answer", json={"answer": "fault"})
    assert "never learns" in revise(service, 409, action="add", clips=[clip])
    assert "no recording 999999" in revise(service, 409, action="add", clips=[999_999])
    assert "at least one" in revise(service, 409, action="add")


def test_the_report_of_a_shift_is_one_page(service):
    with service.client() as client:
        client.post("/v1/machines/press/notes", json={"text": "Bearing <changed>"})
        alarms = client.get("/v1/alarms").json()["alarms"]
        client.post(f"/v1/alarms/{alarms[0]['id']}/answer", json={"answer": "fault"})
    answer = service.get("/v1/report", params={"hours": 8})
    assert answer.headers["content-type"].startswith("text/html")
    assert "Bearing &lt;changed&gt;" in answer.text
    assert ">fault<" in answer.text
    assert "of 8 h" in answer.text
