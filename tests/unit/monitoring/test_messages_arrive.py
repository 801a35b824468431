"""Delivery to real receivers: a web server, a mosquitto broker, an SMTP server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from broken_server import unused_port
from receiver import receiving
from receivers import broker, mail_server, subscribed
from service_process import wait_until
from stores import add, rows

from daco.monitoring.alarms import AlarmRule
from daco.monitoring.config import PlantConfig
from daco.monitoring.notify import Notifier, deliver, receivers, send_test
from daco.monitoring.notify.messages import compose
from daco.monitoring.status import MachineStatus
from daco.monitoring.store import Outbox, Store

EVERY = AlarmRule.parse("every", recovery=1)


NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
QUIET = MachineStatus("press", "Press 1", "normal", 0.3, NOON, 1.0, 0, None, False, ())


def configured(machine=None, **notify):
    machines = {"press": {"model": "x", "title": "Press 1", **(machine or {})}}
    return PlantConfig(notify=notify, machine={**machines, "fan": {"model": "x"}})


class Plant:
    """A store and its notifier."""

    def __init__(self, folder, config):
        self.config = config
        url = f"sqlite:///{folder}/daco.db"
        self.store = Store.open(url, rules=lambda _: EVERY, receivers=receivers(config))
        self.sentences, self.states = [], [QUIET]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.store.close()

    @contextmanager
    def delivering(self, **options):
        options = {"first_wait": 0.02, **options}
        told = lambda: self.states, self.sentences.append, self._report
        notifier = Notifier(self.config, self.store, *told, **options)
        notifier.start()
        try:
            yield notifier
        finally:
            notifier.stop()

    def _report(self, cause, problem):
        if problem is None:
            self.store.clear_alarm(None, "daco", cause)
        else:
            self.store.raise_alarm(None, "daco", cause, problem)

    def pending(self):
        return sum(self.store.outbox.pending().values())


def test_a_refusal_is_set_aside_shown_and_blocks_nothing(tmp_path):
    with (
        receiving() as server,
        Plant(tmp_path, configured(webhook=server.url, events="all")) as plant,
    ):
        for number in range(9):
            add(plant.store, verdict={"name": f"{number}.wav"})
        add(plant.store, anomalous=True, verdict={"name": "alarm.wav"})
        server.answer = lambda _: 400 if b"clip.scored" in server.requests[-1][1] else 204
        with plant.delivering():
            wait_until(lambda: plant.pending() == 0)
        (sentence,) = plant.sentences
        assert "refuses messages (answered 400)" in sentence
        assert json.loads(server.accepted[0][1])["type"] == "alarm.opened"
        refused = plant.store.outbox.refused(100)
        assert len(refused) == 10
        assert {each.last_error for each in refused} == {"answered 400"}
        assert [alarm.machine for alarm in plant.store.alarms()] == ["press"]


def test_a_message_that_cannot_be_made_delays_no_other(tmp_path, monkeypatch):
    def failing(delivery, config):
        if delivery.body["data"]["clip"]["name"] == "bad.wav" and len(server.accepted) < 2:
            raise KeyError("name")
        return compose(delivery, config)

    monkeypatch.setattr(deliver, "compose", failing)
    with (
        receiving() as server,
        Plant(tmp_path, configured(webhook=server.url, events="all")) as plant,
    ):
        for name in ("bad.wav", "b.wav", "c.wav"):
            add(plant.store, verdict={"name": name})
        with plant.delivering():
            wait_until(lambda: plant.pending() == 0)
    assert len(server.accepted) == 3


def test_a_huge_retry_after_does_not_end_delivery(tmp_path):
    with receiving() as server, Plant(tmp_path, configured(webhook=server.url)) as plant:
        add(plant.store, anomalous=True)
        server.headers = {"Retry-After": "99999999999999"}
        server.answer = lambda _: 503
        with plant.delivering():
            wait_until(lambda: plant.sentences)
        (message,) = rows(f"sqlite:///{tmp_path}/daco.db", "daco_outbox")
        due = datetime.fromisoformat(message["due_at"]).replace(tzinfo=UTC)
        assert 200 < (due - datetime.now(UTC)).total_seconds() <= 300


def test_the_trouble_of_one_receiver_delays_no_other_and_is_an_alarm(tmp_path):
    dead = f"http://127.0.0.1:{unused_port()}/"
    with mail_server() as inbox:
        config = configured(webhook=dead, urls=[inbox.url], cooldown="1 s")
        with Plant(tmp_path, config) as plant:
            add(plant.store, anomalous=True)
            with plant.delivering(failing_after=0.0):
                wait_until(lambda: len(inbox.mails) >= 2)
            subjects = [mail["Subject"] for mail in inbox.mails]
    assert subjects[0] == "Press 1: sounds different from the healthy machine"
    assert "Daco needs attention" in subjects


def test_a_mail_says_what_happened_in_plain_words(tmp_path):
    with mail_server() as inbox, Plant(tmp_path, configured(urls=[inbox.url])) as plant:
        add(plant.store, anomalous=True, at=datetime(2026, 3, 1, 12, tzinfo=UTC))
        add(plant.store)
        inbox.answer = "451 try later"
        with plant.delivering():
            wait_until(lambda: plant.sentences)
            inbox.answer = "250 OK"
            wait_until(lambda: len(inbox.mails) == 2)
            wait_until(lambda: "takes messages again" in plant.sentences[-1])
    opened, cleared = inbox.mails
    text = opened.get_body(("plain",)).get_content()
    assert "Oddness 2 (the alarm limit is 1). 1 in 100 healthy recordings sounds like this." in text
    assert "http://127.0.0.1:8477/#/machines/press/clips/1" in text
    assert "p_value" not in text
    assert len(opened["X-Daco-Message-Id"]) == 32
    assert opened["X-Daco-Message-Id"][:12] in text
    assert opened["To"] == "kim@plant.example"
    assert cleared["Subject"] == "Press 1: sounds normal again"


def test_the_cooldown_goes_on_after_a_restart(tmp_path):
    with mail_server() as inbox:
        with Plant(tmp_path, configured(urls=[inbox.url], cooldown="1 h")) as plant:
            now = datetime.now(UTC)
            add(plant.store, anomalous=True, at=now)
            with plant.delivering():
                wait_until(lambda: len(inbox.mails) == 1)
            add(plant.store, at=now)
            add(plant.store, anomalous=True, at=now)
            with plant.delivering() as notifier:
                assert notifier.finish(60.0) == 1  # that it opened again waits
        assert [mail["Subject"] for mail in inbox.mails][1:] == ["Press 1: sounds normal again"]


def test_a_machine_has_receivers_of_its_own(tmp_path):
    with mail_server() as all_of_them, mail_server() as own:
        config = configured(urls=[all_of_them.url], machine={"notify": [own.url]})
        with Plant(tmp_path, config) as plant:
            add(plant.store, anomalous=True)
            add(plant.store, anomalous=True, machine="fan", verdict={"machine": "fan"})
            with plant.delivering():
                wait_until(lambda: plant.pending() == 0)
    assert len(all_of_them.mails) == 2
    assert [mail["Subject"] for mail in own.mails] == [
        "Press 1: sounds different from the healthy machine"
    ]


def test_a_broker_has_the_retained_state_alarms_discovery_and_a_last_will(tmp_path):
    with broker(tmp_path) as mosquitto, subscribed(mosquitto.port) as seen:
        config = configured(mqtt=mosquitto.url)
        with Plant(tmp_path, config) as plant:
            with plant.delivering() as notifier:
                wait_until(lambda: seen.last("daco/status") == "online")
                wait_until(lambda: seen.last("daco/press/state"))
                plant.states = [replace(QUIET, state="anomalous", oddness=1.8, open_alarms=1)]
                add(plant.store, anomalous=True)
                notifier.wake()
                wait_until(lambda: seen.last("daco/press/alarm"))
                wait_until(lambda: json.loads(seen.last("daco/press/state"))["open_alarms"] == 1)
                with subscribed(mosquitto.port) as late:  # comes later and still sees the state
                    wait_until(lambda: late.last("daco/press/state"))
                    assert json.loads(late.last("daco/press/state"))["oddness"] == 1.8
                    assert late.last("daco/press/alarm") is None
            wait_until(lambda: seen.last("daco/status") == "offline")
    (alarm,) = seen.documents("daco/press/alarm")
    assert alarm["title"] == "Press 1: sounds different from the healthy machine"
    assert len(alarm["id"]) == 32
    assert alarm["data"]["alarm"]["kind"] == "fault"
    topics = [name for name, _ in seen.messages if name.startswith("homeassistant/")]
    assert "homeassistant/binary_sensor/daco_press/alarm/config" in topics
    sensor = seen.documents("homeassistant/binary_sensor/daco_press/alarm/config")[0]
    assert sensor["state_topic"] == "daco/press/state"
    assert sensor["availability_topic"] == "daco/status"


def test_messages_wait_for_a_broker_that_is_down_and_arrive_after_it_returns(tmp_path):
    with broker(tmp_path) as mosquitto, Plant(tmp_path, configured(mqtt=mosquitto.url)) as plant:
        with plant.delivering():
            with subscribed(mosquitto.port) as seen:
                wait_until(lambda: seen.last("daco/status") == "online")
            mosquitto.kill()
            add(plant.store, anomalous=True)
            wait_until(lambda: plant.sentences)
            mosquitto.start()
            with subscribed(mosquitto.port) as seen:
                wait_until(lambda: seen.last("daco/press/alarm"))
                wait_until(lambda: seen.last("daco/press/state"))
        assert plant.pending() == 0


def test_a_broker_that_refuses_the_password_is_reported(tmp_path):
    with broker(tmp_path, password="geheim") as mosquitto:
        url = mosquitto.url.replace("//", "//daco:{}@")
        (bad,) = send_test(configured(mqtt=url.format("falsch")))
        (good,) = send_test(configured(mqtt=url.format("geheim")))
    assert "refused" in bad.error
    assert "falsch" not in bad.label
    assert good.error is None


def _child(folder, notify):
    """A process that delivers the outbox of a folder until it is killed."""
    script = """
import json, sys, time
sys.path[:0] = json.loads(sys.argv[3])
from test_messages_arrive import Plant, configured
plant = Plant(sys.argv[1], configured(**json.loads(sys.argv[2])))
with plant.delivering():
    time.sleep(600)
"""
    path = [os.path.dirname(__file__), *[each for each in sys.path if "tests" in each]]
    arguments = [str(folder), json.dumps(notify), json.dumps(path)]
    return subprocess.Popen([sys.executable, "-c", script, *arguments])


def test_kill_9_between_sending_and_marking_sends_the_same_id_again_and_leaves_the_will(tmp_path):
    with (
        receiving() as server,
        broker(tmp_path) as mosquitto,
        subscribed(mosquitto.port) as seen,
        Plant(tmp_path, configured(webhook=server.url)) as plant,
    ):

        def kill(_):
            wait_until(lambda: seen.last("daco/status") == "online")
            os.kill(process.pid, signal.SIGKILL)  # it has sent, and waits for the answer
            process.wait()
            return 204

        server.answer = kill
        process = _child(tmp_path, {"webhook": server.url, "mqtt": mosquitto.url})
        add(plant.store, anomalous=True)
        wait_until(lambda: process.poll() is not None)
        wait_until(lambda: seen.last("daco/status") == "offline")
        assert plant.pending() == 1
        server.answer = lambda _: 204
        plant.store.outbox.hurry("webhook")  # or two minutes later
        with plant.delivering():
            wait_until(lambda: plant.pending() == 0)
    assert len(server.requests) == 2
    assert len({headers["webhook-id"] for headers, _ in server.requests}) == 1


def test_a_test_message_reaches_every_receiver_and_tells_which_fails(tmp_path):
    dead = f"http://127.0.0.1:{unused_port()}/T0KEN"
    with broker(tmp_path) as mosquitto, mail_server() as inbox, subscribed(mosquitto.port) as seen:
        config = configured(urls=[inbox.url], mqtt=mosquitto.url, webhook=dead)
        results = {each.receiver.partition(":")[0]: each.error for each in send_test(config)}
        assert results["url"] is None
        assert results["mqtt"] is None
        assert "refused" in results["webhook"]
        assert inbox.mails[0]["Subject"] == "daco: test message"
        wait_until(lambda: seen.last("daco/alarm"))
        assert seen.last("daco/status") is None


def test_stopping_does_not_wait_for_a_receiver_that_rests(tmp_path):
    dead = f"http://127.0.0.1:{unused_port()}/"
    with Plant(tmp_path, configured(webhook=dead)) as plant:
        add(plant.store, anomalous=True)
        with plant.delivering(first_wait=200.0) as notifier:
            wait_until(lambda: plant.sentences)
            assert notifier.finish(60.0) == 1
            began = time.monotonic()
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("status", [204, 404])
def test_a_message_leaves_the_outbox_after_its_receiver_is_known_to_work_or_not(
    tmp_path, monkeypatch, status
):
    """Whoever waits until nothing is left may trust what is reported of the receivers then."""
    undecided = []
    with receiving() as server, Plant(tmp_path, configured(webhook=server.url)) as plant:
        server.answer = lambda _: status
        leave = "discard" if status == 204 else "refuse"
        settle = getattr(Outbox, leave)

        def leaving(outbox, *settled):
            undecided.append(notifier.undecided())
            settle(outbox, *settled)

        monkeypatch.setattr(Outbox, leave, leaving)
        add(plant.store, anomalous=True)
        with plant.delivering() as notifier:
            wait_until(lambda: plant.pending() == 0)
    assert undecided[0] == set()
