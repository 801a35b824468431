"""Explainer: what sounds different in anomalous recordings, told by healthy ones of the machine."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from daco.detector.verdict import Verdict
from daco.monitoring import worker
from daco.monitoring.healthy import HealthyProfile
from daco.monitoring.judge import Judge
from daco.monitoring.profiles import profile_of_folder
from daco.monitoring.store import Recording
from daco.monitoring.tables import MachineConfig

log = logging.getLogger("daco.monitoring")


class Explainer:
    """Listens to the folders of healthy recordings once, and compares others with them."""

    def __init__(self, machines: Mapping[str, MachineConfig], judge: Judge) -> None:
        self._machines, self._judge = machines, judge
        self._profiles: dict[str, HealthyProfile] = {}

    def start(self) -> None:
        """Learn in the background; until then there are verdicts without findings."""
        threading.Thread(target=self.learn, name="healthy", daemon=True).start()

    def learn(self) -> None:
        """Listen to the healthy recordings of all machines that have a folder of them."""
        for machine in self._machines.values():
            if machine.healthy is None:
                continue
            try:
                self._profiles[machine.id] = self._judge.load(profile_of_folder, machine.healthy)
            except Exception as error:
                log.info("%s: what sounds different will not be said: %s", machine.id, error)

    def findings(self, recording: Recording, verdict: Verdict) -> list[dict[str, Any]] | None:
        """What sounds different in an anomalous recording; None where that is not known."""
        profile = self._profiles.get(recording.machine)
        if profile is None or not verdict.anomalous:
            return None
        try:
            return self._judge.call(worker.explain, profile, recording.data)
        except Exception as error:  # the alarm is worth more than its reason
            log.info("%s: what sounds different is not known: %s", recording.machine, error)
            return None
