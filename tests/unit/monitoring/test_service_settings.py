"""What the service refuses to start with."""

from __future__ import annotations

import pytest

from daco.errors import InputError
from daco.monitoring.service.settings import Settings, is_loopback, read_token

TOKEN = "0123456789abcdef"


def settings(folder, **changed):
    given = {"models": folder, "database": f"sqlite:///{folder}/daco.db", "clips": folder / "clips"}
    return Settings(**given | changed)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "", "example.org"])
def test_any_address_but_this_computers_needs_a_token(tmp_path, host):
    assert not is_loopback(host)
    with pytest.raises(InputError, match="needs a token"):
        settings(tmp_path, host=host)
    assert settings(tmp_path, host=host, token=TOKEN).token == TOKEN


@pytest.mark.parametrize("host", ["127.0.0.1", "127.3.2.1", "::1", "localhost"])
def test_this_computer_needs_none(tmp_path, host):
    assert settings(tmp_path, host=host).on_loopback


def test_another_name_for_this_computer_needs_a_token_as_well(tmp_path):
    with pytest.raises(InputError, match="needs a token"):
        settings(tmp_path, allowed_hosts=("plant.example",))
    assert settings(tmp_path, allowed_hosts=("plant.example",), token=TOKEN)


@pytest.mark.parametrize("token", ["short", "fifteen-letters", "with a space in it", "ümlaut" * 5])
def test_a_token_is_long_and_printable(tmp_path, token):
    with pytest.raises(InputError, match="at least 16"):
        settings(tmp_path, token=token)


def test_the_token_is_never_shown(tmp_path):
    assert TOKEN not in repr(settings(tmp_path, token=TOKEN))


def test_a_token_comes_from_a_file_or_the_environment(tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    assert read_token(file, {}) == TOKEN
    assert read_token(None, {"DACO_TOKEN": TOKEN}) == TOKEN
    assert read_token(None, {}) is None
    file.write_text("\n")
    with pytest.raises(InputError, match="no token"):
        read_token(file, {})
    with pytest.raises(InputError, match="cannot be read"):
        read_token(tmp_path / "nowhere", {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"workers": 0},
        {"port": 70000},
        {"max_body": 10},
        {"keep_audio": "some"},
        {"clips": None},
        {"keep_days": -1},
        {"buffered_bytes": 1000},
        {"allowed_hosts": ("http://plant.example",), "token": TOKEN},
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, wrong):
    with pytest.raises(InputError):
        settings(tmp_path, **wrong)


def test_folders_must_be_there(tmp_path):
    for wrong in ({"models": tmp_path / "no"}, {"normals": tmp_path / "no"}):
        with pytest.raises(InputError, match="not a folder"):
            settings(tmp_path, **wrong)
