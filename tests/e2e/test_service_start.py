"""What ``daco serve`` is started with: its folder, its models, its port and its receivers."""

from __future__ import annotations

import socket

import pytest
from command_line import refused, run
from service_process import ServiceProcess, model, normal, wait_until, write_plant


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
