"""Live sound of a machine, cut into recordings as long as the model's normals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from daco.errors import DacoError
from daco.monitoring.addresses import masked
from daco.monitoring.sources.capture import (
    Buffer,
    Capture,
    ffmpeg,
    microphone,
    standard_input,
    wav_bytes,
)
from daco.monitoring.sources.timeline import Timeline, Window
from daco.monitoring.store.records import BusyError, Recording, StoreError
from daco.monitoring.tables import MachineConfig
from daco.monitoring.worker import ModelInfo
from daco.text import quantity

STALL = 10.0
"""Seconds without sound after which a source is opened again."""

_BUFFERED = 60.0  # seconds of sound that wait for the judge
_USUAL = 10.0  # seconds of a window where the model does not know better
_LONGEST_REST = 60.0
_REPORT_EVERY = 60.0
_DRIFTING = 0.002  # a quartz differs by 0.0001; more is a wrong sample rate


@dataclass(frozen=True)
class LiveSound:
    """How the sound of a machine is captured and cut."""

    machine: str
    label: str
    capture: Capture
    window: float
    hop: float
    waits: bool = False  #: it is read as fast as it is judged; the end is the end

    @classmethod
    def of(cls, machine: MachineConfig, model: ModelInfo) -> LiveSound:
        """The live sound of a configured machine, at the rate and in the length of its normals."""
        frontend = model.frontend
        rates = (model.ranges or {}).get("sample_rates") or []
        rate = rates[0] if rates else frontend.sample_rate if frontend else 16_000
        window = frontend.seconds if frontend and frontend.seconds else _USUAL
        if machine.window is not None:
            window = machine.window.total_seconds()
        hop = window if machine.hop is None else machine.hop.total_seconds()
        if machine.microphone is not None:
            label, capture = (
                f"microphone {machine.microphone}",
                microphone(machine.microphone, rate),
            )
        elif (stream := machine.stream or "").startswith("pcm:"):
            label, capture = "standard input", standard_input(stream)
        else:
            label, capture = f"stream {masked(stream)}", ffmpeg(stream, rate)
        waits = label == "standard input"
        return cls(machine.id, label, capture, window, hop, waits)


class LiveSource(threading.Thread):
    """Hands every window of live sound over as a recording, and reconnects.

    Parameters
    ----------
    sound : LiveSound
    handle : callable
        Judges and stores one recording.
    problem : callable
        Called with a sentence while the source is not available, and with None when it is again.
    say : callable
        Called with a sentence about lost sound and drift, at most once a minute.
    """

    def __init__(
        self,
        sound: LiveSound,
        handle: Callable[[Recording], object],
        problem: Callable[[str | None], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
        *,
        stall: float = STALL,
        first_rest: float = 1.0,
        buffered: float = _BUFFERED,
    ) -> None:
        super().__init__(name=f"daco-live-{sound.machine}", daemon=True)
        self.sound, self.handle, self.problem, self.say = sound, handle, problem, say
        self.stall, self.first_rest, self.buffered = stall, first_rest, buffered
        self.windows = self.gaps = 0
        self.lost_seconds = 0.0
        self.drift: float | None = None
        self._stopping = threading.Event()
        self._buffer: Buffer | None = None
        self._is_well = True
        self._reported_at = self._reported_lost = 0.0
        self._reported_gaps = 0

    def stop(self) -> None:
        """End after the window that is being judged."""
        self._stopping.set()
        if self._buffer is not None:
            self._buffer.end("stopped")

    def run(self) -> None:
        """Capture until `stop` is called, or standard input ends."""
        rest = self.first_rest
        while not self._stopping.is_set():
            before = self.windows
            reason = self._listen()
            if self._stopping.is_set():
                return
            self._is_well = False
            self.problem(f"{self.sound.label}: {reason}.")
            if self.sound.waits:
                return
            rest = self.first_rest if self.windows > before else min(2 * rest, _LONGEST_REST)
            self._stopping.wait(rest)

    def _listen(self) -> str:
        """Capture until the source fails; the reason."""
        self._buffer = buffer = Buffer(self.buffered, waits=self.sound.waits)
        stop = threading.Event()
        pump = threading.Thread(target=self._pump, args=(buffer, stop), daemon=True)
        pump.start()
        timeline: Timeline | None = None
        try:
            while True:
                got = buffer.get(self.stall)
                if got is None or self._stopping.is_set():
                    return buffer.ended or f"no sound for {self.stall:g} s"
                timeline = timeline or Timeline(
                    buffer.rate,
                    buffer.channels,
                    self.sound.window,
                    self.sound.hop,
                    gapless=self.sound.waits,
                )
                for window in timeline.feed(*got):
                    self._hand_over(window, buffer)
                self._report(timeline)
        finally:
            stop.set()
            buffer.close()
            pump.join(2.0)

    def _pump(self, buffer: Buffer, stop: threading.Event) -> None:
        try:
            self.sound.capture(buffer, stop)
        except DacoError as error:
            buffer.end(str(error).rstrip("."))
        except Exception as error:  # of a driver or a plug-in: the source is opened again
            buffer.end(f"{type(error).__name__}: {error}")

    def _hand_over(self, window: Window, buffer: Buffer) -> None:
        began = datetime.fromtimestamp(window.start, UTC)
        name = f"{began:%Y-%m-%dT%H-%M-%S}.{began.microsecond // 1000:03d}Z.wav"
        recording = Recording(
            machine=self.sound.machine,
            name=name,
            data=wav_bytes(window.samples, buffer.rate, buffer.channels),
            source_key=f"live/{name}",
            recorded_at=began,
        )
        while not self._stopping.is_set():
            try:
                self.handle(recording)
                break
            except (BusyError, StoreError):  # the sound waits in the buffer, as long as it fits
                self._stopping.wait(1.0)
            except DacoError as error:
                self.say(f"{self.sound.label}: {name} could not be judged: {error}")
                break
        self.windows += 1
        if not self._is_well:
            self._is_well = True
            self.problem(None)

    def _report(self, timeline: Timeline) -> None:
        """Keep what was lost, and tell it once a minute."""
        self.gaps += timeline.gaps
        self.lost_seconds += timeline.lost_seconds
        timeline.gaps, timeline.lost_seconds = 0, 0.0
        self.drift = timeline.drift
        now = time.monotonic()
        if now - self._reported_at < _REPORT_EVERY and self._reported_at:
            return
        if self.gaps > self._reported_gaps:
            lost = f"{self.lost_seconds - self._reported_lost:.1f} s of sound"
            gaps = quantity(self.gaps - self._reported_gaps, "gap")
            self._tell(f"{self.sound.label}: {lost} are missing in {gaps}.", now)
        elif self.drift is not None and abs(self.drift) > _DRIFTING:
            faster = "slower" if self.drift > 0 else "faster"
            self._tell(
                f"{self.sound.label}: its clock is {abs(self.drift):.1%} {faster} than this "
                "computer's. Check the sample rate.",
                now,
            )

    def _tell(self, sentence: str, now: float) -> None:
        self._reported_at, self._reported_gaps = now, self.gaps
        self._reported_lost = self.lost_seconds
        self.say(sentence)
