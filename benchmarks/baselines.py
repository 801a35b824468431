"""How long the challenge's autoencoder trains: seconds per epoch at the size of a real machine.

    PYTHONPATH=src python benchmarks/baselines.py [--device cuda] [--epochs 5] [--clips 1000]

1,000 clips of 10 s are 313 frames each and 309,000 context vectors, of which 278,100 are learned in
batches of 256. The frames are noise, which costs the same; nothing is read and no audio library is
needed. The first epoch warms up and is left out. What comes after the last epoch (covariances on
the CPU, the validation loss) is told apart.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from daco.experiments.autoencoders import EPOCHS
from daco.experiments.autoencoders.autoencoder import BATCH, VALIDATION, train
from daco.experiments.autoencoders.features import CONTEXT, MELS

FRAMES = 313


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--clips", type=int, default=1000)
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    level = rng.normal(-40, 10, MELS)
    clips = [rng.normal(level, 5, (FRAMES, MELS)).astype(np.float32) for _ in range(given.clips)]
    domains = ["target" if clip < given.clips / 100 else "source" for clip in range(given.clips)]
    ticks: list[float] = []

    def tick(_done: int, _total: int) -> None:
        ticks.append(time.perf_counter())

    model = train(clips, domains, epochs=given.epochs + 1, device=given.device, progress=tick)
    end = time.perf_counter()
    again = train(clips, domains, epochs=2, device=given.device)
    epoch = float(np.median(np.diff(ticks)))
    vectors = given.clips * (FRAMES - CONTEXT + 1)
    steps = -(-(vectors - vectors // VALIDATION) // BATCH)
    name = torch.cuda.get_device_name() if given.device.startswith("cuda") else "CPU"
    print(f"torch {torch.__version__}, {name}, {torch.get_num_threads()} threads")
    print(f"{given.clips} clips, {vectors:,} vectors, {steps:,} steps an epoch")
    print(f"{'an epoch':>28} {epoch:8.2f} s")
    print(f"{'a step':>28} {1000 * epoch / steps:8.2f} ms")
    print(f"{'after the last epoch':>28} {end - ticks[-1]:8.2f} s")
    print(f"{f'a machine of {EPOCHS} epochs':>28} {EPOCHS * epoch + end - ticks[-1]:8.0f} s")
    print(f"{'the same losses again':>28} {again.losses == model.losses[:2]!s:>8}")


if __name__ == "__main__":
    main()
