"""Messages in plain words about alarms, clips and daco itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from daco.monitoring.config import PlantConfig
from daco.monitoring.store.outbox import ALARM_CLEARED, ALARM_OPENED, CLIP_SCORED, Delivery
from daco.text import printable, quantity

TEST = "test"
Severity = Literal["info", "success", "warning", "failure"]

_OPENED = {
    "fault": "sounds different from the healthy machine",
    "out of range": "sounds unlike anything in its healthy recordings",
    "off": "is off",
    "recorder fault": "cannot be heard: its recorder or microphone fails",
    "no recordings": "sends no recordings",
    "daco": "daco needs attention",
    "trend": "sounds more and more unusual",
}
_CLEARED = {
    "fault": "sounds normal again",
    "out of range": "sounds normal again",
    "off": "runs again",
    "recorder fault": "can be heard again",
    "no recordings": "sends recordings again",
    "daco": "daco works again",
    "trend": "sounds as it used to",
}


@dataclass(frozen=True)
class Message:
    """What a person reads."""

    title: str
    text: str
    severity: Severity = "info"


def compose(delivery: Delivery, config: PlantConfig) -> Message:
    """The message of a delivery."""
    data, alarm, machine = delivery.body["data"], delivery.alarm, delivery.machine
    clip = data.get("clip") or {}
    if delivery.kind in (ALARM_OPENED, ALARM_CLEARED):
        opened = delivery.kind == ALARM_OPENED
        words = (_OPENED if opened else _CLEARED).get(alarm.get("kind", ""), "needs attention")
        lines = _alarm_lines(alarm, clip) if opened else _cleared_lines(alarm)
        severity: Severity = "success"
        if opened:
            severity = "failure" if alarm.get("kind") == "fault" else "warning"
    elif delivery.kind == CLIP_SCORED:
        words = "sounds odd" if clip.get("anomalous") else f"recording is {clip.get('state')}"
        lines, severity = _clip_lines(clip), "warning" if clip.get("anomalous") else "info"
    else:
        words, severity = "sent a recording that cannot be used", "info"
        lines = [f"{data.get('name', 'Recording')}: {data.get('reason', '')}"]
    lines.append(link(config, machine, clip.get("id")))
    name = config.machine[machine].name if machine in config.machine else machine
    title = f"{name}: {words}" if machine else f"{words[0].upper()}{words[1:]}"
    text = "\n".join(printable(line) for line in lines if line)
    return Message(printable(title), text, severity)


def trial_message(config: PlantConfig) -> Message:
    """The message of ``daco notify --test``."""
    names = [machine.name for machine in config.machine.values()]
    watched = f"It listens to {quantity(names, 'machine')}." if names else ""
    text = f"This is a test. daco's messages arrive here. {watched}".strip()
    return Message("daco: test message", f"{text}\n{link(config, None, None)}")


def urgent_message(config: PlantConfig, sentence: str) -> Message:
    """The message that daco itself cannot go on."""
    return Message(
        "daco needs attention", f"{printable(sentence)}\n{link(config, None, None)}", "failure"
    )


def link(config: PlantConfig, machine: str | None, clip: int | None) -> str:
    """The address of the page, of a machine on it or of one of its clips."""
    if machine is None:
        return config.service.page_url
    path = f"#/machines/{quote(machine, safe='')}"
    return config.service.page_url + (path if clip is None else f"{path}/clips/{clip}")


def rarity(clip: Mapping[str, Any]) -> str:
    """How many healthy recordings sound like a clip, as the page says it.

    >>> rarity({"p_value": 0.0017}), rarity({})
    ('1 in 590 healthy recordings sounds like this.', '')
    >>> rarity({"p_value": 0.001, "extrapolated": True, "supported_rate": 0.03})
    'Fewer than 1 in 33 healthy recordings sound like this.'
    """
    beyond = bool(clip.get("extrapolated"))
    rate = clip.get("supported_rate" if beyond else "p_value")
    if not rate or not 0 < rate <= 1:
        return ""
    count = f"1 in {float(f'{1 / rate:.2g}'):,.0f} healthy recordings"
    return f"Fewer than {count} sound like this." if beyond else f"{count} sounds like this."


def _alarm_lines(alarm: Mapping[str, Any], clip: Mapping[str, Any]) -> list[str]:
    lines = [str(alarm["detail"])] if alarm.get("detail") else []
    if alarm.get("clip_ids"):
        odd = quantity(len(alarm["clip_ids"]), "recording")
        lines.append(f"{odd} led to this alarm (rule: {alarm.get('rule')}).")
    if alarm.get("kind") != "trend" and (since := local_time(alarm.get("opened_at"))):
        lines.append(f"Since {since}.")
    return lines + _clip_lines(clip)


def _cleared_lines(alarm: Mapping[str, Any]) -> list[str]:
    since, until = local_time(alarm.get("opened_at")), local_time(alarm.get("cleared_at"))
    by = alarm.get("cleared_by")
    who = f" Cleared by {by}." if by and by != "recovery" else ""
    return [f"The alarm lasted from {since} to {until}.{who}"]


def _clip_lines(clip: Mapping[str, Any]) -> list[str]:
    if not clip:
        return []
    lines = [f"Recording: {clip.get('name')}, {local_time(clip.get('time'))}."]
    if clip.get("oddness") is not None and clip.get("state") in ("anomalous", "normal"):
        odd = f"Oddness {clip['oddness']:.2g} (the alarm limit is 1)."
        lines.append(f"{odd} {rarity(clip)}".strip())
    return lines + [str(finding["text"]) for finding in clip.get("findings") or []]


def local_time(text: str | None) -> str:
    """A time in the computer's zone, in words; empty without a time."""
    try:
        time = datetime.fromisoformat(text or "").astimezone()
    except ValueError:
        return ""
    return f"{time:%H:%M} on {time.day} {time:%B}"
