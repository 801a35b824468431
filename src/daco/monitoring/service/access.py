"""Who a request comes from: named tokens with roles, sessions of the page, and wrong tokens."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fastapi import HTTPException
from starlette.requests import HTTPConnection

from daco.monitoring.store import Person
from daco.monitoring.tables import Role, Token

COOKIE = "daco_session"
SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1000

TRIES, TRIES_SECONDS = 10, 60.0
"""Wrong tokens of one address in this time after which no further one is looked at."""

LOG_SECONDS = 60.0
MOST_ADDRESSES = 4096

LOCAL = Person("local", "administrator")
"""Everyone, where no token is configured; only this computer can connect then."""

_ROLES = ("viewer", "operator", "administrator")  # each may do what those before it may

log = logging.getLogger("daco.monitoring.service")


def may(person: Person, role: Role) -> bool:
    """Whether a person has this role or a higher one."""
    return _ROLES.index(person.role) >= _ROLES.index(role)


@dataclass
class _WrongTokens:
    """Those of one address."""

    times: deque[float] = field(default_factory=lambda: deque(maxlen=TRIES))
    logged_at: float = float("-inf")
    unlogged: int = 0


class Access:
    """Knows the tokens by their owners, the open sessions, and the addresses that guess.

    Without tokens everyone is an administrator.
    """

    def __init__(self, tokens: Mapping[str, Token]) -> None:
        self._people = [
            (token.digest(), Person(name, token.role)) for name, token in tokens.items()
        ]
        self._sessions: OrderedDict[bytes, tuple[Person, float]] = OrderedDict()
        self._wrong: OrderedDict[str, _WrongTokens] = OrderedDict()
        self._accepted: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return not self._people

    def by_token(self, token: str, address: str) -> Person:
        """The owner of a token; 401 where it is wrong, 429 where the address guesses too often.

        A token that was accepted from the address before never waits, so that a guesser behind
        the same proxy cannot lock others out.
        """
        given = _digest(token)
        wrong = self._wrong.get(address)
        if wrong and len(wrong.times) == TRIES and (address, given) not in self._accepted:
            wait = wrong.times[0] + TRIES_SECONDS - time.monotonic()
            if wait > 0:
                later = {"Retry-After": str(int(wait) + 1)}
                detail = "Too many wrong tokens came from this address. Try later."
                raise HTTPException(429, detail, later)
        owner = None
        for known, person in self._people:  # all of them, so that the time reveals nothing
            if hmac.compare_digest(given, known):
                owner = person
        if owner is None:
            self._count_wrong(address)
            raise unknown_person()
        _remember(self._accepted, (address, given), None, MOST_ADDRESSES)
        return owner

    def open_session(self, person: Person) -> str:
        """The secret of a new session."""
        secret = secrets.token_urlsafe(32)
        ends = time.monotonic() + SESSION_SECONDS
        _remember(self._sessions, _digest(secret), (person, ends), MOST_SESSIONS)
        return secret

    def by_session(self, secret: str) -> Person | None:
        """The person of a session that was not closed and has not ended."""
        person, ends = self._sessions.get(_digest(secret), (None, 0.0))
        return person if time.monotonic() < ends else None

    def close_session(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(secret), None)

    def _count_wrong(self, address: str) -> None:
        now = time.monotonic()
        wrong = self._wrong.get(address) or _WrongTokens()
        wrong.times.append(now)
        wrong.unlogged += 1
        if now - wrong.logged_at >= LOG_SECONDS:
            log.warning("%d wrong tokens from %s", wrong.unlogged, address)
            wrong.logged_at, wrong.unlogged = now, 0
        _remember(self._wrong, address, wrong, MOST_ADDRESSES)


def unknown_person() -> HTTPException:
    """The answer to a request without a valid token or session."""
    return HTTPException(401, "The token is missing or wrong.", {"WWW-Authenticate": "Bearer"})


def client_address(request: HTTPConnection) -> str:
    """The address of a client; that of the proxy's client, where a proxy on this computer asks."""
    peer = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-for", "").rsplit(",", 1)[-1].strip()
    return forwarded[:64] if forwarded and _is_loopback(peer) else peer


def session_cookie(request: HTTPConnection, secret: str, seconds: int) -> str:
    """The ``Set-Cookie`` of a session: no script reads it, no other site's request carries it."""
    peer = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-proto", "") if _is_loopback(peer) else ""
    flags = "; Secure" if "https" in (request.url.scheme, forwarded) else ""
    return f"{COOKIE}={secret}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{flags}"


def host_name(request: HTTPConnection) -> str:
    """The host a request was sent to, without its port."""
    given = request.headers.get("host", "").lower()
    name, colon, port = given.rpartition(":")
    return name if colon and port.isdigit() and not given.endswith("]") else given


def require_same_origin(request: HTTPConnection, *, strict: bool) -> None:
    """Raise 403 unless the request comes from our own page, or from no page at all.

    Browsers name the origin of a request that changes something. `strict` is for sessions, which
    only browsers have: a request without an origin is refused there.
    """
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site")
    is_ours = site in ("same-origin", "none") or (site is None and not strict)
    if origin is not None:
        host = request.headers.get("host", "").lower()
        is_ours = bool(host) and _site(origin) == host and site in (None, "same-origin", "none")
    if not is_ours:
        raise HTTPException(403, "The request comes from another site's page.")


def _site(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def _remember(table: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Put an entry at the end of a table, and remove the oldest ones beyond its size."""
    table[key] = value
    table.move_to_end(key)
    while len(table) > most:
        table.popitem(last=False)
