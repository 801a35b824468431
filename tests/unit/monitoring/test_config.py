"""daco.toml: values in force, their origins, and mistakes."""

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from daco.errors import InputError
from daco.monitoring.config import PlantConfig
from daco.monitoring.units import Hours, duration_text, parse_duration

EXAMPLE = """
[service]
address = "127.0.0.1:8477"
database = "sqlite:///daco.db"
[notify]
urls = ["mailto://user:geheim@example.com"]
mqtt = "mqtt://127.0.0.1:1883"
webhook = "https://receiver.example/hook/T0KEN"
[machine.Fan-1]
title = "Fan, hall 3"
model = "models/fan.daco"
folder = "inbox/fan"
healthy = "recordings/fan"
alarm = "3 of 5"
expect_every = "10 min"
hours = "mon-fri 6:00-22:00"
off = "alarm"
[machine.press]
"""


def load(folder: Path, text: str, **options: object) -> PlantConfig:
    (folder / "daco.toml").write_text(text)
    return PlantConfig.load(folder / "daco.toml", **options)


def test_a_file_is_read_with_paths_relative_to_it(tmp_path):
    config = load(tmp_path, EXAMPLE)
    fan, press = config.machine["Fan-1"], config.machine["press"]
    assert (fan.id, fan.name, press.name) == ("Fan-1", "Fan, hall 3", "press")
    assert fan.model == tmp_path / "models/fan.daco"
    assert press.model == tmp_path / "models/press.daco"
    assert fan.folder == tmp_path / "inbox/fan"
    assert fan.expect_every == timedelta(minutes=10)
    assert (fan.rule.k, fan.rule.n) == (3, 5)
    assert config.service.database == f"sqlite:///{tmp_path}/daco.db"
    assert config.service.recordings == tmp_path / "kept"
    assert PlantConfig.load(tmp_path) == config  # the folder of the file means the file


def test_options_override_the_environment_which_overrides_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("DACO_SERVICE__ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("DACO_SERVICE__WORKERS", "3")
    monkeypatch.setenv("DACO_MACHINE__FAN_1__ALARM", "2 of 3")
    monkeypatch.setenv("DACO_NOTIFY__URLS", '["json://other.example"]')
    options = {"address": "127.0.0.1:2", "recordings": Path("here"), "keep": None}
    config = load(tmp_path, EXAMPLE, service=options)
    assert config.service.port == 2
    assert config.service.recordings == Path.cwd() / "here"
    assert config.service.workers == 3
    assert config.machine["Fan-1"].rule.n == 3
    origins = {key: origin for key, _, origin in config.origins()}
    assert origins["service.address"] == "option"
    assert origins["service.workers"] == origins["notify.urls"] == "environment"
    assert origins["machine.Fan-1.alarm"] == "environment"
    assert origins["machine.Fan-1.title"] == origins["service.database"] == "daco.toml"
    assert origins["service.keep"] == origins["machine.press.model"] == "default"


def test_the_table_of_values_has_every_key_and_no_secret(tmp_path):
    secret = "0123456789abcdef" * 4
    text = EXAMPLE + f'[service.tokens.anna]\nrole = "operator"\nsha256 = "{secret}"\n'
    text = text.replace("[machine.Fan-1]", 'webhook_secret = "whsec_c2VjcmV0"\n[machine.Fan-1]')
    table = load(tmp_path, text).origins()
    printed = "\n".join(f"{key} = {value}" for key, value, _ in table)
    for hidden in ("geheim", "T0KEN", "c2VjcmV0", secret):
        assert hidden not in printed
    assert "service.tokens.anna.role = operator" in printed
    assert "service.keep = 400 days" in printed
    assert "service.audio_size = 2 GB" in printed
    assert "machine.Fan-1.hours = mon-fri 6:00-22:00" in printed
    assert len({key for key, *_ in table}) == len(table)


def test_a_folder_of_models_is_a_plant_without_a_file(tmp_path):
    (tmp_path / "fan.daco").touch()
    (tmp_path / "press.daco").touch()
    config = PlantConfig.load(tmp_path)
    assert list(config.machine) == ["fan", "press"]
    assert config.machine["fan"].model == tmp_path / "fan.daco"
    assert {m.folder or m.stream or m.microphone for m in config.machine.values()} == {None}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("servise = 1", "Did you mean 'service'"),
        ('[machine.fan]\nalrm = "off"', "[machine.fan] alrm is not a known key. Did you mean 'al"),
        ('[machine.fan]\nalarm = "5 of 3"', "[machine.fan] alarm"),
        ('[machine.fan]\nhours = "6-22"', "6:00-22:00"),
        ('[machine.fan]\nhours = "6:00-25:00"', "clock"),
        ('[machine.fan]\nfolder = "a"\nstream = "rtsp://x"', "one of folder, stream"),
        ('[machine.fan]\nstream = "ftp://x"', "rtsp://"),
        ('[machine."a b"]', "letters"),
        ("[machine]\nfan = 3", "[machine.fan]"),
        ("[notify]\ncooldown = 3", "'10 min'"),
        ('[notify]\nurls = ["nonsense://x"]', "Apprise"),
        ('[notify]\nmqtt = "http://x"', "mqtt://"),
        ('[notify]\nmqtt = "mqtt://host:99999"', "mqtt://"),
        ('[notify]\nwebhook = "http://host:port/"', "http://"),
        ('[notify]\nwebhook = "http://host/a b\\r\\nX: y"', "http://"),
        ('[notify]\nwebhook = "http://kim:hunter2@host/"', "password"),
        ('[service]\naudio_size = "2 apples"', "apples"),
        ('[service]\naddress = "127.0.0.1"', "port"),
        ('[service]\naddress = "0.0.0.0:8477"', "[service.tokens.NAME]"),
        ('[service]\nallowed_hosts = ["daco.plant"]', "[service.tokens.NAME]"),
        ('[service]\nmax_upload = "900 MB"', "memory_limit"),
        ('[notify]\nquiet_except = ["faults"]', "no kind of alarm"),
        ("[service", "not valid TOML"),
        ('[service]\nkeep_audio = "http://[::1/T0KEN"', "keep_audio"),
    ],
)
def test_mistakes_name_the_key_and_what_to_do(tmp_path, text, expected):
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert expected in str(caught.value)


def test_a_missing_file_says_how_to_make_one_and_all_mistakes_are_told_at_once(tmp_path):
    for path in (tmp_path, tmp_path / "daco.toml"):
        with pytest.raises(InputError, match="daco start"):
            PlantConfig.load(path)
    with pytest.raises(InputError) as caught:
        load(tmp_path, "[service]\nadress = 1\n[machine.fan]\nalrm = 1\n")
    assert str(caught.value).count("Did you mean") == 2


@pytest.mark.parametrize("value", ["json://host", "[1,", "{}"])
def test_a_variable_of_the_environment_that_is_no_list_is_named(tmp_path, monkeypatch, value):
    monkeypatch.setenv("DACO_NOTIFY__URLS", value)
    with pytest.raises(InputError, match=r"NOTIFY|\[notify\] urls"):
        load(tmp_path, EXAMPLE)


def test_a_token_is_a_hash_or_a_file(tmp_path):
    head = '[service.tokens.anna]\nrole = "viewer"\n'

    def digest(secret):
        return load(tmp_path, head + secret).service.tokens["anna"].digest()

    (tmp_path / "token").write_text("a" * 40 + "\n")
    known = digest('token_file = "token"')
    assert digest(f'sha256 = "{known.hex()}"') == known
    for bad in ("", "short", "ü" * 30):
        (tmp_path / "token").write_text(bad)
        with pytest.raises(InputError, match="openssl"):
            digest('token_file = "token"')
    with pytest.raises(InputError, match="either"):
        load(tmp_path, head)


@pytest.mark.parametrize("text", ["90 s", "10 min", "8 h", "7 days", "1 day", "0.5 s"])
def test_durations_are_written_as_they_are_read(text):
    assert duration_text(parse_duration(text)) == text


@pytest.mark.parametrize(
    "text", ["", "10", "min", "-1 s", "0 s", "9e9 s", "999999999 days", 3, None, True]
)
def test_other_durations_are_refused(text):
    with pytest.raises(ValueError, match="such as"):
        parse_duration(text)


def test_hours_pass_midnight_and_weeks():
    night = Hours.parse("fri-mon 22:00-6:00")
    monday = datetime(2026, 11, 16)
    assert monday + timedelta(hours=23) in night
    assert monday + timedelta(hours=29, minutes=59) in night  # Tuesday morning belongs to Monday
    assert monday + timedelta(hours=30) not in night
    assert monday + timedelta(days=1, hours=23) not in night
    assert night.until(monday + timedelta(hours=23)) == monday + timedelta(hours=30)
    assert Hours.parse("0:00-24:00").until(monday) == monday + timedelta(days=1)
