"""Model files that come, change, break and go under a running service."""

from __future__ import annotations

import json
import threading

import pytest
from service_process import ServiceProcess, faulty, model, normal, wait_until


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ServiceProcess(tmp_path_factory.mktemp("service")) as running:
        yield running


def glance(service, machine="press"):
    return next(e for e in service.get("/v1/machines").json()["machines"] if e["id"] == machine)


def test_under_load_every_answer_is_of_the_old_model_or_the_new(service):
    models = [model(), model().at_rate(0.2), model().at_rate(0.3)]
    known = {each.sha256: each.false_alarm_rate for each in models}
    seen, failed, ended = [], [], threading.Event()

    def send():
        with service.client(headers={"Content-Type": "audio/wav"}) as client:
            while not ended.is_set():
                answer = client.post("/v1/machines/press/score", content=normal())
                if answer.status_code == 200:
                    clip = answer.json()["clip"]
                    seen.append((clip["model_sha256"], clip["alarm"], clip["p_value"]))
                elif answer.status_code != 503:
                    failed.append(answer.text)

    threads = [threading.Thread(target=send) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: seen)
        for each in models[1:]:
            each.save(service.models / "press.daco")
            wait_until(lambda each=each: seen[-1][0] == each.sha256)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert all(alarm == (p_value <= known[sha256]) for sha256, alarm, p_value in seen)
    assert {sha256 for sha256, *_ in seen} == set(known)


def test_a_model_that_comes_is_told_served_and_gone_with_its_file(service):
    path = service.models / "fan.daco"
    with service.client() as client, client.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        model().save(path)
        told = next(line for line in lines if '"fan"' in line)
    assert json.loads(told.removeprefix("data: ")) == {"machine": "fan", "change": "added"}
    files = [("file", (f"{number}.wav", faulty(number))) for number in range(16)]
    with service.client() as client:
        for _ in range(2):
            assert client.post("/v1/machines/fan/score", files=files).is_success
    assert glance(service, "fan")["drift"]["stale"]

    # With another model the drift starts anew, or no remedy would help.
    other = model().at_rate(0.2)
    other.save(path)
    wait_until(lambda: glance(service, "fan")["model_sha256"] == other.sha256)
    assert glance(service, "fan")["drift"] is None

    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    (service.models / "junk.daco").write_bytes(b"junk" * 100)
    wait_until(lambda: "junk.daco" in service.get("/v1/machines").json()["problems"])
    wait_until(lambda: "model fan: broken" in service.log)
    broken = glance(service, "fan")
    assert broken["model_sha256"] == other.sha256
    assert broken["problem"]
    assert str(service.folder) not in broken["problem"]
    assert service.score(normal(), "fan").status_code == 200

    path.unlink()
    wait_until(lambda: service.score(normal(), "fan").status_code == 404)
    assert service.score(normal()).status_code == 200
