"""Messages and the present state of every machine to an MQTT broker.

Topics, under ``daco`` or the path of the address: ``status`` (online, offline: the last will),
``MACHINE/state`` (retained JSON), ``MACHINE/alarm``, ``MACHINE/clip`` and ``alarm`` (daco itself).
Home Assistant finds the machines by itself.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from daco.monitoring.addresses import masked
from daco.monitoring.notify.messages import Message
from daco.monitoring.notify.receiver import NotDeliveredError, Receiver
from daco.monitoring.status import MachineStatus
from daco.monitoring.store.outbox import CLIP_SCORED, RECORDING_REFUSED, Delivery
from daco.monitoring.store.records import iso

_KEEPALIVE = 30
_PATIENCE = 10.0  # seconds for an answer of the broker
_SENSORS: dict[str, dict[str, str]] = {
    "binary_sensor/alarm": {
        "name": "Alarm",
        "device_class": "problem",
        "value_template": "{{ 'ON' if value_json.open_alarms else 'OFF' }}",
    },
    "sensor/oddness": {
        "name": "Oddness",
        "state_class": "measurement",
        "value_template": "{{ value_json.oddness }}",
    },
    "sensor/state": {"name": "State", "value_template": "{{ value_json.state }}"},
}


class MqttBroker(Receiver):
    """A connection that reconnects by itself; `url` is ``mqtt[s]://[user:password@]host[/topic]``.

    Nothing connects before the first use, and a test message does not touch the last will.
    """

    name = "mqtt"

    def __init__(self, url: str, *, is_test: bool = False) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "mqtts"
        self.label = f"the MQTT broker {masked(url)}"
        self.topic = parts.path.strip("/") or "daco"
        self._is_test, self._started = is_test, False
        self._reason = "not connected yet"
        self._connected, self._attempted = threading.Event(), threading.Event()
        self._shown: dict[str, str] = {}
        self._client = client = paho.Client(CallbackAPIVersion.VERSION2)
        if parts.username:
            client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if secure:
            client.tls_set()
        if not is_test:
            client.will_set(f"{self.topic}/status", "offline", qos=1, retain=True)
        client.reconnect_delay_set(1, 60)
        client.connect_timeout = _PATIENCE
        client.on_connect, client.on_disconnect = self._on_connect, self._on_disconnect
        client.on_connect_fail = self._on_connect_fail
        host, port = parts.hostname or "", parts.port or (8883 if secure else 1883)
        client.connect_async(host, port, keepalive=_KEEPALIVE)

    def send(self, delivery: Delivery, message: Message) -> None:
        """Publish one message and wait for the broker's receipt."""
        kind = "clip" if delivery.kind in (CLIP_SCORED, RECORDING_REFUSED) else "alarm"
        topic = "/".join(part for part in (self.topic, delivery.machine, kind) if part)
        words = {"id": delivery.key, "title": message.title, "text": message.text}
        payload = json.dumps({**words, **delivery.body}, ensure_ascii=False)
        self._publish(topic, payload, retain=False)

    def refresh(self, machines: Sequence[MachineStatus]) -> None:
        """Publish the states that changed; all of them after a new connection."""
        self._connect()
        if not self._connected.is_set():
            return
        wanted: dict[str, Any] = {}
        for machine in machines:
            wanted[f"{self.topic}/{machine.id}/state"] = machine_state(machine)
            wanted |= discovery(self.topic, machine)
        payloads = {name: json.dumps(wanted[name], ensure_ascii=False) for name in wanted}
        for topic, payload in ({f"{self.topic}/status": "online"} | payloads).items():
            if self._shown.get(topic) != payload:
                self._publish(topic, payload, retain=True)
                self._shown[topic] = payload

    def close(self) -> None:
        """Say good-bye: the broker publishes the last will only after a lost connection."""
        if not self._started:
            return
        if self._connected.is_set() and not self._is_test:
            with suppress(NotDeliveredError):
                self._publish(f"{self.topic}/status", "offline", retain=True)
        self._client.disconnect()
        self._client.loop_stop()

    def _publish(self, topic: str, payload: str, *, retain: bool) -> None:
        self._connect()
        self._attempted.wait(_PATIENCE)
        if not self._connected.is_set():
            raise NotDeliveredError(self._reason)
        try:
            receipt = self._client.publish(topic, payload, qos=1, retain=retain)
            receipt.wait_for_publish(_PATIENCE)
        except (ValueError, RuntimeError) as error:
            raise NotDeliveredError(str(error)) from None
        if not receipt.is_published():
            raise NotDeliveredError("the broker did not confirm the message")

    def _connect(self) -> None:
        if not self._started:
            self._started = True
            self._client.loop_start()

    def _on_connect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if reason.is_failure:
            self._reason = f"the broker refused the connection ({reason})"
        else:
            self._shown.clear()
            self._connected.set()
        self._attempted.set()

    def _on_connect_fail(self, *_: Any) -> None:
        self._reason = "the broker does not answer"
        self._attempted.set()

    def _on_disconnect(self, _: Any, __: Any, ___: Any, reason: Any, ____: Any) -> None:
        if self._connected.is_set():
            self._reason = f"the connection was lost ({reason})"
        self._connected.clear()


def machine_state(machine: MachineStatus) -> dict[str, Any]:
    """The state of a machine as JSON."""
    return {
        "title": machine.title,
        "state": machine.state,
        "oddness": machine.oddness,
        "limit": machine.limit,
        "last_recording": None if machine.last_at is None else iso(machine.last_at),
        "open_alarms": machine.open_alarms,
        "out_of_service": machine.out_of_service,
        "problems": list(machine.problems),
    }


def discovery(topic: str, machine: MachineStatus) -> dict[str, dict[str, Any]]:
    """Home Assistant's configuration topics of a machine, with their content."""
    unsafe = re.sub(r"[^A-Za-z0-9_-]", "_", machine.id)
    if unsafe != machine.id:
        unsafe += "_" + hashlib.sha256(machine.id.encode()).hexdigest()[:6]
    node = f"{re.sub(r'[^A-Za-z0-9_-]', '_', topic)}_{unsafe}"
    common = {
        "state_topic": f"{topic}/{machine.id}/state",
        "availability_topic": f"{topic}/status",
        "device": {"identifiers": [node], "name": machine.title, "manufacturer": "daco"},
        "origin": {"name": "daco"},
    }
    found = {}
    for path, sensor in _SENSORS.items():
        kind, name = path.split("/")
        unique = {"unique_id": f"{node}_{name}"}
        found[f"homeassistant/{kind}/{node}/{name}/config"] = {**sensor, **common, **unique}
    return found
