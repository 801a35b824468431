"""What the service refuses to start with, and the socket it listens on."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from daco.errors import InputError
from daco.monitoring.service.app import listening_socket
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
    assert TOKEN not in repr(settings(tmp_path, host=host, token=TOKEN))


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
    ("wrong", "message"),
    [
        ({"workers": 0}, "workers must be between 1 and 256"),
        ({"port": 70000}, "port must be between"),
        ({"max_body": 10}, "max_body must be between"),
        ({"keep_audio": "some"}, "alarms, all or none"),
        ({"clips": None}, "needs a folder"),
        ({"keep_days": -1}, "number of days"),
        ({"buffered_bytes": 1000}, "at least one upload"),
        ({"allowed_hosts": ("http://plant.example",), "token": TOKEN}, "no host name"),
        ({"models": Path("no")}, "not a folder"),
        ({"normals": Path("no")}, "not a folder"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path, wrong, message):
    with pytest.raises(InputError, match=message):
        settings(tmp_path, **wrong)


@pytest.mark.anyio
async def test_answers_are_sent_at_once():
    """Without TCP_NODELAY the body of an answer waits 40 ms for its head's acknowledgement."""
    options = asyncio.get_running_loop().create_future()

    async def accept(reader, writer):
        sock = writer.get_extra_info("socket")
        options.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listening_socket("127.0.0.1", 0)
    async with await asyncio.start_server(accept, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await options == 1
        writer.close()


def test_an_address_that_cannot_be_had_is_a_sentence():
    with pytest.raises(InputError, match="Cannot listen"):
        listening_socket("no.such.host.invalid", 0)


def test_a_missing_extra_is_named_with_its_command(tmp_path):
    program = (
        "import sys; sys.modules['fastapi'] = None\n"
        f"sys.argv = ['daco', 'serve', {str(tmp_path)!r}]\n"
        "from daco.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert 'pip install "daco-asd[serve]"' in " ".join(done.stderr.split())
