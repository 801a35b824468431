"""Delivery of a store's messages to a web address: at least once, signed, in a thread.

Requests follow Standard Webhooks (standardwebhooks.com), for which receivers exist in most
languages.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from daco.errors import DacoError, InputError
from daco.monitoring.store import Delivery, Outbox, StoreError
from daco.version import __version__

_LONGEST_REST = 300.0  # seconds between attempts while the address does not answer
_IDLE = 1.0
_SECRET = "whsec_"


class NotDeliveredError(DacoError):
    """An attempt failed; another one will be made."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


@dataclass(frozen=True)
class Webhook:
    """A web address, and the secret that signs messages.

    Examples
    --------
    >>> Webhook.parse("https://alarms.example/T024/hook", "whsec_c2VjcmV0")
    Webhook(host='alarms.example', timeout=10.0)
    """

    url: str = field(repr=False)  # often a secret itself
    host: str
    secret: bytes | None = field(repr=False, default=None)
    timeout: float = 10.0

    @classmethod
    def parse(cls, url: str, secret: str | None = None, timeout: float = 10.0) -> Webhook:
        """A web address as typed, and a secret: ``whsec_`` and base64, or any text."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError:
            host = None
        if not host or parts.scheme not in ("http", "https") or not url.isascii() or " " in url:
            raise InputError("A webhook is an address that begins with http:// or https://.")
        if parts.username is not None:
            raise InputError("A webhook's address must not contain a user name or password.")
        key = None
        if secret:
            key = secret.encode()
            if secret.startswith(_SECRET):
                try:
                    key = base64.b64decode(secret.removeprefix(_SECRET), validate=True)
                except binascii.Error:
                    raise InputError("The webhook's secret is not base64 after whsec_.") from None
        return cls(url, host, key, timeout)

    def send(self, delivery: Delivery) -> None:
        """One attempt; a NotDeliveredError where the answer was not a 2xx."""
        headers = self.headers(delivery, time.time())
        request = urllib.request.Request(self.url, delivery.body.encode(), headers, method="POST")
        try:
            with _OPENER.open(request, timeout=self.timeout):
                return
        except urllib.error.HTTPError as error:
            with error:
                wait = error.headers.get("Retry-After", "")
                raise NotDeliveredError(
                    f"answered {error.code}", float(wait) if wait.isdecimal() else 0.0
                ) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise NotDeliveredError(str(reason) or type(error).__name__) from None

    def headers(self, delivery: Delivery, now: float) -> dict[str, str]:
        """The headers of an attempt; the idempotency key is the message's, not the attempt's."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"daco/{__version__}",
            "Idempotency-Key": delivery.key,
            "webhook-id": delivery.key,
            "webhook-timestamp": str(int(now)),
        }
        if self.secret is not None:
            signed = f"{delivery.key}.{int(now)}.{delivery.body}".encode()
            digest = hmac.new(self.secret, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return headers


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, and perhaps elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)


class WebhookSender:
    """A thread that delivers the messages of an outbox, and tries failed ones again.

    `say` is called with a sentence when the address stops answering and when it answers again. The
    wait after a failure, `first_wait` seconds, is doubled with each further one: of a message up
    to an hour, of the address up to five minutes. No message is given up.
    """

    def __init__(
        self,
        outbox: Outbox,
        webhook: Webhook,
        say: Callable[[str], None] = lambda _: None,
        *,
        first_wait: float = 1.0,
    ) -> None:
        self.outbox, self.webhook, self.say, self.first_wait = outbox, webhook, say, first_wait
        self._failures = 0
        self._ending = False
        self._news = threading.Event()
        self._thread = threading.Thread(target=self._run, name="daco-webhook", daemon=True)

    def __enter__(self) -> WebhookSender:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End after the attempt that is under way; what is left stays in the outbox."""
        self._ending = True
        self._news.set()
        self._thread.join(self.webhook.timeout + 1)

    def wake(self) -> None:
        """Deliver new messages now."""
        if not self._failures:
            self._news.set()

    def finish(self, patience: float) -> int:
        """Wait until all is delivered, attempts fail, or time is over; how many are left."""
        give_up = time.monotonic() + patience
        self.wake()
        while (left := self.outbox.pending()) and self._failures < 2:
            if time.monotonic() > give_up:
                break
            time.sleep(0.02)
        return left

    def _run(self) -> None:
        while not self._ending:
            try:
                rest = self._deliver_one()
            except StoreError:
                rest = _IDLE  # the watcher reports a store that fails
            if rest:
                self._news.wait(rest)
                self._news.clear()

    def _deliver_one(self) -> float:
        """Seconds to rest after one attempt."""
        delivery = self.outbox.take(hold=2 * self.webhook.timeout)
        if delivery is None:
            return _IDLE
        try:
            self.webhook.send(delivery)
        except NotDeliveredError as error:
            self._failures += 1
            again = self._doubled(delivery.attempt)
            self.outbox.put_back(delivery, str(error), max(again, error.wait))
            if self._failures == 1:
                self.say(
                    f"The webhook at {self.webhook.host} does not accept messages ({error}). "
                    "daco keeps them and sends them later."
                )
            return min(max(self._doubled(self._failures), error.wait), _LONGEST_REST)
        self.outbox.mark_delivered(delivery)
        if self._failures:
            self.say(f"The webhook at {self.webhook.host} accepts messages again.")
        self._failures = 0
        return 0.0

    def _doubled(self, failures: int) -> float:
        # Random, so that many senders do not try the same address at once.
        return self.first_wait * 2.0 ** min(failures - 1, 20) * random.uniform(0.75, 1.0)
