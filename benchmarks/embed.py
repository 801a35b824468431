"""Cost of embedding 10 s clips with logmel, per core, and of writing the table.

Times real time = seconds of sound per second of CPU time (user and system, all threads), best
of the repeats: what one core does, whatever else the machine is busy with. Wall time is shown
beside it.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import soundfile

from daco.audio.decode import read_audio
from daco.backbones import load
from daco.data.clips import Clip, ClipTable
from daco.data.parquet import vector_array
from daco.data.table import EmbeddingTable
from daco.embedding.embed import embed_clips
from daco.embedding.parts import write_part
from daco.files.hashing import sha256_of_file

SECONDS, RATE = 10, 16_000


def make_clips(folder: Path, count: int, suffix: str) -> ClipTable:
    """Clips of coloured noise, PCM16: FLAC packs white noise worse than any machine."""
    rng = np.random.default_rng(0)
    names = []
    for index in range(count):
        noise = np.cumsum(rng.normal(0, 1, SECONDS * RATE)) * 0.98 ** (index % 5)
        noise -= np.convolve(noise, np.ones(64) / 64, "same")
        soundfile.write(folder / f"{index:04d}{suffix}", 0.3 * noise / np.abs(noise).max(), RATE)
        names.append(f"{index:04d}{suffix}")
    return ClipTable(folder, tuple(Clip(name, "fan") for name in names))


def best(work: Callable[[], object], repeats: int) -> tuple[float, float]:
    """CPU and wall seconds of the repeat that took least CPU time."""
    taken = []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(taken)


def show(what: str, times: tuple[float, float], clips: int) -> None:
    cpu, wall = times
    print(
        f"{what:34s} {1e3 * cpu / clips:8.2f} ms CPU/clip {1e3 * wall / clips:8.2f} ms wall/clip "
        f"{clips * SECONDS / cpu:8.0f} x real time per core"
    )


def bench_sound(count: int, repeats: int) -> None:
    net = load("logmel")
    for suffix in (".wav", ".flac"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "clips"
            folder.mkdir()
            table = make_clips(folder, count, suffix)
            paths, out = table.paths(), Path(name) / "e.parquet"
            waves = np.stack([read_audio(path, sample_rate=RATE) for path in paths[:32]])
            net.embed(waves)
            kind = suffix[1:]
            show(
                f"{kind}: hash", best(lambda p=paths: list(map(sha256_of_file, p)), repeats), count
            )
            show(
                f"{kind}: decode",
                best(lambda p=paths: [read_audio(path, sample_rate=RATE) for path in p], repeats),
                count,
            )
            for readouts in (["mod"], ["mod60"], ["env"], ["cep"], ["mod", "mod60", "env", "cep"]):
                times = best(lambda w=waves, r=readouts: net.embed_many(w, r), repeats)
                show(f"{kind}: logmel {'+'.join(readouts)}", times, len(waves))
            for workers in (1, 2):
                times = best(
                    lambda t=table, o=out, w=workers: embed_clips(t, net, o, workers=w, force=True),
                    repeats,
                )
                show(f"{kind}: embed_clips, {workers} worker(s)", times, count)
            times = best(lambda t=table, o=out: embed_clips(t, net, o), repeats)
            show(f"{kind}: finished table", times, count)


def bench_parquet(repeats: int, rows: int = 20_000, dim: int = 768) -> None:
    matrix = np.random.default_rng(0).normal(size=(rows, dim)).astype(np.float32)
    table = EmbeddingTable.from_arrays(matrix)
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "e.parquet"
        cpu, wall = best(lambda: table.write(path), repeats)
        size = path.stat().st_size
        print(
            f"write {rows} x {dim}: {cpu:.2f} s CPU, {wall:.2f} s wall, {1e3 * wall / rows:.3f} "
            f"ms/clip, {size / 2**20:.0f} MiB ({size / matrix.nbytes:.3f} of the vectors)"
        )
        cpu, wall = best(lambda: EmbeddingTable.read(path), repeats)
        print(f"read, with all checks: {cpu:.2f} s CPU, {wall:.2f} s wall")
        part = pa.table({"quality": ["{}"] * 256, "embedding": vector_array(matrix[:256])})
        cpu, wall = best(lambda: write_part(Path(name) / "part.arrow", part), repeats)
        print(f"one part of 256 x {dim}, with fsync: {1e3 * cpu:.1f} ms CPU, {1e3 * wall:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    bench_sound(options.clips, options.repeats)
    bench_parquet(options.repeats)


if __name__ == "__main__":
    main()
