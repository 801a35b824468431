"""What clients see: machines, clips and changes, from the configuration, models and store."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from daco.detector.ranges import OFF
from daco.detector.verdict import Verdict
from daco.errors import InputError
from daco.monitoring.adaptation import JUDGED, Adaptation, for_model
from daco.monitoring.alarms import SHELVED
from daco.monitoring.drift import WINDOW, Drift, drift_of_clips
from daco.monitoring.engine import Plant
from daco.monitoring.evidence_limits import clips_between
from daco.monitoring.expectation import correlation_of, expect
from daco.monitoring.judge import UnusableRecordingError
from daco.monitoring.models import ModelInUse
from daco.monitoring.notify.deliver import connect
from daco.monitoring.service import schemas
from daco.monitoring.status import MachineStatus
from daco.monitoring.store import MachineSummary, Recording, StoredClip
from daco.monitoring.store.reading import LARGEST_PAGE
from daco.monitoring.tables import MachineConfig

LIMIT = 1.0
"""Of the oddness, always."""

FRESH_SECONDS = 5.0
"""How long machines are shown as they were while nothing has changed."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets compute."""


@dataclass(frozen=True)
class _Stored:
    """What the store knows of all machines."""

    summaries: dict[str, MachineSummary]
    day: dict[str, tuple[int, int]]  #: clips and anomalous ones of the last 24 hours
    learned: dict[str, Adaptation]
    shelved: Counter[str | None]  #: open alarms that are


class Overview:
    """Reads machines and clips; its methods may be called in any thread."""

    def __init__(self, plant: Plant) -> None:
        self._plant, self._store = plant, plant.store
        self._lock = threading.Lock()
        self._seen: tuple[int, float, list[schemas.Machine]] = (-1, 0.0, [])
        self._recents: dict[str, tuple[tuple[int, str], Drift | None, float]] = {}
        self._rows: dict[str, tuple[str, dict[str, int]]] = {}
        self._labels = {each.name: each.label for each in connect(plant.config)}

    def clip(self, stored: StoredClip, **more: Any) -> schemas.Clip:
        """A stored clip."""
        has_audio = self._plant.audio(stored) is not None
        return self._clip(stored, **vars(stored), **more, has_audio=has_audio)

    def judged(self, recording: Recording, record: bool) -> schemas.Clip:
        """The clip of a recording that is judged now, and stored unless it is a trial."""
        if not record:
            verdict = self._plant.trial(recording)
            known = {**vars(verdict), "machine": recording.machine}
            received, recorded = recording.received_at, recording.recorded_at
            times = {"time": recorded or received, "received_at": received, "recorded_at": recorded}
            return self._clip(verdict, **known, **times)
        outcome = self._plant.handle(recording)
        if outcome.refused is not None:
            raise UnusableRecordingError(outcome.refused)
        if outcome.clip is None:
            raise InputError("This recording was judged before and is no longer kept.")
        return self.clip(outcome.clip, opened=outcome.opened, cleared=outcome.cleared)

    def _clip(self, verdict: Verdict, **known: Any) -> schemas.Clip:
        rarest = verdict.supported_rate if verdict.extrapolated else verdict.p_value
        row = self._row(known["machine"], verdict.nearest)
        return schemas.Clip(**known, one_in=1 / max(rarest, 1e-9), nearest_index=row)

    def _row(self, machine: str, name: str) -> int | None:
        """The row of a healthy recording in the present model."""
        model = self._plant.models.get(machine) if machine in self._plant.config.machine else None
        if model is None:
            return None
        sha256, rows = self._rows.get(machine, ("", {}))
        if sha256 != model.file_sha256:
            rows = {name: row for row, name in reversed(list(enumerate(model.info.names)))}
            self._rows[machine] = (model.file_sha256, rows)
        return rows.get(name)

    def table(self, machine: str, **span: Any) -> str:
        """Clips as CSV; text that a spreadsheet would compute is marked as text."""
        file = io.StringIO()
        rows = csv.writer(file)
        rows.writerow(("time", "name", "state", "oddness", "p_value", "answer", "findings"))
        for clip in self._store.clips(machine, LARGEST_PAGE, **span):
            findings = " ".join(each["text"] for each in clip.findings or ())
            texts = (clip.name, clip.state, clip.answer or "", findings)
            name, state, answer, found = (f"'{t}" if t[:1] in FORMULA else t for t in texts)
            when = clip.time.isoformat(timespec="seconds")
            numbers = f"{clip.oddness:.4g}", f"{clip.p_value:.4g}"
            rows.writerow((when, name, state, *numbers, answer, found))
        return file.getvalue()

    def changes(self, after: int) -> schemas.Changes:
        """What has changed after a number."""
        changes = self._store.changes(after)
        names = {*changes.machines, *(each.machine for each in changes.clips)}
        names |= {alarm.machine for alarm in changes.alarms if alarm.machine}
        return schemas.Changes(
            last=changes.last,
            more=changes.more,
            clips=[self.clip(clip) for clip in changes.clips],
            alarms=changes.alarms,
            machines=self.machines(names) if names else [],
        )

    def messages(self) -> schemas.Messages:
        """Messages that wait or were refused."""
        labels, outbox = self._labels, self._store.outbox
        refused = []
        for each in outbox.refused():
            about = {"machine": each.body.get("data", {}).get("machine"), "error": each.last_error}
            about["receiver"] = labels.get(each.receiver, each.receiver)
            refused.append(schemas.Message(**vars(each) | about))
        pending = {labels.get(name, name): n for name, n in outbox.pending().items()}
        receivers = list(labels.values())
        return schemas.Messages(pending=pending, refused=refused, receivers=receivers)

    def machines(self, only: Collection[str] | None = None) -> list[schemas.Machine]:
        """Every machine, or those named."""
        with self._lock:  # many pages ask at once: one of them reads
            change, made_at, machines = self._seen
            last = self._store.changes().last
            if last != change or time.monotonic() - made_at > FRESH_SECONDS:
                machines = self._read_machines()
                self._seen = (last, time.monotonic(), machines)
        return [each for each in machines if only is None or each.id in only]

    def _read_machines(self) -> list[schemas.Machine]:
        open_alarms = self._store.alarms(open_only=True, limit=500)
        stored = _Stored(
            {each.machine: each for each in self._store.machines_summary()},
            self._store.counts_since(datetime.now(UTC) - timedelta(days=1)),
            self._store.adaptations(),
            Counter(each.machine for each in open_alarms if each.state == SHELVED),
        )
        configured = self._plant.config.machine
        return [self._machine(configured[each.id], each, stored) for each in self._plant.status()]

    def _machine(
        self, machine: MachineConfig, status: MachineStatus, stored: _Stored
    ) -> schemas.Machine:
        name = machine.id
        of_model: dict[str, Any] = {}
        summary = stored.summaries.get(name) or MachineSummary(name)
        model = self._plant.models.get(name)
        drift, correlation = self._recent(machine, model, summary)
        clips, anomalous = stored.day.get(name, (0, 0))
        evidence_limit = self._plant.limits.of(name)
        if model is not None:
            of_model = {
                "conditions": list(model.info.domains),
                "normals": len(model.info.names),
                "sample_rate": model.info.sample_rate,
                "false_alarm_rate": model.info.false_alarm_rate,
                "basis": model.info.basis,
                "model_sha256": model.info.sha256,
            }
        return schemas.Machine(
            id=name,
            title=machine.name,
            status=_state(status, summary, drift, stored.shelved[name]),
            limit=LIMIT,
            last=self.clip(summary.last) if summary.last else None,
            open_alarms=summary.open_alarms,
            last_24h=schemas.Counts(clips=clips, anomalous=anomalous),
            rule=str(machine.rule),
            evidence=None if evidence_limit is None else summary.evidence,
            evidence_limit=evidence_limit,
            source=_source(machine),
            expect_every=status.expected,
            out_of_service_since=summary.out_of_service_since,
            out_of_service_by=summary.out_of_service_by,
            problems=list(status.problems),
            expectation=self._expectation(machine, model, correlation),
            drift=drift,
            adaptation=self._adaptation(machine, model, stored.learned.get(name)),
            **of_model,
        )

    def _expectation(
        self, machine: MachineConfig, model: ModelInUse | None, correlation: float
    ) -> list[str]:
        """How often the rule will raise a false alarm, and how soon it finds a fault."""
        rule, limits = machine.rule, self._plant.limits
        a_day = limits.recordings_a_day(machine.id)
        if model is None or not a_day or rule.never:
            return []
        info, limit = model.info, limits.of(machine.id)
        if limit is not None:
            between = clips_between(rule, a_day)
            found = expect(limit, info.false_alarm_rate, a_day, clips_between=between)
        else:
            known = {"references": len(info.reference.scores), "correlation": correlation}
            found = expect((rule.k, rule.n), info.false_alarm_rate, a_day, **known)
        return [*found.sentences, *filter(None, [limits.sentence(machine.id)])]

    def _adaptation(
        self, machine: MachineConfig, model: ModelInUse | None, learned: Adaptation | None
    ) -> schemas.Adaptation | None:
        if model is None:
            return None
        state = for_model(learned, model.info.sha256, model.info.false_alarm_rate)
        counts = self._plant.adapts(machine) or state.declared_at is not None
        return schemas.Adaptation(sentence=state.sentence() if counts else "", left=state.left)

    def _recent(
        self, machine: MachineConfig, model: ModelInUse | None, summary: MachineSummary
    ) -> tuple[Drift | None, float]:
        """Drift and correlation of the clips that the present model judged, once per change."""
        if model is None or summary.last is None:
            return None, 0.0
        key = (summary.changed, model.info.sha256)
        known = self._recents.get(machine.id)
        if known is None or known[0] != key:
            clips = self._store.clips(machine.id, WINDOW)
            judged = [each for each in clips if each.model_sha256 == model.info.sha256]
            flags = [each.anomalous for each in judged if each.state in JUDGED]
            drift = drift_of_clips(clips, model.info, str(machine.model))
            known = self._recents[machine.id] = (key, drift, correlation_of(flags))
        return known[1], known[2]


def _state(
    status: MachineStatus, summary: MachineSummary, drift: Drift | None, shelved: int
) -> str:
    if summary.out_of_service_since is not None:  # the status may be a second old
        return "out of service"
    if summary.open_alarms > shelved:
        return "alarm"
    if shelved:
        return "shelved"
    if status.problems:
        return "problem"
    if drift is not None and drift.stale:
        return "stale"
    if summary.last is None:
        return "silent"
    return "off" if summary.last.state == OFF else "ok"


def _source(machine: MachineConfig) -> str:
    if machine.folder is not None:
        return "a folder"
    if machine.stream is not None:
        return "a live stream"
    return "a microphone" if machine.microphone is not None else "the network"
