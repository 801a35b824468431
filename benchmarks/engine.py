"""Cost of the method on one machine of the paper's size, and its growth with the bank.

``make bench`` prints the tables of RESULTS.md: CPU time, one BLAS thread, best of 5 with the
variants taking turns, so that a noisy clock hits all of them alike.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from synthetic_machines import SyntheticMachine, synthetic_machine

import daco
from daco.evaluation.metrics import grid_metrics
from daco.method.distances import unit_rows
from daco.method.kernels import use_kernels

GRID = daco.paper_grid()
DIM = 768


def engine(machine: SyntheticMachine, n_splits: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Everything the paper does with one machine."""
    bank = daco.NormalBank(machine.X, machine.domains)
    scores = bank.score(machine.X_test, GRID)
    metrics = grid_metrics(scores, machine.labels, machine.test_domains).values
    return metrics, bank.balance(GRID, n_splits)


def textbook_path(machine: SyntheticMachine) -> tuple[np.ndarray, np.ndarray]:
    """The same, one configuration at a time."""
    import textbook
    from sklearn.metrics import roc_auc_score

    codes = (machine.domains == "target").astype(int)
    metrics, criterion = [], []
    for config in GRID:
        unit, query = textbook.unit(machine.X), textbook.unit(machine.X_test)
        d_bank = textbook.distances(unit, unit)
        scores = textbook.score(config, d_bank, textbook.distances(query, unit), codes)
        row = []
        for domain in ("source", "target"):
            used = (machine.labels == 1) | (machine.test_domains == domain)
            row.append(roc_auc_score(machine.labels[used], scores[used]))
        metrics.append([*row, roc_auc_score(machine.labels, scores, max_fpr=0.1)])
        criterion.append(textbook.split_ks(config, d_bank, codes, 10, 0).mean())
    return np.array(metrics), np.array(criterion)


def products(unit: np.ndarray, query: np.ndarray) -> None:
    """The two similarity products alone (a matrix with its own transpose takes half)."""
    unit @ unit.T
    query @ unit.T


def cpu(function, *arguments) -> float:
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def one_machine(repeats: int) -> None:
    machine = synthetic_machine("machine", 0, dim=DIM)
    unit, query = unit_rows(machine.X), unit_rows(machine.X_test)

    def forced(kernels: str, n_splits: int = 10) -> None:
        with use_kernels(kernels):
            engine(machine, n_splits)

    variants = {
        "engine, numba": lambda: forced("numba"),
        "engine, NumPy alone": lambda: forced("numpy"),
        "the two products alone": lambda: products(unit, query),
        "engine, numba, 30 splits": lambda: forced("numba", 30),
        "engine, NumPy alone, 30 splits": lambda: forced("numpy", 30),
    }
    for run in variants.values():
        run()
    times = {name: float("inf") for name in variants}
    for _ in range(repeats):
        for name, run in variants.items():
            times[name] = min(times[name], cpu(run))
    slow = cpu(textbook_path, machine)
    fast, expected = engine(machine), textbook_path(machine)
    agree = all(np.abs(a - b).max() < 1e-3 for a, b in zip(fast, expected, strict=True))
    base = times["the two products alone"]
    print("One machine: 990 + 10 train, 200 test, 768-d, 51 configurations, 10 splits, metrics.")
    print(f"Textbook and engine agree within 1e-3: {agree}\n")
    print("| path | CPU ms | x the products | x faster than the textbook |")
    print("|---|---|---|---|")
    for name, seconds in {"textbook": slow, **times}.items():
        if "30" not in name:
            print(f"| {name} | {1e3 * seconds:.1f} | {seconds / base:.1f} | {slow / seconds:.0f} |")
    for name in ("numba", "NumPy alone"):
        extra = (times[f"engine, {name}, 30 splits"] - times[f"engine, {name}"]) / 20
        print(f"| an extra split, {name} | {1e3 * extra:.2f} | {extra / base:.2f} | |")


def fresh_process() -> None:
    """Import and first call of a new process, compiled code already on disk."""
    code = (
        f"import sys, time; sys.path.insert(0, {str(ROOT / 'tests' / 'helpers')!r})\n"
        "start = time.perf_counter()\n"
        "import daco; from synthetic_machines import synthetic_machine\n"
        "imported = time.perf_counter()\n"
        "machine = synthetic_machine('m', 0, dim=768); made = time.perf_counter()\n"
        "bank = daco.NormalBank(machine.X, machine.domains)\n"
        "bank.score(machine.X_test, daco.paper_grid()); bank.balance(daco.paper_grid(), 10)\n"
        "print(imported - start, time.perf_counter() - made)"
    )
    runs = [
        list(map(float, subprocess.check_output([sys.executable, "-c", code]).split()))
        for _ in range(3)
    ]
    imported, first = np.min(runs, axis=0)
    print(
        f"\nFresh process: import daco {imported:.2f} s, first scoring and criterion {first:.2f} s."
    )


def _warm(_: int) -> None:
    engine(synthetic_machine("warm", 1, 60, 10, 40, 8))
    time.sleep(0.5)  # so that every worker takes one


def fleet(n_machines: int = 15) -> None:
    machines = [synthetic_machine(f"machine {i}", i, dim=DIM) for i in range(n_machines)]
    workers = os.cpu_count() or 1
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_warm, range(workers)))
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            list(pool.map(engine, machines))
            best = min(best, time.perf_counter() - start)
    print(
        f"\n{n_machines} machines x {len(GRID)} configurations, {workers} processes after warm-up, "
        f"transfer included: {best:.2f} s."
    )


def growth(sizes: list[int]) -> None:
    """Each size in its own process: the peak of memory never falls."""
    print("\nGrowth with the bank (1 % target clips, 200 test clips, one core):\n")
    print("| N | score, CPU s | criterion, CPU s | extra memory, MiB |")
    print("|---|---|---|---|")
    for size in sizes:
        command = [sys.executable, __file__, "--one-size", str(size)]
        row = json.loads(subprocess.check_output(command))
        print(f"| {size:,} | {row['score']:.2f} | {row['balance']:.2f} | {row['extra']:.0f} |")


def peak_mib() -> float:
    """Peak resident memory; getrusage would report the parent's peak in a child process."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def one_size(n: int) -> None:
    n_target = max(10, n // 100)
    rng = np.random.default_rng(0)
    X = np.empty((n, DIM), np.float32)  # filled in place: no peak before the measured one
    for rows in np.array_split(np.arange(n), -(-n // 1000)):
        rng.standard_normal(out=X[rows[0] : rows[-1] + 1], dtype=np.float32)
    X += 2
    X[-n_target:] += 0.3
    domains = np.array(["source"] * (n - n_target) + ["target"] * n_target)
    X_test = rng.standard_normal((200, DIM), dtype=np.float32) + 2
    engine(synthetic_machine("warm", 1, 60, 10, 40, 8))
    before = peak_mib()
    start = time.process_time()
    bank = daco.NormalBank(X, domains)
    bank.score(X_test, GRID)
    scored = time.process_time()
    bank.balance(GRID, n_splits=10)
    done = time.process_time()
    extra = peak_mib() - before
    result = {"score": scored - start, "balance": done - scored, "extra": extra}
    print(json.dumps(result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="*", default=[1000, 4000, 16000, 64000])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--one-size", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one_size:
        one_size(arguments.one_size)
        return
    one_machine(arguments.repeats)
    fresh_process()
    fleet()
    growth(arguments.sizes)


if __name__ == "__main__":
    main()
