"""When messages to people wait: cooldown, first of the day, quiet hours."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from daco.monitoring.store.outbox import ALARM_CLEARED, ALARM_OPENED, Delivery
from daco.monitoring.tables import NotifyConfig

DROP = "drop"


class Holding:
    """Which messages of one receiver wait, until when, and which are dropped.

    After a message about an alarm, further alarms of the same machine and kind wait for the
    cooldown, or for the next day with `first_of_day`. One that has cleared by then is dropped
    together with its clearing; one that lasts is sent. `is_cleared` says whether the alarm of a
    number has cleared.
    """

    def __init__(self, config: NotifyConfig, is_cleared: Callable[[int], bool]) -> None:
        self.config, self.is_cleared = config, is_cleared
        self._sent: dict[tuple[str | None, str], datetime] = {}
        self._waiting: set[int] = set()

    def decide(self, delivery: Delivery, now: datetime) -> datetime | str | None:
        """The local time until which a message waits, `DROP`, or None to send it now."""
        kind, number = delivery.alarm.get("kind", ""), delivery.alarm.get("id", 0)
        quiet = self.config.quiet_hours
        if quiet and kind not in self.config.quiet_except and (end := quiet.until(now)):
            return end
        if delivery.kind == ALARM_CLEARED and number in self._waiting:
            return DROP
        if delivery.kind != ALARM_OPENED:
            return None
        if number in self._waiting and self.is_cleared(number):
            self._waiting.discard(number)
            return DROP
        last = self._sent.get((delivery.machine, kind))
        if last is not None and (end := self._end(last)) > now:
            self._waiting.add(number)
            return end
        return None

    def sent(self, delivery: Delivery, now: datetime) -> None:
        """Remember that a message was delivered."""
        if delivery.kind == ALARM_OPENED:
            self.remember(delivery.machine, delivery.alarm.get("kind", ""), now)
            self._waiting.discard(delivery.alarm.get("id", 0))

    def remember(self, machine: str | None, kind: str, at: datetime) -> None:
        """Count the cooldown of a machine and kind from a local time on."""
        self._sent[machine, kind] = at

    def _end(self, last: datetime) -> datetime:
        """When the next alarm of the same machine and kind may be told."""
        end = last + self.config.cooldown
        if self.config.first_of_day:
            midnight = last.replace(hour=0, minute=0, second=0, microsecond=0)
            end = max(end, midnight + timedelta(days=1))
        return end
