"""Receivers of messages: what each does, how an attempt can fail, Apprise and the webhook.

Apprise sends to people: mail, Teams, Slack, ntfy and a hundred others by URL. The webhook sends
signed JSON as Standard Webhooks (standardwebhooks.com) say.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import json
import logging
import re
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from daco.errors import DacoError, InputError
from daco.monitoring.addresses import apprise_plugin, masked
from daco.monitoring.notify.messages import Message
from daco.monitoring.status import MachineStatus
from daco.monitoring.store.outbox import Delivery
from daco.version import __version__

TEMPORARY = (408, 425, 429)
"""Statuses of HTTP below 500 after which another attempt may succeed."""


class NotDeliveredError(DacoError):
    """An attempt failed; another one will be made after at least `wait` seconds."""

    def __init__(self, reason: str, wait: float = 0.0) -> None:
        super().__init__(reason)
        self.wait = wait


class RefusedError(DacoError):
    """The receiver will never take this message: it is set aside and shown."""


class Receiver:
    """A mail account, chat, broker or web address."""

    name: str  #: in the outbox
    label: str  #: for people, without secrets
    for_people = False  #: whether cooldown and quiet hours hold its messages back

    def send(self, delivery: Delivery, message: Message) -> None:
        """Make one attempt; raise NotDeliveredError or RefusedError where it failed."""
        raise NotImplementedError

    def refresh(self, machines: Sequence[MachineStatus]) -> None:
        """Show the present state of the machines, where the receiver has a place for it."""

    def close(self) -> None:
        """End connections."""


ID_HEADER = "X-Daco-Message-Id"

_STATUS = re.compile(r"error=(\d{3})\b")


class _Complaints(logging.Handler):
    """What Apprise logs about a failure, per thread: it returns no reason."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._of_thread = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        lines = getattr(self._of_thread, "lines", None)
        if lines is not None:
            lines.append(record.getMessage())

    def begin(self) -> list[str]:
        self._of_thread.lines = []
        return self._of_thread.lines


_complaints = _Complaints()


class AppriseUrl(Receiver):
    """One Apprise address."""

    for_people = True

    def __init__(self, url: str) -> None:
        self.name, self.label = receiver_name(url), masked(url)
        self._plugin: Any = apprise_plugin(url)
        if url.startswith("mailto"):
            self._plugin.request_rate_per_sec = 0  # Apprise would wait 5.5 s after every mail
        self._secrets = [part for part in re.split(r"[:/@?&=]+", url.partition("://")[2]) if part]
        logging.getLogger("apprise").addHandler(_complaints)  # once, however often it is called

    def send(self, delivery: Delivery, message: Message) -> None:
        """Make one attempt."""
        plugin, lines = self._plugin, _complaints.begin()
        if isinstance(getattr(plugin, "headers", None), dict):  # of mail and HTTP
            plugin.headers[ID_HEADER] = delivery.key
        body = f"{message.text}\n\nMessage {delivery.key[:12]}"
        try:
            sent = plugin.notify(
                body=body, title=message.title, notify_type=message.severity, body_format="text"
            )
        except Exception as error:  # plug-ins of many authors
            raise NotDeliveredError(f"{type(error).__name__} in Apprise") from error
        if sent:
            return
        reason = lines[-1] if lines else "Apprise could not send it"
        status = _STATUS.search(reason)
        if status and 400 <= int(status[1]) < 500 and int(status[1]) not in TEMPORARY:
            raise RefusedError(f"answered {status[1]}")
        if any(len(part) > 7 and part in reason for part in self._secrets):
            reason = "Apprise could not send it"
        raise NotDeliveredError(reason)


def receiver_name(url: str) -> str:
    """The name of an address in the outbox, which does not contain its secrets.

    >>> receiver_name("json://localhost")
    'url:99d8aad4'
    """
    return f"url:{hashlib.sha256(url.encode()).hexdigest()[:8]}"


_SECRET = "whsec_"
_MOST_DIGITS = 9  # of a Retry-After that is believed


class Webhook(Receiver):
    """A web address, and the secret that signs messages."""

    name = "webhook"

    def __init__(self, url: str, secret: str | None = None, timeout: float = 10.0) -> None:
        self.url, self.timeout = url, timeout
        self.label = f"the webhook at {urlsplit(url).hostname}"
        self._key = _key(secret) if secret else None

    def send(self, delivery: Delivery, message: Message) -> None:
        """Make one attempt."""
        body = json.dumps(delivery.body, ensure_ascii=False).encode()
        headers = self.headers(delivery.key, body, time.time())
        request = urllib.request.Request(self.url, body, headers, method="POST")
        try:
            with _OPENER.open(request, timeout=self.timeout):
                return
        except urllib.error.HTTPError as error:
            with error:
                if 400 <= error.code < 500 and error.code not in TEMPORARY:
                    raise RefusedError(f"answered {error.code}") from None
                wait = error.headers.get("Retry-After", "")
                wait = wait[:_MOST_DIGITS] if wait.isdecimal() else "0"
                raise NotDeliveredError(f"answered {error.code}", float(wait)) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or error
            raise NotDeliveredError(str(reason) or type(error).__name__) from None

    def headers(self, key: str, body: bytes, now: float) -> dict[str, str]:
        """The headers of an attempt; the key is the message's, not the attempt's."""
        headers = {
            "Content-Type": "application/json",
            "User-Agent": f"daco/{__version__}",
            "Idempotency-Key": key,
            "webhook-id": key,
            "webhook-timestamp": str(int(now)),
        }
        if self._key is not None:
            signed = f"{key}.{int(now)}.".encode() + body
            digest = hmac.new(self._key, signed, hashlib.sha256).digest()
            headers["webhook-signature"] = f"v1,{base64.b64encode(digest).decode()}"
        return headers


def _key(secret: str) -> bytes:
    """A secret is ``whsec_`` and base64, or any text."""
    if not secret.startswith(_SECRET):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_SECRET), validate=True)
    except binascii.Error:
        raise InputError("The webhook's secret is not base64 after whsec_.") from None


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, and perhaps elsewhere."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirects)
