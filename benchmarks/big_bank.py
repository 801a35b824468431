"""One bank of very many clips: exact in blocks of bounded memory, and thinned by a coreset.

::

    python benchmarks/big_bank.py                            # 10,000 and 30,000 clips
    python benchmarks/big_bank.py --coreset --sizes 5000     # what thinning does to scores

Vectors are synthetic: 12 modes and a little noise in 768 dimensions. The local intrinsic dimension
of 1,000 of them is 13; that of a real fan's and a real bearing's mn04 embeddings is 11 and 9. One
clip in a hundred is of the target domain. CPU time of one BLAS thread unless the environment says
otherwise.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import time
from pathlib import Path

import numpy as np

import daco
from daco.method.coreset import choose_normals

DIM = 768
CONFIGS = ("conf-soft-m0-k1", "blend")


def clips(n: int, seed: int, dim: int = DIM) -> np.ndarray:
    """Normal clips: the last hundredth is of the target domain."""
    modes = np.random.default_rng(0).standard_normal((12, dim), dtype=np.float32) * 0.1
    rng = np.random.default_rng([seed, n])
    X = np.empty((n, dim), np.float32)
    for start in range(0, n, 4096):  # in place: no peak of memory before the measured one
        part = X[start : start + 4096]
        rng.standard_normal(out=part, dtype=np.float32)
        part *= 0.1
        part += rng.standard_normal((len(part), 12), dtype=np.float32) @ modes
        part += 1
    X[n - n // 100 :] += 3 * modes[0] + 0.5 * modes[1]
    return X


def domains(n: int) -> np.ndarray:
    return np.repeat(["source", "target"], [n - n // 100, n // 100])


def trial_clips(n: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Half of them with a fault: a displacement of random direction and severity."""
    X = clips(n, 1)
    rng = np.random.default_rng(2)
    labels = (np.arange(n) % 2).astype(int)
    fault = rng.standard_normal((n, DIM), dtype=np.float32) * rng.uniform(0.05, 0.2, (n, 1))
    return X + (labels[:, None] * fault).astype(np.float32), labels


def peak_gib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**20


def measure(n: int) -> None:
    """CPU seconds of one bank, and the peak of memory above its vectors."""
    daco.NormalBank(clips(600, 3), domains(600)).score(clips(8, 4), CONFIGS)  # imports
    X, labels, (tests, _) = clips(n, 0), domains(n), trial_clips()
    times: dict[str, float] = {}
    before = peak_gib()

    def timed(name, function, *arguments):
        start = time.process_time()
        value = function(*arguments)
        times[name] = time.process_time() - start
        return value

    bank = timed("building", daco.NormalBank, X, labels)
    for name in CONFIGS:
        timed(f"leave-one-out scores of {name}", bank.leave_one_out, name)
    for name in CONFIGS:
        timed(f"scores of 1,000 clips, {name}", bank.score, tests, name)
        timed(f"one clip, {name}", bank.score, tests[:1], name)
    print(f"\n{n:,} x {DIM} float32\n\n| | CPU seconds |\n|---|---|")
    for name, value in times.items():
        print(f"| {name} | {value:.2f} |")
    print(f"\nPeak of memory above the vectors: {1024 * (peak_gib() - before):.0f} MiB", flush=True)


def coreset(n: int, sizes: list[int]) -> None:
    """What scores of 1,000 clips, their AUC and false alarms become when a bank is thinned."""
    X, labels, (tests, truth) = clips(n, 0), domains(n), trial_clips()
    rng = np.random.default_rng(7)
    print("| normals | target | chosen by | seconds | score | AUC | flagged normals, rate 0.1 |")
    print("|---|---|---|---|---|---|---|")
    show_thinned("all", 0.0, X, labels, tests, truth)
    for size in sizes:
        start = time.perf_counter()
        rows = choose_normals(X, labels, size)
        show_thinned("k-centres", time.perf_counter() - start, X[rows], labels[rows], tests, truth)
        counts = {name: int((labels[rows] == name).sum()) for name in np.unique(labels)}
        drawn = [
            rng.choice(np.flatnonzero(labels == name), count, replace=False)
            for name, count in counts.items()
        ]
        rows = np.sort(np.concatenate(drawn))
        show_thinned("at random", 0.0, X[rows], labels[rows], tests, truth)


def show_thinned(
    how: str,
    took: float,
    X: np.ndarray,
    labels: np.ndarray,
    tests: np.ndarray,
    truth: np.ndarray,
) -> None:
    from sklearn.metrics import roc_auc_score

    target = int((labels == "target").sum())
    for config in CONFIGS:
        detector = daco.DACo(config).fit(X, domains=labels)
        auc = roc_auc_score(truth, detector.anomaly_score(tests))
        flagged = (detector.predict(tests[truth == 0]) == -1).mean()
        row = f"{len(X):,} | {target} | {how} | {took:.1f} | {config} | {auc:.4f} | {flagged:.3f}"
        print(f"| {row} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 30_000])
    parser.add_argument("--coreset", action="store_true")
    given = parser.parse_args()
    for n in given.sizes:
        if given.coreset:
            coreset(n, [2000, 1000, 500, 200])
        else:
            measure(n)


if __name__ == "__main__":
    main()
