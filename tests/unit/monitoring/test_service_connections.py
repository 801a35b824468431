"""Connections of a real uvicorn: limited per address, and requests go on beside half-open ones."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import threading

import uvicorn
from service_process import wait_until

from daco.monitoring.service.connections import Connections, limited_protocol


class Running:
    """uvicorn in a thread before a trivial application that says when requests begin and end."""

    def __init__(self, connections: Connections) -> None:
        self.connections = connections
        self.held = threading.Event()
        self.release = threading.Event()
        config = uvicorn.Config(
            self._app,
            interface="asgi3",
            http=limited_protocol(connections),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
        self._server = uvicorn.Server(config)
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],))

    async def _app(self, scope, receive, send):
        self.connections.begin(scope["client"])
        try:
            if scope["path"] == "/hold":
                self.held.set()
                while not self.release.is_set():
                    await asyncio.sleep(0.01)
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"here"})
        finally:
            self.connections.end(scope["client"])

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.release.set()
        self._server.should_exit = True
        self._thread.join(20)
        assert not self._thread.is_alive()

    def connect(self, source: str = "127.0.0.1") -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), 10, source_address=(source, 0))

    def ask(self, source: str = "127.0.0.1", path: str = "/") -> int | None:
        """The status of a request on a connection of its own; None where it was cut off."""
        call = http.client.HTTPConnection(
            "127.0.0.1", self.port, timeout=10, source_address=(source, 0)
        )
        with contextlib.closing(call), contextlib.suppress(OSError, http.client.HTTPException):
            call.request("GET", path)
            return call.getresponse().status
        return None


def test_a_request_in_progress_is_never_closed_for_a_new_connection():
    with Running(Connections(8, 2)) as running:
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(running.ask(path="/hold")))
            for _ in range(2)
        ]
        for each in threads:
            each.start()
        wait_until(lambda: running.connections.total == 2)
        wait_until(running.held.is_set)
        wait_until(lambda: running.ask() == 503)
        assert running.ask("127.0.0.2") == 200
        running.release.set()
        for each in threads:
            each.join(20)
        assert answers == [200, 200]


def test_all_connections_together_are_limited_where_most_of_them_are():
    with Running(Connections(6, 5)) as running:
        crowd = [running.connect() for _ in range(5)]
        wait_until(lambda: running.connections.total == 5)
        alone = [running.connect(f"127.0.0.{n}") for n in (2, 3)]
        wait_until(lambda: running.connections.closed == 1)
        crowd[0].settimeout(10)
        assert crowd[0].recv(10) == b""
        alone[1].sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b" 200 " in alone[1].recv(100)
        for each in (*crowd, *alone):
            each.close()


def test_a_head_that_does_not_arrive_is_given_up():
    with Running(Connections(head_seconds=1.0)) as running:
        slow = [running.connect() for _ in range(3)]
        for each, sent in zip(slow, (b"", b"GET / HT", b"GET / HTTP/1.1\r\n"), strict=True):
            each.sendall(sent)
        for each in slow:
            with contextlib.suppress(ConnectionResetError):
                assert each.recv(10) == b""
            each.close()
        wait_until(lambda: running.connections.total == 0)


def test_a_connection_may_be_idle_between_requests():
    with Running(Connections(head_seconds=0.2)) as running:
        call = http.client.HTTPConnection("127.0.0.1", running.port, timeout=10)
        call.request("GET", "/")
        assert call.getresponse().read() == b"here"
        (connection,) = next(iter(running.connections._open.values())).values()
        assert connection._deadline is None
        call.request("GET", "/")
        assert call.getresponse().read() == b"here"
        call.close()
