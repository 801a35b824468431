"""``daco serve`` as its users meet it: a real process, asked over HTTP."""

from __future__ import annotations

import base64
import csv
import io
from datetime import UTC, datetime, timedelta
from itertools import count

import numpy as np
import pytest
from service_process import (
    RATE,
    ServiceProcess,
    faulty,
    humming,
    model,
    normal,
    wait_until,
    wav,
)

from daco.detector.gate import list_normals
from daco.monitoring.service import schemas

MACHINES = 30
UNUSED = count()


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    (folder / "healthy" / "train").mkdir(parents=True)
    for row, name in enumerate(model().clip_names):
        (folder / "healthy" / name).write_bytes(normal(row))
    usual = {"healthy": "healthy", "alarm": "2 of 3", "recover": 2}
    machines = {f"press-{number}": usual for number in range(MACHINES)}
    with ServiceProcess(folder, machines, {"keep_audio": "all", "adapt": True}) as running:
        yield running


@pytest.fixture
def machine():
    """A machine of its own for each test, so that they do not see each other's clips."""
    return f"press-{next(UNUSED)}"


def glance(service, machine):
    listed = service.get("/v1/machines").json()
    schemas.Machines.model_validate(listed)
    return next(each for each in listed["machines"] if each["id"] == machine)


def history(service, machine, **query):
    return service.get(f"/v1/machines/{machine}/history", params=query).json()["clips"]


def do(service, path, body=None, method="POST"):
    with service.client() as client:
        return client.request(method, path, json={} if body is None else body)


def alarm_of(service, machine):
    """Two recordings that sound different raise one."""
    for seed in range(2):
        clip = service.score(faulty(seed), machine).json()["clip"]
    (number,) = clip["opened"]
    return number


class TestScoring:
    def test_a_recording_is_judged_stored_and_told(self, service, machine):
        answer = service.score(faulty(), machine, name="squeal.wav")
        assert answer.status_code == 200
        clip = answer.json()["clip"]
        schemas.Clip.model_validate(clip)
        found = clip["name"], clip["machine"], clip["state"]
        assert found == ("squeal.wav", machine, "anomalous")
        assert clip["oddness"] > 1
        assert clip["one_in"] > 1
        trial = service.score(faulty(), machine, record="false").json()["clip"]
        assert (trial["state"], trial["id"]) == ("anomalous", None)
        assert service.get(f"/v1/clips/{clip['id']}").json()["clip"]["oddness"] == clip["oddness"]
        shown = glance(service, machine)
        assert shown["last"]["id"] == clip["id"]
        assert "false alarm" in shown["expectation"][0]
        assert shown["limit"] == 1.0
        assert shown["last_24h"] == {"clips": 1, "anomalous": 1}

    def test_the_time_of_recording_counts(self, service, machine):
        early = datetime.now(UTC) - timedelta(days=2)
        for when in (early, early + timedelta(hours=1), early - timedelta(hours=1)):
            service.score(normal(), machine, recorded_at=when.isoformat())
        times = [clip["time"] for clip in history(service, machine, since="2020-01-01")]
        assert times == sorted(times, reverse=True)
        assert len(history(service, machine, since=early.isoformat())) == 2
        assert glance(service, machine)["last_24h"]["clips"] == 0
        assert service.score(normal(), machine, recorded_at="yesterday").status_code == 422
        with service.client(headers={"Content-Type": "audio/wav"}) as client:
            path, spaced = f"/v1/machines/{machine}/score", {"Idempotency-Key": "a b"}
            assert client.post(path, content=normal(), headers=spaced).status_code == 422


class TestReading:
    def test_history_comes_in_pages_the_newest_first(self, service, machine):
        ids = [service.score(normal(n), machine).json()["clip"]["id"] for n in range(5)]
        path = f"/v1/machines/{machine}/history"
        first = service.get(path, params={"limit": 3}).json()
        second = service.get(path, params={"limit": 3, "before": first["next"]}).json()
        assert [clip["id"] for clip in first["clips"] + second["clips"]] == ids[::-1]
        assert second["next"] is None

    def test_the_history_is_a_table_that_no_spreadsheet_computes(self, service, machine):
        service.score(normal(), machine, name="=1+2.wav")
        service.score(faulty(), machine, name='a "quoted", name.wav')
        answer = service.get(f"/v1/machines/{machine}/history.csv")
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        assert [row["name"] for row in rows] == ['a "quoted", name.wav', "'=1+2.wav"]
        assert [row["state"] for row in rows] == ["anomalous", "normal"]
        assert float(rows[0]["oddness"]) > 1

    def test_changes_are_told_after_a_number(self, service, machine):
        last = service.get("/v1/machines").json()["last"]
        number = alarm_of(service, machine)
        told = service.get("/v1/changes", params={"after": last}).json()
        schemas.Changes.model_validate(told)
        assert [clip["machine"] for clip in told["clips"]] == [machine] * 2
        assert [alarm["id"] for alarm in told["alarms"]] == [number]
        assert [each["id"] for each in told["machines"]] == [machine]
        assert told["machines"][0]["status"] == "alarm"
        nothing = service.get("/v1/changes", params={"after": told["last"]}).json()
        assert (nothing["clips"], nothing["alarms"], nothing["machines"]) == ([], [], [])
        do(service, f"/v1/alarms/{number}/acknowledge")
        again = service.get("/v1/changes", params={"after": told["last"]}).json()
        assert [alarm["state"] for alarm in again["alarms"]] == ["acknowledged"]

    def test_the_healthy_recordings_of_a_model_come_page_by_page(self, service, machine):
        path, rows, offset = f"/v1/machines/{machine}/normals", [], 0
        while offset is not None:
            answer = service.get(path, params={"offset": offset, "limit": 15}).json()
            page = schemas.Normals.model_validate(answer)
            assert page.total == 40
            rows += page.normals
            offset = page.next
        assert [each.row for each in rows] == [each.row for each in list_normals(model())]

    def test_the_trend_of_days_and_what_people_wrote(self, service, machine):
        for n in range(3):
            service.score(normal(n), machine)
        service.score(faulty(), machine)
        do(service, f"/v1/machines/{machine}/notes", {"text": "bearing changed"})
        trend = service.get(f"/v1/machines/{machine}/trend", params={"period": "hour"}).json()
        schemas.Trend.model_validate(trend)
        assert sum(point["clips"] for point in trend["points"]) == 4
        assert sum(point["anomalous"] for point in trend["points"]) >= 1
        assert [(note["text"], note["by"]) for note in trend["notes"]] == [
            ("bearing changed", "local")
        ]

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/v1/machines/nobody/normals", 404),
            ("/v1/machines/press-0/history?since=never", 422),
            ("/v1/clips/999999", 404),
            ("/v1/machines/press-0/normals/99/audio", 404),
            ("/v1/nothing", 404),
            (f"/v1/clips/{2**63}", 422),
            ("/v1/alarms/1/acknowledge", 405),
            ("/static/app.js", 200),
        ],
    )
    def test_what_is_there_and_what_is_not(self, service, path, status):
        answer = service.get(path)
        assert answer.status_code == status
        if status == 422:
            assert list(answer.json()) == ["detail"]
            assert isinstance(answer.json()["detail"], str)


class TestSounds:
    def test_a_recording_comes_back_whole_and_in_parts(self, service, machine):
        clip = service.score(faulty(), machine).json()["clip"]
        path = f"/v1/clips/{clip['id']}/audio"
        whole = service.get(path)
        assert whole.content == faulty()
        part = service.get(path, headers={"Range": "bytes=10-19"})
        assert (part.status_code, part.content) == (206, faulty()[10:20])
        assert service.get(path, headers={"Range": "bytes=99999999-"}).status_code == 416

    def test_a_picture_shows_a_tone_at_its_frequency_and_time(self, service, machine):
        t = np.arange(4 * RATE) / RATE
        tone = np.where(t > 2, 0.3 * np.sin(2 * np.pi * 3000 * t), 0) + humming(1, 4.0)
        clip = service.score(wav(tone), machine).json()["clip"]
        answer = service.get(f"/v1/clips/{clip['id']}/picture").json()
        schemas.Picture.model_validate(answer)
        levels = np.frombuffer(base64.b64decode(answer["levels"]), np.uint8)
        levels = levels.reshape(answer["bands"], answer["columns"]).astype(float)
        half = answer["columns"] // 2
        louder = levels[:, half + 5 :].mean(1) - levels[:, : half - 5].mean(1)
        assert answer["hertz"][int(louder.argmax())] == pytest.approx(3000, rel=0.05)
        assert answer["seconds"] == pytest.approx(4.0, abs=0.05)

    def test_a_healthy_recording_is_played_only_if_it_is_the_one_in_the_model(self, service):
        path = service.folder / "healthy" / model().clip_names[7]
        for what in ("audio", "picture"):
            assert service.get(f"/v1/machines/press-0/normals/7/{what}").status_code == 200
        path.write_bytes(normal(1007))
        try:
            other = service.get("/v1/machines/press-0/normals/7/audio")
            assert other.status_code == 404
            assert "is not the one in the model" in other.json()["detail"]
        finally:
            path.write_bytes(normal(7))


class TestPeople:
    def test_a_lasting_fault_is_one_alarm_through_all_of_its_states(self, service, machine):
        number = alarm_of(service, machine)

        def act(action, **body):
            answer = do(service, f"/v1/alarms/{number}/{action}", body)
            assert answer.status_code == 200, answer.text
            return schemas.OneAlarm.model_validate(answer.json()).alarm

        assert act("acknowledge", comment="going").state == "acknowledged"
        service.score(faulty(5), machine)  # it lasts, and stays the same alarm
        assert act("shelve", minutes=30, comment="part is ordered").state == "shelved"
        assert glance(service, machine)["status"] == "shelved"
        assert act("unshelve").state == "acknowledged"
        assert act("answer", answer="fault", comment="belt").answer == "fault"
        listed = service.get("/v1/alarms", params={"machine": machine, "open": True}).json()
        assert [(each["id"], each["n_clips"]) for each in listed["alarms"]] == [(number, 3)]
        for n in range(2):
            clip = service.score(normal(n), machine).json()["clip"]
        assert clip["cleared"] == [number]
        query = {"machine": machine, "open": "true"}
        assert service.get("/v1/alarms", params=query).json()["alarms"] == []
        assert do(service, f"/v1/alarms/{number}/shelve", {"minutes": 5}).status_code == 409
        actions = {each["action"] for each in service.get("/v1/audit").json()["entries"]}
        assert actions >= {"acknowledge", "shelve", "unshelve", "answer fault"}
        number = alarm_of(service, machine)
        assert act("clear", comment="repaired").cleared_by == "local"

    def test_out_of_service_there_are_no_alarms(self, service, machine):
        path = f"/v1/machines/{machine}/service"
        told = do(service, path, {"out": True, "comment": "overhaul"}).json()["machine"]
        assert (told["status"], told["out_of_service_by"]) == ("out of service", "local")
        for seed in range(3):
            assert service.score(faulty(seed), machine).json()["clip"]["opened"] == []
        assert do(service, path, {"out": False}).json()["machine"]["status"] == "ok"
        alarm_of(service, machine)

    def test_answers_and_healthy_clips_are_learned_from(self, service, machine):
        clip = service.score(faulty(), machine).json()["clip"]
        path = f"/v1/clips/{clip['id']}/answer"
        assert do(service, path, {"answer": "fault"}).json()["clip"]["answer"] == "fault"
        assert do(service, path, {"answer": "perhaps"}).status_code == 422
        assert service.get(f"/v1/machines/{machine}/feedback").json()["sentences"]
        told = do(service, f"/v1/machines/{machine}/healthy", {"clips": 30}).json()
        assert told["left"] == 30
        service.score(normal(), machine)
        assert glance(service, machine)["adaptation"]["left"] == 29
        assert do(service, f"/v1/machines/{machine}/reset").status_code == 204
        assert glance(service, machine)["adaptation"]["left"] == 0


class TestOperation:
    def test_metrics_have_a_gauge_per_machine(self, service, machine):
        service.score(faulty(), machine)
        service.score(b"no sound", machine)

        def has(line):
            return line in service.get("/metrics").text

        wait_until(lambda: has(f'daco_machine_state{{machine="{machine}",state="anomalous"}} 1.0'))
        text = service.get("/metrics").text
        assert f'daco_machine_limit{{machine="{machine}"}} 1.0' in text
        assert f'daco_machine_open_alarms{{machine="{machine}"}} 0.0' in text
        for name in ("oddness", "last_recording_age_seconds"):
            assert f'daco_machine_{name}{{machine="{machine}"}}' in text
        route = 'route="/v1/machines/{machine}/score"'
        assert f'daco_http_requests_total{{method="POST",{route},status="400"}}' in text
        for name in ("daco_queue ", "daco_uploads_refused_total", "process_resident_memory_bytes"):
            assert name in text

    def test_the_document_describes_every_route(self, service):
        for path, methods in service.get("/openapi.json").json()["paths"].items():
            for method, about in methods.items():
                assert about["description"], (path, method)
                assert "401" in about["responses"] or not path.startswith("/v1/"), (path, method)
