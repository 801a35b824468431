"""Machines, clips and alarms as others are told of them: the store and the models together."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from daco.monitoring.drift import WINDOW, Drift, drift_of
from daco.monitoring.service.machines import Machine, Registry, described
from daco.monitoring.service.recordings import Recordings, find_within
from daco.monitoring.service.settings import Settings
from daco.monitoring.store import MachineSummary, Store, StoredClip

_FRESH_SECONDS = 2.0  # counts of a day may be this old,
_FRESH_TIMES = 20.0  # or so many times older than counting took: it must not become the work


class Overview:
    """Puts together what is asked for; only reads. Its methods may be called in any thread."""

    def __init__(
        self,
        store: Store,
        registry: Registry,
        recordings: Recordings | None,
        settings: Settings,
    ) -> None:
        self.store = store
        self._registry, self._recordings = registry, recordings
        self._silent_after = timedelta(seconds=settings.silent_after)
        self._watched = settings.watched
        self._lock = threading.Lock()
        self._drifts: dict[str, tuple[tuple[int, str], Drift | None]] = {}
        self._day: tuple[float, dict[str, dict[str, int]]] = (0.0, {})  # good until, counts

    def clip(self, stored: StoredClip, *, alarm_id: int | None = None) -> dict[str, Any]:
        """A stored clip."""
        machine = self._registry.get(stored.machine)
        index = machine.index_of.get(stored.nearest) if machine else None
        return {
            **stored.to_dict(),
            "nearest_index": index,
            "has_audio": self.recording_of(stored) is not None,
            "alarm_id": alarm_id,
        }

    def recording_of(self, clip: StoredClip) -> Path | None:
        """Where the recording of a clip lies, if it may be given out."""
        if clip.audio_path is None:
            return None
        kept = self._recordings.find(clip.audio_path) if self._recordings else None
        return kept or find_within(self._watched, clip.audio_path)

    def machines(self, only: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Every machine that has a model, or those named, by id."""
        known = self._registry.snapshot.machines
        wanted = [known[name] for name in sorted(known) if only is None or name in only]
        if not wanted:
            return []
        summaries = {each.machine: each for each in self.store.machines_summary()}
        day = self._last_day()
        return [self._machine(each, summaries.get(each.id), day) for each in wanted]

    def _machine(
        self, machine: Machine, summary: MachineSummary | None, day: dict[str, dict[str, int]]
    ) -> dict[str, Any]:
        last = summary.last if summary else None
        drift = self._drift(machine, last.id if last else 0)
        open_alarms = summary.open_alarms if summary else 0
        silent = last is None or datetime.now(UTC) - last.received_at > self._silent_after
        status = "silent" if silent else "ok"
        if drift is not None and drift.stale:
            status = "stale"
        if open_alarms:
            status = "alarm"
        return {
            **described(machine),
            "status": status,
            "last": self.clip(last) if last else None,
            "open_alarms": open_alarms,
            "last_24h": day.get(machine.id, {"clips": 0, "anomalous": 0}),
            "drift": drift.to_dict() if drift else None,
        }

    def _drift(self, machine: Machine, last: int) -> Drift | None:
        """Of the clips that the present model judged; computed once per clip."""
        key = (last, machine.model_sha256)
        with self._lock:
            known = self._drifts.get(machine.id)
        if known is not None and known[0] == key:
            return known[1]
        recent = self.store.clips(machine.id, WINDOW)
        judged = [
            (clip.alarm, clip.domain_weights)
            for clip in recent
            if clip.model_sha256 == machine.model_sha256
        ]
        drift = drift_of(
            judged, machine.false_alarm_rate, domains=machine.domains, model=f"{machine.id}.daco"
        )
        with self._lock:
            self._drifts[machine.id] = (key, drift)
        return drift

    def _last_day(self) -> dict[str, dict[str, int]]:
        """Clips and anomalous ones of the last 24 hours, by machine."""
        with self._lock:
            good_until, counts = self._day
        started = time.monotonic()
        if started < good_until:
            return counts
        since = datetime.now(UTC) - timedelta(days=1)
        found = self.store.counts_since(since)
        counts = {name: {"clips": n, "anomalous": odd} for name, (n, odd) in found.items() if n}
        ended = time.monotonic()
        with self._lock:
            self._day = (ended + max(_FRESH_SECONDS, _FRESH_TIMES * (ended - started)), counts)
        return counts
