"""What clients see: machines and clips, from the store and the models together, and live events.

`Feed` reads from the database what is new, so that clips of ``daco watch`` appear as well. `Hub`
sends it to all streams. A stream that is not read in time is closed; a browser that connects again
gets what it missed or, where that is no longer known, a ``reset``.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from daco.detector.ranges import OFF
from daco.monitoring.adaptation import JUDGED, Adaptation, for_model
from daco.monitoring.drift import WINDOW, Drift, drift_of
from daco.monitoring.service.recordings import Recordings, find_within
from daco.monitoring.service.registry import Machine, Registry
from daco.monitoring.service.settings import Settings
from daco.monitoring.store import MachineSummary, Store, StoredAlarm, StoredClip

MOST_STREAMS = 64
MOST_BEHIND = 256
"""Events that a stream may be behind before it is closed."""

REMEMBERED = 1024
HEARTBEAT_SECONDS = 15.0
RECONNECT_MILLISECONDS = 2000

QUIET_SECONDS, BUSY_SECONDS = 2.0, 0.25
"""Between two reads of the database while this process stores nothing, and while it does."""

# Counts of a day may be this many seconds old, or this many times as old as counting took.
_FRESH_COUNTS, _FRESH_TIMES = 2.0, 20.0
_PAGE = 200
_END = None

Stream = asyncio.Queue[str | None]

log = logging.getLogger("daco.monitoring.service")


class Overview:
    """Reads machines and clips; its methods may be called in any thread.

    What it remembers is replaced as a whole: threads that compute it twice agree.
    """

    def __init__(
        self, store: Store, registry: Registry, recordings: Recordings | None, settings: Settings
    ) -> None:
        self.store = store
        self._registry, self._recordings, self._settings = registry, recordings, settings
        self._drifts: dict[str, tuple[tuple[MachineSummary, str], Drift | None]] = {}
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
            return find_within(self._settings.watched, clip.audio_path)
        return self._recordings.find(clip.audio_path) if self._recordings else None

    def machines(self, only: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Every machine that has a model, or those named, by id; as `schemas.Machine`."""
        known = self._registry.snapshot.machines
        wanted = [known[name] for name in sorted(known) if only is None or name in only]
        if not wanted:
            return []
        summaries = {each.machine: each for each in self.store.machines_summary()}
        day, nothing = self._last_day(), MachineSummary("", 0, 0, 0, None, None)
        learned = self.store.people.adaptations() if self._settings.adapt else {}
        machines = []
        for machine in wanted:
            summary = summaries.get(machine.id, nothing)
            drift = self._drift(machine, summary)
            document = {
                **machine.to_dict(),
                "status": self._status(summary, drift),
                "last": self.clip(summary.last) if summary.last else None,
                "open_alarms": summary.open_alarms,
                "last_24h": day.get(machine.id, {"clips": 0, "anomalous": 0}),
                "drift": drift.to_dict() if drift else None,
                "adaptation": None,
            }
            if self._settings.adapt:
                document |= self.adapted(machine, learned.get(machine.id))
            machines.append(document)
        return machines

    def adapted(self, machine: Machine, state: Adaptation | None) -> dict[str, Any]:
        """What was learned about a machine, as `schemas.Adapted`."""
        rate = machine.false_alarm_rate
        state = for_model(state, machine.model_sha256, rate)
        known = {"sentence": state.sentence(), "left": state.left}
        thresholds = state.reference(machine.reference).domain_thresholds(rate)
        return {"adaptation": known, "thresholds": thresholds}

    def _status(self, summary: MachineSummary, drift: Drift | None) -> str:
        if summary.open_alarms:
            return "alarm"
        if drift is not None and drift.stale:
            return "stale"
        since = timedelta(seconds=self._settings.silent_after)
        if summary.last is None or datetime.now(UTC) - summary.last.received_at > since:
            return "silent"
        return "ok"

    def _drift(self, machine: Machine, summary: MachineSummary) -> Drift | None:
        """The drift over the clips that the present model judged; computed once per change."""
        key = (summary, machine.model_sha256)
        known = self._drifts.get(machine.id)
        if known is not None and known[0] == key:
            return known[1]
        recent = [
            clip
            for clip in self.store.clips(machine.id, WINDOW)
            if clip.model_sha256 == machine.model_sha256 and clip.answer != "fault"
        ]
        judged = [
            (clip.alarm, clip.domain_weights, clip.p_value)
            for clip in recent
            if clip.state in JUDGED
        ]
        drift = drift_of(
            judged,
            machine.false_alarm_rate,
            domains=machine.domains,
            model=f"{machine.id}.daco",
            not_judged=sum(clip.state not in (*JUDGED, OFF) for clip in recent),
        )
        self._drifts[machine.id] = (key, drift)
        return drift

    def _last_day(self) -> dict[str, dict[str, int]]:
        """Clips and anomalous clips of the last 24 hours, by machine."""
        good_until, counts = self._day
        started = time.monotonic()
        if started < good_until:
            return counts
        since = datetime.now(UTC) - timedelta(days=1)
        counts = {
            name: {"clips": clips, "anomalous": anomalous}
            for name, (clips, anomalous) in self.store.counts_since(since).items()
        }
        ended = time.monotonic()
        self._day = (ended + max(_FRESH_COUNTS, _FRESH_TIMES * (ended - started)), counts)
        return counts


class Hub:
    """Sends events to all streams, and keeps the last ones for clients that reconnect."""

    def __init__(self, on_drop: Callable[[], None] = lambda: None) -> None:
        self._streams: set[Stream] = set()
        self._run = secrets.token_hex(4)  # ids of an earlier process are not valid here
        self._number = 0
        self._recent: deque[tuple[int, str]] = deque(maxlen=REMEMBERED)
        self._on_drop = on_drop
        self.is_closed = False

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._streams)

    def publish(self, kind: str, data: dict[str, Any]) -> None:
        """Send an event to all streams; a stream that is too far behind is closed."""
        self._number += 1
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        event = f"id: {self._run}-{self._number}\nevent: {kind}\ndata: {text}\n\n"
        self._recent.append((self._number, event))
        for stream in list(self._streams):
            if stream.qsize() >= MOST_BEHIND:
                self._streams.discard(stream)
                stream.put_nowait(_END)
                self._on_drop()
            else:
                stream.put_nowait(event)

    def open(self, last_id: str | None = None) -> Stream:
        """A stream of the events from now on, after those that followed `last_id`."""
        stream: Stream = asyncio.Queue()
        for event in self._missed(last_id) if last_id else ():
            stream.put_nowait(event)
        self._streams.add(stream)
        return stream

    async def read(self, stream: Stream) -> AsyncIterator[str]:
        """The text sent on a stream, until it or the service ends."""
        # Sent at once, so that the client knows it is connected.
        yield f"retry: {RECONNECT_MILLISECONDS}\n\n"
        while not self.is_closed:
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    event = await stream.get()
            except TimeoutError:
                yield ": still here\n\n"
                continue
            if event is _END:
                return
            yield event

    def leave(self, stream: Stream) -> None:
        """Remove a stream that is no longer read."""
        self._streams.discard(stream)

    def close(self) -> None:
        """End all streams."""
        self.is_closed = True
        for stream in self._streams:
            stream.put_nowait(_END)

    def _missed(self, last_id: str) -> list[str]:
        run, _, number = last_id.partition("-")
        if run == self._run and number.isascii() and number.isdigit() and len(number) < 16:
            first = self._recent[0][0] if self._recent else self._number + 1
            if first - 1 <= int(number) <= self._number:
                return [event for each, event in self._recent if each > int(number)]
        return [f"id: {self._run}-{self._number}\nevent: reset\ndata: {{}}\n\n"]


class Feed:
    """Publishes the clips and alarms that are new in the database."""

    def __init__(self, overview: Overview, hub: Hub) -> None:
        self._overview, self._store, self._hub = overview, overview.store, hub
        self._last_ids: dict[str, int] | None = None  # None: nothing is read
        self._open: dict[int, StoredAlarm] = {}
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()

    def wake(self) -> None:
        """Say that something was committed."""
        self._news.set()

    async def attend(self) -> None:
        """A client has connected: from now on every new clip is published."""
        async with self._turn:
            if self._last_ids is None:
                self._last_ids = await asyncio.to_thread(self._start)

    async def run(self) -> None:
        """Read and publish until cancelled."""
        while True:
            await asyncio.sleep(BUSY_SECONDS)
            try:
                async with asyncio.timeout(QUIET_SECONDS - BUSY_SECONDS):
                    await self._news.wait()
            except TimeoutError:
                pass
            self._news.clear()
            async with self._turn:
                if not self._hub.streams:
                    self._last_ids = None
                if self._last_ids is None:
                    continue
                try:
                    for kind, data in await asyncio.to_thread(self._read, self._last_ids):
                        self._hub.publish(kind, data)
                except Exception as error:  # the database may be away for a while
                    log.warning("events wait: %s", error)

    def _start(self) -> dict[str, int]:
        summaries = self._store.machines_summary()
        self._open = self._open_alarms()
        return {each.machine: each.last.id for each in summaries if each.last}

    def _open_alarms(self) -> dict[int, StoredAlarm]:
        return {alarm.id: alarm for alarm in self._store.alarms(open_only=True, limit=_PAGE)}

    def _read(self, last_ids: dict[str, int]) -> list[tuple[str, dict[str, Any]]]:
        """The events since the last read, clips before alarms before machines."""
        clips: list[StoredClip] = []
        for each in self._store.machines_summary():
            last_id = last_ids.get(each.machine, 0)
            if each.last is not None and each.last.id > last_id:
                page = self._store.clips(each.machine, _PAGE, after=last_id)
                clips += page
                last_ids[each.machine] = page[0].id if page else each.last.id
        is_open = self._open_alarms()
        changed = [alarm for number, alarm in is_open.items() if number not in self._open]
        closed = (self._store.alarm(number) for number in self._open.keys() - is_open.keys())
        changed += [alarm for alarm in closed if alarm is not None]
        self._open = is_open
        touched = {clip.machine for clip in clips} | {alarm.machine for alarm in changed}
        clips.sort(key=lambda clip: clip.id)
        changed.sort(key=lambda alarm: alarm.id)
        return [
            *(("clip", self._overview.clip(clip)) for clip in clips),
            *(("alarm", alarm.to_dict()) for alarm in changed),
            *(("machine", machine) for machine in self._overview.machines(touched)),
        ]
