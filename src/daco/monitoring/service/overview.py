"""What clients see: machines, clips and changes, from the configuration, models and store."""

from __future__ import annotations

import csv
import io
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from daco.detector.ranges import OFF
from daco.detector.verdict import Verdict
from daco.monitoring.adaptation import Adaptation, for_model
from daco.monitoring.alarms import SHELVED
from daco.monitoring.config import MachineConfig
from daco.monitoring.drift import WINDOW, Drift, drift_of_clips
from daco.monitoring.engine import Plant
from daco.monitoring.evidence_limits import clips_between
from daco.monitoring.expectation import expect
from daco.monitoring.judge import UnusableRecordingError
from daco.monitoring.models import ModelInUse
from daco.monitoring.notify import send_test
from daco.monitoring.notify.deliver import connect
from daco.monitoring.service.problems import Problem
from daco.monitoring.store import MachineSummary, Recording, StoredClip
from daco.monitoring.store.reading import LARGEST_PAGE

LIMIT = 1.0
"""Of the oddness, always."""

FRESH_SECONDS = 5.0
"""How long documents of machines are used again while nothing has changed."""

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets compute."""

_NOTHING = MachineSummary("", 0, 0, 0, None, None, None)


class Overview:
    """Reads machines and clips; its methods may be called in any thread."""

    def __init__(self, plant: Plant) -> None:
        self._plant, self._store = plant, plant.store
        self._lock = threading.Lock()
        self._documents: tuple[int, float, list[dict[str, Any]]] = (-1, 0.0, [])
        self._drifts: dict[str, tuple[tuple[int, str], Drift | None]] = {}
        self._indices: dict[str, tuple[str, dict[str, int]]] = {}
        self._labels = {each.name: each.label for each in connect(plant.config)}

    def clip(self, stored: StoredClip) -> dict[str, Any]:
        """A stored clip as `schemas.Clip`."""
        return {
            **self._verdict(stored, stored.machine),
            "has_audio": self._plant.audio(stored) is not None,
        }

    def judged(self, recording: Recording, record: bool) -> dict[str, Any]:
        """The clip of a recording that is judged now, and stored unless it is a trial."""
        if not record:
            return self._trial(recording, self._plant.trial(recording))
        outcome = self._plant.handle(recording)
        if outcome.refused is not None:
            raise UnusableRecordingError(outcome.refused)
        if outcome.clip is None:
            raise Problem(409, "This recording was judged before and is no longer kept.")
        clip = self.clip(outcome.clip)
        return {**clip, "opened": list(outcome.opened), "cleared": list(outcome.cleared)}

    def _trial(self, recording: Recording, verdict: Verdict) -> dict[str, Any]:
        return {
            **self._verdict(verdict, recording.machine),
            "id": None,
            "machine": recording.machine,
            "time": recording.recorded_at or recording.received_at,
            "received_at": recording.received_at,
            "recorded_at": recording.recorded_at,
            "audio_sha256": None,
            "answer": None,
            "findings": None,
            "has_audio": False,
        }

    def _verdict(self, verdict: Verdict, machine: str) -> dict[str, Any]:
        rarest = verdict.supported_rate if verdict.extrapolated else verdict.p_value
        return {
            **vars(verdict),
            "one_in": 1 / max(rarest, 1e-9),
            "nearest_index": self._index(machine, verdict.nearest),
        }

    def _index(self, machine: str, name: str) -> int | None:
        """The row of a healthy recording in the present model."""
        model = self._plant.models.get(machine) if machine in self._plant.config.machine else None
        if model is None:
            return None
        sha256, index = self._indices.get(machine, ("", {}))
        if sha256 != model.file_sha256:
            index = {name: row for row, name in reversed(list(enumerate(model.info.names)))}
            self._indices[machine] = (model.file_sha256, index)
        return index.get(name)

    def history(self, machine: str, limit: int, **page: Any) -> dict[str, Any]:
        """A page of clips, as `schemas.History`."""
        found = self._store.clips(machine, limit, **page)
        following = found[-1].id if len(found) == limit else None
        return {"clips": [self.clip(each) for each in found], "next": following}

    def table(self, machine: str, **span: Any) -> str:
        """Clips as CSV; text that a spreadsheet would compute is marked as text."""
        file = io.StringIO()
        rows = csv.writer(file)
        rows.writerow(("time", "name", "state", "oddness", "p_value", "answer", "findings"))
        for clip in self._store.clips(machine, LARGEST_PAGE, **span):
            told = " ".join(each["text"] for each in clip.findings or ())
            texts = (clip.name, clip.state, clip.answer or "", told)
            name, state, answer, found = (f"'{t}" if t[:1] in FORMULA else t for t in texts)
            time = clip.time.isoformat(timespec="seconds")
            rows.writerow(
                (time, name, state, f"{clip.oddness:.4g}", f"{clip.p_value:.4g}", answer, found)
            )
        return file.getvalue()

    def machines(self, only: Collection[str] | None = None) -> list[dict[str, Any]]:
        """Every machine, or those named, as `schemas.Machine`."""
        with self._lock:  # many pages ask at once: one of them reads
            change, made_at, documents = self._documents
            last = self._store.changes().last
            if last != change or time.monotonic() - made_at > FRESH_SECONDS:
                documents = self._make_documents()
                self._documents = (last, time.monotonic(), documents)
        return [each for each in documents if only is None or each["id"] in only]

    def changes(self, after: int) -> dict[str, Any]:
        """What has changed after a number, as `schemas.Changes`."""
        changes = self._store.changes(after)
        names = {*changes.machines, *(clip.machine for clip in changes.clips)}
        names |= {alarm.machine for alarm in changes.alarms if alarm.machine}
        return {
            "last": changes.last,
            "more": changes.more,
            "clips": [self.clip(clip) for clip in changes.clips],
            "alarms": changes.alarms,
            "machines": self.machines(names) if names else [],
        }

    def messages(self) -> dict[str, Any]:
        """Messages that wait or were refused, as `schemas.Messages`."""
        labels, outbox = self._labels, self._store.outbox
        refused = [
            {
                **vars(each),
                "receiver": labels.get(each.receiver, each.receiver),
                "machine": each.body.get("data", {}).get("machine"),
                "error": each.last_error,
            }
            for each in outbox.refused()
        ]
        pending = outbox.pending()
        return {
            "pending": {labels.get(name, name): n for name, n in pending.items()},
            "refused": refused,
            "receivers": list(labels.values()),
        }

    def send_test(self) -> dict[str, str | None]:
        """What became of test messages, by receiver."""
        return {each.label: each.error for each in send_test(self._plant.config)}

    def _make_documents(self) -> list[dict[str, Any]]:
        summaries = {each.machine: each for each in self._store.machines_summary()}
        day = self._store.counts_since(datetime.now(UTC) - timedelta(days=1))
        learned = self._store.adaptations()
        shelved = self._shelved()
        statuses = {each.id: each for each in self._plant.status()}
        documents = []
        for name, machine in self._plant.config.machine.items():
            summary = summaries.get(name, _NOTHING)
            model = self._plant.models.get(name)
            drift = self._drift(machine, model, summary)
            clips, anomalous = day.get(name, (0, 0))
            status = statuses[name]
            documents.append(
                {
                    "id": name,
                    "title": machine.name,
                    "status": _status(status, summary, drift, shelved.get(name, 0)),
                    "limit": LIMIT,
                    "last": self.clip(summary.last) if summary.last else None,
                    "open_alarms": summary.open_alarms,
                    "last_24h": {"clips": clips, "anomalous": anomalous},
                    "rule": str(machine.rule),
                    "evidence": status.evidence,
                    "evidence_limit": status.evidence_limit,
                    "source": _source(machine),
                    "expect_every": machine.expect_every and machine.expect_every.total_seconds(),
                    "out_of_service_since": summary.out_of_service_since,
                    "out_of_service_by": summary.out_of_service_by,
                    "problems": list(status.problems),
                    "expectation": self._expectation(machine, model, clips),
                    "drift": drift and asdict(drift),
                    "adaptation": self._adaptation(machine, model, learned),
                    **_of_model(model),
                }
            )
        return documents

    def _expectation(
        self, machine: MachineConfig, model: ModelInUse | None, last_day: int
    ) -> list[str]:
        """How often the rule will raise a false alarm, and how soon it finds a fault."""
        every, rule, limits = machine.expect_every, machine.rule, self._plant.limits
        a_day = limits.recordings_a_day(machine.id) if rule.adds_up else last_day
        a_day = timedelta(days=1) / every if every else a_day
        if model is None or not a_day or rule.never:
            return []
        info, limit = model.info, limits.of(machine.id)
        if limit is not None:
            between = clips_between(rule, a_day)
            told = _expect(limit, info.false_alarm_rate, a_day, None, between)
        else:
            references = len(info.reference.scores)
            told = _expect((rule.k, rule.n), info.false_alarm_rate, round(a_day), references)
        return [*told, *filter(None, [limits.sentence(machine.id)])]

    def _shelved(self) -> dict[str, int]:
        """Open alarms that are shelved, by machine."""
        counts: dict[str, int] = {}
        for alarm in self._store.alarms(open_only=True, limit=500):
            if alarm.machine is not None and alarm.state == SHELVED:
                counts[alarm.machine] = counts.get(alarm.machine, 0) + 1
        return counts

    def _adaptation(
        self,
        machine: MachineConfig,
        model: ModelInUse | None,
        learned: Mapping[str, Adaptation],
    ) -> dict[str, Any] | None:
        adapts = self._plant.config.service.adapt if machine.adapt is None else machine.adapt
        if not adapts or model is None:
            return None
        info = model.info
        state = for_model(learned.get(machine.id), info.sha256, info.false_alarm_rate)
        return {"sentence": state.sentence(), "left": state.left}

    def _drift(
        self, machine: MachineConfig, model: ModelInUse | None, summary: MachineSummary
    ) -> Drift | None:
        """The drift over the clips that the present model judged; computed once per change."""
        if model is None or summary.last is None:
            return None
        key = (summary.changed, model.info.sha256)
        known = self._drifts.get(machine.id)
        if known is not None and known[0] == key:
            return known[1]
        recent = self._store.clips(machine.id, WINDOW)
        drift = drift_of_clips(recent, model.info, str(machine.model))
        self._drifts[machine.id] = (key, drift)
        return drift


def _status(status: Any, summary: MachineSummary, drift: Drift | None, shelved: int) -> str:
    if summary.out_of_service_since is not None:
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


@lru_cache(1000)
def _expect(
    rule: tuple[int, int] | float,
    rate: float,
    a_day: float,
    references: int | None,
    between: float | None = None,
) -> tuple[str, ...]:
    expected = expect(rule, rate, a_day, references=references, clips_between=between)
    return expected.sentences


def _of_model(model: ModelInUse | None) -> dict[str, Any]:
    """What a machine's document says of its model."""
    info = model.info if model else None
    return {
        "conditions": list(info.domains) if info else [],
        "normals": len(info.names) if info else 0,
        "sample_rate": info.sample_rate if info else None,
        "false_alarm_rate": info.false_alarm_rate if info else None,
        "basis": info.basis if info else "",
        "model_sha256": info.sha256 if info else None,
    }
