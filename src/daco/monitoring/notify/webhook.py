"""Messages to a web address: signed JSON as Standard Webhooks (standardwebhooks.com) say."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import http.client
import json
import time
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

from daco.errors import InputError
from daco.monitoring.notify.messages import Message
from daco.monitoring.notify.receiver import TEMPORARY, NotDeliveredError, Receiver, RefusedError
from daco.monitoring.store.outbox import Delivery
from daco.version import __version__

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
