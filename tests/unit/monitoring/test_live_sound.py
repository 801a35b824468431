"""Live sound: windows cut from streams, what is lost, and reconnecting."""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import shutil
import socketserver
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import soundfile
from broken_server import unused_port
from service_process import wait_until

from daco.errors import DacoError, InputError
from daco.monitoring.sources.capture import (
    Buffer,
    SourceError,
    ffmpeg,
    parse_pcm,
)
from daco.monitoring.sources.live import LiveSound, LiveSource
from daco.monitoring.sources.timeline import TOLERANCE, Timeline

RATE = 8000
needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")


def tone(seconds, rate=RATE):
    """16-bit samples whose values count up, so that every one can be recognised."""
    return np.arange(round(seconds * rate), dtype=np.int16)


class Heard:
    """What a source has handed over and said."""

    def __init__(self, sound, **options):
        self.recordings, self.problems, self.sentences = [], [], []
        self.source = LiveSource(
            sound,
            self.recordings.append,
            self.problems.append,
            self.sentences.append,
            **{"first_rest": 0.05, **options},
        )

    def __enter__(self):
        self.source.start()
        return self

    def __exit__(self, *_):
        self.source.stop()
        self.source.join(20)
        assert not self.source.is_alive()

    def samples(self, index):
        return soundfile.read(io.BytesIO(self.recordings[index].data), dtype="int16")[0]


@pytest.mark.parametrize(("window", "hop"), [(2.0, 2.0), (2.0, 1.0), (2.0, 3.0), (0.5, 0.5)])
def test_windows_hold_every_sample_at_its_time(window, hop):
    timeline, data = Timeline(RATE, 1, window, hop), tone(9)
    windows, at = [], 0
    for size in (1, 100, 7999, 12000, 4000, 3, 39897, 8000):  # blocks of any size
        at += size
        windows += timeline.feed(data[at - size : at].tobytes(), now=1000 + at / RATE)
    for number, each in enumerate(windows):
        first = round(number * hop * RATE)
        expected = data[first : first + round(window * RATE)]
        assert np.frombuffer(each.samples, np.int16).tolist() == expected.tolist()
        assert each.start == pytest.approx(1000 + first / RATE, abs=0.01)
    assert len(windows) == int((9 - window) / hop) + 1
    assert timeline.gaps == 0


def test_no_window_spans_a_gap():
    timeline, second = Timeline(RATE, 1, 4.0, 4.0), tone(1).tobytes()
    for now in (1, 2, 3):
        assert timeline.feed(second, now) == []
    late = [timeline.feed(second, now) for now in (20, 21, 22, 23, 24, 25, 26, 27)]
    (window,) = itertools.chain(*late)
    assert window.start > 19
    assert timeline.gaps == 1
    assert timeline.lost_seconds == pytest.approx(16, abs=1)


def test_a_burst_after_a_pause_is_no_gap():
    timeline, second = Timeline(RATE, 1, 2.0, 2.0), tone(1).tobytes()
    windows = []
    for now in (1, 2, 6.0, 6.1, 6.2, 6.3, 7, 8):  # four seconds arrive together
        windows += timeline.feed(second, now)
    assert [round(each.start) for each in windows] == [0, 2, 4, 6]
    assert timeline.gaps == 0


@pytest.mark.parametrize("ppm", [-10_000, -100, 100, 10_000])
def test_a_drifting_clock_is_followed_within_bounds(ppm):
    timeline, second = Timeline(RATE, 1, 10.0, 10.0), tone(1).tobytes()
    errors = []
    for number in range(1, 1801):
        now = number * (1 + ppm * 1e-6)
        for window in timeline.feed(second, now):
            errors.append(window.start + 10 - now)
    assert max(map(abs, errors)) <= TOLERANCE + 0.2
    assert timeline.gaps == 0
    assert timeline.drift == pytest.approx(ppm * 1e-6, rel=0.2)


def test_times_advance_although_sound_arrives_faster_than_it_was_made():
    timeline, data = Timeline(RATE, 1, 2.0, 2.0, gapless=True), tone(60).tobytes()
    starts = []
    for first in range(0, len(data), 30_000):
        starts += [window.start for window in timeline.feed(data[first : first + 30_000], 1000.0)]
    assert len(starts) == 30
    assert all(second - first >= 1 for first, second in itertools.pairwise(starts))


def test_an_overrun_drops_the_oldest_and_says_how_much():
    buffer = Buffer(2.0, waits=False)
    buffer.begin(RATE, 1)
    for second in range(5):
        buffer.put(tone(5)[second * RATE : (second + 1) * RATE].tobytes())
    data, _, lost = buffer.get(1.0)
    assert lost == 3 * RATE
    assert np.frombuffer(data, np.int16).tolist() == tone(5)[3 * RATE :].tolist()


def test_a_slow_judge_loses_sound_of_a_stream_in_a_bounded_way_and_says_so():
    slow, sentences = threading.Event(), []

    def endless(buffer, stop):
        buffer.begin(RATE, 1)
        while not stop.is_set():
            buffer.put(tone(0.5).tobytes())
            time.sleep(0.001)

    sound = LiveSound("fan", "test", endless, 1.0, 1.0)
    source = LiveSource(sound, lambda _: slow.wait(0.05), say=sentences.append, buffered=3.0)
    source.start()
    wait_until(lambda: source.gaps > 2)
    source.stop()
    source.join(20)
    assert source.lost_seconds > 3
    assert "of sound are missing" in sentences[0]
    assert len(sentences) == 1  # not once per gap


@pytest.mark.parametrize("text", ["pcm:", "pcm:fast", "pcm:1:2:3", "pcm:-1", "pcm:99999999"])
def test_other_descriptions_of_standard_input_are_refused(text):
    with pytest.raises(InputError, match="pcm:RATE"):
        parse_pcm(text)


def test_a_microphone_that_is_missing_is_a_problem_not_a_crash():
    from daco.monitoring.sources.capture import microphone

    with pytest.raises(DacoError, match="microphone"):
        microphone("no such device", RATE)(Buffer(1.0, waits=False), threading.Event())


def test_a_microphone_is_heard_through_portaudio(tmp_path):
    """A sound device of ALSA that reads a file in place of a microphone, as fast as it can."""
    if not list(Path("/usr/lib").glob("*/libportaudio.so.2")):
        pytest.skip("PortAudio is not installed")
    (tmp_path / "sound.raw").write_bytes(np.tile(tone(4), 10).tobytes())
    file = f'file "/dev/null" infile "{tmp_path}/sound.raw"'
    (tmp_path / "asound.conf").write_text(
        f"pcm.machine {{ type file format raw {file} slave.pcm {{ type null }} hint.show on }}\n"
        "pcm.default { type plug slave.pcm machine }\n"
    )
    script = """
import sys
from daco.monitoring.sources.capture import microphone
from daco.monitoring.sources.live import LiveSound, LiveSource
heard = []
def handle(recording):
    heard.append(recording.data)
    if len(heard) == 3:
        source.stop()
source = LiveSource(LiveSound("fan", "mic", microphone("machine", 8000), 1.0, 1.0), handle, print)
source.run()
sys.stdout.buffer.write(heard[0])
"""
    environment = os.environ | {"ALSA_CONFIG_PATH": str(tmp_path / "asound.conf")}
    command = [sys.executable, "-c", script]
    result = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    samples, rate = soundfile.read(io.BytesIO(result.stdout), dtype="int16")
    assert rate == RATE
    assert samples.tolist() == tone(2).reshape(RATE, 2).tolist()


class _Rtsp(socketserver.StreamRequestHandler):
    """The least that a camera does: describes and plays 16-bit sound over one connection."""

    SDP = "v=0\r\no=- 0 0 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\nm=audio 0 RTP/AVP 97\r\n"
    SDP += f"a=rtpmap:97 L16/{RATE}/1\r\na=control:audio\r\n"

    def handle(self):
        while line := self.rfile.readline().decode().strip():
            method, fields = line.split()[0], {}
            while header := self.rfile.readline().decode().strip():
                name, _, value = header.partition(":")
                fields[name.lower()] = value.strip()
            extra, body = "Session: 1\r\n", ""
            if method == "DESCRIBE":
                extra, body = "Content-Type: application/sdp\r\n", self.SDP
            elif method == "SETUP":
                extra += f"Transport: {fields['transport']}\r\n"
            elif method == "OPTIONS":
                extra = "Public: OPTIONS, DESCRIBE, SETUP, PLAY, TEARDOWN\r\n"
            head = f"RTSP/1.0 200 OK\r\nCSeq: {fields['cseq']}\r\n{extra}"
            head += f"Content-Length: {len(body)}\r\n\r\n{body}"
            self.wfile.write(head.encode())
            if method == "PLAY":
                self.play()
                return

    def play(self):
        data = np.tile(tone(1), 8).astype(">i2").tobytes()
        with contextlib.suppress(OSError):
            for number in range(len(data) // 800):
                stamp = number * 400
                packet = struct.pack(">BBHII", 0x80, 97, number, stamp, 1)
                packet += data[number * 800 : (number + 1) * 800]
                self.wfile.write(b"$\0" + len(packet).to_bytes(2, "big") + packet)
                time.sleep(0.01)


@needs_ffmpeg
def test_a_camera_is_heard_over_rtsp_and_again_after_its_stream_broke():
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Rtsp) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"rtsp://127.0.0.1:{server.server_address[1]}/camera"
        with Heard(LiveSound("fan", "camera", ffmpeg(url, RATE), 1.0, 1.0)) as heard:
            wait_until(lambda: heard.problems)
            before = len(heard.recordings)
            wait_until(lambda: len(heard.recordings) > before)
            wait_until(lambda: heard.problems[-1] is None)
        server.shutdown()
    assert "camera: " in heard.problems[0]
    assert before >= 4
    steps = np.diff(heard.samples(1).astype(int))
    assert set(steps.tolist()) <= {1, 1 - RATE}  # every sample, in its order


@needs_ffmpeg
def test_an_address_without_a_stream_is_a_problem_without_its_password():
    url = f"http://127.0.0.1:{unused_port()}/T0KEN"
    with Heard(LiveSound("fan", "stream", ffmpeg(url, RATE), 1.0, 1.0)) as heard:
        wait_until(lambda: heard.problems)
    assert "refused" in heard.problems[0]
    assert "T0KEN" not in heard.problems[0]


def test_a_stream_that_falls_silent_is_opened_again():
    opened = []

    def stalls(buffer, stop):
        opened.append(1)
        buffer.begin(RATE, 1)
        buffer.put(tone(1).tobytes())
        stop.wait()
        raise SourceError("stopped")

    sound = LiveSound("fan", "stream", stalls, 1.0, 1.0)
    with Heard(sound, stall=0.1) as heard:
        wait_until(lambda: len(opened) >= 2)
    assert heard.problems[0] == "stream: no sound for 0.1 s."
