"""Messages to people through Apprise: mail, Teams, Slack, ntfy and a hundred others by URL."""

from __future__ import annotations

import hashlib
import logging
import re
import threading
from typing import Any

from daco.monitoring.addresses import apprise_plugin, masked
from daco.monitoring.notify.messages import Message
from daco.monitoring.notify.receiver import TEMPORARY, NotDeliveredError, Receiver, RefusedError
from daco.monitoring.store.outbox import Delivery

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
