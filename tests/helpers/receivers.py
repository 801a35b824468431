"""Real receivers of messages: a mosquitto broker and an SMTP server on 127.0.0.1."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from pathlib import Path

import paho.mqtt.client as paho
import pytest
from aiosmtpd.controller import Controller
from broken_server import unused_port
from paho.mqtt.enums import CallbackAPIVersion
from service_process import wait_until

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")


class Broker:
    """A mosquitto that can be killed and started again on the same port."""

    def __init__(self, folder: Path, password: str | None = None) -> None:
        if MOSQUITTO is None:
            pytest.skip("mosquitto is not installed")
        self.port, self._folder = unused_port(), folder
        lines = [f"listener {self.port} 127.0.0.1", f"allow_anonymous {str(not password).lower()}"]
        if password:
            passwords = folder / "passwords"
            command = ["mosquitto_passwd", "-b", "-c", passwords, "daco", password]
            subprocess.run(command, check=True, capture_output=True)
            lines += [f"password_file {passwords}", "user root"]
        (folder / "mosquitto.conf").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    def start(self) -> None:
        log = (self._folder / "mosquitto.log").open("ab")
        command = [MOSQUITTO, "-c", str(self._folder / "mosquitto.conf")]
        self._process = subprocess.Popen(command, stdout=log, stderr=log)
        log.close()
        wait_until(lambda: _answers(self.port))

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def broker(folder: Path, password: str | None = None) -> Iterator[Broker]:
    running = Broker(folder, password)
    try:
        yield running
    finally:
        running.kill()


@dataclass
class Subscriber:
    """All that a broker's topics have said."""

    messages: list[tuple[str, str]] = field(default_factory=list)

    def last(self, topic: str) -> str | None:
        return next((text for name, text in reversed(self.messages) if name == topic), None)

    def documents(self, topic: str) -> list[dict]:
        return [json.loads(text) for name, text in self.messages if name == topic]


@contextmanager
def subscribed(port: int) -> Iterator[Subscriber]:
    state, ready = Subscriber(), threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_connect = lambda c, *_: c.subscribe("#", qos=1)
    client.on_subscribe = lambda *_: ready.set()
    client.on_message = lambda _, __, m: state.messages.append((m.topic, m.payload.decode()))
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert ready.wait(10)
    try:
        yield state
    finally:
        client.disconnect()
        client.loop_stop()


class _Inbox:
    def __init__(self) -> None:
        self.mails, self.answer = [], "250 OK"

    async def handle_DATA(self, server, session, envelope):  # noqa: N802
        if self.answer.startswith("250"):
            self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        return self.answer


@contextmanager
def mail_server() -> Iterator[_Inbox]:
    """An SMTP server; its mails, and the answer that the next one gets."""
    inbox = _Inbox()
    inbox.port = unused_port()
    controller = Controller(inbox, hostname="127.0.0.1", port=inbox.port)
    controller.start()
    inbox.url = f"mailto://127.0.0.1:{inbox.port}?from=daco@plant.example&to=kim@plant.example"
    inbox.url += "&mode=insecure"
    full_name, socket.getfqdn = socket.getfqdn, lambda *_: "localhost"  # smtplib asks a name server
    try:
        yield inbox
    finally:
        socket.getfqdn = full_name
        with suppress(Exception):
            controller.stop()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False
