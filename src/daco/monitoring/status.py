"""How every machine is, in one value for the page, the terminal, metrics and MQTT."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from daco.detector.ranges import ANOMALOUS, NORMAL
from daco.monitoring.alarms import DACO, KINDS, NO_RECORDINGS
from daco.monitoring.store.records import MachineSummary

if TYPE_CHECKING:
    from daco.monitoring.engine import Plant


@dataclass(frozen=True)
class MachineStatus:
    """How a machine is."""

    id: str
    title: str
    state: str  #: the kind of an open alarm, or the state of the last recording
    oddness: float | None  #: of the last recording; anomalous from the limit on
    last_at: datetime | None  #: when it was received
    age: float | None  #: seconds since then
    open_alarms: int
    expected: float | None  #: seconds between recordings
    out_of_service: bool
    problems: tuple[str, ...]
    limit: float = 1.0


def machine_status(plant: Plant) -> list[MachineStatus]:
    """Return the state of every machine."""
    heard = {each.machine: each for each in plant.store.machines_summary()}
    open_alarms = defaultdict(list)
    for alarm in plant.store.alarms(open_only=True, limit=10_000):
        open_alarms[alarm.machine].append(alarm.kind)
    now, found = datetime.now(UTC), []
    for machine in plant.config.machine.values():
        known = heard.get(machine.id) or MachineSummary(machine.id)
        kinds, last = open_alarms[machine.id], known.last
        is_judged = last is not None and last.state in (NORMAL, ANOMALOUS)
        expected = machine.expect_every
        found.append(
            MachineStatus(
                id=machine.id,
                title=machine.name,
                state=_state(known, kinds),
                oddness=last.oddness if last is not None and is_judged else None,
                last_at=None if last is None else last.received_at,
                age=None if last is None else max(0.0, (now - last.received_at).total_seconds()),
                open_alarms=len(kinds),
                expected=None if expected is None else expected.total_seconds(),
                out_of_service=known.out_of_service_since is not None,
                problems=tuple(plant.watchdog.problems(machine.id)),
            )
        )
    return found


def _state(known: MachineSummary, kinds: list[str]) -> str:
    if known.out_of_service_since is not None:
        return "out of service"
    for kind in KINDS:
        if kind in kinds and kind != DACO:
            return kind
    return NO_RECORDINGS if known.last is None else known.last.state
