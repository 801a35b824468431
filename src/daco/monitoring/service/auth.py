"""Who may ask: a token, compared in constant time, or a session that was opened with it."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie

COOKIE = "daco_session"
SESSION_SECONDS = 12 * 3600

Headers = Iterable[tuple[bytes, bytes]]


def same_token(given: str, token: str) -> bool:
    """Whether two tokens are equal, in a time that tells neither their content nor length."""
    return hmac.compare_digest(_digest(given), _digest(token))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def new_session(token: str, now: float | None = None) -> str:
    """The value of a session's cookie: when it ends, signed with the token.

    Nothing is stored: a session lasts through restarts, and ends when the token is changed.

    Examples
    --------
    >>> from daco.monitoring.service.auth import is_session, new_session
    >>> session = new_session("a secret of 16 or more", now=0)
    >>> is_session(session, "a secret of 16 or more", now=3600)
    True
    >>> is_session(session, "a secret of 16 or more", now=24 * 3600)
    False
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


def bearer(headers: Headers) -> str | None:
    """The token of an ``Authorization: Bearer`` header."""
    for name, value in headers:
        if name == b"authorization":
            scheme, _, given = value.decode("latin-1").partition(" ")
            return given.strip() if scheme.lower() == "bearer" else None
    return None


def session_of(headers: Headers) -> str | None:
    """The session's cookie."""
    for name, value in headers:
        if name == b"cookie":
            try:
                found = SimpleCookie(value.decode("latin-1")).get(COOKIE)
            except CookieError:
                return None
            return found.value if found else None
    return None


def session_cookie(value: str, *, secure: bool, seconds: int = SESSION_SECONDS) -> str:
    """The ``Set-Cookie`` of a session: no script reads it, no other site's request carries it."""
    flags = "; Secure" if secure else ""
    return f"{COOKIE}={value}; Max-Age={seconds}; Path=/; HttpOnly; SameSite=Strict{flags}"
