"""Live sound through the whole monitor: a stream or a pipe, the judge, the page, messages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import httpx
import numpy as np
import pytest
import soundfile
from broken_server import unused_port
from receivers import broker, mail_server, subscribed
from service_process import RATE, ServiceProcess, faulty, humming, model, wait_until

needs_ffmpeg = pytest.mark.skipif(not shutil.which("ffmpeg"), reason="ffmpeg is not installed")


def sound(odd):
    """Three seconds of the healthy machine, then of a fault."""
    healthy = np.concatenate([humming(seed) for seed in range(3)])
    squeal = np.frombuffer(b"".join(faulty(seed)[44:] for seed in range(odd)), "<i2") / 32768
    return np.concatenate([healthy, squeal])


@needs_ffmpeg
def test_a_stream_raises_an_alarm_on_the_page_by_mail_and_at_the_broker(tmp_path):
    soundfile.write(tmp_path / "machine.flac", sound(odd=15), RATE)
    url = f"http://127.0.0.1:{unused_port()}/machine.wav"
    play = ["ffmpeg", "-loglevel", "error", "-readrate", "3", "-i", tmp_path / "machine.flac"]
    play += ["-f", "wav", "-listen", "1", url]
    with broker(tmp_path) as mosquitto, subscribed(mosquitto.port) as seen, mail_server() as inbox:
        notify = {"urls": [inbox.url], "mqtt": mosquitto.url}
        machines = {"press": {"stream": url, "title": "Press, hall 3"}}
        player = subprocess.Popen(play)
        try:
            with ServiceProcess(tmp_path, machines, notify=notify) as service:
                address = f"http://127.0.0.1:{service.port}"
                wait_until(lambda: inbox.mails)
                wait_until(lambda: seen.documents("daco/press/alarm"))
                (machine,) = httpx.get(f"{address}/v1/machines").json()["machines"]
                assert machine["open_alarms"] >= 1
                clips = httpx.get(f"{address}/v1/machines/press/history").json()["clips"]
        finally:
            player.kill()
            player.wait()
    assert "Press, hall 3" in inbox.mails[0]["Subject"]
    assert json.loads(seen.last("daco/press/state"))["title"] == "Press, hall 3"
    assert {clip["seconds"] for clip in clips} == {1.0}
    times = sorted(clip["recorded_at"] for clip in clips)
    assert len(set(times)) == len(times) >= 5


def test_sound_on_standard_input_is_judged_to_its_end(tmp_path):
    model().save(tmp_path / "press.daco")
    pcm = (np.clip(sound(odd=5), -1, 1) * 32767).astype("<i2").tobytes()
    command = [sys.executable, "-m", "daco.cli", "watch", tmp_path / "press.daco", f"pcm:{RATE}"]
    result = subprocess.run(
        [*command, "--exit-code"], input=pcm, capture_output=True, timeout=100, check=False
    )
    assert result.returncode == 3, result.stderr.decode()
    lines = result.stdout.decode().splitlines()
    assert sum(".wav" in line for line in lines) == 8
    assert any("ALARM" in line for line in lines)
