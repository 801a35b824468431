"""BEATs and EAT on a CPU in bf16 instead of fp32: speed, vectors and scores.

``python benchmarks/cpu_precision.py FOLDER`` with a folder of recordings. Weights are random, as in
`benchmarks/backbones.py`. The two precisions embed the same clips in turns; the speed-up is the
median over the turns. Scores are distances to the nearest of the other clips.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from backbones import MODULES, weights
from scipy.stats import spearmanr

from daco.audio.decode import read_audio
from daco.backbones.network import cpu_multiplies_bf16
from daco.method.bank import NormalBank

CLIPS, BATCH, TURNS = 20, 4, 5


def seconds(net, batch: np.ndarray) -> float:
    started = time.perf_counter()
    net.embed(batch)
    return time.perf_counter() - started


def main() -> None:
    paths = sorted(Path(sys.argv[1]).rglob("*.*"))[:CLIPS]
    waves = np.stack([read_audio(path, sample_rate=16000)[:160_000] for path in paths])
    batches = waves.reshape(-1, BATCH, waves.shape[1])
    print(f"instructions for bfloat16: {cpu_multiplies_bf16()}; {len(waves)} clips of 10 s")
    for name in ("beats", "eat"):
        nets = [MODULES[name].build(weights(name), "cpu", each) for each in ("fp32", "bf16")]
        for net in nets:
            net.embed(batches[0])
        times = np.array([[seconds(net, batches[turn]) for net in nets] for turn in range(TURNS)])
        exact, fast = (np.concatenate([net.embed(batch) for batch in batches]) for net in nets)
        lengths = np.linalg.norm(exact, axis=1) * np.linalg.norm(fast, axis=1)
        off = float(np.max(1 - np.sum(exact * fast, axis=1) / lengths))
        scores = [NormalBank(rows).leave_one_out("raw-k1")[:, 0] for rows in (exact, fast)]
        print(
            f"{name}: {1e3 * np.median(times[:, 0]) / BATCH:.0f} ms per clip in fp32, "
            f"{1e3 * np.median(times[:, 1]) / BATCH:.0f} in bf16, "
            f"{np.median(times[:, 0] / times[:, 1]):.2f} x as fast; 1-cos {off:.1e}; scores differ "
            f"by {np.max(np.abs(scores[1] / scores[0] - 1)):.1%} at most, "
            f"rank correlation {spearmanr(scores[0], scores[1]).statistic:.4f}"
        )


if __name__ == "__main__":
    main()
