"""From WAV files to the table on a GPU: how much slower than from main memory.

``PYTHONPATH=src python benchmarks/embed_gpu.py --network beats --precision bf16``. The files are
in the page cache; weights are random, which costs the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).resolve().parent))

from backbones import MODULES, clips, weights

from daco.clips import Clip, ClipTable
from daco.embed import embed_clips


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="beats", choices=sorted(MODULES))
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clips", type=int, default=2048)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=16)
    options = parser.parse_args()
    module = MODULES[options.network]
    net = module.build(module.clean(weights(options.network)), options.device, options.precision)
    net.weights_sha256 = "0" * 64
    waves = clips(options.batch_size, 10.0)
    for _ in range(3):
        net.embed(waves)
    rounds = max(1, options.clips // options.batch_size)
    start = time.perf_counter()
    for _ in range(rounds):
        net.embed(waves)
    memory = (time.perf_counter() - start) / (rounds * options.batch_size)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for index in range(options.clips):
            wave = waves[index % len(waves)]
            pcm = np.round(wave * 32767).astype(np.int16)
            soundfile.write(folder / f"{index:05d}.wav", pcm, 16_000, subtype="PCM_16")
        table = ClipTable(
            folder, tuple(Clip(f"{index:05d}.wav", "fan") for index in range(options.clips))
        )
        files = float("inf")
        for _ in range(2):
            start = time.perf_counter()
            embed_clips(
                table,
                net,
                folder / "out.parquet",
                batch_size=options.batch_size,
                workers=options.workers,
                shard_size=1024,
            )
            files = min(files, (time.perf_counter() - start) / options.clips)
    print(
        f"{options.network} {options.precision}: memory {1e3 * memory:.3f} ms/clip, "
        f"WAV files {1e3 * files:.3f} ms/clip, {files / memory:.2f} x"
    )


if __name__ == "__main__":
    main()
