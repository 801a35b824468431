"""Plant: everything that monitors a plant, wired together; one way for every recording.

A recording comes from a source, is judged in a worker process, stored with its alarms and messages
in one transaction, and then kept on disk and told to people.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from daco.audio.formats import AudioLimits
from daco.detector.ranges import NORMAL, OFF
from daco.detector.verdict import ScoreOptions, Verdict
from daco.errors import DacoError, DataError
from daco.files.hashing import sha256_of_bytes
from daco.monitoring import worker
from daco.monitoring.adaptation import Calibration
from daco.monitoring.alarms import AlarmRule
from daco.monitoring.config import PlantConfig
from daco.monitoring.evidence_limits import EvidenceLimits
from daco.monitoring.explainer import Explainer
from daco.monitoring.judge import (
    Judge,
    JudgeTimeoutError,
    UnusableRecordingError,
    WorkerLostError,
)
from daco.monitoring.models import ModelInUse, Models
from daco.monitoring.notify import Notifier, receivers
from daco.monitoring.recordings import Recordings
from daco.monitoring.sources.folder import FolderSource, FolderWatch, stamp_of
from daco.monitoring.sources.live import LiveSound, LiveSource
from daco.monitoring.status import MachineStatus, machine_status
from daco.monitoring.store import (
    ConflictError,
    MissingRowError,
    NewClip,
    Outcome,
    Person,
    Recording,
    Store,
    StoredClip,
    StoreError,
)
from daco.monitoring.store.retention import protected_audio, stored_audio
from daco.monitoring.tables import MachineConfig
from daco.monitoring.times import changed_at
from daco.monitoring.watchdog import Watchdog
from daco.monitoring.worker import Judged, Limits

log = logging.getLogger("daco.monitoring")


class NoModelError(DacoError):
    """A machine has no usable model at the moment; its recordings may be sent again."""


@dataclass
class Summary:
    """What a run with `once` left."""

    waiting: list[str] = field(default_factory=list)  #: files that are still being written
    failures: list[str] = field(default_factory=list)  #: why recordings were left
    undelivered: int = 0


class Plant:
    """A plant's monitor.

    Sentences about receivers that people should read go to `say`. Every recording and its outcome
    are given to the callables of `on_outcome`, in the thread that handled it.
    """

    def __init__(self, config: PlantConfig, say: Callable[[str], None] = log.warning) -> None:
        service = config.service
        self.config = config
        self.on_outcome: list[Callable[[Recording, Outcome], None]] = []
        rules = {machine: table.rule for machine, table in config.machine.items()}
        self.store = Store.open(
            service.database,
            rules=lambda machine: rules.get(machine, AlarmRule()),
            receivers=receivers(config),
        )
        try:
            self.recordings = None
            if service.keep_audio != "none":
                folder, most = service.recordings, service.audio_size
                self.recordings = Recordings(
                    folder, most, partial(protected_audio, self.store.database)
                )
            self.notifier = Notifier(
                config,
                self.store,
                status=self.status,
                say=say,
                report=lambda cause, problem: self.watchdog.report(None, cause, problem),
            )
            self.judge = Judge(
                service.workers,
                waiting=service.waiting,
                seconds=service.time_limit.total_seconds(),
                limits=Limits(service.memory_limit, AudioLimits()),
                weights=service.weights,
                device=service.device,
            )
        except BaseException:
            self.store.close()
            raise
        self.models = Models(config.machine, partial(self.judge.load, worker.describe))
        self.limits = EvidenceLimits(config.machine, self.models, self.store)
        self.watchdog = Watchdog(self)
        self.folders = FolderSource(
            [
                FolderWatch(
                    machine=each.id,
                    folder=each.folder,
                    settle=each.settle.total_seconds(),
                    store=self.store,
                    handle=self.handle,
                    problem=partial(self.watchdog.report, each.id, "folder"),
                )
                for each in config.machine.values()
                if each.folder is not None
            ],
            threads=service.workers + 1,
        )
        self.live: list[LiveSource] = []
        self._stopping = False
        self.explainer = Explainer(config.machine, self.judge)
        self._status: tuple[float, list[MachineStatus]] = (-1.0, [])
        self._status_lock = threading.Lock()

    def start(self) -> None:
        """Load the models; begin to listen, to deliver messages and to watch over all of it."""
        self.load_models()
        self.watchdog.start()
        self.notifier.start()
        self.folders.start()
        self.explainer.start()
        for machine in self.config.machine.values():
            if machine.stream is not None or machine.microphone is not None:
                threading.Thread(target=self._start_live, args=(machine,), daemon=True).start()

    def stop(self) -> None:
        """End: recordings that are being judged are stored first."""
        self._stopping = True
        for source in self.live:
            source.stop()
        self.folders.stop()
        for source in self.live:
            source.join(self.config.service.time_limit.total_seconds())
        self.watchdog.stop()
        self.notifier.stop()
        self.judge.close()
        self.store.close()

    @property
    def is_over(self) -> bool:
        """Whether standard input was the only source, and has ended."""
        machines = self.config.machine.values()
        heard = [source for source in self.live if source.sound.waits and not source.is_alive()]
        return bool(machines) and len(heard) == len(machines)

    def load_models(self) -> None:
        """Load the models of all machines, a few at a time."""
        with ThreadPoolExecutor(self.config.service.workers) as pool:
            list(pool.map(self.models.get, self.config.machine))

    def _start_live(self, machine: MachineConfig) -> None:
        while (model := self.models.get(machine.id)) is None:
            if self._stopping:
                return
            time.sleep(1.0)
        source = LiveSource(
            LiveSound.of(machine, model.info),
            self.handle,
            partial(self.watchdog.report, machine.id, "source"),
            log.warning,
        )
        source.start()
        self.live.append(source)  # what is in this list and not alive has ended

    def handle(self, recording: Recording, last_try: bool = True) -> Outcome:
        """Judge a recording, store its verdict, and keep and tell what is to be kept and told.

        When it returns, the clip is on the disk. Whatever it raises, nothing was stored and the
        same recording can be given again.

        Parameters
        ----------
        recording : Recording
        last_try : bool
            Whether a file that cannot be used is remembered, until it changes.

        Raises
        ------
        MissingRowError, ConflictError
            There is no such machine; the same key was used for another recording.
        NoModelError, BusyError, StoreError
            Not now.
        """
        model = self.model(recording.machine)
        known = self._known(recording)
        if known is not None:
            return known
        try:
            judged = self._judge(model, recording)
        except (UnusableRecordingError, JudgeTimeoutError, WorkerLostError) as error:
            if recording.stamp is None and not isinstance(error, UnusableRecordingError):
                raise  # it may be sent again; a file would be tried for ever
            return self._refuse(recording, error.reason, last_try)
        if recording.stamp not in (None, _stamp(recording.data)):
            return Outcome()  # written to, or removed, since it was listed
        findings = self.explainer.findings(recording, judged.verdict)
        outcome = self._add(self._new_clip(model, recording, judged, findings))
        if not outcome.known and outcome.clip is not None:
            self._keep(outcome.clip, judged.sha256, recording.data)
            self.notifier.wake()
            self._tell(recording, outcome)
        return outcome

    def trial(self, recording: Recording) -> Verdict:
        """Return the verdict on a recording, which is not stored."""
        model = self.model(recording.machine)
        judged = self._judge(model, recording)
        return self.store.preview(self._new_clip(model, recording, judged))

    def adapts(self, machine: MachineConfig) -> bool:
        """Return whether the alarm limit of a machine follows its recordings."""
        return self.config.service.adapt if machine.adapt is None else machine.adapt

    def model(self, name: str) -> ModelInUse:
        """Return the model of a machine; a `NoModelError` where there is none."""
        if name not in self.config.machine:
            raise MissingRowError(f"There is no machine {name!r}.")
        model = self.models.get(name)
        if model is None:
            problem = self.models.problem(name) or "it is not loaded yet."
            raise NoModelError(f"The model of {name} cannot be used: {problem}")
        return model

    def _known(self, recording: Recording) -> Outcome | None:
        """The outcome of an upload that was stored before; saves judging it again."""
        if recording.source_key is None or not isinstance(recording.data, bytes):
            return None
        (source,) = self.store.sources(recording.machine, [recording.source_key]) or (None,)
        if source is None or source.clip_id is None:
            return None
        if source.audio_sha256 != sha256_of_bytes(recording.data):
            raise ConflictError("The key was used before, for a recording with other content.")
        return Outcome(self.store.clip(source.clip_id), known=True)

    def _judge(self, model: ModelInUse, recording: Recording) -> Judged:
        machine = self.config.machine[recording.machine]
        spans = machine.window, machine.hop
        window, hop = (None if each is None else each.total_seconds() for each in spans)
        if machine.folder is None and (machine.stream or machine.microphone):
            window = hop = None  # live sound is cut before it comes here
        options = ScoreOptions(window, hop, machine.aggregate)
        return self.judge.score(model, recording.data, recording.name, options)

    def _new_clip(
        self,
        model: ModelInUse,
        recording: Recording,
        judged: Judged,
        findings: list[dict[str, Any]] | None = None,
    ) -> NewClip:
        machine = self.config.machine[recording.machine]
        path = recording.data if isinstance(recording.data, Path) else None
        recorded_at = recording.recorded_at or judged.tagged_at or changed_at(path)
        counts = judged.verdict.state != OFF or machine.should_run(recording.received_at)
        calibration = Calibration(model.info.reference, model.info.false_alarm_rate)
        return NewClip(
            verdict=judged.verdict,
            machine=machine.id,
            received_at=recording.received_at,
            recorded_at=recorded_at,
            source_key=recording.source_key,
            stamp=recording.stamp,
            audio_sha256=judged.sha256,
            audio_path=None if path is None else str(path),
            findings=findings,
            calibration=calibration,
            adapt=self.adapts(machine),
            counts=counts,
            evidence_limit=self.limits.of(machine.id),
        )

    def _add(self, new: NewClip) -> Outcome:
        try:
            return self.store.add(new)
        except StoreError as error:
            if self.recordings is None or "disk is full" not in error.reason:
                raise
            self.watchdog.report(None, "disk", f"{error} Kept recordings are removed.")
            if not self.recordings.evict(0):
                raise
            return self.store.add(new)

    def _keep(self, clip: StoredClip, sha256: str, data: bytes | Path) -> None:
        """Keep the recording of a committed clip, where the configuration says so."""
        wanted = self.config.service.keep_audio
        if self.recordings is None or (wanted != "all" and clip.state in (NORMAL, OFF)):
            return
        try:
            self.recordings.keep(sha256, data)
            self.watchdog.report(None, "audio", None)
        except DataError as error:  # alarms go on
            self.watchdog.report(None, "audio", f"A recording could not be kept: {error}")

    def _refuse(self, recording: Recording, reason: str, last_try: bool) -> Outcome:
        outcome = Outcome(refused=reason)
        if recording.stamp is not None and recording.source_key is not None and last_try:
            if _stamp(recording.data) != recording.stamp:
                return Outcome()
            about = {"name": recording.name, "stamp": recording.stamp, "reason": reason}
            self.store.reject(recording.machine, recording.source_key, **about)
            self.notifier.wake()
        if last_try:
            self._tell(recording, outcome)
        return outcome

    def _tell(self, recording: Recording, outcome: Outcome) -> None:
        for each in self.on_outcome:
            each(recording, outcome)

    def audio(self, clip: StoredClip) -> Path | None:
        """Return the recording of a clip: a kept one, or the file in the machine's folder."""
        kept = None if self.recordings is None else self.recordings.find(clip.audio_sha256)
        if kept is not None:
            return kept
        machine = self.config.machine.get(clip.machine)
        if clip.audio_path is None or machine is None or machine.folder is None:
            return None
        path = Path(clip.audio_path).resolve()
        inside = path.is_relative_to(machine.folder.resolve())
        return path if inside and path.is_file() else None

    def delete_clip(self, clip_id: int, who: Person) -> StoredClip:
        """Delete a clip, and its kept recording if no other clip has the same."""
        clip = self.store.people.delete_clip(clip_id, who)
        own = [clip.audio_sha256] if clip.audio_sha256 is not None else []
        for sha256 in set(own) - stored_audio(self.store.database, own):
            if self.recordings is not None:
                self.recordings.remove(sha256)
        return clip

    def once(self) -> Summary:
        """Judge the complete files of all folders, deliver messages, and return."""
        summary = Summary()
        self.load_models()
        self.notifier.start()
        for folder in self.folders.folders:
            while folder.look(last_try=True):
                pass
            if folder.arrivals.waiting and folder.failure is None:
                time.sleep(folder.arrivals.settle)
                while folder.look(last_try=True):
                    pass
            if folder.failure is None:
                summary.waiting += folder.arrivals.waiting
            else:
                summary.failures.append(f"{folder.machine}: {folder.failure}")
        self.watchdog.tick()
        self.notifier.finish(30.0)
        self.watchdog.tick()  # others hear of a receiver that has refused a message
        summary.undelivered = self.notifier.finish(30.0)
        return summary

    def status(self) -> list[MachineStatus]:
        """Return the state of every machine, at most a second old."""
        with self._status_lock:
            made_at, status = self._status
            if time.monotonic() - made_at > 1.0:
                status = machine_status(self)
                self._status = (time.monotonic(), status)
            return status


def _stamp(data: bytes | Path) -> str | None:
    """The stamp of a file as it is now; None where it is gone."""
    try:
        return stamp_of(data.stat()) if isinstance(data, Path) else None
    except OSError:
        return None
