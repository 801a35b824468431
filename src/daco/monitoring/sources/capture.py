"""Live sound as 16-bit samples: standard input, ffmpeg for streams, a microphone."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import threading
import time
import wave
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any

from daco.errors import DacoError, InputError, MissingExtraError
from daco.monitoring.addresses import masked

_BLOCK = 4096


class SourceError(DacoError):
    """A source of live sound is not available; daco tries again."""


class Buffer:
    """Sound between a source and the judge; the oldest is dropped where it is full.

    A source that can wait (`waits`), such as a pipe, does instead.
    """

    def __init__(self, seconds: float, *, waits: bool) -> None:
        self.rate = self.channels = 0
        self.ended: str | None = None
        self._seconds, self._waits = seconds, waits
        self._blocks: deque[bytes] = deque()
        self._size = self._lost = 0
        self._arrived = 0.0
        self._changed = threading.Condition()
        self.closed = False

    def begin(self, rate: int, channels: int) -> None:
        """Say what the samples are, before the first one."""
        if not (1000 <= rate <= 384_000 and 1 <= channels <= 64):
            raise SourceError(f"it has {channels} channels of {rate} Hz")
        self.rate, self.channels = rate, channels

    def put(self, data: bytes) -> None:
        """Add sound: whole frames of all channels."""
        room = int(self._seconds * self.rate) * 2 * self.channels
        with self._changed:
            while self._waits and self._size > room and not self.closed:
                self._changed.wait(1.0)
            self._blocks.append(data)
            self._size += len(data)
            self._arrived = time.time()
            while self._size > room and not self._waits and len(self._blocks) > 1:
                dropped = len(self._blocks.popleft())
                self._size -= dropped
                self._lost += dropped
            self._changed.notify_all()

    def lose(self, frames: int) -> None:
        """Say that the source itself has lost sound."""
        with self._changed:
            self._lost += frames * 2 * self.channels

    def end(self, reason: str) -> None:
        """Say that no more sound comes, and why."""
        with self._changed:
            self.ended = reason
            self._changed.notify_all()

    def close(self) -> None:
        """Let a waiting source go."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def get(self, timeout: float) -> tuple[bytes, float, int] | None:
        """All sound that is there, its time of arrival, and the frames lost before it.

        None where there is none in time.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._blocks or self.ended is not None, timeout)
            if not self._blocks:
                return None
            data, lost = b"".join(self._blocks), self._lost
            self._blocks.clear()
            self._size = self._lost = 0
            self._changed.notify_all()
            arrived = self._arrived
        return data, arrived, lost // (2 * self.channels)


Capture = Callable[[Buffer, threading.Event], None]
"""Fills a buffer until the event is set or the source ends, which is a `SourceError`."""


def parse_pcm(text: str) -> tuple[int, int]:
    """Rate and channels of ``pcm:RATE[:CHANNELS]``.

    >>> parse_pcm("pcm:16000"), parse_pcm("pcm:48000:2")
    ((16000, 1), (48000, 2))
    """
    parts = text.split(":")[1:]
    if len(parts) in (1, 2) and all(part.isdecimal() and len(part) < 7 for part in parts):
        return int(parts[0]), int(parts[1]) if len(parts) == 2 else 1
    raise InputError(f"Sound on standard input is pcm:RATE or pcm:RATE:CHANNELS. Got {text!r}.")


def standard_input(text: str, descriptor: int = 0) -> Capture:
    """16-bit little-endian samples on standard input."""
    rate, channels = parse_pcm(text)

    def run(buffer: Buffer, stop: threading.Event) -> None:
        buffer.begin(rate, channels)
        _copy(descriptor, buffer, stop)
        raise SourceError("standard input has ended")

    return run


def ffmpeg(url: str, rate: int) -> Capture:
    """The first channel of an RTSP or HTTP stream at a sample rate, read by ffmpeg."""

    def run(buffer: Buffer, stop: threading.Event) -> None:
        program = shutil.which("ffmpeg")
        if program is None:
            raise SourceError("streams need ffmpeg: install it (apt install ffmpeg)")
        options = ["-rtsp_transport", "tcp"] if url.startswith("rtsp") else []
        arguments = ["-nostdin", "-loglevel", "error", *options, "-i", url, "-vn"]
        arguments += ["-af", "pan=mono|c0=c0", "-ar", str(rate), "-f", "s16le", "-"]
        buffer.begin(rate, 1)
        last_words: deque[bytes] = deque(maxlen=1)
        with subprocess.Popen(
            [program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            listener = threading.Thread(target=last_words.extend, args=(process.stderr,))
            listener.start()
            try:
                _copy(process.stdout.fileno(), buffer, stop)
            finally:
                process.kill()
                listener.join()
        words = last_words[0].decode(errors="replace").strip() if last_words else ""
        raise SourceError(words.replace(url, masked(url)) or "the stream has ended")

    return run


def microphone(device: str, rate: int) -> Capture:
    """A microphone of this computer: its number, a part of its name, or ``default``."""

    def run(buffer: Buffer, stop: threading.Event) -> None:
        sounddevice = load_sounddevice()
        finished = threading.Event()

        def heard(data: Any, frames: int, _: Any, status: Any) -> None:
            if status.input_overflow:
                buffer.lose(frames)
            buffer.put(bytes(data))

        chosen = None if device == "default" else int(device) if device.isdecimal() else device
        with _devices(sounddevice):
            try:
                channels = min(2, sounddevice.query_devices(chosen, "input")["max_input_channels"])
                stream = sounddevice.RawInputStream(
                    samplerate=rate,
                    device=chosen,
                    channels=channels,
                    dtype="int16",
                    callback=heard,
                    finished_callback=finished.set,
                )
            except (sounddevice.PortAudioError, ValueError) as error:
                raise SourceError(f"the microphone cannot be opened ({error})") from None
            buffer.begin(rate, channels)
            with stream:
                while not stop.is_set() and not finished.wait(0.2):
                    pass
        raise SourceError("the microphone has gone")

    return run


_in_use, _in_use_lock = [0], threading.Lock()


@contextmanager
def _devices(sounddevice: Any) -> Iterator[None]:
    """The present devices: PortAudio lists them once, so it starts anew while nobody uses it."""
    with _in_use_lock:
        if _in_use[0] == 0:
            sounddevice._terminate()
            sounddevice._initialize()
        _in_use[0] += 1
    try:
        yield
    finally:
        with _in_use_lock:
            _in_use[0] -= 1


def load_sounddevice() -> Any:
    """The sounddevice module, or an error that says what to install."""
    try:
        import sounddevice
    except ImportError:
        raise MissingExtraError(
            'A microphone needs sounddevice: pip install "daco-asd[live]".'
        ) from None
    except OSError:
        raise SourceError(
            "a microphone needs the PortAudio library (apt install libportaudio2)"
        ) from None
    return sounddevice


def wav_bytes(samples: bytes, rate: int, channels: int) -> bytes:
    """A WAV file of 16-bit samples."""
    file = BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(samples)
    return file.getvalue()


def _copy(descriptor: int, buffer: Buffer, stop: threading.Event) -> None:
    """Copy whole frames until the source ends."""
    frame, rest = 2 * buffer.channels, b""
    while not stop.is_set():
        if not select.select([descriptor], [], [], 0.2)[0]:
            continue
        data = os.read(descriptor, _BLOCK)
        if not data:
            return
        data = rest + data
        whole = len(data) - len(data) % frame
        rest = data[whole:]
        if whole:
            buffer.put(data[:whole])
