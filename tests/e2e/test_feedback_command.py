"""daco feedback, on recordings that were watched."""

from __future__ import annotations

import shutil

import pytest
from command_line import refused, run, said
from plants import faulty, normal, put
from service_process import model

from daco.monitoring.store import Store


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A model, its recordings and the database of an alarm."""
    folder = tmp_path_factory.mktemp("plant") / "plant"
    folder.mkdir()
    model().save(folder / "press.daco")
    for seed in range(12):
        put(folder / "in" / f"clip_{seed:02}.wav", normal(seed) if seed < 9 else faulty(seed))
    watch(folder)
    return folder


@pytest.fixture
def plant(made, tmp_path):
    return shutil.copytree(made, tmp_path / "plant")


def watch(plant):
    table = {"DACO_MACHINE__PRESS__SETTLE": "0.01 s"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*table.popitem())
        run("watch", plant / "press.daco", plant / "in", "--once")


def test_an_alarm_is_answered_and_the_rates_are_shown(plant):
    text = said("feedback", plant / "press.daco")
    assert "No rate is known yet" in text
    assert "1 alarm without an answer: 1." in text
    words = ("--alarm", 1, "--by", "Kim", "--comment", "bearing 2")
    text = said("feedback", plant / "press.daco", "fault", *words)
    assert "3 of 3 clips with a fault were found (29 % to 100 %)." in text
    assert "alarm 1 fault Kim bearing 2" in text
    with Store.open(f"sqlite:///{plant}/daco.db") as store:
        assert {clip.answer for clip in store.clips("press") if clip.anomalous} == {"fault"}


def test_a_user_without_a_name_is_asked_for_one(plant, monkeypatch):
    def nobody():
        raise KeyError("getpwuid(): uid not found: 1234")

    monkeypatch.setattr("getpass.getuser", nobody)
    answer = ("feedback", plant / "press.daco", "false-alarm", "--clip", 1)
    assert "--by" in str(refused(*answer))
    assert "clip 1 false alarm Kim" in said(*answer, "--by", "Kim")


def test_a_model_without_a_database_is_explained(plant):
    (plant / "daco.db").unlink()
    assert "There is no database" in str(refused("feedback", plant / "press.daco"))
    assert not (plant / "daco.db").exists()


def test_a_machine_of_a_plant_is_named_commissioned_and_forgets_on_request(plant):
    tables = [f'[machine.{name}]\nmodel = "press.daco"\n' for name in ("press", "fan")]
    (plant / "daco.toml").write_text("".join(tables))
    assert "--machine: press, fan" in str(refused("feedback", plant))
    fan = ("feedback", plant, "--machine", "fan")
    text = said(*fan, "--commission", 10, "--by", "Kim")
    assert "The next 10 clips count as healthy." in text
    assert "The next 10 clips" in said(*fan)
    assert "What was learned is forgotten." in said(*fan, "--reset")
    assert "next 10 clips" not in said(*fan)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("fault",), "one clip or of one alarm"),
        (("fault", "--clip", 1, "--alarm", 1), "one clip or of one alarm"),
        (("fault", "--clip", 99), "press has no clip 99"),
        (("--commission", 501), "10 to 500 clips"),
    ],
)
def test_mistakes_are_named(made, options, message):
    assert message in str(refused("feedback", made / "press.daco", *options))
