"""Checks around every request: host, person, origin, size and time; headers after it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import time
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from daco.monitoring.service.access import LOCAL, Access
from daco.monitoring.service.connections import Connections
from daco.monitoring.service.problems import Problem, too_large
from daco.monitoring.store.records import Person

COOKIE = "daco_session"

SMALL_BODY = 65_536
"""Bytes of a request that is not an upload."""

READ_SECONDS = 20.0
"""In which the body of a request must have arrived."""

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

log = logging.getLogger("daco.monitoring.service")


class Guard:
    """ASGI middleware; the application behind it sees only permitted requests.

    The person that a request comes from is in its scope as ``daco.person``, None where the path
    needs none. `count` is called with the scope, the status and the seconds of each request.
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
            self._check(scope)
            await self._app(scope, _bounded(scope, receive), answer)
        except Problem as problem:
            await answer.fail(problem, scope, receive)
        except Exception:
            if not answer.gave_up:  # else the server closes the connection
                number = secrets.token_hex(4)
                log.exception("request failed, number %s", number)
                failure = Problem(500, f"The service failed. See its log at {number}.")
                await answer.fail(failure, scope, receive)
        finally:
            self._connections.end(scope.get("client"))
            self._count(scope, answer.status, time.perf_counter() - started)

    def _check(self, scope: Scope) -> None:
        request = HTTPConnection(scope)
        if self._hosts is not None and _host_name(request) not in self._hosts:
            # DNS rebinding: another site's name may be made to point here.
            raise Problem(421, "The service is not known under this host name.")
        person, has_token = self._person(request)
        scope["daco.person"] = person
        if scope["method"] not in _SAFE and not has_token:
            _require_same_origin(request, strict=not self._access.is_open)

    def _person(self, request: HTTPConnection) -> tuple[Person | None, bool]:
        """Who asks, and whether the request carries a token itself."""
        if self._access.is_open:
            return LOCAL, False
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return person_of_token(self._access, request, given.strip()), True
        person = self._access.by_session(request.cookies.get(COOKIE, ""))
        is_open = request.scope["path"] in OPEN_PATHS or _is_static(request.scope)
        if person is None and not is_open:
            raise _unknown_person()
        return person, False


def person_of_token(access: Access, request: HTTPConnection, token: str) -> Person:
    """The owner of a token; a Problem where it is wrong, or the address guesses too often."""
    address = client_address(request)
    wait = access.wait_seconds(token, address)
    if wait:
        later = {"Retry-After": str(int(wait) + 1)}
        raise Problem(429, "Too many wrong tokens came from this address. Try later.", later)
    person = access.by_token(token, address)
    if person is None:
        raise _unknown_person()
    return person


def _unknown_person() -> Problem:
    return Problem(401, "The token is missing or wrong.", {"WWW-Authenticate": "Bearer"})


def client_address(request: HTTPConnection) -> str:
    """The address of a client; that of the proxy's client, where a proxy on this computer asks."""
    peer = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-for", "").rsplit(",", 1)[-1].strip()
    return forwarded[:64] if forwarded and _is_loopback(peer) else peer


def is_secure(request: HTTPConnection) -> bool:
    """Whether the client uses HTTPS, perhaps to a proxy on this computer."""
    peer = request.client.host if request.client else ""
    proto = request.headers.get("x-forwarded-proto", "") if _is_loopback(peer) else ""
    return request.url.scheme == "https" or proto == "https"


def session_cookie(secret: str, *, secure: bool, seconds: int) -> str:
    """The ``Set-Cookie`` of a session: no script reads it, no other site's request carries it."""
    flags = "; Secure" if secure else ""
    return f"{COOKIE}={secret}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{flags}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


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


def _is_static(scope: Scope) -> bool:
    return bool(scope["path"].startswith("/static/"))


def _host_name(request: HTTPConnection) -> str:
    """The host a request was sent to, without its port."""
    given = request.headers.get("host", "").lower()
    name, colon, port = given.rpartition(":")
    return name if colon and port.isdigit() and not given.endswith("]") else given


def _site(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _require_same_origin(request: HTTPConnection, *, strict: bool) -> None:
    """Raise a Problem unless the request comes from our own page, or from no page at all.

    Browsers name the origin of a request that changes something. `strict` is for sessions, which
    only browsers have: a request without an origin is refused there.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    host = request.headers.get("host", "").lower()
    same_site = site in ("same-origin", "none")
    if origin is not None:
        same = bool(host) and _site(origin) == host
    else:
        same = same_site or (site is None and not strict)
    if not same or (site is not None and not same_site):
        raise Problem(403, "The request comes from another site's page.")
