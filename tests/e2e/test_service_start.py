"""What ``daco serve`` is started with: its folder, its models, its port and its receivers."""

from __future__ import annotations

import socket

import pytest
from command_line import process
from receiver import receiving
from service_process import ServiceProcess, faulty, model, normal, wait_until, write_plant


def _serve(folder, *options):
    return process("serve", folder, *options, timeout=60)


def test_every_value_in_force_is_printed_with_its_origin(tmp_path):
    write_plant(tmp_path, {"fan": {"alarm": "2 of 3"}}, service={"address": "127.0.0.1:0"})
    done = _serve(tmp_path, "--check", "--workers", "1")
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert lines["machine.fan.alarm"].endswith("2 of 3  (daco.toml)")
    assert lines["service.workers"].endswith("1  (option)")
    assert "(default)" in lines["service.max_upload"]
    (tmp_path / "daco.toml").write_text("[service]\nadress = '127.0.0.1:0'\n", "utf-8")
    wrong = _serve(tmp_path, "--check")
    assert wrong.returncode == 2
    assert "address" in wrong.stderr
    assert "Traceback" not in wrong.stderr


def test_a_port_may_be_taken(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = "{}:{}".format(*other.getsockname())
        write_plant(tmp_path, {}, service={"address": address})
        taken = _serve(tmp_path)
    assert taken.returncode == 2
    assert "Cannot listen" in taken.stderr


def test_a_folder_of_models_is_a_plant(tmp_path):
    model().save(tmp_path / "press.daco")
    service = ServiceProcess(tmp_path, {})
    (tmp_path / "daco.toml").unlink()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DACO_SERVICE__ADDRESS", "127.0.0.1:0")
        with service:
            assert service.score(normal()).status_code == 200


def test_a_model_that_vanishes_stays_in_use_and_one_that_never_was_is_503(tmp_path):
    machines = {"press": {}, "empty": {"model": "models/never.daco"}}
    with ServiceProcess(tmp_path, machines) as service:
        (tmp_path / "models").rename(tmp_path / "away")
        assert service.score(normal()).status_code == 200
        missing = service.score(normal(), "empty")
        assert missing.status_code == 503
        assert missing.headers["retry-after"]

        def problems():
            machines = service.get("/v1/machines").json()["machines"]
            return next(each["problems"] for each in machines if each["id"] == "empty")

        wait_until(problems)
        assert service.get("/v1/machines/empty/normals").status_code == 503
        wait_until(lambda: service.log.count("The model of press cannot be used") == 1)
        (tmp_path / "away").rename(tmp_path / "models")
        assert service.score(normal()).status_code == 200
        assert service.log.count("The model of press cannot be used") == 1
        assert "Traceback" not in service.log


def test_messages_that_are_refused_are_set_aside_and_can_be_sent_again(tmp_path):
    with receiving() as receiver:
        receiver.answer = lambda _: 410
        notify = {"webhook": receiver.url}
        with ServiceProcess(tmp_path, {"press": {"alarm": "every"}}, notify=notify) as service:
            service.score(faulty())

            def post(path):
                with service.client() as client:
                    return client.post(path, json={})

            def refused():
                listed = service.get("/v1/messages").json()["refused"]
                return [each for each in listed if each["machine"] == "press"]

            wait_until(refused)
            (message,) = refused()
            assert message["kind"] == "alarm.opened"
            receiver.answer = lambda _: 204
            tested = post("/v1/messages/test").json()["results"]
            assert list(tested.values()) == [None]
            assert post(f"/v1/messages/{message['id']}/resend").status_code == 204
            wait_until(lambda: any(b"alarm.opened" in body for _, body in receiver.accepted))
            assert refused() == []
