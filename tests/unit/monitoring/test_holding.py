"""When messages to people wait: cooldown, first of the day, quiet hours."""

from datetime import datetime, timedelta

import pytest

from daco.monitoring.notify.holding import DROP, Holding
from daco.monitoring.store.outbox import Delivery
from daco.monitoring.tables import NotifyConfig

NOON = datetime(2026, 11, 18, 12).astimezone()
MINUTE = timedelta(minutes=1)


def message(kind, number, machine="fan", alarm="fault"):
    data = {"machine": machine, "alarm": {"id": number, "kind": alarm, "machine": machine}}
    return Delivery(number, "key", "url:1", f"alarm.{kind}", {"data": data}, NOON, 1)


class People:
    """What a person would get."""

    def __init__(self, **config):
        self.cleared = set()
        self.holding = Holding(NotifyConfig(**config), self.cleared.__contains__)

    def tell(self, delivery, now):
        decision = self.holding.decide(delivery, now)
        if decision is None:
            self.holding.sent(delivery, now)
        return decision


def test_a_flapping_alarm_is_told_once_per_cooldown():
    people = People(cooldown="30 min")
    assert people.tell(message("opened", 1), NOON) is None
    assert people.tell(message("cleared", 1), NOON + MINUTE) is None
    again = message("opened", 2)
    assert people.tell(again, NOON + 2 * MINUTE) == NOON + 30 * MINUTE
    people.cleared.add(2)
    assert people.tell(message("cleared", 2), NOON + 3 * MINUTE) == DROP
    assert people.tell(again, NOON + 30 * MINUTE) == DROP


def test_an_alarm_that_lasts_is_told_after_the_cooldown():
    people = People(cooldown="30 min")
    people.tell(message("opened", 1), NOON)
    again = message("opened", 2)
    assert people.tell(again, NOON + 2 * MINUTE) == NOON + 30 * MINUTE
    assert people.tell(again, NOON + 30 * MINUTE) is None
    assert people.tell(message("cleared", 2), NOON + 31 * MINUTE) is None


@pytest.mark.parametrize("other", [{"machine": "pump"}, {"alarm": "no recordings"}])
def test_other_machines_and_kinds_do_not_wait(other):
    people = People(cooldown="30 min")
    people.tell(message("opened", 1), NOON)
    assert people.tell(message("opened", 2, **other), NOON + MINUTE) is None


def test_only_the_first_alarm_of_a_day_is_told_at_once():
    people = People(cooldown="1 min", first_of_day=True)
    midnight = NOON.replace(hour=0) + timedelta(days=1)
    assert people.tell(message("opened", 1), NOON) is None
    assert people.tell(message("opened", 2), NOON + timedelta(hours=5)) == midnight
    assert people.tell(message("opened", 2), midnight) is None


def test_messages_wait_until_quiet_hours_end_except_those_that_may_not():
    people = People(quiet_hours="22:00-6:00", quiet_except=["no recordings"])
    night, morning = NOON.replace(hour=23), NOON.replace(hour=6) + timedelta(days=1)
    assert people.tell(message("opened", 1), night) == morning
    assert people.tell(message("cleared", 1), night) == morning
    assert people.tell(message("opened", 2, alarm="no recordings"), night) is None
    assert people.tell(message("opened", 1), morning) is None
    assert people.tell(message("cleared", 1), morning) is None
