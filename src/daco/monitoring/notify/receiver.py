"""What every receiver of messages does, and how an attempt can fail."""

from __future__ import annotations

from collections.abc import Sequence

from daco.errors import DacoError
from daco.monitoring.notify.messages import Message
from daco.monitoring.status import MachineStatus
from daco.monitoring.store.outbox import Delivery

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
