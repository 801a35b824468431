"""``daco serve`` as its users meet it: a real process, asked over HTTP."""

from __future__ import annotations

import base64
import csv
import io
import socket

import numpy as np
import pytest
from command_line import refused, run
from monitored_plant import raise_alarm
from service_process import RATE, faulty, humming, model, normal, wait_until, wav, write_plant


def glance(service, machine):
    listed = service.get("/v1/machines").json()["machines"]
    return next(each for each in listed if each["id"] == machine)


def do(service, path, body=None, method="POST"):
    with service.client() as client:
        return client.request(method, path, json={} if body is None else body)


class TestScoring:
    def test_a_recording_is_judged_stored_and_told(self, service, machine):
        answer = service.score(faulty(), machine, name="squeal.wav")
        assert answer.status_code == 200
        clip = answer.json()["clip"]
        found = clip["name"], clip["machine"], clip["state"]
        assert found == ("squeal.wav", machine, "anomalous")
        assert clip["oddness"] > 1
        assert clip["one_in"] > 1
        assert service.get(f"/v1/clips/{clip['id']}").json()["clip"]["oddness"] == clip["oddness"]
        shown = glance(service, machine)
        assert shown["last"]["id"] == clip["id"]
        assert shown["limit"] == 1.0
        assert shown["last_24h"] == {"clips": 1, "anomalous": 1}


class TestReading:
    def test_the_history_comes_in_pages_and_as_a_table_that_no_spreadsheet_computes(
        self, service, machine
    ):
        for data, name in (
            (normal(1), "early.wav"),
            (normal(2), "=1+2.wav"),
            (faulty(), 'a "quoted", name.wav'),
        ):
            service.score(data, machine, name=name)
        answer = service.get(f"/v1/machines/{machine}/history.csv")
        assert answer.headers["content-type"].startswith("text/csv")
        rows = list(csv.DictReader(io.StringIO(answer.text)))
        names = [row["name"] for row in rows]
        assert names == ['a "quoted", name.wav', "'=1+2.wav", "early.wav"]
        assert [row["state"] for row in rows] == ["anomalous", "normal", "normal"]
        assert float(rows[0]["oddness"]) > 1
        path = f"/v1/machines/{machine}/history"
        first = service.get(path, params={"limit": 2}).json()
        second = service.get(path, params={"limit": 2, "before": first["next"]}).json()
        assert [clip["state"] for clip in first["clips"]] == ["anomalous", "normal"]
        assert [clip["name"] for clip in second["clips"]] == ["early.wav"]
        assert second["next"] is None


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
        route = 'route="/v1/machines/{machine}/score"'
        assert f'daco_http_requests_total{{method="POST",{route},status="400"}}' in text


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

    def test_healthy_recordings_are_added_once(self, service, machine):
        added = self.ids(service, machine, 100, 2)
        told = self.revise(service, machine, action="add", clips=added)
        assert "Added 2 healthy recordings; there are now 42." in told
        wait_until(lambda: self.normals(service, machine) == 42)
        again = self.revise(service, machine, 409, action="add", clips=added)
        assert "has all of these" in again

    def test_what_is_not_healthy_or_not_there_is_refused(self, service, machine):
        clip = service.score(faulty(), machine).json()["clip"]["id"]
        do(service, f"/v1/clips/{clip}/answer", {"answer": "fault"})
        (other,) = self.ids(service, machine, 200, 1)
        for body, words in (
            ({"action": "add", "clips": [clip]}, "never learns"),
            ({"action": "add", "clips": [999_999]}, "no recording 999999"),
            ({"action": "add"}, "at least one"),
            ({"action": "calibrate", "clips": [other]}, "at least 10"),
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


def test_an_alarm_is_acknowledged_shelved_answered_and_cleared(service, machine):
    alarm = raise_alarm(service, machine)

    def state_after(action, **body):
        answer = do(service, f"/v1/alarms/{alarm}/{action}", body)
        assert answer.status_code == 200, answer.text
        return answer.json()["alarm"]["state"]

    assert state_after("acknowledge", comment="loose belt") == "acknowledged"
    assert state_after("shelve", minutes=30) == "shelved"
    assert state_after("unshelve") == "acknowledged"
    assert state_after("answer", answer="fault") == "acknowledged"
    assert state_after("clear") == "cleared"
    history = service.get(f"/v1/machines/{machine}/history").json()
    assert [clip["answer"] for clip in history["clips"]] == ["fault", "fault"]


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


def test_an_address_that_is_taken_is_named_before_anything_is_written(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        (tmp_path / "daco.toml").write_text(f"[service]\naddress = '127.0.0.1:{port}'", "utf-8")
        assert port in str(refused("serve", tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["daco.toml"]
