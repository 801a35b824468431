"""An HTTP server on 127.0.0.1 that serves files, and misbehaves as told."""

from __future__ import annotations

import hashlib
import json
import random
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Route:
    """A file and how it is served. Lists are used up, one entry per request."""

    body: bytes = b""
    etag: str | None = '"v1"'
    ranges: bool = True
    answers: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # before the file
    cuts: list[int] = field(default_factory=list)  # bytes after which the connection closes
    lie: int = 0  # added to Content-Length
    length: bool = True
    chunked: bool = False
    shift: int = 0  # added to the start of a range
    drip: float = 0.0  # seconds between single bytes


@dataclass
class Server:
    url: str
    routes: dict[str, Route] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def add(self, path: str, body: bytes = b"", **behaviour) -> str:
        self.routes[path] = Route(body, **behaviour)
        return self.url + path

    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.requests]

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
        state.requests.append((self.path, dict(self.headers)))
        route = state.routes.get(self.path)
        if route is None:
            self.send_error(404)
            return
        if route.answers:
            status, headers = route.answers.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            return
        self._serve(route)

    def _serve(self, route: Route):
        start, asked = 0, re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        if asked and route.ranges and self.headers.get("If-Range", route.etag) == route.etag:
            start = int(asked[1])
            if start >= len(route.body):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(route.body)}")
                self.end_headers()
                return
            start += route.shift
            self.send_response(206)
            last, total = len(route.body) - 1, len(route.body)
            self.send_header("Content-Range", f"bytes {start}-{last}/{total}")
        else:
            self.send_response(200)
        body = route.body[start:]
        if route.etag:
            self.send_header("ETag", route.etag)
        if route.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif route.length:
            self.send_header("Content-Length", str(len(body) + route.lie))
        self.end_headers()
        if route.cuts:
            body = body[: route.cuts.pop(0)]
        try:
            if route.chunked:  # without the closing chunk: the end never came
                self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
            elif route.drip:
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    time.sleep(route.drip)
            else:
                self.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            pass


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
