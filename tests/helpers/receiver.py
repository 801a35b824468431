"""A web server on 127.0.0.1 that receives webhooks, and fails as told."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from broken_server import running


@dataclass
class Receiver:
    """What has arrived, as (headers, body); `answer` is the status for the n-th request."""

    url: str
    answer: Callable[[int], int] = lambda _: 204
    headers: dict[str, str] = field(default_factory=dict)  # of every answer
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    accepted: list[tuple[dict[str, str], bytes]] = field(default_factory=list)


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        state: Receiver = self.server.state
        body = self.rfile.read(int(self.headers["Content-Length"]))
        said = ({name.lower(): value for name, value in self.headers.items()}, body)
        with self.server.lock:
            number = len(state.requests)
            state.requests.append(said)
            status = state.answer(number)
            if status < 300:
                state.accepted.append(said)
        self.send_response(status)
        for name, value in state.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_GET(self):
        raise AssertionError("a webhook is never fetched")


@contextmanager
def receiving() -> Iterator[Receiver]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.lock = threading.Lock()
    state = server.state = Receiver(f"http://127.0.0.1:{server.server_port}/hook")
    with running(server):
        yield state
