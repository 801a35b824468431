"""Checks around every request: connection, host, token, origin, size and time; headers after it.

Requests are also counted here: `Metrics` holds the service's counters and gauges for Prometheus.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import h11
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from daco.monitoring.service.schemas import RETRY_SECONDS, Problem, busy, too_large
from daco.monitoring.service.settings import Settings, is_loopback

COOKIE = "daco_session"
SESSION_SECONDS = 12 * 3600

SMALL_BODY = 65_536
"""Bytes of a request that is not an upload."""

WRITE_SECONDS = 30.0
"""In which a client must have taken a piece of the answer."""

OPEN_PATHS = ("/", "/healthz", "/login")
"""Paths that need no token; the page itself holds no data."""

MOST_MACHINES, OTHER = 200, "other"
"""Machines with counters of their own, and the label of all the others."""

SECURITY_HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
        b"media-src 'self' blob:; connect-src 'self'; font-src 'self'; manifest-src 'self'; "
        b"form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
]

_SAFE = ("GET", "HEAD")
_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0, 30.0)
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: 46\r\nConnection: close\r\nRetry-After: %d\r\n\r\n"
    b'{"detail": "Too many connections. Try later."}' % RETRY_SECONDS
)

log = logging.getLogger("daco.monitoring.service")


class Metrics:
    """The service's own collectors, in a registry of its own; label values are bounded."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, description: str, *labels: str) -> Counter:
            return Counter(name, description, labels, registry=registry)

        self.requests = counter(
            "daco_http_requests", "Requests by route and status.", "method", "route", "status"
        )
        self.latency = Histogram(
            "daco_http_request_seconds",
            "Time from the head of a request to the end of its answer.",
            ["route"],
            buckets=_BUCKETS,
            registry=registry,
        )
        self.clips = counter("daco_clips_scored", "Clips scored.", "machine")
        self.anomalous = counter("daco_clips_anomalous", "Clips above their threshold.", "machine")
        self.refused = counter("daco_uploads_refused", "Uploads not scored.", "reason")
        self.worker_restarts = counter(
            "daco_worker_restarts", "Workers that ended and were replaced."
        )
        self.events_dropped = counter(
            "daco_event_clients_dropped", "Event streams closed because the client was too slow."
        )
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._machines: set[str] = set()

    def add_gauge(self, name: str, description: str, value: Callable[[], float]) -> None:
        """Add a gauge whose value is read at each scrape."""
        Gauge(name, description, registry=self.registry).set_function(value)

    def count_request(self, scope: Scope, status: int | None, seconds: float) -> None:
        """Count an answered request, and its time unless it was a stream."""
        route = getattr(scope.get("route"), "path", OTHER)
        method = scope["method"] if scope["method"] in (*_SAFE, "POST") else OTHER
        self.requests.labels(method, route, str(status or OTHER)).inc()
        if route != "/v1/events":  # which lasts as long as its client
            self.latency.labels(route).observe(seconds)

    def count_clip(self, machine: str, anomalous: bool) -> None:
        """Count a clip."""
        if machine not in self._machines and len(self._machines) >= MOST_MACHINES:
            machine = OTHER
        self._machines.add(machine)
        self.clips.labels(machine).inc()
        self.anomalous.labels(machine).inc(anomalous)

    def text(self) -> bytes:
        """All metrics in Prometheus' format."""
        return generate_latest(self.registry)


def same_token(given: str, token: str) -> bool:
    """Whether two tokens are equal, in a time that reveals neither their content nor length."""
    return hmac.compare_digest(_digest(given), _digest(token))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def new_session(token: str) -> str:
    """The value of a session's cookie: when it ends, signed with the token.

    Nothing is stored: a session lasts through restarts, and ends when the token is changed.
    """
    ends = str(int(time.time()) + SESSION_SECONDS)
    return f"{ends}.{_signature(ends, token)}"


def is_session(value: str, token: str) -> bool:
    """Whether a cookie's value is that of a session that has not ended."""
    ends, _, signature = value.partition(".")
    if not (ends.isascii() and ends.isdigit() and len(ends) < 12):
        return False
    fits = hmac.compare_digest(signature.encode(), _signature(ends, token).encode())
    return fits and time.time() < int(ends)


def _signature(ends: str, token: str) -> str:
    return hmac.new(_digest(f"session {token}"), ends.encode(), hashlib.sha256).hexdigest()


def session_cookie(value: str, *, secure: bool, seconds: int = SESSION_SECONDS) -> str:
    """The ``Set-Cookie`` of a session: no script reads it, no other site's request carries it."""
    flags = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{flags}"


class Guard:
    """ASGI middleware; the application behind it sees only permitted requests.

    `is_full` says whether another recording would be refused. It is asked before anything is
    spent on an upload, so that refused clients leave time for the others' work.
    """

    def __init__(
        self,
        app: ASGIApp,
        settings: Settings,
        metrics: Metrics,
        is_full: Callable[[], bool] = lambda: False,
    ) -> None:
        self._app, self._settings, self._metrics, self._is_full = app, settings, metrics, is_full
        self._hosts = {"localhost", "127.0.0.1", "[::1]", *settings.allowed_hosts}
        if is_loopback(settings.host):
            self._hosts.add(f"[{settings.host}]" if ":" in settings.host else settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = _Answer(send, b"no-cache" if _is_static(scope) else b"no-store")
        started = time.perf_counter()
        try:
            self._check(scope)
            await self._app(scope, self._bounded(scope, receive), answer)
        except Problem as problem:
            await answer.fail(problem, scope, receive)
        except Exception:
            if not answer.gave_up:  # else the server closes the connection
                number = secrets.token_hex(4)
                log.exception("request failed, number %s", number)
                failure = Problem(500, f"The service failed. See its log at {number}.")
                await answer.fail(failure, scope, receive)
        finally:
            self._metrics.count_request(scope, answer.status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        request = HTTPConnection(scope)
        if self._settings.on_loopback and _host_name(request) not in self._hosts:
            # DNS rebinding: another site's name may be made to point here.
            raise Problem(421, "The service is not known under this host name.")
        has_token = self._check_token(request)
        if scope["method"] not in _SAFE and not has_token:
            _require_same_origin(request, strict=self._settings.token is not None)
        if _is_upload(scope) and self._is_full():
            self._metrics.refused.labels("busy").inc()
            raise busy()

    def _check_token(self, request: HTTPConnection) -> bool:
        """Whether the request carries the token itself."""
        token = self._settings.token
        if token is None:
            return False
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer"
        if is_bearer and same_token(given.strip(), token):
            return True
        is_open = request.scope["path"] in OPEN_PATHS or _is_static(request.scope)
        if is_open or (not is_bearer and is_session(request.cookies.get(COOKIE, ""), token)):
            return False
        raise Problem(401, "The token is missing or wrong.", {"WWW-Authenticate": "Bearer"})

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """A small body, in time. Uploads have bounds of their own."""
        if _is_upload(scope):
            return receive
        seconds = None if scope["method"] in _SAFE else self._settings.read_seconds
        size = 0

        async def bounded() -> Message:
            nonlocal size
            try:
                async with asyncio.timeout(seconds):
                    message = await receive()
            except TimeoutError:
                raise Problem(408, f"The body did not arrive within {seconds:g} s.") from None
            size += len(message.get("body", b""))
            if size > SMALL_BODY:
                raise too_large(SMALL_BODY)
            return message

        return bounded


class _Answer:
    """Sends an answer with the security headers, and remembers its status."""

    def __init__(self, send: Send, cache: bytes) -> None:
        self._send, self._cache = send, cache
        self.status: int | None = None
        self.gave_up = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = list(message.get("headers", []))
            if b"cache-control" not in {name for name, _ in headers}:
                headers.append((b"cache-control", self._cache))
            message = {**message, "headers": headers + SECURITY_HEADERS}
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._send(message)
        except TimeoutError:
            self.gave_up = True
            raise

    async def fail(self, problem: Problem, scope: Scope, receive: Receive) -> None:
        if self.status is None:  # else it has begun, and ends with the connection
            await problem.response()(scope, receive, self)


def _is_upload(scope: Scope) -> bool:
    path = scope["path"]
    return bool(path.startswith("/v1/machines/") and path.endswith("/score"))


def _is_static(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/static/"))


def _host_name(request: HTTPConnection) -> str:
    """The host a request was sent to, without its port."""
    given = request.headers.get("host", "").lower()
    name, colon, port = given.rpartition(":")
    return name if colon and port.isdigit() and not given.endswith("]") else given


def _require_same_origin(request: HTTPConnection, *, strict: bool) -> None:
    """Raise a Problem unless the request comes from our own page, or from no page at all.

    Browsers name the origin of a request that changes something. `strict` is for sessions, which
    only browsers have: a request without an origin is refused there.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    host = request.headers.get("host", "").lower()
    same_site = site in ("same-origin", "none")
    if origin is not None:
        same = bool(host) and urlsplit(origin).netloc.lower() == host
    else:
        same = same_site or (site is None and not strict)
    if not same or (site is not None and not same_site):
        raise Problem(403, "The request comes from another site's page.")


def bounded_protocol(settings: Settings) -> type[asyncio.Protocol]:
    """Uvicorn's protocol, with a bound on connections and on the time of a request's head.

    uvicorn bounds only how long a connection may be idle between requests. A client that sends
    nothing, a head byte by byte, or a body that nobody reads after an early answer could hold a
    connection for ever.
    """

    class BoundedProtocol(H11Protocol):
        _deadline: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > settings.connections:
                transport.write(_FULL)
                transport.close()
                return
            self._set_deadline()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._cancel_deadline()  # a request is being answered, within its own bounds
            elif self._deadline is None:
                self._set_deadline()

        def on_response_complete(self) -> None:
            if self.conn.their_state is h11.SEND_BODY:
                self._set_deadline()
            super().on_response_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_deadline()
            super().connection_lost(exc)

        def _set_deadline(self) -> None:
            """For a request's head, or for the rest of a body that was answered already."""
            self._cancel_deadline()
            seconds = settings.read_seconds
            self._deadline = self.loop.call_later(seconds, lambda: self.transport.abort())

        def _cancel_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

    return BoundedProtocol
