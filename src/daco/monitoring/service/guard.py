"""Checks around every request: host, person, origin, size and time; headers after it."""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Collection

from fastapi import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daco.monitoring.service.access import (
    COOKIE,
    LOCAL,
    Access,
    client_address,
    host_name,
    require_same_origin,
    unknown_person,
)
from daco.monitoring.service.connections import Connections
from daco.monitoring.store import Person

SMALL_BODY = 65_536
"""Bytes of a request that is not an upload."""

READ_SECONDS, WRITE_SECONDS = 20.0, 30.0
"""In which a body must have arrived, and a client must have taken a piece of the answer."""

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

log = logging.getLogger("daco.monitoring.service")


class Guard:
    """ASGI middleware; the application behind it sees only permitted requests.

    The person that a request comes from is in its scope as ``daco.person``, None where the path
    needs none. `count` is called with the scope, the status and the seconds of each request;
    `hosts` are the names under which the service may be asked, None for any.
    """

    def __init__(
        self,
        app: ASGIApp,
        access: Access,
        connections: Connections,
        count: Callable[[Scope, int | None, float], None],
        hosts: Collection[str] | None,
    ) -> None:
        self._app, self._access, self._connections = app, access, connections
        self._count, self._hosts = count, hosts

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
        self._connections.begin(scope.get("client"))
        try:
            self._check(HTTPConnection(scope))
            await self._app(scope, _bounded(scope, receive), answer)
        except HTTPException as failure:
            await answer.fail(failure, scope, receive)
        except Exception:
            if not answer.gave_up:  # else the server closes the connection
                number = secrets.token_hex(4)
                log.exception("request failed, number %s", number)
                unexpected = HTTPException(500, f"The service failed. See its log at {number}.")
                await answer.fail(unexpected, scope, receive)
        finally:
            self._connections.end(scope.get("client"))
            self._count(scope, answer.status, time.perf_counter() - started)

    def _check(self, request: HTTPConnection) -> None:
        if self._hosts is not None and host_name(request) not in self._hosts:
            # DNS rebinding: another site's name may be made to point here.
            raise HTTPException(421, "The service is not known under this host name.")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        has_token = scheme.lower() == "bearer" and not self._access.is_open
        request.scope["daco.person"] = self._person(request, token.strip() if has_token else None)
        if request.scope["method"] not in _SAFE and not has_token:
            require_same_origin(request, strict=not self._access.is_open)

    def _person(self, request: HTTPConnection, token: str | None) -> Person | None:
        if self._access.is_open:
            return LOCAL
        if token is not None:
            return self._access.by_token(token, client_address(request))
        person = self._access.by_session(request.cookies.get(COOKIE, ""))
        is_open = request.scope["path"] in OPEN_PATHS or _is_static(request.scope)
        if person is None and not is_open:
            raise unknown_person()
        return person


def too_large(most: int) -> HTTPException:
    """The answer to a body of more than `most` bytes."""
    return HTTPException(413, f"At most {most / 1e6:g} MB are accepted. Send shorter recordings.")


def _bounded(scope: Scope, receive: Receive) -> Receive:
    """A small body, in time. Uploads have bounds of their own."""
    if scope["path"].startswith("/v1/machines/") and scope["path"].endswith("/score"):
        return receive
    seconds = None if scope["method"] in _SAFE else READ_SECONDS
    size = 0

    async def bounded() -> Message:
        nonlocal size
        try:
            async with asyncio.timeout(seconds):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"The body did not arrive within {seconds:g} s.") from None
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

    async def fail(self, failure: HTTPException, scope: Scope, receive: Receive) -> None:
        if self.status is None:  # else it has begun, and ends with the connection
            content = {"detail": failure.detail}
            response = JSONResponse(content, failure.status_code, failure.headers)
            await response(scope, receive, self)


def _is_static(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/static/"))
