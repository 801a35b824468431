"""``daco serve`` as its users meet it: a real process, asked over HTTP."""

from __future__ import annotations

import io
import json
import os
import signal
from dataclasses import replace

import numpy as np
import pytest
import soundfile
from matplotlib.image import imread
from pydantic import TypeAdapter
from service_process import RATE, ServiceProcess, faulty, humming, model, normal, wait_until, wav
from stores import verdict

from daco.detector.gate import list_normals
from daco.monitoring.service import schemas
from daco.monitoring.store import NewClip, Store, StoredAlarm

MACHINES = 50
UNUSED = iter(range(MACHINES))


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("service")
    (folder / "normals" / "train").mkdir(parents=True)
    for row in range(40):
        (folder / "normals" / "train" / f"press_{row:03}.wav").write_bytes(normal(row))
    (folder / "models").mkdir()
    for number in range(MACHINES):
        model().save(folder / "models" / f"press-{number}.daco")
    (folder / "watched").mkdir()
    options = ["--keep-audio", "all", "--alarm", "2/3"]
    options += ["--normals", str(folder / "normals"), "--watched", str(folder / "watched")]
    with ServiceProcess(folder, *options) as running:
        yield running


@pytest.fixture
def machine():
    """A machine of its own for each test, so that they do not see each other's clips."""
    return f"press-{next(UNUSED)}"


def glance(service, machine):
    listed = service.get("/v1/machines").json()
    schemas.Machines.model_validate(listed)
    return next(each for each in listed["machines"] if each["id"] == machine)


class TestScoring:
    def test_a_recording_is_judged_stored_and_told(self, service, machine):
        answer = service.score(faulty(), machine, name="squeal.wav")
        assert answer.status_code == 200
        clip = schemas.OneClip.model_validate(answer.json()).clip
        assert (clip.name, clip.machine, clip.alarm) == ("squeal.wav", machine, True)
        assert clip.score > clip.threshold
        assert clip.p_value <= model().false_alarm_rate
        low, high = sorted(model().thresholds.values())
        assert low <= clip.threshold <= high
        assert (clip.state, clip.basis) == ("anomalous", model().basis_sentence)
        assert clip.reasons[0].startswith("far")
        assert clip.model_sha256 == model().sha256
        assert model().clip_names[clip.nearest_index] == clip.nearest
        told = service.get(f"/v1/clips/{clip.id}").json()
        assert schemas.OneClip.model_validate(told).clip == clip

    @pytest.mark.parametrize(("format", "subtype"), [("FLAC", "PCM_16"), ("OGG", "VORBIS")])
    def test_the_format_is_told_by_the_content(self, service, machine, format, subtype):
        packed = io.BytesIO()
        soundfile.write(packed, humming(5), RATE, format=format, subtype=subtype)
        answer = service.score(packed.getvalue(), machine)  # sent as audio/wav
        assert answer.status_code == 200
        kept = service.get(f"/v1/clips/{answer.json()['clip']['id']}/audio")
        assert kept.headers["content-type"] == f"audio/{format.lower()}"
        assert kept.content == packed.getvalue()

    def test_a_form_with_one_file_is_answered_as_the_file_alone(self, service, machine):
        with service.client() as client:
            answer = client.post(
                f"/v1/machines/{machine}/score", files={"file": ("a/b.wav", normal(), "audio/wav")}
            )
        assert schemas.OneClip.model_validate(answer.json()).clip.name == "b.wav"

    def test_a_form_with_several_says_what_became_of_each(self, service, machine):
        files = [
            ("file", ("good.wav", normal())),
            ("file", ("bad.wav", b"no sound")),
            ("file", ("odd.wav", faulty())),
        ]
        with service.client() as client:
            answer = client.post(f"/v1/machines/{machine}/score", files=files)
        said = schemas.ScoredClips.model_validate(answer.json())
        assert [clip.name for clip in said.clips] == ["good.wav", "odd.wav"]
        (bad,) = said.refused
        assert (bad.name, bad.status, bad.retry) == ("bad.wav", 400, False)
        alone = service.score(b"no sound", machine)
        assert (alone.status_code, alone.json()["detail"]) == (bad.status, bad.detail)
        assert "retry-after" not in alone.headers
        assert len(service.get(f"/v1/machines/{machine}/history").json()["clips"]) == 2

    def test_a_form_whose_files_all_fail_alike_fails_like_each_of_them(self, service, machine):
        files = [("file", (f"{n}.wav", b"no sound")) for n in range(3)]
        with service.client() as client:
            answer = client.post(f"/v1/machines/{machine}/score", files=files)
        assert answer.status_code == 400
        schemas.Detail.model_validate(answer.json())

    def test_the_same_key_is_stored_once(self, service, machine):
        headers = {"Content-Type": "audio/wav", "Idempotency-Key": "clip-7"}
        with service.client(headers=headers) as client:
            path = f"/v1/machines/{machine}/score"
            first = client.post(path, content=normal()).json()["clip"]
            second = client.post(path, content=normal()).json()["clip"]
            other = client.post(path, content=normal(6)).json()["clip"]
            assert client.post(path, content=b"x", headers={"Idempotency-Key": "a b"}).is_error
        assert first == second
        assert other["id"] != first["id"]
        assert len(service.get(f"/v1/machines/{machine}/history").json()["clips"]) == 2

    @pytest.mark.parametrize(
        ("data", "says"),
        [
            (b"", "empty"),
            (b"hello, this is no sound at all", "known format"),
            (b"RIFF\xff\xff\xff\xffWAVE", "recording cannot be used"),
            (normal()[:-100], "truncated"),
            (wav(np.zeros(100)), "at least"),
        ],
    )
    def test_what_is_no_recording_is_400_with_a_reason_and_no_path(
        self, service, machine, data, says
    ):
        answer = service.score(data, machine)
        assert answer.status_code == 400
        detail = schemas.Detail.model_validate(answer.json()).detail
        assert says in detail
        assert "/" not in detail.replace("recording/", "")

    def test_an_unknown_machine_is_404(self, service):
        for name in ("nobody", "..", "a b", "x" * 500, "%00"):
            answer = service.score(normal(), name)
            assert answer.status_code in (404, 422), name


class TestReading:
    def test_history_comes_in_pages_the_newest_first(self, service, machine):
        ids = [service.score(normal(n), machine).json()["clip"]["id"] for n in range(5)]
        path = f"/v1/machines/{machine}/history"
        first = schemas.History.model_validate(service.get(path, params={"limit": 3}).json())
        assert [clip.id for clip in first.clips] == ids[:1:-1]
        rest = service.get(path, params={"limit": 3, "before": first.next}).json()
        assert [clip["id"] for clip in rest["clips"]] == ids[1::-1]
        assert rest["next"] is None
        since = first.clips[0].received_at
        recent = service.get(path, params={"since": since}).json()
        assert [clip["id"] for clip in recent["clips"]] == ids[-1:]

    @pytest.mark.parametrize(
        "query",
        [{"limit": 0}, {"limit": 10**6}, {"before": "x"}, {"before": 2**70}, {"since": "soon"}],
    )
    def test_parameters_that_cannot_be_are_422_in_a_sentence(self, service, machine, query):
        answer = service.get(f"/v1/machines/{machine}/history", params=query)
        assert answer.status_code == 422
        assert next(iter(query)) in schemas.Detail.model_validate(answer.json()).detail

    def test_machines_at_a_glance(self, service, machine):
        fresh = glance(service, machine)
        assert (fresh["status"], fresh["last"], fresh["drift"]) == ("silent", None, None)
        assert fresh["domains"] == {"source": 30, "target": 10}
        service.score(normal(), machine)
        heard = glance(service, machine)
        assert heard["status"] == "ok"
        assert heard["last"]["machine"] == machine
        assert heard["drift"]["sentence"].startswith("There are too few clips")
        wait_until(lambda: glance(service, machine)["last_24h"] == {"clips": 1, "anomalous": 0}, 30)

    def test_too_many_anomalous_clips_are_a_stale_calibration(self, service, machine):
        files = [("file", (f"{n}.wav", faulty(n))) for n in range(16)]
        with service.client() as client:
            for _ in range(2):
                assert client.post(f"/v1/machines/{machine}/score", files=files).is_success
            for alarm in client.get("/v1/alarms", params={"machine": machine}).json()["alarms"]:
                client.post(f"/v1/alarms/{alarm['id']}/acknowledge", json={"by": "Kim"})
        seen = glance(service, machine)
        assert seen["status"] == "stale"
        sentence = (
            "100 % of the last 32 clips are anomalous; of a healthy machine about 10 % would be."
        )
        assert sentence in seen["drift"]["sentence"]
        assert seen["drift"]["points_to"] == "either"
        assert seen["drift"]["remedy"].startswith(f"daco calibrate {machine}.daco NEW_NORMALS")
        assert "false-alarm" not in seen["drift"]["sentence"]

    def test_the_normals_of_a_model_come_page_by_page(self, service, machine):
        path, rows, offset = f"/v1/machines/{machine}/normals", [], 0
        while offset is not None:
            answer = service.get(path, params={"limit": 15, "offset": offset}).json()
            page = schemas.Normals.model_validate(answer)
            assert page.total == 40
            rows += page.normals
            offset = page.next
        expected = list_normals(model())
        assert [each.row for each in rows] == [each.row for each in expected]
        # another process, other threads: float32 products differ in the last bits
        assert [each.score for each in rows] == pytest.approx(
            [each.score for each in expected], abs=1e-3
        )
        assert service.get(path).json()["next"] == 20

    @pytest.mark.parametrize(
        ("path", "status"),
        [
            ("/v1/machines/nobody/normals", 404),
            ("/v1/machines/press-0/normals?limit=0", 422),
            ("/v1/machines/press-0/normals?offset=99", 200),
            ("/v1/clips/999999", 404),
            ("/v1/clips/999999/audio", 404),
            ("/v1/machines/press-0/normals/99/audio", 404),
            ("/v1/nothing", 404),
            (f"/v1/clips/{2**63}", 422),
            ("/v1/clips/-1/audio", 422),
            ("/v1/alarms/1/acknowledge", 405),
            ("/static/app.js", 200),
            ("/static/page.css", 200),
        ],
    )
    def test_what_is_there_and_what_is_not(self, service, path, status):
        assert service.get(path).status_code == status


class TestSounds:
    def test_a_recording_comes_back_whole_and_in_parts(self, service, machine):
        clip = service.score(faulty(), machine).json()["clip"]
        path = f"/v1/clips/{clip['id']}/audio"
        whole = service.get(path)
        assert whole.content == faulty()
        assert whole.headers["accept-ranges"] == "bytes"
        part = service.get(path, headers={"Range": "bytes=10-19"})
        assert part.status_code == 206
        assert part.content == faulty()[10:20]
        assert part.headers["content-range"] == f"bytes 10-19/{len(faulty())}"
        assert service.get(path, headers={"Range": "bytes=99999999-"}).status_code == 416

    def test_pictures_in_both_themes(self, service, machine):
        clip = service.score(faulty(), machine).json()["clip"]
        path = f"/v1/clips/{clip['id']}/spectrogram.png"
        light, dark = (service.get(path, params={"theme": each}) for each in ("light", "dark"))
        assert light.headers["content-type"] == "image/png"
        assert imread(io.BytesIO(light.content)).shape[0] == 256
        assert light.content != dark.content
        assert service.get(path).content == light.content
        assert service.get(path, params={"theme": "pink"}).status_code == 422


class TestAlarms:
    def test_an_alarm_opens_is_acknowledged_and_stays_so(self, service, machine):
        clips = [service.score(faulty(n), machine).json()["clip"] for n in range(2)]
        assert clips[0]["alarm_id"] is None
        number = clips[1]["alarm_id"]
        assert glance(service, machine)["status"] == "alarm"
        query = {"machine": machine, "open": "true"}
        listed = schemas.Alarms.model_validate(service.get("/v1/alarms", params=query).json())
        (alarm,) = listed.alarms
        assert (alarm.id, alarm.clip_ids) == (number, tuple(clip["id"] for clip in clips))
        with service.client() as client:
            path = f"/v1/alarms/{number}/acknowledge"
            text = 'Loose belt <b>"tightened"</b>\u00e9'
            said = client.post(path, json={"by": "Kim", "comment": text})
            saved = schemas.OneAlarm.model_validate(said.json()).alarm
            assert (saved.acknowledged_by, saved.comment) == ("Kim", text)
            assert saved.closed_by == "acknowledgement"
            again = client.post(path, json={"by": "Alex"}).json()["alarm"]
            assert again["acknowledged_by"] == "Kim"
        assert not service.get("/v1/alarms", params=query).json()["alarms"]
        assert glance(service, machine)["open_alarms"] == 0

    @pytest.mark.parametrize(
        ("body", "status"),
        [
            ({"by": ""}, 422),
            ({"by": "x" * 201}, 422),
            ({"by": "Kim", "comment": "x" * 4001}, 422),
            ({"by": "Kim", "comment": "a\0b"}, 400),
            ({"by": "Kim", "more": 1}, 422),
            ({}, 422),
            ([], 422),
        ],
    )
    def test_an_acknowledgement_names_someone(self, service, machine, body, status):
        for n in range(2):
            clip = service.score(faulty(n), machine).json()["clip"]
        with service.client() as client:
            answer = client.post(f"/v1/alarms/{clip['alarm_id']}/acknowledge", json=body)
        assert answer.status_code == status
        schemas.Detail.model_validate(answer.json())

    @pytest.mark.parametrize("body", [b"[" * 60_000, b"\xff\xfe", b'{"by": NaN}', b""])
    def test_a_body_that_is_no_json_is_refused(self, service, body):
        with service.client() as client:
            headers = {"Content-Type": "application/json"}
            answer = client.post("/v1/alarms/1/acknowledge", content=body, headers=headers)
        assert answer.status_code in (400, 422)


class TestEvents:
    def test_clips_and_alarms_are_told_as_they_come(self, service, machine):
        events = []
        with service.client() as client, client.stream("GET", "/v1/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            assert next(lines).startswith("retry:")
            ids = [service.score(faulty(n), machine).json()["clip"]["id"] for n in range(2)]
            event = {}
            for line in lines:
                name, _, value = line.partition(": ")
                event[name] = value
                if not line:
                    if "data" in event:
                        events.append((event["event"], json.loads(event["data"])))
                    event = {}
                    if events and events[-1][0] == "machine" and events[-1][1]["open_alarms"]:
                        break
        mine = [(kind, data) for kind, data in events if machine in json.dumps(data)]
        clips = [data for kind, data in mine if kind == "clip"]
        assert [TypeAdapter(schemas.Clip).validate_python(clip).id for clip in clips] == ids
        (alarm,) = (data for kind, data in mine if kind == "alarm")
        assert list(TypeAdapter(StoredAlarm).validate_python(alarm).clip_ids) == ids
        assert TypeAdapter(schemas.Machine).validate_python(events[-1][1]).id == machine

    def test_clips_that_another_process_stores_are_told_as_well(self, service, machine):
        from datetime import UTC, datetime

        with service.client() as client, client.stream("GET", "/v1/events") as stream:
            lines = stream.iter_lines()
            next(lines)
            path = service.folder / "watched" / "watched.wav"
            path.write_bytes(normal(8))
            with Store.open(service.database) as store:
                for place in (path, service.folder / "normals" / "train" / "press_001.wav"):
                    store.add(
                        NewClip(
                            verdict(name=path.name),
                            machine,
                            datetime.now(UTC),
                            audio_path=str(place),
                        )
                    )
            told = [json.loads(next(lines_with(lines, "watched.wav"))) for _ in range(2)]
        assert [each["machine"] for each in told] == [machine] * 2
        # Its recording can be listened to where the service was told so, and nowhere else.
        assert [each["has_audio"] for each in told] == [True, False]
        assert service.get(f"/v1/clips/{told[0]['id']}/audio").content == normal(8)
        assert service.get(f"/v1/clips/{told[1]['id']}/audio").status_code == 404


def lines_with(lines, word):
    return (line.removeprefix("data: ") for line in lines if word in line and '"score"' in line)


class TestOperation:
    def test_metrics_count_what_happened(self, service, machine):
        service.score(faulty(), machine)
        service.score(b"no sound", machine)
        text = service.get("/metrics").text
        assert f'daco_clips_scored_total{{machine="{machine}"}} 1.0' in text
        assert f'daco_clips_anomalous_total{{machine="{machine}"}} 1.0' in text
        route = 'route="/v1/machines/{machine}/score"'
        assert f'daco_http_requests_total{{method="POST",{route},status="400"}}' in text
        for name in ("request_seconds_bucket", "queue_depth", "worker_restarts", "uploads_refused"):
            assert f"daco_{name}" in text or f"daco_http_{name}" in text
        assert "process_resident_memory_bytes" in text

    def test_the_document_names_every_route_with_its_answers(self, service):
        document = service.get("/openapi.json").json()
        paths = document["paths"]
        assert {
            "/v1/machines",
            "/v1/machines/{machine}/score",
            "/v1/machines/{machine}/history",
            "/v1/clips/{clip_id}",
            "/v1/clips/{clip_id}/audio",
            "/v1/clips/{clip_id}/spectrogram.png",
            "/v1/machines/{machine}/normals",
            "/v1/machines/{machine}/normals/{index}/audio",
            "/v1/machines/{machine}/normals/{index}/spectrogram.png",
            "/v1/alarms",
            "/v1/alarms/{alarm_id}/acknowledge",
            "/v1/alarms/{alarm_id}/answer",
            "/v1/clips/{clip_id}/answer",
            "/v1/machines/{machine}/feedback",
            "/v1/machines/{machine}/healthy",
            "/v1/machines/{machine}/reset",
            "/v1/events",
            "/healthz",
            "/metrics",
            "/login",
            "/logout",
        } == set(paths)
        for path, methods in paths.items():
            for method, about in methods.items():
                assert about["summary"], (path, method)
                assert about["description"], (path, method)
                if path.startswith("/v1/"):
                    assert "401" in about["responses"], (path, method)
        score = paths["/v1/machines/{machine}/score"]["post"]
        assert {"audio/wav", "multipart/form-data"} <= set(score["requestBody"]["content"])
        told = {"200", "400", "404", "413", "415", "502", "503", "504"}
        assert told <= set(score["responses"])
        assert document["components"]["schemas"]["Clip"]["examples"]
        TypeAdapter(schemas.Clip).validate_python(
            document["components"]["schemas"]["Clip"]["examples"][0]
        )


def send_form(service, **files):
    listed = [("file", (f"{name}.wav", data)) for name, data in files.items()]
    with service.client(headers={"Idempotency-Key": "form-1"}) as client:
        answer = client.post("/v1/machines/press/score", files=listed)
    assert answer.status_code == 200
    said = schemas.ScoredClips.model_validate(answer.json())
    return [clip.name for clip in said.clips], {
        each.name: (each.status, each.retry) for each in said.refused
    }


def test_a_file_whose_worker_took_too_long_may_be_sent_again(tmp_path):
    with ServiceProcess(tmp_path, settings={"workers": 1, "job_seconds": 3.0}) as service:
        wait_until(service.workers)
        (stopped,) = service.workers()
        os.kill(stopped, signal.SIGSTOP)
        try:
            clips, refused = send_form(service, a=normal(1), b=b"no sound", c=normal(3))
        finally:
            os.kill(stopped, signal.SIGCONT)
        assert clips == ["c.wav"]
        assert refused == {"a.wav": (504, True), "b.wav": (400, False)}
        clips, refused = send_form(service, a=normal(1), b=b"no sound", c=normal(3))
        assert (clips, list(refused)) == (["a.wav", "c.wav"], ["b.wav"])
        assert len(service.get("/v1/machines/press/history").json()["clips"]) == 2


def test_what_could_not_be_stored_may_be_sent_again(tmp_path):
    with ServiceProcess(tmp_path) as service:
        (tmp_path / "daco.db").rename(tmp_path / "away.db")
        clips, refused = send_form(service, a=b"no sound", b=normal(2), c=normal(3))
        assert clips == []
        assert refused == {"a.wav": (400, False), "b.wav": (503, True), "c.wav": (503, True)}
        (tmp_path / "away.db").rename(tmp_path / "daco.db")
        clips, refused = send_form(service, a=b"no sound", b=normal(2), c=normal(3))
        assert (clips, list(refused)) == (["b.wav", "c.wav"], ["a.wav"])


def test_a_normal_is_played_only_if_it_is_the_one_in_the_model(tmp_path):
    """Recordings of two machines have the same names; one folder is given for both."""
    for name, seed in (("fan", 0), ("bearing", 1000)):
        (tmp_path / "models").mkdir(exist_ok=True)
        renamed = replace(model("clip", seed=seed), machine=name)
        renamed.save(tmp_path / "models" / f"{name}.daco")
    replace(model("clip"), clip_sha256=()).save(tmp_path / "models" / "old.daco")
    fans = tmp_path / "normals" / "train"
    fans.mkdir(parents=True)
    for row in range(2):
        (fans / f"clip_{row:03}.wav").write_bytes(normal(row))
    with ServiceProcess(tmp_path, "--normals", str(tmp_path / "normals")) as service:

        def asked(machine, index, what="audio"):
            return service.get(f"/v1/machines/{machine}/normals/{index}/{what}")

        assert asked("fan", 0).content == normal(0)
        assert asked("fan", 0).headers["cache-control"] == "private, no-cache"
        for what in ("audio", "spectrogram.png"):
            other = asked("bearing", 0, what)
            assert other.status_code == 404
            assert "is not the one in the model" in other.json()["detail"]
            assert "fit the model again" in asked("old", 0, what).json()["detail"]
        assert "not in the folder" in asked("fan", 2).json()["detail"]
        # The bearing's own, in a folder of its name, are found behind those of the fan.
        bearings = tmp_path / "normals" / "bearing" / "train"
        bearings.mkdir(parents=True)
        (bearings / "clip_000.wav").write_bytes(normal(1000))
        assert asked("bearing", 0).content == normal(1000)
        # A recording that is replaced is not played any more, and again when it is back.
        (fans / "clip_001.wav").write_bytes(normal(1001))
        assert asked("fan", 1).status_code == 404
        (fans / "clip_001.wav").write_bytes(normal(1))
        assert asked("fan", 1).content == normal(1)


def test_a_model_folder_may_be_empty_and_ports_may_be_taken(tmp_path):
    with ServiceProcess(tmp_path, models=False) as service:
        assert "holds no model yet" in service.log
        assert f"daco fit RECORDINGS --out {service.models}/NAME.daco\n" in service.log
        assert service.get("/v1/machines").json() == {"machines": [], "problems": {}}
        assert service.get("/healthz").json()["ready"]
        assert "The token" not in service.log
        other = tmp_path / "other"
        other.mkdir()
        taken = ServiceProcess(other, "--port", str(service.port))
        with pytest.raises(AssertionError, match="Cannot listen"):
            taken.__enter__()
        assert service.get("/healthz").status_code == 200
