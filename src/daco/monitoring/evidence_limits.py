"""The limits of the evidence: from the references of a machine's model and its recordings a day."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import numpy as np

from daco.detector.decision import ReferenceScores
from daco.errors import NotEnoughClipsError
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.evidence import LEAST_REFERENCES, limit, rank_p_values
from daco.monitoring.models import Models
from daco.monitoring.store import Store
from daco.monitoring.tables import MachineConfig

LEAST_CLIPS = 10
"""Recordings in the last week from which on their rate is known, and clips between alarms."""

_RATE_SECONDS = 3600.0
_WEEK = timedelta(days=7)


class EvidenceLimits:
    """Limits for the rules that add up ('1 a month'); None elsewhere, and where it is unknown."""

    def __init__(self, machines: Mapping[str, MachineConfig], models: Models, store: Store) -> None:
        self._machines, self._models, self._store = machines, models, store
        self._rates: dict[str, tuple[float, float]] = {}
        self._limits: dict[tuple[str, str, float], float | None] = {}

    def of(self, machine: str) -> float | None:
        """The limit of a machine; None: its rule counts k of n.

        A rule that adds up has none while its recordings are too few to know how many a day there
        are, or the references of its model are too few.
        """
        rule = self._machines[machine].rule
        if not rule.adds_up:
            return None
        model, a_day = self._models.get(machine), self.recordings_a_day(machine)
        if model is None or a_day is None:
            return None
        key = (model.info.sha256, str(rule), a_day)
        if key not in self._limits:  # takes about a second
            try:
                between = clips_between(rule, a_day)
                self._limits[key] = reference_limit(model.info.reference, between)
            except NotEnoughClipsError:
                self._limits[key] = None
        return self._limits[key]

    def sentence(self, machine: str) -> str | None:
        """What a rule that adds up does for now; None for other rules."""
        rule = self._machines[machine].rule
        if not rule.adds_up or self._models.get(machine) is None:
            return None
        if self.of(machine) is not None:
            a_day = self.recordings_a_day(machine) or 0
            return f"The alarm rule '{rule}' is set for {a_day:,.0f} recordings a day."
        if self.recordings_a_day(machine) is None:
            why = f"{LEAST_CLIPS} recordings in a week are needed, or set expect_every"
        else:
            why = f"the model has fewer than {LEAST_REFERENCES} references"
        return f"The alarm rule '{rule}' is '3 of 5' for now: {why}."

    def recordings_a_day(self, machine: str) -> float | None:
        """Recordings a day by ``expect_every``, or else those of the last week."""
        every = self._machines[machine].expect_every
        if every is not None:
            return timedelta(days=1) / every
        known_at, a_day = self._rates.get(machine, (-_RATE_SECONDS, 0.0))
        if time.monotonic() - known_at < _RATE_SECONDS:
            return a_day
        now = datetime.now(UTC)
        hours = self._store.trend(machine, "hour", since=now - _WEEK)
        clips = sum(hour.clips for hour in hours)
        if clips < LEAST_CLIPS:
            return None
        span = max(now - hours[0].start, timedelta(hours=1))
        a_day = float(f"{clips * (timedelta(days=1) / span):.2g}")
        self._rates[machine] = (time.monotonic(), a_day)
        return a_day


def clips_between(rule: AlarmRule, a_day: float) -> float:
    """Clips between two false alarms that a rule allows.

    >>> round(clips_between(AlarmRule.parse("1 a month"), 144))
    4383
    """
    return max(float(LEAST_CLIPS), a_day * (rule.interval / timedelta(days=1)))


def reference_limit(reference: ReferenceScores, between: float) -> float:
    """The limit for the references of a model, each ranked among those of its condition."""
    p_values = np.empty(len(reference.scores))
    for code in range(len(reference.domains)):
        rows = reference.clip_domains == code
        p_values[rows] = rank_p_values(reference.scores[rows])
    return limit(p_values, between)
