"""Cost of watching: recordings judged and stored per second, and a look at a folder of 100,000.

``python benchmarks/watch.py`` makes 10 s clips of 320 kB for ``logmel`` and watches them with
SQLite as shipped, one process.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from daco.detector.model import MachineModel
from daco.detector.verdict import ScoreOptions
from daco.embedding.frontend import Frontend, Listener
from daco.monitoring.arrivals import Arrivals, ProcessedFile, list_recordings, stamp_of
from daco.monitoring.store import Store
from daco.monitoring.watch import ModelInUse, NewVerdict, Watcher

RATE, SECONDS = 16_000, 10


def wave(rng: np.random.Generator) -> np.ndarray:
    return (0.1 * rng.normal(size=RATE * SECONDS)).astype(np.float32)


def save_model(path: Path, normals: int) -> None:
    rng = np.random.default_rng(0)
    frontend = Frontend("logmel", "mod", RATE, 0, "fp32", "soxr", None, float(SECONDS))
    listener = Listener(frontend)
    X = np.concatenate([listener.embed_waveform(wave(rng), RATE).embeddings for _ in range(50)])
    X = np.concatenate([X + rng.normal(0, 0.01, X.shape) for _ in range(normals // 50)])
    domains = ["source"] * (normals - 10) + ["target"] * 10
    model = MachineModel.fit(X, domains, machine="press", frontend=frontend)
    model.save(path)


def throughput(root: Path, clips: int) -> None:
    inbox = root / "inbox"
    inbox.mkdir()
    rng = np.random.default_rng(1)
    for index in range(clips):
        soundfile.write(inbox / f"{index:05d}.wav", wave(rng), RATE)
    save_model(root / "press.daco", 1000)
    in_use = ModelInUse(root / "press.daco", ScoreOptions())
    with Store.open(f"sqlite:///{root}/daco.db") as store:
        watcher = Watcher(in_use, inbox, store, settle=0)
        start, cpu = time.perf_counter(), time.process_time()
        done = sum(isinstance(event, NewVerdict) for event in watcher.poll())
        took, cpu = time.perf_counter() - start, time.process_time() - cpu
    assert done == clips
    print(
        f"watch, 10 s clips, 1,000 normals | {clips / took:.0f} clips/s | "
        f"{1000 * cpu / clips:.1f} ms of CPU per clip"
    )


def looking(root: Path, files: int) -> None:
    folder = root / "many"
    for index in range(files):
        place = folder / f"{index // 1000:03d}"
        if index % 1000 == 0:
            place.mkdir(parents=True)
        (place / f"{index}.wav").touch()
    arrivals = Arrivals(settle=0)
    for path, status in list_recordings(folder).files.items():
        arrivals.record(path, ProcessedFile(stamp_of(status), "0" * 64))
    best = min(_timed(lambda: arrivals.ready(list_recordings(folder).files, 1.0)) for _ in range(5))
    print(f"a look at {files:,} known files | {best:.2f} s")


def _timed(function) -> float:
    start = time.process_time()
    assert function() == []
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=500)
    parser.add_argument("--files", type=int, default=100_000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        throughput(Path(folder), chosen.clips)
        looking(Path(folder), chosen.files)


if __name__ == "__main__":
    main()
