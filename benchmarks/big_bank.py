"""One bank of very many clips: seconds and memory of fitting and scoring, exact and approximate.

::

    python benchmarks/big_bank.py                          # 10,000 and 30,000 clips, extrapolated
    python benchmarks/big_bank.py --sizes 10000 30000 100000
    python benchmarks/big_bank.py --million                # 1,000,000: building, scoring, recall
    python benchmarks/big_bank.py --device cuda            # 1,000,000: leave-one-out on a GPU
    python benchmarks/big_bank.py --real embeddings.npz    # recall on real vectors

Vectors are synthetic: 12 modes and a little noise in 768 dimensions. The local intrinsic dimension
of 1,000 of them is 13; that of a real fan's and a real bearing's mn04 embeddings is 11 and 9. One
clip in a hundred is of the target domain. Every line is a process of its own, one BLAS thread
unless the environment says otherwise.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np

import daco

DIM = 768
KINDS = ("none", "flat", "ivf", "hnsw")
CONFIGS = ("conf-soft-m0-k1", "ldn-ratio-K1")
MILLION = 1_000_000


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


def peak_mib() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def seconds(function, *arguments, clock=time.process_time) -> tuple[float, object]:
    """Of CPU time: the clock of a shared computer is not repeatable."""
    start = clock()
    value = function(*arguments)
    return clock() - start, value


def one(n: int, kind: str, fit: bool) -> dict[str, object]:
    """What one bank costs; ``fit`` compares its clips with each other."""
    warm = daco.NormalBank(clips(300, 3), domains(300))  # compiled code is not what is measured
    warm.score(clips(8, 4), CONFIGS)
    tests, labels = trial_clips()
    X = clips(n, 0)
    before = peak_mib()
    options = {} if kind == "none" else {"index": kind}
    row: dict[str, object] = {"n": n, "kind": kind}
    row["build"], bank = seconds(partial(daco.NormalBank, X, domains(n), **options))
    del X
    grid = list(CONFIGS) if fit else ["raw-k1", "raw-k16"]
    if fit:
        row["fit_conf"], _ = seconds(bank.leave_one_out, CONFIGS[0])
        row["fit_ldn"], _ = seconds(bank.leave_one_out, CONFIGS[1])
    bank.score(tests[:2], grid)
    row["one"] = min(seconds(bank.score, tests[i : i + 1], grid[:1])[0] for i in range(3))
    row["many"], scores = seconds(bank.score, tests, grid[:1])
    row["scores"] = scores[:, 0].tolist()
    row["ldn"] = bank.score(tests, grid[1:])[:, 0].tolist()
    row["extra"] = peak_mib() - before
    if kind in ("ivf", "hnsw"):
        found = bank.recall(grid if fit else ["raw-k1", "raw-k16"], tests[:200])
        row["recall"] = {str(k): share for k, share in found.found.items()}
        row["excess"] = {str(k): share for k, share in found.excess.items()}
    row["labels"] = labels.tolist()
    return row


def child(*arguments: str) -> dict:
    command = [sys.executable, __file__, *arguments]
    return json.loads(subprocess.check_output(command).splitlines()[-1])


def auc(row: dict, field: str) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(row["labels"], row[field]))


def show(rows: Iterable[dict]) -> list[dict]:
    """Each as soon as it is there."""
    print("CPU seconds; LOO ldn comes after LOO conf and has its neighbour lists.\n")
    print("| N | index | build | LOO conf | LOO ldn | 1 clip, ms | 1,000 clips | MiB | recall@1 |")
    print("|---|---|---|---|---|---|---|---|---|")
    shown = []
    for row in rows:
        shown.append(row)
        fits = [f"{row[f]:.1f}" if f in row else "" for f in ("fit_conf", "fit_ldn")]
        share = row.get("recall", {}).get("1")
        print(
            f"| {row['n']:,} | {row['kind']} | {row['build']:.1f} | {fits[0]} | {fits[1]} | "
            f"{1e3 * row['one']:.0f} | {row['many']:.2f} | {row['extra']:.0f} | "
            f"{'' if share is None else f'{share:.3f}'} |",
            flush=True,
        )
    return shown


def effects(rows: list[dict]) -> None:
    """What an approximate index does to scores of 1,000 clips, everything through it."""
    print("\n| N | index | score | median change | 99% | largest | AUC exact | AUC |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        if row["kind"] in ("ivf", "hnsw"):
            exact = next(r for r in rows if r["n"] == row["n"] and r["kind"] == "flat")
            for field, name in zip(("scores", "ldn"), CONFIGS, strict=True):
                change = np.abs(np.array(row[field]) - np.array(exact[field]))
                middle, most = np.quantile(change, [0.5, 0.99])
                print(
                    f"| {row['n']:,} | {row['kind']} | {name} | {middle:.1e} | {most:.1e} | "
                    f"{change.max():.1e} | {auc(exact, field):.4f} | {auc(row, field):.4f} |"
                )


LAWS = {
    "none": ("N^2", lambda n: n**2),
    "flat": ("N^2", lambda n: n**2),
    "ivf": ("N^1.5", lambda n: n**1.5),  # as many probes into cells of the square root of N
    "hnsw": ("N log N", lambda n: n * np.log(n)),
}


def extrapolate(rows: list[dict]) -> None:
    """From the largest size; the exponent between the two largest says how well the law holds."""
    print("\nExtrapolated to 1,000,000 clips from the largest size measured (not measured):\n")
    print("| index | law | LOO conf, h | LOO ldn, h | exponents between the last two sizes |")
    print("|---|---|---|---|---|")
    for kind, (law, cost) in LAWS.items():
        of_kind = sorted((r for r in rows if r["kind"] == kind), key=lambda r: r["n"])
        if len(of_kind) < 2:
            continue
        small, large = of_kind[-2:]
        fits = ("fit_conf", "fit_ldn")
        step = np.log(large["n"] / small["n"])
        exponents = [np.log(large[each] / small[each]) / step for each in fits]
        hours = [large[each] * cost(MILLION) / cost(large["n"]) / 3600 for each in fits]
        print(
            f"| {kind} | {law} | {hours[0]:.1f} | {hours[1]:.1f} | "
            f"{exponents[0]:.2f}, {exponents[1]:.2f} |"
        )


def million(kinds: list[str]) -> None:
    print("1,000,000 clips of 768-d float32 (3.1 GB): building and scoring, raw-k1.\n")
    show(child("--one", str(MILLION), kind) for kind in kinds)


def on_device(device: str, n: int) -> None:
    """Leave-one-out of a whole bank on a GPU, held against the CPU on some rows."""
    import torch

    from daco.method.distances import cosine_distances

    X = clips(n, 0)
    tests, _ = trial_clips()
    bank = daco.NormalBank(X, domains(n), index="flat", device=device)
    del X
    warm = daco.NormalBank(clips(9_000, 3), domains(9_000), index="flat", device=device)
    warm.leave_one_out(CONFIGS)
    del warm
    cuda = torch.device(device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    timed, times = partial(seconds, clock=time.perf_counter), {}
    for name in CONFIGS:
        times[f"leave-one-out of {name}"], _ = timed(bank.leave_one_out, name)
        print(f"{name} done", file=sys.stderr, flush=True)
    times["score of 1,000 clips, both"], scores = timed(bank.score, tests, CONFIGS)
    times["score of one clip, conf"], _ = timed(bank.score, tests[:1], CONFIGS[0])
    print(f"{n:,} x {DIM} float32, index flat on {device}\n")
    print("| | seconds |\n|---|---|")
    for name, value in times.items():
        print(f"| {name} | {value:.2f} |")
    if cuda:
        print(f"\nGPU memory, peak: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    print(f"Host memory, peak: {peak_mib() / 1024:.1f} GiB")
    raw, ldn = bank.leave_one_out(["raw-k1", "ldn-ratio-K1"]).T
    rows = np.random.default_rng(5).choice(n, 64, replace=False)
    unit = bank._unit
    distance = cosine_distances(unit[rows], unit)
    distance[np.arange(len(rows)), rows] = np.inf
    density = np.maximum(raw.astype(np.float32), 2e-12)
    off = np.abs(distance.min(axis=1) - raw[rows]).max()
    off_ldn = np.abs((distance / density).min(axis=1) - ldn[rows]).max()
    print(
        f"64 clips compared by the CPU: raw-k1 differs by at most {off:.1e}, LDN by {off_ldn:.1e}"
    )
    query = cosine_distances(unit, bank._query(tests[:16]))
    off = np.abs(query.min(axis=0) - bank.score(tests[:16], "raw-k1")[:, 0]).max()
    off_ldn = np.abs((query / density[:, None]).min(axis=0) - scores[:16, 1]).max()
    print(f"16 new clips, by the CPU: raw-k1 differs by at most {off:.1e}, LDN {off_ldn:.1e}")


def real(path: Path) -> None:
    """Recall on the normals of a real machine, indexes made to work although the bank is small."""
    from daco.method.bigbank import HNSW, IVF

    data = np.load(path)
    names, vectors = data["file_name"], data["embedding"]
    train = np.array(["_train_" in name for name in names])
    domain = np.where(["_target_" in name for name in names], "target", "source")
    tests = vectors[~train]
    for index in (IVF(probes=4, exact_below=0), HNSW(effort=32, exact_below=0)):
        bank = daco.NormalBank(vectors[train], domain[train], index=index)
        print(index)
        print(bank.recall(["raw-k1", "raw-k4", *CONFIGS], tests), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 30_000])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--device", help="such as cuda: leave-one-out of --clips there")
    parser.add_argument("--clips", type=int, default=MILLION)
    parser.add_argument("--real", type=Path)
    parser.add_argument("--one", nargs="*", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(int(given.one[0]), given.one[1], "fit" in given.one)))
    elif given.device:
        on_device(given.device, given.clips)
    elif given.real:
        real(given.real)
    elif given.million:
        million(given.kinds)
    else:
        rows = show(
            child("--one", str(n), kind, "fit") for n in given.sizes for kind in given.kinds
        )
        effects(rows)
        extrapolate(rows)


if __name__ == "__main__":
    main()
