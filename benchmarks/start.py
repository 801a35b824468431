"""How long ``daco start`` takes: three machines of 30 recordings of 10 s, to models and to a page.

``python benchmarks/start.py`` takes a real fan and a real bearing where ``DACO_SHARED`` has them,
and a synthetic press. Goal: under 30 s on two cores.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import soundfile

RATE, SECONDS, RECORDINGS = 16_000, 10, 30


def synthetic(folder: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    t = np.arange(RATE * SECONDS) / RATE
    for number in range(RECORDINGS):
        hum = 0.1 * np.sin(2 * np.pi * 50 * t + rng.uniform(0, 6))
        beat = 1 + 0.3 * np.sin(2 * np.pi * 2 * t + rng.uniform(0, 6))
        wave = rng.uniform(0.8, 1.2) * (hum * beat + 0.05 * rng.normal(size=t.size))
        soundfile.write(folder / f"{number:03}.wav", wave.astype(np.float32), RATE)


def real(folder: Path, machine: str) -> bool:
    shared = Path(os.environ.get("DACO_SHARED", "../shared")) / "real" / "audio" / machine / "train"
    found = sorted(shared.glob("*.flac"))
    if len(found) < RECORDINGS:
        return False
    for number, path in enumerate(random.Random(0).sample(found, RECORDINGS)):
        shutil.copy(path, folder / f"{number:03}.flac")
    return True


def started(recordings: Path, out: Path) -> tuple[float, float]:
    """Seconds until the screen is printed, and until the page answers."""
    command = [sys.executable, "-m", "daco.cli", "start", str(recordings), "--out", str(out)]
    environment = os.environ | {"DACO_SERVICE__ADDRESS": "127.0.0.1:0"}
    begin = time.perf_counter()
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if address := re.match(r"http://\S+", line):
                screen = time.perf_counter() - begin
                break
        while "startup complete" not in process.stderr.readline():
            pass
        urllib.request.urlopen(f"{address[0]}healthz").close()
        page = time.perf_counter() - begin
        process.terminate()
        process.stderr.read()
    return screen, page


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        recordings = Path(name) / "recordings"
        for seed, machine in enumerate(("bearing", "fan", "press")):
            folder = recordings / machine
            folder.mkdir(parents=True)
            if not real(folder, machine):
                synthetic(folder, seed)
                print(f"{machine}: synthetic")
        for run in range(3):
            screen, page = started(recordings, Path(name) / f"plant{run}")
            print(f"run {run + 1}: screen after {screen:.1f} s, page after {page:.1f} s")
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
