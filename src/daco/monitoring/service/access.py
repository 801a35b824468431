"""Who a request comes from: named tokens with roles, sessions of the page, and wrong tokens."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from daco.monitoring.config import Token
from daco.monitoring.store.records import Person

Role = Literal["viewer", "operator", "administrator"]

ROLES = ("viewer", "operator", "administrator")
"""Each may do what those before it may."""

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 1000

TRIES = 10
"""Wrong tokens of one address after which no further one is looked at for a while."""

REFILL_SECONDS = 6.0
"""After which an address has one more try."""

LOG_SECONDS = 60.0
MOST_ADDRESSES = 4096

log = logging.getLogger("daco.monitoring.service")


LOCAL = Person("local", "administrator")
"""Everyone, where no token is configured; only this computer can connect then."""


def may(person: Person, role: Role) -> bool:
    """Whether a person has this role or a higher one."""
    return ROLES.index(person.role) >= ROLES.index(role)


def digest(token: str) -> str:
    """The SHA-256 of a token in hexadecimal digits, as it is configured and compared."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass
class _Tries:
    """Wrong tokens of an address."""

    left: float
    counted_at: float
    logged_at: float = float("-inf")
    unlogged: int = 0


class Access:
    """Knows the tokens, the open sessions and the addresses that guess.

    Parameters
    ----------
    tokens : dict of str to Token
        The tokens of the configuration by the name of their owner. Without tokens everyone is an
        administrator.
    """

    def __init__(self, tokens: Mapping[str, Token]) -> None:
        self._people = [
            (token.digest().hex(), Person(name, token.role)) for name, token in tokens.items()
        ]
        self._sessions: OrderedDict[str, tuple[Person, float]] = OrderedDict()
        self._tries: OrderedDict[str, _Tries] = OrderedDict()
        self._accepted: OrderedDict[tuple[str, str], None] = OrderedDict()

    @property
    def is_open(self) -> bool:
        """Whether no token is needed."""
        return not self._people

    def by_token(self, token: str, address: str) -> Person | None:
        """The owner of a token; None where it is wrong, which is counted for the address."""
        given = digest(token)
        owner = None
        for known, person in self._people:  # all of them, so that the time reveals nothing
            if hmac.compare_digest(given, known):
                owner = person
        if owner is None:
            self._count_wrong(address)
        else:
            self._accepted[address, given] = None
            _shrink(self._accepted, MOST_ADDRESSES)
        return owner

    def wait_seconds(self, token: str, address: str) -> float:
        """How long an address has to wait before its token is looked at.

        A token that was accepted from the address before does not wait, so that a guesser behind
        the same proxy cannot lock others out.
        """
        tries = self._tries.get(address)
        if tries is None or (address, digest(token)) in self._accepted:
            return 0.0
        self._refill(tries)
        return 0.0 if tries.left >= 1 else REFILL_SECONDS * (1 - tries.left)

    def open_session(self, person: Person) -> str:
        """The secret of a new session."""
        secret = secrets.token_urlsafe(32)
        self._sessions[digest(secret)] = (person, time.monotonic() + SESSION_SECONDS)
        _shrink(self._sessions, MOST_SESSIONS)
        return secret

    def by_session(self, secret: str) -> Person | None:
        """The person of a session that was not closed and has not ended."""
        person, ends = self._sessions.get(digest(secret), (None, 0.0))
        return person if time.monotonic() < ends else None

    def close_session(self, secret: str) -> None:
        """End a session."""
        self._sessions.pop(digest(secret), None)

    def _refill(self, tries: _Tries) -> None:
        now = time.monotonic()
        tries.left = min(TRIES, tries.left + (now - tries.counted_at) / REFILL_SECONDS)
        tries.counted_at = now

    def _count_wrong(self, address: str) -> None:
        now = time.monotonic()
        tries = self._tries.setdefault(address, _Tries(TRIES, now))
        self._refill(tries)
        tries.left = max(0.0, tries.left - 1)
        tries.unlogged += 1
        if now - tries.logged_at >= LOG_SECONDS:
            log.warning("%d wrong tokens from %s", tries.unlogged, address)
            tries.logged_at, tries.unlogged = now, 0
        self._tries.move_to_end(address)
        _shrink(self._tries, MOST_ADDRESSES)


def _shrink(table: OrderedDict[Any, Any], most: int) -> None:
    while len(table) > most:
        table.popitem(last=False)
