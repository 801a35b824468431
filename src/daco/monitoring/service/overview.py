"""Machines and clips as clients see them: the store and the models together; and readiness."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from daco.monitoring.drift import WINDOW, Drift, drift_of
from daco.monitoring.service.recordings import Recordings, find_within
from daco.monitoring.service.registry import Machine, Registry
from daco.monitoring.service.settings import Settings
from daco.monitoring.store import MachineSummary, Store, StoredClip, StoreError

FRESH_SECONDS = 1.0
"""How long the answer of a database check is used again."""

ANSWER_SECONDS = 2.0
"""In which the database must answer a check."""

# Counts of a day may be this many seconds old, or this many times as old as counting took.
_FRESH_COUNTS, _FRESH_TIMES = 2.0, 20.0

log = logging.getLogger("daco.monitoring.service")


class Overview:
    """Reads machines and clips; its methods may be called in any thread."""

    def __init__(
        self, store: Store, registry: Registry, recordings: Recordings | None, settings: Settings
    ) -> None:
        self.store = store
        self._registry, self._recordings = registry, recordings
        self._silent_after = timedelta(seconds=settings.silent_after)
        self._watched = settings.watched
        self._lock = threading.Lock()
        self._drifts: dict[str, tuple[tuple[int, str], Drift | None]] = {}
        self._day: tuple[float, dict[str, dict[str, int]]] = (0.0, {})  # good until, counts

    def clip(self, stored: StoredClip, *, alarm_id: int | None = None) -> dict[str, Any]:
        """A stored clip as `schemas.Clip`."""
        machine = self._registry.get(stored.machine)
        return {
            **stored.to_dict(),
            "nearest_index": machine.index_of.get(stored.nearest) if machine else None,
            "has_audio": self.recording_of(stored) is not None,
            "alarm_id": alarm_id,
        }

    def recording_of(self, clip: StoredClip) -> Path | None:
        """The path of a clip's recording, if it may be given out.

        Uploads have relative names; only a watched recording's path is resolved on disk.
        """
        if clip.audio_path is None:
            return None
        if os.path.isabs(clip.audio_path):
            return find_within(self._watched, clip.audio_path)
        return self._recordings.find(clip.audio_path) if self._recordings else None

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
            **machine.to_dict(),
            "status": status,
            "last": self.clip(last) if last else None,
            "open_alarms": open_alarms,
            "last_24h": day.get(machine.id, {"clips": 0, "anomalous": 0}),
            "drift": drift.to_dict() if drift else None,
        }

    def _drift(self, machine: Machine, last: int) -> Drift | None:
        """The drift over the clips that the present model judged; computed once per clip."""
        key = (last, machine.model_sha256)
        with self._lock:
            known = self._drifts.get(machine.id)
        if known is not None and known[0] == key:
            return known[1]
        judged = [
            (clip.alarm, clip.domain_weights)
            for clip in self.store.clips(machine.id, WINDOW)
            if clip.model_sha256 == machine.model_sha256
        ]
        drift = drift_of(
            judged, machine.false_alarm_rate, domains=machine.domains, model=f"{machine.id}.daco"
        )
        with self._lock:
            self._drifts[machine.id] = (key, drift)
        return drift

    def _last_day(self) -> dict[str, dict[str, int]]:
        """Clips and anomalous clips of the last 24 hours, by machine."""
        with self._lock:
            good_until, counts = self._day
        started = time.monotonic()
        if started < good_until:
            return counts
        since = datetime.now(UTC) - timedelta(days=1)
        counts = {
            name: {"clips": clips, "anomalous": anomalous}
            for name, (clips, anomalous) in self.store.counts_since(since).items()
            if clips
        }
        ended = time.monotonic()
        with self._lock:
            self._day = (ended + max(_FRESH_COUNTS, _FRESH_TIMES * (ended - started)), counts)
        return counts


class Readiness:
    """What keeps the service from scoring, without naming a path, a host or a database.

    `obstacle_of_workers` gives a sentence while there are no models or workers. However often it
    is asked, the database is checked by one thread at a time.
    """

    def __init__(self, store: Store, obstacle_of_workers: Callable[[], str | None]) -> None:
        self._store, self._obstacle_of_workers = store, obstacle_of_workers
        self._check: asyncio.Task[None] | None = None
        self._known: str | None = None
        self._good_until = 0.0

    async def obstacle(self) -> str | None:
        """A sentence, or None when recordings can be scored."""
        if (obstacle := self._obstacle_of_workers()) is not None:
            return obstacle
        if time.monotonic() >= self._good_until:
            if self._check is None or self._check.done():
                self._check = asyncio.create_task(self._check_database())
            try:
                async with asyncio.timeout(ANSWER_SECONDS):
                    await asyncio.shield(self._check)
            except TimeoutError:  # the check goes on, and the next request waits for the same
                return f"The database did not answer within {ANSWER_SECONDS:g} s."
        return self._known

    async def _check_database(self) -> None:
        try:
            await asyncio.to_thread(self._store.check)
        except StoreError as error:
            if self._known is None:
                log.error("not ready: %s", error)
            self._known = "The database cannot be used."
        else:
            if self._known is not None:
                log.info("ready: the database can be used again")
            self._known = None
        self._good_until = time.monotonic() + FRESH_SECONDS
