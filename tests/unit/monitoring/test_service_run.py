"""The socket the service listens on."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys

import pytest

from daco.errors import InputError
from daco.monitoring.service.app import listening_socket


def test_answers_are_sent_at_once():
    """Without TCP_NODELAY the body of an answer waits 40 ms for its head's acknowledgement."""

    async def accepted_options():
        options = asyncio.get_running_loop().create_future()

        async def accept(reader, writer):
            sock = writer.get_extra_info("socket")
            options.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = listening_socket("127.0.0.1", 0)
        async with await asyncio.start_server(accept, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            found = await options
            writer.close()
        return found

    assert asyncio.run(accepted_options()) == 1


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
