"""Delivery of the outbox: one thread per receiver, alarms first, at least once."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

from daco.monitoring.config import PlantConfig
from daco.monitoring.notify.holding import DROP, Holding
from daco.monitoring.notify.messages import TEST, Message, compose, trial_message, urgent_message
from daco.monitoring.notify.receiver import (
    AppriseUrl,
    NotDeliveredError,
    Receiver,
    RefusedError,
    Webhook,
    receiver_name,
)
from daco.monitoring.status import MachineStatus
from daco.monitoring.store import Store
from daco.monitoring.store.outbox import (
    ALARM_CLEARED,
    ALARM_OPENED,
    CLIP_SCORED,
    RECORDING_REFUSED,
    Delivery,
)
from daco.monitoring.store.records import StoreError

LONGEST_REST = 300.0
"""Seconds between attempts while a receiver does not answer."""

log = logging.getLogger("daco.monitoring")

_HOLD = 120.0  # seconds after which a message that a killed process had taken is due again
_IDLE = 1.0
_LAST_ATTEMPT = 20.0  # seconds that the end waits for attempts that are under way
_REMEMBERED = 1000  # alarms of which the cooldown is known after a restart
_FAILING = 300.0  # seconds without success after which a receiver is an alarm of its own


def receivers(config: PlantConfig) -> Callable[[str | None, str], list[str]]:
    """The names of the receivers of a message about a machine, by its kind."""
    people = [receiver_name(url) for url in config.notify.urls]
    programs = ["mqtt"] if config.notify.mqtt else []
    programs += ["webhook"] if config.notify.webhook else []

    def of(machine: str | None, kind: str) -> list[str]:
        if kind in (CLIP_SCORED, RECORDING_REFUSED):
            return programs if config.notify.events == "all" else []
        own = config.machine[machine].notify if machine in config.machine else ()
        return list(dict.fromkeys([*people, *map(receiver_name, own), *programs]))

    return of


def connect(config: PlantConfig, *, is_test: bool = False) -> list[Receiver]:
    """The receivers of a configuration; nothing connects before the first message."""
    urls = [*config.notify.urls]
    for machine in config.machine.values():
        urls += machine.notify
    found: list[Receiver] = [AppriseUrl(url) for url in dict.fromkeys(urls)]
    if config.notify.mqtt:
        from daco.monitoring.notify.mqtt import MqttBroker

        found.append(MqttBroker(config.notify.mqtt, is_test=is_test))
    if config.notify.webhook:
        found.append(Webhook(config.notify.webhook, config.notify.secret()))
    return found


class SendResult(NamedTuple):
    """How a test message fared; `error` is None where it was accepted."""

    receiver: str
    label: str
    error: str | None


def send_test(config: PlantConfig) -> list[SendResult]:
    """Send a test message to every receiver, at once and without the outbox."""
    return _send_now(config, trial_message(config))


def _send_now(config: PlantConfig, message: Message) -> list[SendResult]:
    now = datetime.now().astimezone()
    data = {"machine": None, "title": message.title, "text": message.text}
    body = {"type": TEST, "timestamp": now.isoformat(), "data": data}
    results = []
    for receiver in connect(config, is_test=True):
        key, error = f"now-{time.time_ns():x}", None
        try:
            receiver.send(Delivery(0, key, receiver.name, TEST, body, now, 1), message)
        except (NotDeliveredError, RefusedError) as failure:
            error = str(failure)
        finally:
            receiver.close()
        results.append(SendResult(receiver.name, receiver.label, error))
    return results


class Notifier:
    """Delivers a store's messages while it runs; what is left stays in the outbox.

    Parameters
    ----------
    config : PlantConfig
    store : Store
    status : callable, optional
        The present state of all machines, for receivers that show it (MQTT).
    say : callable, optional
        Called with a sentence when a receiver stops answering and when it answers again.
    report : callable, optional
        Called with a short name and a sentence when the failures of a receiver are an alarm for
        the others, and with the name and None when it works.
    first_wait : float
        Seconds after a first failure; doubled with each further one, up to five minutes.
    failing_after : float
        Seconds of failures after which a receiver is an alarm for the others.
    """

    def __init__(
        self,
        config: PlantConfig,
        store: Store,
        status: Callable[[], Sequence[MachineStatus]] = tuple,
        say: Callable[[str], None] = lambda _: None,
        report: Callable[[str, str | None], object] = lambda cause, problem: None,
        *,
        first_wait: float = 1.0,
        failing_after: float = _FAILING,
    ) -> None:
        self.config, self.store = config, store
        self.status, self.say, self.report = status, say, report
        self.first_wait, self.failing_after = first_wait, failing_after
        self._couriers = [_Courier(self, receiver) for receiver in connect(config)]

    def start(self) -> None:
        """Begin to deliver; messages of receivers that are configured no more are removed."""
        self.store.outbox.forget_receivers([each.receiver.name for each in self._couriers])
        for courier in self._couriers:
            self.store.outbox.hurry(courier.receiver.name)
            courier.start()

    def stop(self) -> None:
        """End after the attempts that are under way."""
        for courier in self._couriers:
            courier.end()
        for courier in self._couriers:
            if courier.is_alive():
                courier.join(_LAST_ATTEMPT)

    def wake(self) -> None:
        """Deliver new messages now."""
        for courier in self._couriers:
            courier.wake()

    def finish(self, patience: float) -> int:
        """Wait until all is delivered, attempts fail, or time is over; return how many are left."""
        give_up = time.monotonic() + patience
        self.wake()
        while (left := self.store.outbox.pending()) and time.monotonic() < give_up:
            if all(left.get(each.receiver.name, 0) == 0 or each.rests() for each in self._couriers):
                break
            time.sleep(0.02)
        return sum(left.values())

    def tell_now(self, sentence: str) -> None:
        """Send a sentence at once, where the outbox itself cannot be written."""
        _send_now(self.config, urgent_message(self.config, sentence))

    def undecided(self) -> set[str]:
        """Return the short names of receivers that have neither worked nor been an alarm yet."""
        return {each.cause for each in self._couriers if not each.decided}


class _Courier(threading.Thread):
    """The thread of one receiver."""

    def __init__(self, notifier: Notifier, receiver: Receiver) -> None:
        super().__init__(name=f"daco-{receiver.name}", daemon=True)
        self.notifier, self.store, self.receiver = notifier, notifier.store, receiver
        self.problem = ""
        self._resting = False
        self._holding = Holding(notifier.config.notify, self._is_cleared)
        self._failures, self._failing_since = 0, 0.0
        self._unsent: set[int] = set()  # alarms whose opening could not be told yet
        self.cause, self.decided = f"receiver {receiver.name}", False
        self._ending = False
        self._news = threading.Event()

    def wake(self) -> None:
        if not self._failures:
            self._news.set()

    def rests(self) -> bool:
        """Whether nothing can be delivered now: attempts fail, or all messages are held."""
        return self._resting and not self._news.is_set()

    def end(self) -> None:
        self._ending = True
        self._news.set()

    def run(self) -> None:
        remembers = False
        while not self._ending:
            try:
                if not remembers:
                    self._remember()
                    remembers = True
                with suppress(NotDeliveredError):  # the next message tells it
                    self.receiver.refresh(self.notifier.status())
                rest = self._deliver_one()
            except StoreError:
                rest = _IDLE  # the database's own alarm tells it
            if rest:
                self._resting = True
                self._news.wait(rest)
                self._resting = False
                self._news.clear()
        self.receiver.close()

    def _remember(self) -> None:
        """Go on with the cooldown where an earlier process was."""
        untold = self.store.outbox.untold(self.receiver.name)
        for alarm in reversed(self.store.alarms(limit=_REMEMBERED)):
            if alarm.id not in untold:
                opened = alarm.opened_at.astimezone()
                self._holding.remember(alarm.machine, alarm.kind, opened)

    def _is_cleared(self, number: int) -> bool:
        alarm = self.store.alarm(number)
        return alarm is None or not alarm.is_open

    def _deliver_one(self) -> float:
        """Seconds to rest after one attempt.

        The message leaves the outbox last: whoever sees that nothing waits (`Notifier.finish`)
        also sees what its delivery says of the receiver.
        """
        outbox, delivery = self.store.outbox, self.store.outbox.take(self.receiver.name, _HOLD)
        if delivery is None:
            return _IDLE
        now, number = datetime.now().astimezone(), delivery.alarm.get("id", 0)
        if delivery.kind == ALARM_CLEARED and number in self._unsent:
            wait = min(self._doubled(delivery.attempts), LONGEST_REST)
            outbox.retry(delivery, "waits for the message that the alarm began", wait)
            return 0.0
        until = self._holding.decide(delivery, now) if self.receiver.for_people else None
        if until == DROP:
            outbox.discard(delivery.id)
            return 0.0
        if isinstance(until, datetime):
            wait = (until - now).total_seconds()
            outbox.retry(delivery, f"waits until {until:%H:%M}", wait)
            return 0.0
        try:
            self.receiver.send(delivery, compose(delivery, self.notifier.config))
        except RefusedError as error:
            self._unsent.discard(number)
            self._report(f"refuses messages ({error}); daco sets them aside")
            if delivery.kind in (ALARM_OPENED, ALARM_CLEARED):
                self._alarm(self.problem)
            outbox.refuse(delivery, str(error))
            return 0.0
        except NotDeliveredError as error:
            return self._failed(delivery, error)
        except Exception as error:  # no message may end the delivery of others
            log.exception("A message could not be made.")
            return self._failed(delivery, NotDeliveredError(type(error).__name__))
        self._holding.sent(delivery, now)
        self._succeeded(delivery)
        outbox.discard(delivery.id)
        return 0.0

    def _failed(self, delivery: Delivery, error: NotDeliveredError) -> float:
        self._failures += 1
        if delivery.kind == ALARM_OPENED:
            self._unsent.add(delivery.alarm["id"])
        again = max(self._doubled(delivery.attempts), error.wait)
        self.store.outbox.retry(delivery, str(error), min(again, LONGEST_REST))
        self._report(f"does not take messages ({error}); daco keeps them and tries again")
        if time.monotonic() - self._failing_since >= self.notifier.failing_after:
            self._alarm(self.problem)
        return min(max(self._doubled(self._failures), error.wait), LONGEST_REST)

    def _succeeded(self, delivery: Delivery) -> None:
        if self._failures or delivery.alarm.get("id", 0) in self._unsent:
            self.store.outbox.hurry(self.receiver.name)  # alarms first, now that it answers
        if delivery.kind == ALARM_OPENED:
            self._unsent.discard(delivery.alarm["id"])
        if self.problem:
            self.notifier.say(f"{self.receiver.label} takes messages again.")
        self._alarm(None)
        self._failures, self.problem = 0, ""

    def _report(self, what: str) -> None:
        sentence = f"{self.receiver.label} {what}."
        if not self.problem:
            self._failing_since = time.monotonic()
            self.notifier.say(sentence)
        self.problem = sentence

    def _alarm(self, problem: str | None) -> None:
        self.decided = True
        self.notifier.report(self.cause, problem)

    def _doubled(self, failures: int) -> float:
        # Random, so that many senders do not try the same address at once.
        return self.notifier.first_wait * 2.0 ** min(failures - 1, 20) * random.uniform(0.75, 1.0)
