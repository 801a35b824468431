"""``daco serve`` as its users meet it: a real process, asked over HTTP."""

from __future__ import annotations

import base64
import csv
import io
import socket
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from command_line import refused, run
from monitored_plant import clips_of, raise_alarm
from service_process import RATE, faulty, humming, model, normal, wait_until, wav, write_plant

from daco.monitoring.service import schemas


def glance(service, machine):
    listed = service.get("/v1/machines").json()
    schemas.Machines.model_validate(listed)
    return next(each for each in listed["machines"] if each["id"] == machine)


def do(service, path, body=None, method="POST"):
    with service.client() as client:
        return client.request(method, path, json={} if body is None else body)


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
        assert shown["limit"] == 1.0
        assert shown["last_24h"] == {"clips": 1, "anomalous": 1}

    def test_the_time_of_recording_counts(self, service, machine):
        early = datetime.now(UTC) - timedelta(days=2)
        for when in (early, early + timedelta(hours=1), early - timedelta(hours=1)):
            service.score(normal(), machine, recorded_at=when.isoformat())
        times = [clip["time"] for clip in clips_of(service, machine, since="2020-01-01")]
        assert times == sorted(times, reverse=True)
        assert len(clips_of(service, machine, since=early.isoformat())) == 2
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
        number = raise_alarm(service, machine)
        told = service.get("/v1/changes", params={"after": last}).json()
        schemas.Changes.model_validate(told)
        assert [clip["machine"] for clip in told["clips"]] == [machine] * 2
        # The watchdog may say something about machines of other tests.
        assert [each["id"] for each in told["alarms"] if each["machine"] == machine] == [number]
        assert [each["status"] for each in told["machines"] if each["id"] == machine] == ["alarm"]
        do(service, f"/v1/alarms/{number}/acknowledge")
        again = service.get("/v1/changes", params={"after": told["last"]}).json()
        assert again["clips"] == []
        (alarm,) = [each for each in again["alarms"] if each["machine"] == machine]
        assert alarm["state"] == "acknowledged"

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
            ("/v1/machines/unheard/history?since=never", 422),
            ("/v1/clips/999999", 404),
            ("/v1/machines/unheard/normals/99/audio", 404),
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
            assert service.get(f"/v1/machines/unheard/normals/7/{what}").status_code == 200
        path.write_bytes(normal(1007))
        try:
            other = service.get("/v1/machines/unheard/normals/7/audio")
            assert other.status_code == 404
            assert "is not the one in the model" in other.json()["detail"]
        finally:
            path.write_bytes(normal(7))


class TestPeople:
    def test_a_lasting_fault_is_one_alarm_through_all_of_its_states(self, service, machine):
        number = raise_alarm(service, machine)

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
        for n in range(3):
            clip = service.score(normal(n), machine).json()["clip"]
        assert clip["cleared"] == [number]
        query = {"machine": machine, "open": "true"}
        assert service.get("/v1/alarms", params=query).json()["alarms"] == []
        assert do(service, f"/v1/alarms/{number}/shelve", {"minutes": 5}).status_code == 409
        actions = {each["action"] for each in service.get("/v1/audit").json()["entries"]}
        assert actions >= {"acknowledge", "shelve", "unshelve", "answer fault"}
        number = raise_alarm(service, machine)
        assert act("clear", comment="repaired").cleared_by == "local"

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


class TestModels:
    """What people decide about a model on the page."""

    def revise(self, service, machine, status=200, **body):
        answer = do(service, f"/v1/machines/{machine}/model", body)
        assert answer.status_code == status, answer.text
        return answer.json().get("sentence", answer.json().get("detail"))

    def ids(self, service, machine, first, count):
        clips = [service.score(normal(first + n), machine, name=f"{n}.wav") for n in range(count)]
        return [clip.json()["clip"]["id"] for clip in clips]

    def normals(self, service, machine):
        return service.get(f"/v1/machines/{machine}/normals").json()["total"]

    def test_healthy_recordings_are_added_removed_and_restored(self, service, machine):
        added = self.ids(service, machine, 100, 2)
        told = self.revise(service, machine, action="add", clips=added)
        assert "Added 2 healthy recordings; there are now 42." in told
        wait_until(lambda: self.normals(service, machine) == 42)
        self.revise(service, machine, action="remove", normals=["0.wav"])
        self.revise(service, machine, action="undo")
        wait_until(lambda: self.normals(service, machine) == 42)
        again = self.revise(service, machine, 409, action="add", clips=added)
        assert "has all of these" in again

    def test_the_alarm_limit_is_set_by_chosen_recordings(self, service, machine):
        few = self.ids(service, machine, 200, 10)
        told = self.revise(service, machine, 409, action="calibrate", clips=few[:3])
        assert "at least 10" in told
        told = self.revise(service, machine, action="calibrate", clips=few)
        assert "comes from 10 recordings" in told
        wait_until(lambda: "false alarm" in "".join(glance(service, machine)["expectation"]))

        def notes():
            """The next recording is judged by another model: its moment is on the chart."""
            service.score(normal(300), machine)
            return service.get(f"/v1/machines/{machine}/trend").json()["notes"]

        wait_until(notes)
        assert "alarm limit changed" in notes()[0]["text"]

    def test_what_is_not_healthy_or_not_there_is_refused(self, service, machine):
        clip = service.score(faulty(), machine).json()["clip"]["id"]
        do(service, f"/v1/clips/{clip}/answer", {"answer": "fault"})
        for body, words in (
            ({"action": "add", "clips": [clip]}, "never learns"),
            ({"action": "add", "clips": [999_999]}, "no recording 999999"),
            ({"action": "add"}, "at least one"),
            ({"action": "remove", "normals": ["none.wav"]}, "no normal called"),
        ):
            assert words in self.revise(service, machine, 409, **body)

    def test_without_a_model_recordings_may_be_sent_again(self, service):
        for answer in (
            service.score(normal(), "modelless"),
            service.get("/v1/machines/modelless/normals"),
        ):
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
        wait_until(lambda: glance(service, "modelless")["problems"])


def test_the_report_of_a_shift_is_one_page(service, machine):
    do(service, f"/v1/machines/{machine}/notes", {"text": "Bearing <changed>"})
    do(service, f"/v1/alarms/{raise_alarm(service, machine)}/answer", {"answer": "fault"})
    answer = service.get("/v1/report", params={"hours": 8})
    assert answer.headers["content-type"].startswith("text/html")
    assert "Bearing &lt;changed&gt;" in answer.text
    assert ">fault<" in answer.text
    assert "of 8 h" in answer.text


def test_every_value_in_force_is_printed_with_its_origin(tmp_path):
    write_plant(tmp_path, {"fan": {"alarm": "2 of 3"}}, service={"address": "127.0.0.1:0"})
    result = run("serve", tmp_path, "--check", "--workers", "1")
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert lines["machine.fan.alarm"].endswith("2 of 3  (daco.toml)")
    assert lines["service.workers"].endswith("1  (option)")
    assert "(default)" in lines["service.max_upload"]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("adress = '127.0.0.1:0'", "address"),
        ("address = '0.0.0.0:0'", "needs a token"),
        ("address = '127.0.0.1:{taken}'", "Cannot listen"),
    ],
)
def test_what_it_cannot_start_with_is_named(tmp_path, table, words):
    with socket.create_server(("127.0.0.1", 0)) as other:
        text = "[service]\n" + table.format(taken=other.getsockname()[1])
        (tmp_path / "daco.toml").write_text(text, "utf-8")
        error = refused("serve", tmp_path)
    assert words in str(error)
    assert [path.name for path in tmp_path.iterdir()] == ["daco.toml"]
