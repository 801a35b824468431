"""daco feedback, on recordings that are watched."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest
from command_line import refused, run, said
from watched import record, save_model

from daco.detector.model import MachineModel
from daco.monitoring.store import Store


@pytest.fixture
def plant(tmp_path):
    save_model(tmp_path / "press.daco")
    for seed in range(12):
        record(tmp_path / "in" / f"clip_{seed:02}.wav", seed, fault=seed in (9, 10, 11))
    return tmp_path


def watch(plant, *options):
    folders = (plant / "press.daco", plant / "in")
    return run("watch", *folders, "--once", "--settle", 0, "--alarm", "3/5", *options)


def test_an_alarm_is_answered_and_the_rates_are_shown(plant):
    watch(plant)
    told = said("feedback", plant / "press.daco")
    assert "No rate is known yet" in told
    assert "1 alarm without an answer: 1." in told
    words = ("--alarm", 1, "--by", "Kim", "--comment", "bearing 2")
    told = said("feedback", plant / "press.daco", "fault", *words)
    assert "3 of 3 clips with a fault were found (29 % to 100 %)." in told
    assert "bearing 2" in told
    with Store.open(f"sqlite:///{plant}/daco.db") as store:
        assert {clip.answer for clip in store.clips("press") if clip.anomalous} == {"fault"}


def test_a_user_without_a_name_is_asked_for_one(plant, monkeypatch):
    watch(plant)

    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    message = str(refused("feedback", plant / "press.daco", "fault", "--clip", 1))
    assert "--by" in message
    run("feedback", plant / "press.daco", "fault", "--clip", 1, "--by", "Kim")


def test_recordings_of_false_alarms_become_normals_on_request(plant):
    watch(plant)
    (plant / "in" / "clip_11.wav").unlink()
    shutil.rmtree(plant / "kept")
    list_ = plant / "false.csv"
    run("feedback", plant / "press.daco", "false-alarm", "--alarm", 1, "--manifest", list_)
    table = pd.read_csv(list_)
    assert [path.rpartition("/")[2] for path in table.path] == ["clip_09.wav", "clip_10.wav"]
    domain = table.domain[0]
    run("update", plant / "press.daco", list_, "--domain", domain, "--keep-suspicious")
    assert len(MachineModel.load(plant / "press.daco")) == 24 + (table.domain == domain).sum()


def test_a_model_without_a_database_is_explained(plant):
    message = str(refused("feedback", plant / "press.daco"))
    assert "There is no database" in message
    assert not (plant / "daco.db").exists()


def test_kept_recordings_are_found(plant):
    watch(plant)
    for file in (plant / "in").iterdir():
        file.unlink()
    answer = ("feedback", plant / "press.daco", "false-alarm", "--alarm", 1)
    listed = plant / "false.csv"
    run(*answer, "--manifest", listed)
    assert all("/kept/" in path for path in pd.read_csv(listed).path)
    assert len(pd.read_csv(listed)) == 3


def test_a_machine_is_commissioned_and_forgets_on_request(plant):
    told = said("feedback", plant / "press.daco", "--commission", 10, "--by", "Kim")
    assert "The next 10 clips count as healthy." in told
    watch(plant)
    told = said("feedback", plant / "press.daco")
    assert "comes from 10 clips of the machine, declared healthy by Kim" in told
    told = said("feedback", plant / "press.daco", "--reset")
    assert "What was learned is forgotten." in told
    assert "declared healthy" not in told


def test_a_machine_of_a_plant_is_named(plant):
    tables = [f'[machine.{name}]\nmodel = "press.daco"\n' for name in ("press", "fan")]
    (plant / "daco.toml").write_text("".join(tables))
    assert "--machine: press, fan" in str(refused("feedback", plant))
    run("feedback", plant, "--machine", "fan", "--commission", 10, "--by", "Kim")
    assert "The next 10 clips" in said("feedback", plant / "daco.toml", "--machine", "fan")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("fault",), "one clip or of one alarm"),
        (("--clip", 1), "Give false-alarm or fault"),
        (("fault", "--clip", 1, "--alarm", 1), "one clip or of one alarm"),
        (("fault", "--clip", 99), "press has no clip 99"),
        (("--manifest", "nowhere/false.csv"), "nowhere is not a folder"),
        (("--manifest", "false.csv"), "has no recording of a false alarm"),
        (("--commission", 501), "10 to 500 clips"),
    ],
)
def test_mistakes_are_named(plant, options, message):
    watch(plant)
    assert message in str(refused("feedback", plant / "press.daco", *options))
