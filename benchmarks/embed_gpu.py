"""From WAV files to the table on a GPU: how much slower than from main memory.

``PYTHONPATH=src python benchmarks/embed_gpu.py --network beats --precision bf16``. The files are
in the page cache; weights are random, which costs the same. ``--loading`` puts a network that
does nothing in place of the real one, for what reading and writing cost alone; no GPU is needed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parent))

from backbones import MODULES, clips, weights

from daco.backbones.protocol import Backbone
from daco.data.clips import Clip, ClipTable
from daco.embedding.embed import embed_clips


class NoNetwork(Backbone):
    """Zeros for every clip, at once."""

    name, sample_rate, device, precision = "none", 16_000, "cpu", "fp32"
    readouts, default_readout, weights_sha256 = ("zeros",), "zeros", "0" * 64

    def embed_many(self, waveforms: np.ndarray, readouts: Sequence[str]) -> dict[str, np.ndarray]:
        """As the protocol has it."""
        return {name: np.zeros((len(waveforms), 768), np.float32) for name in readouts}


def make_clips(folder: Path, waves: np.ndarray, count: int) -> ClipTable:
    names = [f"{index:05d}.wav" for index in range(count)]
    for index, name in enumerate(names):
        pcm = np.round(waves[index % len(waves)] * 32767).astype(np.int16)
        soundfile.write(folder / name, pcm, 16_000, subtype="PCM_16")
    return ClipTable(folder, tuple(Clip(name, "fan") for name in names))


def from_memory(net: Backbone, waves: np.ndarray, rounds: int) -> float:
    """Seconds per clip."""
    for _ in range(3):
        net.embed(waves)
    start = time.perf_counter()
    for _ in range(rounds):
        net.embed(waves)
    return (time.perf_counter() - start) / (rounds * len(waves))


def from_files(table: ClipTable, net: Backbone, batch_size: int, workers: int) -> tuple[float, ...]:
    """Wall and CPU seconds per clip, of the faster of two runs."""
    taken = []
    for _ in range(2):
        wall, cpu = time.perf_counter(), time.process_time()
        embed_clips(
            table,
            net,
            table.root / "out.parquet",
            batch_size=batch_size,
            workers=workers,
        )
        taken.append((time.perf_counter() - wall, time.process_time() - cpu))
    return tuple(seconds / len(table) for seconds in min(taken))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="beats", choices=sorted(MODULES))
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clips", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, nargs="+", default=[16])
    parser.add_argument("--loading", action="store_true", help="without a network")
    options = parser.parse_args()
    waves = clips(options.batch_size, 10.0)
    with tempfile.TemporaryDirectory() as name:
        table = make_clips(Path(name), waves, options.clips)
        if options.loading:
            for workers in options.workers:
                wall, cpu = from_files(table, NoNetwork(), options.batch_size, workers)
                print(
                    f"loading, {workers} workers: {1e3 * wall:.3f} ms/clip, "
                    f"{1e3 * cpu:.3f} ms CPU/clip"
                )
            return
        module = MODULES[options.network]
        state = module.clean(weights(options.network))
        net = module.build(state, options.device, options.precision)
        net.weights_sha256 = "0" * 64
        rounds = max(1, options.clips // options.batch_size)
        memory = from_memory(net, waves, rounds)
        for workers in options.workers:
            files, _ = from_files(table, net, options.batch_size, workers)
            print(
                f"{options.network} {options.precision}, {workers} workers: memory "
                f"{1e3 * memory:.3f} ms/clip, WAV files {1e3 * files:.3f} ms/clip, "
                f"{files / memory:.2f} x"
            )


if __name__ == "__main__":
    main()
