"""Checks around every request: connection, host, token, origin, size and time; headers after it."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import urlsplit

import h11
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from daco.monitoring.service.metrics import Metrics
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
_FULL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: 46\r\nConnection: close\r\nRetry-After: %d\r\n\r\n"
    b'{"detail": "Too many connections. Try later."}' % RETRY_SECONDS
)

log = logging.getLogger("daco.monitoring.service")


def same_token(given: str, token: str) -> bool:
    """Whether two tokens are equal, in a time that reveals neither their content nor length."""
    return hmac.compare_digest(_digest(given), _digest(token))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def new_session(token: str, now: float | None = None) -> str:
    """The value of a session's cookie: when it ends, signed with the token.

    Nothing is stored: a session lasts through restarts, and ends when the token is changed.
    """
    ends = str(int((time.time() if now is None else now) + SESSION_SECONDS))
    return f"{ends}.{_signature(ends, token)}"


def is_session(value: str, token: str, now: float | None = None) -> bool:
    """Whether a cookie's value is that of a session that has not ended."""
    ends, _, signature = value.partition(".")
    if not (ends.isascii() and ends.isdigit() and len(ends) < 12):
        return False
    fits = hmac.compare_digest(signature.encode(), _signature(ends, token).encode())
    return fits and (time.time() if now is None else now) < int(ends)


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
        with self._metrics.request(scope, answer):
            try:
                self._check(scope)
                await self._app(scope, self._bounded(scope, receive), answer)
            except Problem as problem:
                await _fail(problem, scope, receive, answer)
            except Exception:
                if answer.gave_up:
                    return  # the client takes no answer: the server closes the connection
                number = secrets.token_hex(4)
                log.exception("request failed, number %s", number)
                failure = Problem(500, f"The service failed. Its log says more at {number}.")
                await _fail(failure, scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        has_token = self._check_host_and_token(scope, headers)
        if scope["method"] not in _SAFE and not has_token:
            _require_same_origin(headers, strict=self._settings.token is not None)
        if _is_upload(scope) and self._is_full():
            self._metrics.refused.labels("busy").inc()
            raise busy()

    def _check_host_and_token(self, scope: Scope, headers: Headers) -> bool:
        """Whether the request carries the token itself."""
        token = self._settings.token
        if self._settings.on_loopback and _host_name(headers) not in self._hosts:
            # DNS rebinding: another site's name may be made to point here.
            raise Problem(421, "The service is not known under this host name.")
        if token is None:
            return False
        scheme, _, given = headers.get("authorization", "").partition(" ")
        is_bearer = scheme.lower() == "bearer"
        if is_bearer and same_token(given.strip(), token):
            return True
        if scope["path"] in OPEN_PATHS or _is_static(scope):
            return False
        if not is_bearer and is_session(_session(headers), token):
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
        self._send: Callable[[Message], Awaitable[None]] = send
        self._cache = cache
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


async def _fail(problem: Problem, scope: Scope, receive: Receive, answer: _Answer) -> None:
    if answer.status is None:  # else it has begun, and ends with the connection
        await problem.response()(scope, receive, answer)


def _is_upload(scope: Scope) -> bool:
    path = scope["path"]
    return bool(path.startswith("/v1/machines/") and path.endswith("/score"))


def _is_static(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/static/"))


def _session(headers: Headers) -> str:
    try:
        cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return cookie.value if cookie else ""


def _host_name(headers: Headers) -> str:
    """The host a request was sent to, without its port."""
    given = headers.get("host", "").lower()
    name, colon, port = given.rpartition(":")
    return name if colon and port.isdigit() and not given.endswith("]") else given


def _require_same_origin(headers: Headers, *, strict: bool) -> None:
    """Raise a Problem unless the request comes from our own page, or from no page at all.

    Browsers name the origin of a request that changes something. `strict` is for sessions, which
    only browsers have: a request without an origin is refused there.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    host = headers.get("host", "").lower()
    if origin is not None:
        same = urlsplit(origin).netloc.lower() == host and bool(host)
    elif site is not None:
        same = site in ("same-origin", "none")
    else:
        same = not strict
    if not same or (site is not None and site not in ("same-origin", "none")):
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
            self._deadline = self.loop.call_later(settings.read_seconds, self._give_up)

        def _cancel_deadline(self) -> None:
            if self._deadline is not None:
                self._deadline.cancel()
                self._deadline = None

        def _give_up(self) -> None:
            self.transport.abort()

    return BoundedProtocol
