"""An HTTP server on 127.0.0.1 that serves files, and misbehaves as told."""

from __future__ import annotations

import hashlib
import json
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Route:
    """A file and how it is served. Lists are used up, one entry per request."""

    body: bytes = b""
    answers: list[int] = field(default_factory=list)  # statuses before the file is served
    cuts: list[int] = field(default_factory=list)  # bytes after which the connection closes


@dataclass
class Server:
    url: str
    routes: dict[str, Route] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def add(self, path: str, body: bytes = b"", **behaviour) -> str:
        self.routes[path] = Route(body, **behaviour)
        return self.url + path

    def add_record(self, record: int, archives: dict[str, bytes]) -> None:
        """A Zenodo record: its JSON, and its files where the JSON says."""
        files = []
        for name, body in archives.items():
            url = self.add(f"/api/records/{record}/files/{name}/content", body)
            checksum = "md5:" + hashlib.md5(body, usedforsecurity=False).hexdigest()
            files.append(
                {"key": name, "size": len(body), "checksum": checksum, "links": {"self": url}}
            )
        document = {"id": record, "files": files}
        self.add(f"/api/records/{record}", json.dumps(document).encode())


class _Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        state: Server = self.server.state
        state.requests.append(self.path)
        route = state.routes.get(self.path, Route(answers=[404]))
        status = route.answers.pop(0) if route.answers else 200
        body = b"" if status != 200 else route.body
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: route.cuts.pop(0)] if route.cuts else body)


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    """Serve in a thread until the end of the block."""
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def serving() -> Iterator[Server]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    state = server.state = Server(f"http://127.0.0.1:{server.server_port}")
    with running(server):
        yield state


def unused_port() -> int:
    """A port that nobody listens on, and that nobody gets who asks for any port."""
    while True:
        port = random.SystemRandom().randrange(10_000, 30_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
