"""Cost of watching: recordings judged and stored per second, and a look at a folder of 100,000.

``python benchmarks/watch.py`` fits the default model to 60 synthetic clips of 10 s (320 kB) and
watches folders with new ones: SQLite as shipped, two worker processes.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import soundfile
from typer.testing import CliRunner

from daco.commands.app import app
from daco.data.sources import scan_folder
from daco.monitoring.config import PlantConfig
from daco.monitoring.engine import Plant
from daco.monitoring.sources.folder import Arrivals, stamp_of

RATE, SECONDS = 16_000, 10


def record(path: Path, rng: np.random.Generator) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, 0.1 * rng.normal(size=RATE * SECONDS), RATE)


def throughput(root: Path, clips: int, machines: int) -> None:
    rng = np.random.default_rng(1)
    for index in range(60):
        record(root / "healthy" / f"{index:05d}.wav", rng)
    arguments = ["fit", str(root / "healthy"), "--out", str(root / "press.daco")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    tables = []
    for number in range(machines):
        for index in range(clips // machines):
            record(root / f"inbox{number}" / f"{index:05d}.wav", rng)
        tables.append(f'[machine.m{number}]\nmodel = "press.daco"\nfolder = "inbox{number}"\n')
    (root / "daco.toml").write_text("".join(tables))
    plant = Plant(PlantConfig.load(root))
    done = threading.Semaphore(0)
    plant.on_outcome.append(lambda recording, outcome: done.release())
    plant.start()
    try:
        for _ in range(clips // 10):  # workers start, models are loaded
            done.acquire()
        start = time.perf_counter()
        rest = clips // machines * machines - clips // 10
        for _ in range(rest):
            done.acquire()
        took = time.perf_counter() - start
    finally:
        plant.stop()
    print(f"watch, {machines} machines, default model, 10 s clips | {rest / took:.0f} clips/s")


def looking(root: Path, files: int) -> None:
    folder = root / "many"
    for index in range(files):
        place = folder / f"{index // 1000:03d}"
        if index % 1000 == 0:
            place.mkdir(parents=True)
        (place / f"{index}.wav").touch()
    arrivals = Arrivals(settle=0)
    for path, status in scan_folder(folder).files.items():
        arrivals.record(path, stamp_of(status))
    best = min(_timed(lambda: arrivals.ready(scan_folder(folder).files, 1.0)) for _ in range(5))
    print(f"a look at {files:,} known files | {best:.2f} s")


def _timed(function) -> float:
    start = time.process_time()
    assert function() == []
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=600)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--files", type=int, default=100_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        throughput(Path(folder), chosen.clips, chosen.machines)
        looking(Path(folder), chosen.files)


if __name__ == "__main__":
    main()
