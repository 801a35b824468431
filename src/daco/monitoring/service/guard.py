"""What stands before every request: host, token, origin, size and time; and headers after it."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daco.monitoring.service.auth import bearer, is_session, same_token, session_of
from daco.monitoring.service.metrics import Metrics
from daco.monitoring.service.problems import Problem, busy
from daco.monitoring.service.settings import Settings, is_loopback
from daco.monitoring.service.uploads import too_large

SMALL_BODY = 65_536
"""Bytes of a request that is no upload."""

OPEN_PATHS = ("/", "/healthz", "/login")
"""What needs no token: the page itself holds no data, and asks for one."""

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

WRITE_SECONDS = 30.0
"""In which a client must have taken a piece of the answer."""

_SAFE = ("GET", "HEAD")

log = logging.getLogger("daco.monitoring.service")


class Guard:
    """ASGI middleware; the application behind it sees only requests that may be made.

    `is_full` says whether another recording would be refused. That is told here, before anything
    is spent on a request, so that those who do not wait leave time for the others' work.
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
            except Problem as answered:
                await self._fail(answered, scope, receive, answer)
            except Exception:
                if answer.gave_up:
                    return  # a client that takes no answer: the server closes the connection
                number = secrets.token_hex(4)
                log.exception("request failed, number %s", number)
                problem = Problem(500, f"The service failed. Its log says more at {number}.")
                await self._fail(problem, scope, receive, answer)

    async def _fail(
        self, problem: Problem, scope: Scope, receive: Receive, answer: _Answer
    ) -> None:
        if answer.status is None:  # else it has begun, and ends with the connection
            await problem.response()(scope, receive, answer)

    def _check(self, scope: Scope) -> None:
        headers = scope["headers"]
        given_token = self._check_host_and_token(scope)
        if scope["method"] not in _SAFE and not given_token:
            _require_same_origin(headers, strict=self._settings.token is not None)
        if _is_upload(scope) and self._is_full():
            self._metrics.refused.labels("busy").inc()
            raise busy()

    def _check_host_and_token(self, scope: Scope) -> bool:
        """Whether the request carries the token itself."""
        headers, token = scope["headers"], self._settings.token
        if self._settings.on_loopback and _host_name(headers) not in self._hosts:
            # Another site's name that was made to point here: its page must not get in.
            raise Problem(421, "The service is not known under this host name.")
        if token is None:
            return False
        given = bearer(headers)
        if given is not None and same_token(given, token):
            return True
        if scope["path"] in OPEN_PATHS or _is_static(scope):
            return False
        session = session_of(headers)
        if given is None and session is not None and is_session(session, token):
            return False
        raise Problem(401, "The token is missing or wrong.", {"WWW-Authenticate": "Bearer"})

    def _bounded(self, scope: Scope, receive: Receive) -> Receive:
        """A small body, in time. Uploads have bounds of their own."""
        if _is_upload(scope):
            return receive
        seconds = self._settings.read_seconds
        size = 0

        async def bounded() -> Message:
            nonlocal size
            message = await receive()
            if message["type"] == "http.request":
                size += len(message.get("body", b""))
                if size > SMALL_BODY:
                    raise too_large(SMALL_BODY)
            return message

        async def in_time() -> Message:
            try:
                async with asyncio.timeout(seconds):
                    return await bounded()
            except TimeoutError:
                raise Problem(408, f"The body did not arrive within {seconds:g} s.") from None

        return bounded if scope["method"] in _SAFE else in_time


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
            names = {name for name, _ in headers}
            if b"cache-control" not in names:
                headers.append((b"cache-control", self._cache))
            message = {**message, "headers": headers + SECURITY_HEADERS}
        try:
            async with asyncio.timeout(WRITE_SECONDS):
                await self._send(message)
        except TimeoutError:
            self.gave_up = True
            raise


def _is_upload(scope: Scope) -> bool:
    path = scope["path"]
    return bool(path.startswith("/v1/machines/") and path.endswith("/score"))


def _is_static(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/static/"))


def _header(headers: list[tuple[bytes, bytes]], name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in headers if key == name), None)


def _host_name(headers: list[tuple[bytes, bytes]]) -> str:
    """The host a request was sent to, without its port."""
    given = (_header(headers, b"host") or "").lower()
    name, colon, port = given.rpartition(":")
    return name if colon and port.isdigit() and not given.endswith("]") else given


def _require_same_origin(headers: list[tuple[bytes, bytes]], *, strict: bool) -> None:
    """A Problem unless the request comes from our own page, or from no page at all.

    Browsers say where a request that changes something comes from. `strict` is for sessions,
    which only browsers have: there, no word about the origin is not enough.
    """
    origin, site = _header(headers, b"origin"), _header(headers, b"sec-fetch-site")
    host = (_header(headers, b"host") or "").lower()
    if origin is not None:
        same = urlsplit(origin).netloc.lower() == host and bool(host)
    elif site is not None:
        same = site in ("same-origin", "none")
    else:
        same = not strict
    if not same or (site is not None and site not in ("same-origin", "none")):
        raise Problem(403, "The request comes from another site's page.")
