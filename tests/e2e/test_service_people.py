"""Answers, declarations and what is learned from them, through a real service that adapts."""

from __future__ import annotations

import json

import pytest
from service_process import ServiceProcess, faulty, humming, model, normal, wav

from daco.monitoring.service import schemas
from daco.monitoring.store import Store


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with ServiceProcess(tmp_path_factory.mktemp("people"), "--adapt", "--alarm", "2/3") as started:
        yield started


def glance(service):
    (machine,) = service.get("/v1/machines").json()["machines"]
    return schemas.Machines.model_validate({"machines": [machine], "problems": {}}).machines[0]


def test_clips_of_a_machine_declared_healthy_are_what_it_is_judged_by(service):
    assert glance(service).adaptation.sentence == "Nothing has been learned yet."
    with service.client() as client:
        said = client.post("/v1/machines/press/healthy", json={"by": "Kim", "clips": 12})
        assert schemas.Adapted.model_validate(said.json()).adaptation.left == 12
        odd = [wav(1.5 * humming(seed) + 0.02) for seed in range(100, 113)]
        clips = [service.score(each, "press").json()["clip"] for each in odd]
    assert clips[-1]["basis"].startswith("from 12 clips of the machine, declared healthy by Kim on")
    now = glance(service)
    assert now.adaptation.left == 0
    with Store.open(service.database) as store:  # the thresholds of the next clips, not the model's
        state = store.people.adaptation("press")
    adapted = state.reference(model().reference).domain_thresholds(state.rate)
    assert now.thresholds == pytest.approx(adapted)
    assert now.thresholds != pytest.approx(model().thresholds)
    stored = service.get(f"/v1/clips/{clips[-1]['id']}").json()["clip"]
    assert stored == clips[-1]
    assert (stored["p_value"] <= 0.1) == stored["alarm"] == (stored["score"] > stored["threshold"])


def test_answers_are_stored_and_rates_follow(service):
    clips = [service.score(faulty(seed), "press").json()["clip"] for seed in range(2)]
    alarm = clips[1]["alarm_id"]
    with service.client() as client:
        body = {"answer": "false alarm", "by": "Kim", "comment": "forklift"}
        said = client.post(f"/v1/alarms/{alarm}/answer", json=body)
        answered = schemas.OneAlarm.model_validate(said.json()).alarm
        assert (answered.answer, answered.closed_by) == ("false alarm", "acknowledgement")
        body = {"answer": "fault", "by": "Lee"}
        said = client.post(f"/v1/clips/{clips[0]['id']}/answer", json=body).json()["clip"]
        assert said["answer"] == "fault"
        told = schemas.Feedback.model_validate(client.get("/v1/machines/press/feedback").json())
    assert (told.rates.false_alarms, told.rates.faults, told.rates.found) == (1, 1, 1)
    assert told.sentences[1].startswith("1 of 1 clip with a fault")
    assert [each.answer for each in told.answers] == ["fault", "false alarm", "false alarm"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/clips/999999/answer", {"answer": "fault", "by": "Kim"}, 404),
        ("/v1/alarms/999999/answer", {"answer": "fault", "by": "Kim"}, 404),
        ("/v1/clips/1/answer", {"answer": "perhaps", "by": "Kim"}, 422),
        ("/v1/clips/1/answer", {"answer": "fault", "by": ""}, 422),
        ("/v1/clips/1/answer", {"answer": "fault", "by": "a\0b"}, 400),
        ("/v1/clips/1/answer", {"answer": "fault", "by": " "}, 422),
        ("/v1/machines/press/healthy", {"by": "Kim", "clips": 9}, 422),
        ("/v1/machines/press/healthy", {"by": "a\0b"}, 400),
        ("/v1/machines/press/healthy", {"by": " "}, 422),
        ("/v1/machines/other/healthy", {"by": "Kim"}, 404),
        ("/v1/machines/other/reset", {}, 404),
    ],
)
def test_what_cannot_be_said_is_refused_in_a_sentence(service, path, body, status):
    service.score(faulty(), "press")
    with service.client() as client:
        answer = client.post(path, json=body)
    assert answer.status_code == status
    schemas.Detail.model_validate(answer.json())


def test_what_people_say_reaches_the_other_pages_at_once(service):
    clip = service.score(faulty(), "press").json()["clip"]["id"]
    with service.client() as client, client.stream("GET", "/v1/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        with service.client() as other:
            other.post(f"/v1/clips/{clip}/answer", json={"answer": "fault", "by": "Kim"})
        kinds = []
        for line in lines:
            if line.startswith("event: "):
                kinds.append(line)
            if line.startswith("data: ") and kinds[-1] == "event: clip":
                told = json.loads(line.removeprefix("data: "))
                break
    assert (told["id"], told["answer"]) == (clip, "fault")
    assert "event: machine" in kinds


def test_a_fault_leaves_the_drift_as_soon_as_somebody_says_so(service):
    service.score(normal(), "press")
    clip = service.score(faulty(), "press").json()["clip"]["id"]
    before = glance(service).drift.n
    with Store.open(service.database) as store:  # by daco feedback, in another process
        store.people.answer_clip(clip, "fault", "Kim")
    assert glance(service).drift.n == before - 1


def test_what_was_learned_is_forgotten(service):
    service.score(faulty(), "press")
    with service.client() as client:
        said = client.post("/v1/machines/press/reset").json()["adaptation"]
    assert said["sentence"] == "Nothing has been learned yet."
    with Store.open(service.database) as store:
        assert store.people.adaptation("press") is None


def test_a_service_that_does_not_adapt_says_so_and_stores_the_models_verdict(tmp_path):
    with ServiceProcess(tmp_path) as service, service.client() as client:
        answer = client.post("/v1/machines/press/healthy", json={"by": "Kim"})
        assert (answer.status_code, "--adapt" in answer.json()["detail"]) == (400, True)
        assert glance(service).adaptation is None
        clip = service.score(faulty(), "press").json()["clip"]
        assert clip["basis"] == model().basis_sentence
