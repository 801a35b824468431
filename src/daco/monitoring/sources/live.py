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
from daco.monitoring.store import BusyError, Recording, StoreError
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
        frontend, stream = model.frontend, machine.stream or ""
        rates = (model.ranges or {}).get("sample_rates") or []
        rate = rates[0] if rates else frontend.sample_rate if frontend else 16_000
        window = frontend.seconds if frontend and frontend.seconds else _USUAL
        window = window if machine.window is None else machine.window.total_seconds()
        hop = window if machine.hop is None else machine.hop.total_seconds()
        if machine.microphone is not None:
            capture = microphone(machine.microphone, rate)
            return cls(machine.id, f"microphone {machine.microphone}", capture, window, hop)
        if stream.startswith("pcm:"):
            capture = standard_input(stream)
            return cls(machine.id, "standard input", capture, window, hop, waits=True)
        return cls(machine.id, f"stream {masked(stream)}", ffmpeg(stream, rate), window, hop)


class LiveSource(threading.Thread):
    """Hands every window of live sound over as a recording, and reconnects.

    `problem` is called with a sentence while the source is not available, and with None when it is
    again; `say` with a sentence about lost sound and drift, at most once a minute.
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
        self._reported = (-_REPORT_EVERY, 0, 0.0)  # when, and the gaps and seconds until then
        self._stopping = threading.Event()
        self._buffer: Buffer | None = None
        self._is_well = True

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
        sound = self.sound
        self._buffer = buffer = Buffer(self.buffered, waits=sound.waits)
        stop = threading.Event()
        pump = threading.Thread(target=self._pump, args=(buffer, stop), daemon=True)
        pump.start()
        timeline: Timeline | None = None
        try:
            while True:
                got = buffer.get(self.stall)
                if got is None or self._stopping.is_set():
                    return buffer.ended or f"no sound for {self.stall:g} s"
                if timeline is None:
                    format_ = buffer.rate, buffer.channels
                    timeline = Timeline(*format_, sound.window, sound.hop, gapless=sound.waits)
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
        data = wav_bytes(window.samples, buffer.rate, buffer.channels)
        key = f"live/{name}"
        recording = Recording(self.sound.machine, name, data, source_key=key, recorded_at=began)
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
        """Count what was lost, and say it once a minute."""
        self.gaps += timeline.gaps
        self.lost_seconds += timeline.lost_seconds
        timeline.gaps, timeline.lost_seconds = 0, 0.0
        reported_at, gaps, lost = self._reported
        now, drift = time.monotonic(), timeline.drift
        if now - reported_at < _REPORT_EVERY:
            return
        if self.gaps > gaps:
            missing = f"{self.lost_seconds - lost:.1f} s of sound"
            self.say(
                f"{self.sound.label}: {missing} are missing in {quantity(self.gaps - gaps, 'gap')}."
            )
        elif drift is not None and abs(drift) > _DRIFTING:
            self.say(
                f"{self.sound.label}: its clock is {abs(drift):.1%} "
                f"{'slower' if drift > 0 else 'faster'} than this computer's. Check the sample "
                "rate."
            )
        else:
            return
        self._reported = (now, self.gaps, self.lost_seconds)
